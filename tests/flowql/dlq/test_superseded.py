"""Dead letters of a generation that serves no more are done with; those of the one that serves are open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flowql.query.dead_letters import open_letters
from tests.runtime.app.harness import plan_of

SQL = """CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM A AS SELECT K, V FROM S;
CREATE STREAM B AS SELECT K, V FROM S;
"""


def letter(offset: int, *failures: tuple[str, int | None]) -> dict[str, Any]:
    found = [{"QUERY": q, "CODE": "FQ4101", "MESSAGE": "bad", "GENERATION": n} for q, n in failures]
    return {"TOPIC": "s", "PARTITION": 0, "OFFSET": offset, "ROWTIME": 0, "KEY": b"", "VALUE": b"", "FAILURES": found}


def test_letters_of_a_superseded_generation_are_not_open() -> None:
    plan = plan_of(SQL)
    serving = replace(plan, queries=tuple(replace(q, generation=2 if q.sink == "A" else 1) for q in plan.queries))
    rows = [
        letter(1, ("CSAS_A", 1), ("CSAS_B", 1)),
        letter(2, ("CSAS_A", 2)),
        letter(3, ("CSAS_A", 1)),
        letter(4, ("CSAS_GONE", 1)),
        letter(5, ("CSAS_B", None)),  # of before generations were numbered
    ]
    assert [(x.offset, x.queries) for x in open_letters(rows, serving)] == [
        (1, ("CSAS_B",)),
        (2, ("CSAS_A",)),
        (5, ("CSAS_B",)),
    ]

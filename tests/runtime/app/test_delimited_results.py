"""Results in DELIMITED, read by another query."""

from __future__ import annotations

from tests.runtime.app.harness import InstanceHarness

SQL = """
CREATE STREAM S (A STRING, B STRING, N INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE STREAM LINES WITH (KAFKA_TOPIC = 'lines', VALUE_FORMAT = 'DELIMITED') AS SELECT N, A, B FROM S;
CREATE STREAM AGAIN WITH (KAFKA_TOPIC = 'again', VALUE_FORMAT = 'JSON') AS SELECT * FROM LINES;
"""


def test_an_empty_string_stays_one_and_null_stays_null() -> None:
    rows = [{"A": a, "B": b, "N": n} for n, (a, b) in enumerate([("", None), (None, ""), ("", ""), ("x", None)])]
    with InstanceHarness(SQL) as world:
        world.send("s", [(None, row, i) for i, row in enumerate(rows)])
        world.settle()
        assert [(v["N"], v["A"], v["B"]) for v in world.values("again")] == [(r["N"], r["A"], r["B"]) for r in rows]

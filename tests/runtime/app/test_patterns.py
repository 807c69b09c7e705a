"""No pattern freezes an instance: a query with one ends at once, in both dialects, and other queries go on."""

from __future__ import annotations

import pytest

from tests.runtime.app.harness import InstanceHarness

SOURCES = "CREATE STREAM S (V STRING, P STRING) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);"
OTHER = "CREATE STREAM T (V STRING) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON', PARTITIONS=1); CREATE STREAM C AS SELECT V FROM T EMIT CHANGES;"
HOSTILE = "a" * 36 + "!"


@pytest.mark.parametrize("rows", [1, 600])  # row kernels and statements of DuckDB
def test_a_record_that_python_would_compare_for_ever_ends_at_once(rows: int) -> None:
    sql = (
        SOURCES
        + OTHER
        + r"CREATE STREAM R AS SELECT REGEXP_EXTRACT('^([a-zA-Z0-9]+\.?)+@', V) AS X FROM S EMIT CHANGES;"
    )
    with InstanceHarness(sql) as world:
        world.send("s", [(None, {"V": v}, 0) for v in [HOSTILE] * rows + ["a.b@c"]])
        world.send("t", [(None, {"V": "critical"}, 0)])
        world.settle()
        assert [v["X"] for v in world.values("R")] == [None] * rows + ["a.b@"]
        assert [v["V"] for v in world.values("C")] == ["critical"]


def test_a_pattern_of_a_row_that_cannot_be_used_is_a_dead_letter_with_a_code() -> None:
    sql = SOURCES + "CREATE STREAM R AS SELECT REGEXP_LIKE(V, P) AS X FROM S EMIT CHANGES;"
    with InstanceHarness(sql) as world:
        world.send("s", [(None, {"V": "ab", "P": p}, 0) for p in ("(?=a)", "a", "(", "(b")])
        world.settle()
        assert [x["CODE"] for x in world.dead_letters("CSAS_R")] == ["FQ4071"] * 3
        assert [v["X"] for v in world.values("R")] == [None, True, None, None]

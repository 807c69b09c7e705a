"""RETENTION of views over streams without a watermark: state goes, what comes later is left out and counted, and no other row is."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from tests.slt.session import Shape, SqlSession

STREAM = "CREATE STREAM s (k TEXT KEY, n INT, ts TIMESTAMP) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1, TIMESTAMP='ts');\n"
OTHER = STREAM.replace("STREAM s", "STREAM other").replace("'s'", "'other'")
WINDOWS = {
    "by_time": "SELECT window_start, COUNT(*) AS c FROM TUMBLE(s, ts, INTERVAL '1' HOUR) GROUP BY window_start",
    "by_record": "SELECT window_start, COUNT(*) AS c FROM TUMBLE(s, rowtime, INTERVAL '1' HOUR) GROUP BY window_start",
    "sliding": "SELECT window_start, COUNT(*) AS c FROM HOP(s, ts, INTERVAL '30' MINUTE, INTERVAL '1' HOUR) GROUP BY window_start",
    "once": "SELECT window_start, COUNT(*) AS c FROM TUMBLE(s, ts, INTERVAL '1' HOUR) GROUP BY window_start EMIT ON WINDOW CLOSE",
}
HOURS = 200  # with a record each; of every 50 one record comes three hours late, and one an hour
JOINED = "SELECT s.n FROM s JOIN other ON s.k = other.k AND s.ts BETWEEN other.ts - INTERVAL '1' HOUR AND other.ts"


@pytest.mark.parametrize("vector", [False, True])
def test_windows_and_their_state_go_and_late_records_are_counted(vector: bool) -> None:
    world = SqlSession(Shape(vector=vector))
    try:
        world.execute(STREAM)
        for name, query in WINDOWS.items():
            world.execute(f"CREATE VIEW {name} WITH (RETENTION = '2 hours') AS {query}")
        for start in range(0, HOURS, 50):
            rows = [f"('a', 1, '{_at(h)}')" for h in range(start, start + 50)]
            world.execute(f"INSERT INTO s VALUES {', '.join(rows)}")
            world.execute(f"INSERT INTO s VALUES ('a', 1, '{_at(start + 45)}'), ('a', 1, '{_at(start + 48)}')")
        world.settle()
        per_hour = {r["window_start"]: r["c"] for r in world.ask("SELECT * FROM by_time").to_pylist()}
        assert sorted(per_hour.values()) == [1] * (HOURS - 4) + [2] * 4, "what is late is in no window, all else is"
        assert {r["window_start"]: r["c"] for r in world.ask("SELECT * FROM by_record").to_pylist()} == per_hour
        closed = {r["window_start"]: r["c"] for r in world.ask("SELECT * FROM once").to_pylist()}
        assert closed == {
            t: c for t, c in per_hour.items() if t < max(per_hour) - (max(per_hour) - min(per_hour)) * 2 / (HOURS - 1)
        }
        for name in WINDOWS:
            assert world.kept(name) <= 12, f"{name} keeps windows that are gone"
            assert world.late(name) == 4, name
    finally:
        world.close()


def _at(hour: int) -> str:
    return f"2024-05-{1 + hour // 24:02} {hour % 24:02}:30:00"


def test_a_join_drops_what_no_later_record_can_meet() -> None:
    world = SqlSession(Shape())
    try:
        world.execute(STREAM)
        world.execute(OTHER)
        world.execute(f"CREATE VIEW joined WITH (RETENTION = '2 hours') AS {JOINED}")
        world.execute(f"CREATE VIEW a_day AS {JOINED}")
        for start in range(0, 100, 20):
            for stream in ("s", "other"):
                rows = ", ".join(f"('a', {hour}, '{_at(hour)}')" for hour in range(start, start + 20))
                world.execute(f"INSERT INTO {stream} VALUES {rows}")
        world.settle()
        found = sorted(r["n"] for r in world.ask("SELECT * FROM joined").to_pylist())
        assert found == sorted([*range(100), *range(99)])
        assert world.kept("joined") < 30 < world.kept("a_day") < 200
        world.execute(f"INSERT INTO s VALUES ('a', 0, '{_at(90)}')")
        assert [world.late(v) for v in ("joined", "a_day")] == [1, 0]
    finally:
        world.close()


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT n FROM s UNION ALL {JOINED}",
        f"WITH c AS (SELECT k, n, ts FROM s WHERE n >= 0) SELECT n FROM c UNION ALL {JOINED.replace('FROM s ', 'FROM c AS s ')}",
    ],
)
def test_a_bounded_join_leaves_another_branch_over_its_stream_alone(query: str) -> None:
    world = SqlSession(Shape())
    try:
        world.execute(STREAM)
        world.execute(OTHER)
        world.execute(f"CREATE VIEW both_branches AS {query}")
        for n, hour in enumerate([0, 100, 10, 1]):
            world.execute(f"INSERT INTO s VALUES ('a', {n}, '{_at(hour)}')")
        world.settle()
        assert sorted(r["n"] for r in world.ask("SELECT * FROM both_branches").to_pylist()) == [0, 1, 2, 3]
    finally:
        world.close()


@pytest.mark.parametrize(
    ("query", "codes"),
    [
        (WINDOWS["by_time"], []),
        ("SELECT k, COUNT(*) AS n FROM s GROUP BY k", ["FQ2113"]),
        ("SELECT k FROM s", ["FQ2113"]),
        ("SELECT n FROM timed", ["FQ2113"]),
        (JOINED, []),
        (
            "SELECT a.n FROM seen AS a JOIN seen AS b ON a.k = b.k AND a.ts BETWEEN b.ts AND b.ts + INTERVAL '1' HOUR",
            [],
        ),
    ],
)
def test_retention_is_for_what_is_kept_by_time(query: str, codes: list[str]) -> None:
    assert _codes(f"CREATE VIEW v WITH (RETENTION = '7 days') AS {query};") == codes


@pytest.mark.parametrize(
    ("query", "codes"),
    [
        (JOINED, ["FQ2114"]),
        (WINDOWS["by_time"], ["FQ2091"]),
        ("SELECT a.n FROM seen AS a JOIN seen AS b ON a.k = b.k AND a.ts BETWEEN b.ts AND b.ts + INTERVAL '1' HOUR", ["FQ2103"]),
        ("SELECT a.n FROM timed AS a JOIN timed AS b ON a.n = b.n", []),
    ],
)  # fmt: skip
def test_a_view_without_retention_says_what_it_keeps(query: str, codes: list[str]) -> None:
    """Records of a view come from several partitions, in any order: how far they may be behind has to be said."""
    assert _codes(f"CREATE VIEW v AS {query};") == codes


def _codes(view: str) -> list[str]:
    sources = f"{STREAM}{OTHER}CREATE STREAM timed (n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON');"
    made = compile_project(
        [SourceText("s.sql", f"{sources}CREATE VIEW seen AS SELECT * FROM s; {view}")], dialect="standard"
    )
    return [d.code for d in made.diagnostics]

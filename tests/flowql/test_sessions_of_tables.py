"""SESSION in FROM over tables whose rows are inserted, updated and deleted: sessions grow, meet, split and go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from tests.slt.session import Shape, SqlSession

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, k INT, n INT, ts TIMESTAMP) ON CONFLICT OVERWRITE"
VIEWS = {
    "each": "SELECT id, window_start, window_end FROM SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTE)",
    "grouped": """SELECT k, window_start, window_end, count(*) AS c, sum(n) AS s
        FROM TABLE(SESSION(TABLE t PARTITION BY t.k, DESCRIPTOR(t.ts), INTERVAL '5' MINUTE)) GROUP BY k, window_start, window_end""",
    "one": "SELECT s.id, s.window_end FROM SESSION(t, ts, INTERVAL '5 minutes') AS s",
}
GAP = 5


def sessions(rows: Iterable[tuple[int, int | None, int, int | None]], *, by_key: bool) -> dict[int, tuple[int, int]]:
    """Of each row that has a time, the bounds of its session in minutes. rows: id, key, number, minute."""
    times: dict[int | None, list[tuple[int, int]]] = defaultdict(list)
    for id_, k, _, minute in rows:
        if minute is not None:
            times[k if by_key else 0].append((minute, id_))
    found: dict[int, tuple[int, int]] = {}
    for of_key in times.values():
        islands: list[list[tuple[int, int]]] = []
        for minute, id_ in sorted(of_key):
            if islands and minute - islands[-1][-1][0] <= GAP:
                islands[-1].append((minute, id_))
            else:
                islands.append([(minute, id_)])
        for island in islands:
            found |= {id_: (island[0][0], island[-1][0] + GAP) for _, id_ in island}
    return found


def expected(rows: list[tuple[int, int | None, int, int | None]]) -> dict[str, list[tuple[Any, ...]]]:
    each, one = sessions(rows, by_key=True), sessions(rows, by_key=False)
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for id_, k, n, _ in rows:
        if id_ in each:
            groups[k, *each[id_]].append(n)
    return {
        "each": [(i, *bounds) for i, bounds in each.items()],
        "grouped": [(*key, len(ns), sum(ns)) for key, ns in groups.items()],
        "one": [(i, end) for i, (_, end) in one.items()],
    }


@pytest.mark.parametrize(("seed", "partitions", "vector"), [(11, 1, True), (12, 3, None), (13, 2, False)])
def test_each_row_is_in_the_session_of_its_time(seed: int, partitions: int, vector: bool | None) -> None:
    random = Random(seed)
    world = SqlSession(Shape(vector=vector, partitions=partitions))
    rows: dict[int, tuple[int, int | None, int, int | None]] = {}
    try:
        world.execute(TABLE)
        for name, view in VIEWS.items():
            world.execute(f"CREATE VIEW {name} AS {view}")
        for _ in range(10):
            if rows and random.random() < 0.4:
                gone = random.sample(sorted(rows), min(len(rows), 3))
                world.execute(f"DELETE FROM t WHERE id IN ({', '.join(map(str, gone))})")
                rows = {i: r for i, r in rows.items() if i not in gone}
            else:
                made = [
                    (i, random.choice([1, 2, None]), random.randrange(9), random.choice([None, *range(60)]))
                    for i in random.sample(range(40), 6)
                ]
                rows |= {r[0]: r for r in made}
                values = (f"({', '.join(map(_literal, r[:3]))}, {_time(r[3])})" for r in made)
                world.execute(f"INSERT INTO t VALUES {', '.join(values)}")
            held = world.contents(list(VIEWS))
            for name, wanted in expected(list(rows.values())).items():
                found = [
                    tuple(map(_minute, row)) for row in zip(*(c.to_pylist() for c in held[name].columns), strict=True)
                ]
                assert sorted(map(repr, found)) == sorted(map(repr, wanted)), name
    finally:
        world.close()


def _literal(value: int | None) -> str:
    return "NULL" if value is None else str(value)


def _time(minute: int | None) -> str:
    return "NULL" if minute is None else f"TIMESTAMP '2024-01-01 00:{minute:02}:00'"


def _minute(value: Any) -> Any:
    return value.hour * 60 + value.minute if hasattr(value, "minute") else value


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("SESSION(TABLE t PARTITION BY k + 1, DESCRIPTOR(ts), INTERVAL '5' MINUTE)", "an expression in SESSION"),
        ("SESSION(t, ts, INTERVAL '5' MINUTE, INTERVAL '1' MINUTE)", "SESSION has no offset"),
        ("SESSION(t, ts)", "lacks"),
        ("SESSION(t, ts, INTERVAL '1' MONTH)", "a duration of months"),
        ("SESSION(t, n, INTERVAL '1' MINUTE)", "unsupported arithmetic"),
    ],
)
def test_what_it_does_not_take_is_named(source: str, named: str) -> None:
    world = SqlSession(Shape())
    try:
        world.execute(TABLE)
        with pytest.raises(CompileError, match=named):
            world.execute(f"CREATE VIEW v AS SELECT id FROM {source}")
    finally:
        world.close()

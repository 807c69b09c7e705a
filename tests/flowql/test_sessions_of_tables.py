"""SESSION in FROM over tables whose rows are inserted, updated and deleted: sessions grow, meet, split and go; and over streams."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.plan.changes import Over
from flowql.compiler.plan.logical import walk_nodes
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


FOLDED = {
    "counts": "k, window_start, window_end, count(*), count(n) AS known {} GROUP BY k, window_start, window_end",
    "totals": "k, window_start, window_end, count(*), sum(n), avg(n), min(n), max(n), sum(d) AS of_d {} GROUP BY window_end, k, window_start",
    "firsts": "k, window_start AS s, first_value(n ORDER BY n DESC, id), window_end, bool_or(f) {} GROUP BY k, window_start, window_end",
}
NOT_FOLDED = {
    "distinct": "k, window_start, window_end, count(DISTINCT n) {} GROUP BY k, window_start, window_end",
    "failing": "k, window_start, window_end, sum(n / (id % 7)) {} GROUP BY k, window_start, window_end",
    "all": "window_start, window_end, count(*) {} GROUP BY window_start, window_end",
    "ends": "k, window_end, count(*) {} GROUP BY k, window_end",
    "filtered": "k, window_start, window_end, count(*) {} WHERE n > 4 GROUP BY k, window_start, window_end",
}


@pytest.mark.turns("cases")
@pytest.mark.parametrize(("seed", "partitions", "vector"), [(21, 1, True), (22, 3, None), (23, 2, False)])
def test_sessions_of_a_stream_are_those_of_a_table(seed: int, partitions: int, vector: bool | None) -> None:
    """Times come in any order, so sessions grow at both ends and meet. Where it can, a view of a stream keeps one row of each."""
    random = Random(seed)
    world = SqlSession(Shape(vector=vector, partitions=partitions))
    columns, views = "k INT, n INT, d DOUBLE PRECISION, f BOOLEAN, ts TIMESTAMP", FOLDED | NOT_FOLDED
    try:
        topic = f"WITH (KAFKA_TOPIC = 's', PARTITIONS = {partitions}, VALUE_FORMAT = 'JSON')"
        world.execute(f"CREATE STREAM s (id INT, {columns}) {topic}")
        world.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
        for name, view in views.items():
            for source in "st":
                of = f"FROM SESSION(TABLE {source} PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTE)"
                world.execute(f"CREATE VIEW {name}_{source} AS SELECT {view.format(of)}")
        plan = {q.sink: [n.spec for n in walk_nodes(q.logical)] for q in world.plan.queries}
        folded = {v for v in views if not any(isinstance(spec, Over) for spec in plan[f"{v}_s"])}
        assert folded == set(FOLDED)
        for turn in range(10):
            rows = ", ".join(_row(random, 10 * turn + i) for i in range(random.randrange(1, 9)))
            for source in "st":
                world.execute(
                    f"INSERT INTO {source} VALUES {rows}", rounds=random.randrange(3) if turn % 3 == 0 else None
                )
            held = world.contents([f"{v}_{source}" for v in views for source in "st"])
            for v in views:
                of_stream, of_table = (Counter(map(repr, held[f"{v}_{source}"].to_pylist())) for source in "st")
                assert of_stream == of_table, v
    finally:
        world.close()


def _row(random: Random, id_: int) -> str:
    minute = random.choice([None, *range(0, 60, 3)])
    values = [
        id_,
        random.choice([1, 2, None]),
        random.randrange(9),
        random.choice([None, 0.1, -0.0, 1e300]),
        random.choice([True, False, None]),
    ]
    return f"({', '.join('NULL' if v is None else str(v) for v in values)}, {_time(minute)})"


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

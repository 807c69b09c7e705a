"""An aggregate over a stream gives what it gives over a table, to the last bit."""

from __future__ import annotations

from random import Random

import pytest

from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.functions.change_aggregates import names
from flowql.compiler.plan.logical import Aggregate, walk_nodes
from tests.slt.session import Shape, SqlSession

# Names that have one meaning in both dialects.
SHARED = {"COUNT", "MIN", "MAX"}
COLUMNS = "i INT, l BIGINT, d DOUBLE PRECISION, n NUMERIC(8, 2), s TEXT, b BOOLEAN, dt DATE, ts TIMESTAMP(3)"
VALUES: dict[str, tuple[str, ...]] = {
    "i": ("0", "1", "-5", "2147483647"),
    "l": ("0", "-3", "9007199254740993", "9223372036854775807"),
    "d": ("0.1", "0.2", "1e16", "-1e16", "3.3", "'-0.0'", "'NaN'", "'Infinity'"),
    "n": ("0.01", "-3.25", "999999.99"),
    "s": ("''", "'a'", "'Z'", "'ä'", "'𝄞'", "'\uffee'"),
    "b": ("TRUE", "FALSE"),
    "dt": ("'1969-12-31'", "'2024-02-29'"),
    "ts": ("'1969-12-31 23:59:59.999'", "'2024-02-29 01:00:00'"),
}
NUMBERS = ("i", "l", "d", "n")
STATISTICS = ("SUM", "AVG", "VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV_POP", "STDDEV_SAMP", "STDDEV")
FOLDED = [  # by the operator of streams
    *(f"{f}({c})" for f in ("SUM", "AVG") for c in ("i", "l", "n")),
    *(f"{f}({c})" for f in ("COUNT", "MIN", "MAX") for c in VALUES if c != "b" or f == "COUNT"),
    *("COUNT(*)", "COUNT(*) FILTER (WHERE b)", "COUNT(s) FILTER (WHERE l > 0)", "MAX(d) FILTER (WHERE b)", "SUM(i) / COUNT(*)"),
]  # fmt: skip
OTHERS = [
    *(f"{f}({c})" for f in STATISTICS for c in NUMBERS),
    *("COUNT(DISTINCT s)", "BOOL_AND(b)", "BOOL_OR(b)", "EVERY(b)", "BIT_AND(i)", "BIT_OR(l)", "BIT_XOR(i)", "CORR(i, d)"),
    *("REGR_SLOPE(l, i)", "COVAR_SAMP(n, i)", "STDDEV_SAMP(i) FILTER (WHERE l > 0)", "SUM(d) / COUNT(*)"),
]  # fmt: skip
GROUPS, ROWS, SEED = 6, 60, 5


def test_a_name_of_both_catalogues_has_the_meaning_of_standard_sql() -> None:
    catalog = Catalog(standard=True)
    found = {n: a.name for n in sorted(names()) if (a := catalog.aggregate(n)) is not None}
    assert {n for n, name in found.items() if not name.startswith("sql_")} == SHARED
    assert {"STDDEV_SAMP", "VAR_SAMP", "SUM", "BOOL_AND", "CORR"} <= found.keys()


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(("called", "folds"), [(FOLDED, 1), (OTHERS, 0)])
def test_aggregates_over_a_stream_are_those_over_a_table(called: list[str], folds: int, vector: bool) -> None:
    chance = Random(SEED)
    world = SqlSession(Shape(vector=vector))
    calls = ", ".join(f"{c} AS a{i}" for i, c in enumerate(called))
    try:
        world.execute(f"CREATE TABLE t (id INT PRIMARY KEY, g INT, {COLUMNS})")
        world.execute(
            f"CREATE STREAM s (id INT, g INT, {COLUMNS}) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1)"
        )
        for source in ("t", "s"):
            world.execute(f"CREATE VIEW of_{source} AS SELECT g, {calls} FROM {source} GROUP BY g")
        for start in range(0, ROWS, 20):
            rows = ", ".join(_row(n, chance) for n in range(start, start + 20))
            world.execute(f"INSERT INTO t VALUES {rows}")
            world.execute(f"INSERT INTO s VALUES {rows}")
        found = [{r["g"]: r for r in world.ask(f"SELECT * FROM of_{source}").to_pylist()} for source in ("t", "s")]
        differences = [
            f"{call} of group {g}: {found[0][g][f'a{i}']!r} over the table, {found[1][g][f'a{i}']!r} over the stream"
            for i, call in enumerate(called)
            for g in found[0]
            if repr(found[0][g][f"a{i}"]) != repr(found[1][g][f"a{i}"])
        ]
        assert len(found[0]) > GROUPS / 2
        assert found[0].keys() == found[1].keys()
        assert not differences, "\n".join([f"seed {SEED}", *differences])
        assert [_operators(world, f"of_{source}") for source in ("t", "s")] == [0, folds]
    finally:
        world.close()


def _row(number: int, chance: Random) -> str:
    values = ("NULL" if chance.random() < 0.2 else chance.choice(some) for some in VALUES.values())
    return f"({number}, {chance.randrange(GROUPS)}, {', '.join(values)})"


def _operators(world: SqlSession, view: str) -> int:
    (query,) = (q for q in world.plan.queries if q.sink == view)
    return sum(isinstance(n.spec, Aggregate) for n in walk_nodes(query.logical))


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("kind", ["STREAM", "TABLE"])
def test_a_group_without_aggregates_is_written_once(kind: str, vector: bool) -> None:
    """However many rows it has: it was counted, and each row wrote it anew."""
    world = SqlSession(Shape(vector=vector, partitions=2))
    try:
        key = "KEY" if kind == "STREAM" else "PRIMARY KEY"
        world.execute(f"CREATE {kind} s (k INT {key}, g INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=2)")
        world.execute("CREATE VIEW groups AS SELECT g FROM s GROUP BY g")
        world.execute("CREATE VIEW again AS SELECT g FROM (SELECT g, COUNT(*) AS n FROM s GROUP BY g) t")
        for k in range(12):
            world.execute(f"INSERT INTO s VALUES ({k}, {k % 3})")
        assert world.contents(["groups"])["groups"].sort_by("g").column("g").to_pylist() == [0, 1, 2]
        assert [world.written(view) for view in ("groups", "again")] == [3, 3]
    finally:
        world.close()

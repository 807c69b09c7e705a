"""GAP_FILL: the rows of a table with those that are missing between them, after inserts, updates and deletes."""

from __future__ import annotations

from random import Random

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from tests.slt.session import Shape, SqlSession

STEP_S = 60
VIEW = """SELECT k, EXTRACT(EPOCH FROM at)::INT AS at, a, b, c, d, e FROM
    GAP_FILL(t, at, INTERVAL '1' MINUTE, LOCF(a, e), INTERPOLATE(b), INTERPOLATE(c), KEEPNULL(d), PARTITION_BY(k))"""
Row = tuple[int, int, str | None, int, float, int | None, str | None]


def filled(rows: list[Row]) -> list[Row]:
    """The same by loops."""
    made: list[Row] = []
    for k in sorted({r[0] for r in rows}):
        own = sorted(r for r in rows if r[0] == k)
        for row, after in zip(own, [*own[1:], None], strict=True):
            made.append(row)
            if after is None:
                continue
            steps = -(-(after[1] - row[1]) // STEP_S)
            whole = abs(after[3] - row[3]) // steps * (1 if after[3] >= row[3] else -1)
            for n in range(1, steps):
                b, c = row[3] + n * whole, row[4] + n * ((after[4] - row[4]) / steps)
                made.append((k, row[1] + n * STEP_S, row[2], b, c, None, row[6]))
    return sorted(made, key=lambda r: r[:2])


def test_gaps_are_filled_after_every_change() -> None:
    rng, world = Random(1), SqlSession(Shape())
    there: dict[tuple[int, int], Row] = {}
    try:
        world.execute(
            "CREATE TABLE t (k INT, at TIMESTAMP, a TEXT, b INT, c DOUBLE, d INT, e TEXT, PRIMARY KEY (k, at))"
        )
        world.execute(f"CREATE MATERIALIZED VIEW v AS {VIEW}")
        for _ in range(14):
            k, at = rng.randrange(2), rng.randrange(20) * 30
            if there and rng.random() < 0.3:
                key = rng.choice(sorted(there))
                del there[key]
                world.execute(f"DELETE FROM t WHERE k = {key[0]} AND at = TO_TIMESTAMP({key[1]})::TIMESTAMP")
            else:
                row: Row = (k, at, rng.choice("xyz"), rng.randrange(-9, 99), rng.randrange(99) / 4, 7, None)
                there[k, at] = row
                world.execute(
                    f"INSERT INTO t VALUES ({k}, TO_TIMESTAMP({at})::TIMESTAMP, '{row[2]}', {row[3]}, {row[4]}, 7, NULL) "
                    "ON CONFLICT (k, at) DO UPDATE SET a = EXCLUDED.a, b = EXCLUDED.b, c = EXCLUDED.c"
                )
            found = sorted((tuple(r.values()) for r in world.contents(["v"])["v"].to_pylist()), key=lambda r: r[:2])
            assert found == filled([*there.values()])
    finally:
        world.close()


@pytest.mark.parametrize(
    ("call", "title"),
    [
        ("GAP_FILL(t, at)", "GAP_FILL takes a relation, its time column and an interval"),
        ("GAP_FILL(t, k, INTERVAL '1' MINUTE)", "the time column of GAP_FILL is INT, not TIMESTAMP"),
        ("GAP_FILL(t, at, INTERVAL '1' MINUTE, LOCF(z))", "column 'z' of GAP_FILL is not in its relation"),
        ("GAP_FILL(t, at, INTERVAL '1' MINUTE, INTERPOLATE(a))", "INTERPOLATE takes numbers, and a is TEXT"),
        ("GAP_FILL(t, at, INTERVAL '1' MINUTE, LAST(a))", "expected LOCF, INTERPOLATE, KEEPNULL or PARTITION_BY"),
    ],
)
def test_mistakes_are_named(call: str, title: str) -> None:
    world = SqlSession(Shape())
    try:
        world.execute("CREATE TABLE t (k INT PRIMARY KEY, at TIMESTAMP, a TEXT)")
        with pytest.raises(CompileError) as raised:
            world.execute(f"CREATE MATERIALIZED VIEW v AS SELECT * FROM {call}")
        (found, *_) = raised.value.diagnostics
        assert found.title == title
        assert found.span.line_text
        assert found.help
    finally:
        world.close()

"""Frames of window functions that PostgreSQL accepts at the edge of what they can hold."""

from __future__ import annotations

import pytest

from tests.slt.session import Shape, SqlSession


@pytest.mark.parametrize(
    "frame", ["1 FOLLOWING AND 0 FOLLOWING", "0 PRECEDING AND 1 PRECEDING", "3 FOLLOWING AND 2 FOLLOWING"]
)
@pytest.mark.parametrize("unit", ["ROWS", "RANGE", "GROUPS"])
def test_a_frame_that_ends_before_it_starts_is_empty(unit: str, frame: str) -> None:
    world = SqlSession(Shape())
    try:
        world.execute("CREATE TABLE a (id INT PRIMARY KEY, k INT, ts INT)")
        over = f"OVER (ORDER BY ts {unit} BETWEEN {frame})"
        world.execute(f"CREATE VIEW v AS SELECT id, sum(k) {over} AS s, count(*) {over} AS n FROM a")
        world.execute("INSERT INTO a VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3)")
        held = world.contents(["v"])["v"]
        assert held.column("s").to_pylist() == [None] * 3
        assert held.column("n").to_pylist() == [0] * 3
    finally:
        world.close()

"""TUMBLE and HOP over tables against the windows that a formula gives."""

from __future__ import annotations

import datetime as dt
import random

import pytest

from tests.slt.session import Shape, SqlSession

MINUTE = dt.timedelta(minutes=1)
EPOCH = dt.datetime(1970, 1, 1)


def windows(at: dt.datetime, size: dt.timedelta, slide: dt.timedelta, offset: dt.timedelta) -> list[dt.datetime]:
    """Where the windows begin that hold a time."""
    newest = (at - EPOCH - offset) // slide * slide + EPOCH + offset
    count = -(-size // slide)
    return [start for k in range(count) if (start := newest - k * slide) <= at < start + size]


@pytest.mark.parametrize(
    ("call", "size", "slide", "offset"),
    [
        ("TUMBLE(t, at, INTERVAL '5' MINUTE)", 5, 5, 0),
        ("TUMBLE(t, at, INTERVAL '5' MINUTE, INTERVAL '2' MINUTE)", 5, 5, 2),
        ("HOP(t, at, INTERVAL '2' MINUTE, INTERVAL '6' MINUTE)", 6, 2, 0),
        ("HOP(t, at, INTERVAL '2' MINUTE, INTERVAL '5' MINUTE)", 5, 2, 0),
        ("HOP(t, at, INTERVAL '3' MINUTE, INTERVAL '2' MINUTE, INTERVAL '1' MINUTE)", 2, 3, 1),
    ],
)
@pytest.mark.parametrize("vector", [True, False])
def test_a_row_is_in_the_windows_of_its_time(call: str, size: int, slide: int, offset: int, vector: bool) -> None:
    seed = 20260401
    rng = random.Random(seed)
    rows = {n: EPOCH + dt.timedelta(seconds=rng.randint(-2000, 2000)) for n in range(60)}
    world = SqlSession(Shape(vector, 3))
    try:
        world.execute("CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP)")
        world.execute(f"CREATE VIEW v AS SELECT id, window_start, window_end FROM {call}")
        world.execute("INSERT INTO t VALUES " + ", ".join(f"({n}, '{at}')" for n, at in rows.items()))
        world.execute("DELETE FROM t WHERE id % 7 = 0")
        world.execute("UPDATE t SET at = TIMESTAMP '1970-01-01 00:00:00' WHERE id = 1")
        rows = {n: EPOCH if n == 1 else at for n, at in rows.items() if n % 7}
        found = {tuple(r.values()) for r in world.ask("SELECT * FROM v").to_pylist()}
    finally:
        world.close()
    length = size * MINUTE
    wanted = {
        (n, start, start + length)
        for n, at in rows.items()
        for start in windows(at, length, slide * MINUTE, offset * MINUTE)
    }
    assert {(n, _plain(a), _plain(b)) for n, a, b in found} == wanted, seed


def _plain(at: dt.datetime) -> dt.datetime:
    return at.replace(tzinfo=None)

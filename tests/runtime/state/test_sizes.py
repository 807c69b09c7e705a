"""Sizes of stores against a count of all rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowql.compiler.plan import types as T
from flowql.runtime.clock import VirtualClock
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.state.statistics import PASS_MS_MIN, REST, ROWS, StoreSizes
from tests.runtime.state.support import commit, put, table


@pytest.mark.parametrize("kind", ["memory", "rocks"])
def test_sizes_are_those_of_the_committed_rows(kind: str, tmp_path: Path) -> None:
    physical = MemoryPhysical() if kind == "memory" else open_rocks(tmp_path)
    manager, clock = StateManager(physical), VirtualClock(1)
    sizes = StoreSizes(physical, manager.committed_stores, clock)
    large, small = table("LARGE", T.BIGINT), table("SMALL", T.BIGINT)
    task = manager.open_task("q/0_0", 0, [large, small])
    put(manager, task, "LARGE", {(n,): (n,) for n in range(3 * ROWS + 1)})
    put(manager, task, "SMALL", {(n,): (n,) for n in range(7)})
    commit(manager)
    sizes.run_once(clock.timer_ms())
    assert sizes.total(["SMALL", "LARGE"]) is None, "not 0: it was not counted to its end"
    walk(sizes, clock)
    assert sizes.total(["SMALL", "LARGE"]) == sum(sizes.of.values())
    assert (sizes.total([]), sizes.total(["SMALL", "NEW"])) == (0, None)
    assert sizes.of == {"LARGE": counted(manager, physical, "LARGE"), "SMALL": counted(manager, physical, "SMALL")}
    assert 0 < sizes.of["SMALL"] < sizes.of["LARGE"]

    before = dict(sizes.of)
    put(manager, task, "LARGE", {(n,): None for n in range(ROWS)})
    commit(manager)
    clock.advance(PASS_MS_MIN)
    walk(sizes, clock)
    assert sizes.of["SMALL"] == before["SMALL"]
    assert sizes.of["LARGE"] == counted(manager, physical, "LARGE") < before["LARGE"]
    manager.close()


def counted(manager: StateManager, physical, name: str) -> int:
    entry = manager.committed_stores()[name]
    return sum(len(k) + len(v) for p in entry.partitions for k, v in physical.scan(*entry.partition_range(p)))


def walk(sizes: StoreSizes, clock: VirtualClock) -> None:
    """One whole walk: it ends when it asks for its long pause."""
    for _ in range(1_000):
        wait = sizes.run_once(clock.timer_ms())
        if wait > PASS_MS_MIN // 2:
            return
        clock.advance(wait)
    raise AssertionError("the walk does not end")


def test_it_rests_a_hundred_times_as_long_as_it_works() -> None:
    class Slow(MemoryPhysical):
        def scan(self, low: bytes, high: bytes):
            clock.spend(3_000_000)
            return super().scan(low, high)

    clock, physical = VirtualClock(1), Slow()
    manager = StateManager(physical)
    put(manager, manager.open_task("q/0_0", 0, [table("T", T.BIGINT)]), "T", {(1,): (1,)})
    commit(manager)
    assert StoreSizes(physical, manager.committed_stores, clock).run_once(1) == 3 * REST

"""How much memory rows that wait for a commit take, and what may be kept of others."""

from __future__ import annotations

from flowql.runtime.budget import StateLimits
from flowql.runtime.state.state_memory import FACTOR, FIRST_BYTES, ROW_BYTES, SAMPLE, StateMemory


def of_rows(rows: int) -> StateMemory:
    """Room for so many rows of the size that is assumed at first, and half as many cached ones."""
    return StateMemory(StateLimits(uncommitted_bytes=rows * FIRST_BYTES, cache_bytes=rows * FIRST_BYTES // 2))


def test_rows_count_from_when_they_are_published_until_their_commit_is_applied() -> None:
    memory = of_rows(10)
    memory.add(4)
    assert (memory.size_bytes, memory.has_reserve, memory.full) == (4 * FIRST_BYTES, True, False)
    memory.add(1)
    assert (memory.has_reserve, memory.full) == (False, False), "half of the room is used"
    memory.cut()
    memory.add(4)
    assert (memory.size_bytes, memory.full) == (9 * FIRST_BYTES, False)
    memory.add(1)
    assert memory.full
    memory.applied([])
    assert memory.size_bytes == 5 * FIRST_BYTES
    memory.cut()
    memory.revert()
    assert (memory.size_bytes, memory.has_reserve) == (0, True)
    assert memory.cached_rows_max == 5


def test_rows_that_are_larger_count_at_once_and_smaller_ones_little_by_little() -> None:
    """A commit of small rows must not let the next one of large rows take four times the room."""
    memory, many = of_rows(10), SAMPLE
    memory.applied([[100] * many])
    assert memory.row_bytes == ROW_BYTES + FACTOR * 100
    memory.applied([[10] * many])
    assert memory.row_bytes == ROW_BYTES + FACTOR * 100 - FACTOR * 90 // 4 - 1
    memory.applied([[900] * (SAMPLE // 2 - 1)])
    assert memory.row_bytes < ROW_BYTES + FACTOR * 100, "a commit of few rows tells nothing"
    memory.applied([[900] * (SAMPLE // 2)])
    assert memory.row_bytes == ROW_BYTES + FACTOR * 900

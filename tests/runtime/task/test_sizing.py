"""The number of rows of a micro-batch follows from its fixed cost and its cost per row."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowql.runtime.config import ROWS_PER_RUN_MAX, ROWS_PER_RUN_MIN
from flowql.runtime.task.sizing import LEARNED_ROWS_MIN, PROBE, START_ROWS, MicroBatchSizer

SLICE_NS = 5_000_000


def sizes(fixed_ns: int, ns_per_row: float, dearer: Iterator[float], buffered: Iterator[int]) -> list[int]:
    """What is chosen, one micro-batch after the other. dearer: factors of their costs. buffered: the most rows of each."""
    sizer, chosen = MicroBatchSizer(), list[int]()
    for factor, most in zip(dearer, buffered, strict=False):
        chosen.append(sizer.rows(SLICE_NS))
        rows = min(chosen[-1], most)
        sizer.learn(rows, int((fixed_ns + ns_per_row * rows) * factor))
    return chosen


@pytest.mark.parametrize(
    ("fixed_ns", "ns_per_row", "rows"),
    [
        (0, 1_000, 5_000),
        (1_000_000, 1_000, 4_000),
        (3_000_000, 1_000, 3_000),
        (4_900_000, 1_000, 4_900),
        (20_000_000, 1_000, 20_000),
        (4_900_000, 200, 24_500),
        (20_000_000, 200, ROWS_PER_RUN_MAX),
        (0, 20_000, ROWS_PER_RUN_MIN),
    ],
)
def test_a_micro_batch_fills_the_slice_and_its_fixed_cost_is_at_most_half(
    fixed_ns: int, ns_per_row: int, rows: int
) -> None:
    chosen = sizes(fixed_ns, ns_per_row, iter([1.0] * 40), iter([ROWS_PER_RUN_MAX] * 40))
    assert sorted(chosen[-2 * PROBE :]) == pytest.approx([0.75 * rows] * 2 + [rows] * (2 * PROBE - 2), rel=0.02)


@given(
    st.integers(0, 20_000_000), st.integers(100, 20_000), st.lists(st.integers(1, 30_000), max_size=60), st.randoms()
)
def test_other_work_on_the_machine_never_shrinks_micro_batches_to_where_fixed_costs_are_most(
    fixed_ns: int, ns_per_row: int, buffered: list[int], chance: random.Random
) -> None:
    dearer = (1 + chance.random() * 0.02 for _ in range(len(buffered) + 60))
    least = min(fixed_ns / ns_per_row, ROWS_PER_RUN_MAX)
    full = [ROWS_PER_RUN_MAX] * 60
    chosen = sizes(fixed_ns, ns_per_row, dearer, iter([*buffered, *full]))
    late = sorted(chosen[-20:])[10]
    assert late >= 0.8 * least
    assert 0.75 * ROWS_PER_RUN_MIN <= late <= max(ROWS_PER_RUN_MIN, 1.05 * max(SLICE_NS, 2 * fixed_ns) / ns_per_row)


def test_a_micro_batch_has_at_most_twice_the_rows_of_the_largest_before() -> None:
    chosen = sizes(0, 1, iter([1.0] * 10), iter([ROWS_PER_RUN_MAX] * 10))
    assert chosen[:5] == [START_ROWS, 2 * START_ROWS, 4 * START_ROWS, 8 * START_ROWS, ROWS_PER_RUN_MAX]


def test_micro_batches_of_few_rows_teach_nothing() -> None:
    """Their cost is mostly fixed: a query whose micro-batches had 200 rows took backlogs in pieces of 256."""
    sizer = MicroBatchSizer()
    for rows in (1, 50, 200, START_ROWS // 2 - 1):
        assert sizer.rows(SLICE_NS) == START_ROWS
        sizer.learn(rows, 3_000_000)
    assert sizer.rows(SLICE_NS) == START_ROWS
    sizer.learn(START_ROWS // 2, START_ROWS * 2_000)
    assert sizer.rows(SLICE_NS) == pytest.approx(1_250, rel=0.01)


def test_micro_batches_that_take_far_longer_than_the_slice_are_learned_whatever_their_size() -> None:
    sizer = MicroBatchSizer()
    assert sizer.rows(SLICE_NS) == START_ROWS
    sizer.learn(LEARNED_ROWS_MIN - 1, 1_000_000_000)
    assert sizer.rows(SLICE_NS) == START_ROWS
    sizer.learn(LEARNED_ROWS_MIN, 1_000_000_000)
    assert sizer.rows(SLICE_NS) == ROWS_PER_RUN_MIN


def test_costs_that_have_grown_are_learned() -> None:
    sizer, chosen = MicroBatchSizer(), list[int]()
    for ns_per_row in (200, 2_000):
        for _ in range(60):
            chosen.append(sizer.rows(SLICE_NS))
            sizer.learn(chosen[-1], 1_000_000 + ns_per_row * chosen[-1])
    assert max(chosen[-4:]) == pytest.approx(2_000, rel=0.1)


def test_a_joint_micro_batch_has_fewer_tasks_after_one_that_took_far_longer_than_the_slice() -> None:
    """Each task has a cost of its own, however few rows it has."""
    sizer = MicroBatchSizer()
    sizer.rows(5_000_000)
    assert sizer.tasks == 8
    sizer.learn(80, 10_000_001, 8)
    assert sizer.tasks == 4
    for tasks, cost_ns in ((3, 1), (4, 5_000_000), (4, 10_000_000)):
        sizer.learn(80, cost_ns, tasks)
        assert sizer.tasks == 4
    for tasks in (4, 8, 16, 32, 64, 128, 256):
        sizer.learn(80, 4_999_999, tasks)
        assert sizer.tasks == min(256, 2 * tasks)
    sizer.learn(80, 50_000_000, 3)
    assert sizer.tasks == 2
    sizer.learn(80, 50_000_000)
    assert sizer.tasks == 2


def test_a_joint_micro_batch_says_nothing_of_the_costs_of_one_task() -> None:
    """Most of its cost is fixed for each task: a task with many rows would get micro-batches that take several slices."""
    sizer, alone = MicroBatchSizer(), MicroBatchSizer()
    for rows in (2_000, 3_000, 4_000):
        for each in (sizer, alone):
            each.rows(5_000_000)
            each.learn(rows, rows * 1_000)
        sizer.learn(rows, rows * 20_000, 32)
    assert sizer.rows(5_000_000) == alone.rows(5_000_000)
    assert sizer.joint.rows(5_000_000) < 1_000

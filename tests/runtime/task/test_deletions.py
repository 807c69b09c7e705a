"""A reader of a compacted topic that was away looks for offsets that are missing, until it has caught up."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.task.deletions import KNOWN, Deletions, known_times
from flowql.runtime.task.input_buffer import LogInput

TP = TopicPartition("customers", 0)
KEPT, NOW = 1_000, 50_000


def fetched(offsets: Sequence[int], next_offset: int) -> RawBatch:
    rows = [{"offset": o, "timestamp": 0, "key": b"k", "value": None, "headers": None} for o in offsets]
    return RawBatch(TP, pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA), next_offset, 10 * len(rows))


def deletions(known_ms: int = 0, now: Sequence[int] = (NOW,)) -> Deletions:
    times = list(now)
    return Deletions(KEPT, known_ms, lambda: times[0] if len(times) == 1 else times.pop(0))


@pytest.mark.parametrize(
    ("offsets", "next_offset", "gap"),
    [
        ([5, 6, 7], 8, 0),
        ([3, 4, 5, 6], 7, 0),  # what was read before counts for nothing
        ([6, 7], 8, 1),
        ([5, 8, 10], 11, 2),
        ([5], 9, 3),
        ([], 9, 4),
        ([], 5, 0),
        ([1, 4], 5, 0),
    ],
)
def test_missing_offsets_are_counted_from_the_position_to_the_end(
    offsets: list[int], next_offset: int, gap: int
) -> None:
    of = deletions()
    assert of.look(5, fetched(offsets, next_offset)) == (gap > 0)
    assert of.gap == gap


def test_the_longest_run_counts_of_all_batches() -> None:
    of = deletions()
    assert of.look(5, fetched([8], 9))
    assert of.look(9, fetched([9, 10], 11))
    assert of.gap == 3


def test_who_was_not_away_for_longer_than_deletions_are_kept_misses_none() -> None:
    at_the_limit, beyond = deletions(NOW - KEPT), deletions(NOW - KEPT - 1)
    assert (at_the_limit.is_overdue, beyond.is_overdue) == (False, True)
    assert not at_the_limit.look(5, fetched([9], 10))
    assert beyond.look(5, fetched([9], 10))


def test_it_has_read_everything_as_of_when_the_end_was_asked_for() -> None:
    of = deletions(0, [10, 20, 30, 40, 50])
    of.reach(5, 8)  # at 10
    of.reach(7, 12)
    assert of.known_ms == 0
    of.reach(8, 15)  # behind the end of then; at 20 the next one is asked for
    assert (of.known_ms, of.goal) == (10, (15, 20))
    of.reach(15, 15)
    assert of.known_ms == 20


def test_metadata_tells_of_inputs_that_are_overdue_alone() -> None:
    late, good, other = (LogInput(name, TP, 0, ordinal=n) for n, name in enumerate(("late", "good", "other")))
    assert known_times([late, other]) == {}
    late.deletions, good.deletions = deletions(7), deletions(NOW)
    assert known_times([late, good, other]) == {KNOWN: {"customers": 7}}
    assert known_times([good, other]) == {KNOWN: {}}, "what it said before is over"

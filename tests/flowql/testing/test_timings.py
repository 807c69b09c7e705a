"""The ways in which the rows of a test arrive."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest

from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.testing.case import Case
from flowql.testing.feed import Arriving, timings

NOTHING = pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in PRODUCE_SCHEMA], schema=PRODUCE_SCHEMA)
CASE = Case("a test", "tests/one.yaml", 1)


def rows(source: int, *times_ms: int) -> list[Arriving]:
    return [Arriving(source, t, TopicPartition(f"topic-{source}", 0), NOTHING) for t in times_ms]


@pytest.mark.parametrize(("count", "ways"), [(1, 1), (2, 2), (3, 4), (4, 8)])
def test_each_way_to_cut_rows_is_tried_once(count: int, ways: int) -> None:
    found = list(timings(CASE, [rows(0, *range(count))], splits=200, seed=1))
    cuts = {tuple(len(chunk) for chunk in t.chunks) for t in found}
    assert len(cuts) == len(found) == ways
    assert all(sum(cut) == count for cut in cuts)


def test_sources_that_agree_in_time_come_in_more_than_one_order() -> None:
    found = list(timings(CASE, [rows(0, 5), rows(1, 5)], splits=50, seed=1))
    assert {tuple(a.source for chunk in t.chunks for a in chunk) for t in found} == {(0, 1), (1, 0)}
    for t in found:
        arrived = [a.time_ms for chunk in t.chunks for a in chunk]
        assert all(a <= b for a, b in pairwise(arrived))

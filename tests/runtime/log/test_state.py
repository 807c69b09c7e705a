"""What the embedded log knows of segments and partitions, without files."""

from __future__ import annotations

from array import array

import pytest

from flowql.runtime.errors import LogCorrupt, LogError
from flowql.runtime.log.embedded.records import Append, PartitionImage, SegmentImage
from flowql.runtime.log.embedded.state import (
    WRITERS_MAX,
    Partition,
    Segment,
    Stored,
    after_ranges,
    segment_path,
    topic_directory,
)
from flowql.runtime.log.embedded.upkeep import _retained_from
from flowql.runtime.log.policy import TopicPolicy


def append(base: int, rows: int, start: int, length: int, *, segment: int = 0, time: int = 0) -> Append:
    return Append(1, 3, segment, start, length, base, rows, time)


def partition(*appends: Append, end: int = 0) -> Partition:
    found = Partition("/d", 3)
    found.start_offset = found.end_offset = end
    for a in appends:
        found.append(a)
    return found


def two_segments() -> Partition:
    """Offsets 0 to 4 in two batches, and 5 to 9 in one."""
    return partition(
        append(0, 2, 100, 50, time=7), append(2, 3, 150, 60, time=4), append(5, 5, 100, 90, segment=5, time=9)
    )


def test_a_segment_grows_with_each_batch_and_knows_where_each_lies() -> None:
    found = two_segments()
    first, second = found.segments
    assert (first.path, second.path) == (segment_path("/d", 3, 0), segment_path("/d", 3, 5))
    assert first.image() == SegmentImage(0, 210, 5, 7, 0)
    assert second.image() == SegmentImage(5, 190, 10, 9, 0), "of nothing that is in an index file yet"
    assert (found.start_offset, found.end_offset) == (0, 10)
    assert [first.locate(n) for n in range(5)] == [
        *[Stored(first.path, 100, 150, 0, 2)] * 2,
        *[Stored(first.path, 150, 210, 2, 5)] * 3,
    ]
    assert second.locate(9) == Stored(second.path, 100, 190, 5, 10)
    assert [found.segment_of(n).base for n in (0, 4, 5, 9)] == [0, 0, 5, 5]


def test_what_lies_behind_the_index_file_is_known_from_some_batch_on() -> None:
    segment = Segment("/p", SegmentImage(0, 150, 2, 7, 24))
    assert (segment.indexed_to, segment.covers(0), segment.not_indexed()) == (150, False, (array("q"), array("q")))
    segment.append(append(2, 3, 150, 60, time=4))
    segment.append(append(5, 1, 210, 40, time=9))
    assert [segment.covers(n) for n in (1, 2, 5)] == [False, True, True]
    assert segment.not_indexed() == (array("q", [2, 5]), array("q", [150, 210]))
    assert (segment.image(), segment.max_timestamp) == (SegmentImage(0, 250, 6, 9, 24), 9)
    segment.indexed_to = 210
    assert segment.not_indexed() == (array("q", [5]), array("q", [210]))
    segment.is_loaded = True
    assert segment.covers(0)


def test_a_batch_follows_the_one_before() -> None:
    found = two_segments()
    for base in (9, 11):
        with pytest.raises(LogCorrupt, match=f"offset {base} follows 10"):
            found.append(append(base, 1, 190, 10, segment=5))


def test_ranges_that_are_left_out_are_passed_one_after_the_other() -> None:
    ranges = [(2, 5), (5, 7), (9, 10)]
    assert [after_ranges(ranges, n) for n in range(11)] == [0, 1, 7, 7, 7, 7, 7, 7, 8, 10, 10]
    found = two_segments()
    first, last = found.segments
    assert [found.is_cut_off(s) for s in (first, last)] == [False, False]
    found.skip(5, 10)
    found.skip(3, 5)
    found.skip(5, 10)
    assert found.skipped == [(3, 5), (5, 10)]
    assert [found.is_cut_off(s) for s in (first, last)] == [True, True]
    found.skipped = [(5, 9)]
    assert not found.is_cut_off(last), "its end is read"
    assert not found.is_cut_off(Segment("/empty", SegmentImage(9, 0, 9, 0, 0))), "it has no end to leave out"


def test_a_partition_is_what_its_image_says() -> None:
    found, again = two_segments(), Partition("/d", 3)
    found.start_offset, found.writers, found.skipped = 3, {"q", "p"}, [(3, 4)]
    assert found.image() == PartitionImage(3, 10, [s.image() for s in found.segments], ["p", "q"], [(3, 4)])
    again.restore(found.image())
    assert again.image() == found.image()
    assert [s.path for s in again.segments] == [s.path for s in found.segments]


def test_of_writers_so_many_are_kept_as_are_asked_for() -> None:
    found = Partition("/d", 3)
    for n in range(WRITERS_MAX + 2):
        found.written_by(f"{n}")
    assert found.writers == {f"{n}" for n in range(WRITERS_MAX)}


def test_records_that_are_gone_take_whole_segments_with_them_but_the_last() -> None:
    for start, left, visible in ((0, 2, 2), (4, 2, 2), (5, 1, 1), (9, 1, 1), (10, 1, 0)):
        found = two_segments()
        found.advance_start(start)
        assert (found.start_offset, len(found.segments), len(found.visible())) == (start, left, visible)
        found.advance_start(0)
        assert found.start_offset == start


# Links


def test_segments_of_another_partition_follow_with_higher_offsets() -> None:
    source, target = two_segments(), partition(append(50, 2, 100, 50, segment=50, time=1), end=50)
    source.skipped = [(1, 2), (6, 8)]
    target.link(source)
    _, first, second = target.segments
    assert (target.end_offset, target.skipped) == (62, [(53, 54), (58, 60)])
    assert first.image() == SegmentImage(52, 210, 57, 7, 0, 0, 0, 0, 52)
    assert second.image() == SegmentImage(57, 190, 62, 9, 0, 0, 0, 0, 52)
    assert (first.path, second.path) == (segment_path("/d", 3, 52), segment_path("/d", 3, 57))
    assert first.locate(55) == Stored(first.path, 150, 210, 54, 57, 52)
    assert (first.is_loaded, first.not_indexed()[0].tolist()) == (True, [52, 54])
    assert [s.base for s in source.segments] == [0, 5], "the source is as it was"
    again = partition(end=100)
    again.link(target)
    assert [s.shift for s in again.segments] == [50, 102, 102], "offsets in the file are those of its first partition"


def test_of_a_segment_that_is_not_known_from_its_start_batches_are_looked_for() -> None:
    source = two_segments()
    source.restore(source.image())
    (first, _) = source.links(source)
    assert (first.is_loaded, first.indexed_to, first.index_bytes) == (False, 210, 0)


def test_records_that_are_gone_are_not_linked() -> None:
    source, target = two_segments(), partition(end=50)
    source.start_offset = 5
    source.skipped = [(3, 5), (4, 6)]
    target.link(source)
    assert [(s.base, s.end_offset) for s in target.segments] == [(50, 55)]
    assert (target.end_offset, target.skipped) == (55, [(49, 51)])
    source.start_offset = 3
    with pytest.raises(LogError, match="its records below 3 are gone"):
        target.links(source)


# Compaction


def test_a_segment_that_compaction_leaves_keeps_the_places_that_are_known() -> None:
    found = two_segments()
    first, last = found.segments
    found.replace(1, [first.image().cleaned(99, 2).until(7)])
    assert found.segments == [first, last]
    assert (first.cleaned_ms, first.tombstones, first.end_offset) == (99, 2, 7)
    assert first.bases.tolist() == [0, 2]
    found.replace(1, [SegmentImage(0, 60, 5, 7, 0, 1, 99, 0)])
    fresh = found.segments[0]
    assert (fresh.path, fresh.life, len(fresh.bases)) == (segment_path("/d", 3, 0, 1), 1, 0)
    assert found.segments[1] is last


def test_a_file_of_a_segment_has_its_partition_base_and_life_in_its_name() -> None:
    assert segment_path("/d", 3, 5) == "/d/3-00000000000000000005.arrows"
    assert segment_path("/d", 3, 5, 2) == "/d/3-00000000000000000005.2.arrows"
    assert topic_directory("a_B-1.é/", 7) == "a_B-1.%c3a9%2f.7"
    assert topic_directory("x" * 151, 7) == "x" * 150 + ".7"


# Retention


def three_segments() -> Partition:
    """100 bytes each, with records up to these times."""
    return partition(*(append(n, 1, 50, 50, segment=n, time=10 * (n + 1)) for n in range(3)))


@pytest.mark.parametrize(
    ("retention_ms", "now_ms", "start"),
    [(-1, 10_000, 0), (5, 15, 0), (5, 16, 1), (5, 25, 1), (5, 26, 2), (5, 36, 3), (0, 10, 0), (0, 11, 1), (0, 31, 3)],
)
def test_records_go_when_all_of_their_segment_are_older(retention_ms: int, now_ms: int, start: int) -> None:
    assert _retained_from(three_segments(), TopicPolicy(retention_ms=retention_ms), now_ms) == start


@pytest.mark.parametrize(
    ("retention_bytes", "start"), [(-1, 0), (300, 0), (201, 0), (200, 1), (101, 1), (100, 2), (1, 2), (0, 2)]
)
def test_segments_go_while_as_much_as_is_to_be_kept_is_left(retention_bytes: int, start: int) -> None:
    """Never the last one, which is written to."""
    assert _retained_from(three_segments(), TopicPolicy(retention_bytes=retention_bytes), 10_000) == start


def test_what_is_gone_already_does_not_come_back() -> None:
    found = three_segments()
    found.start_offset = 2
    assert _retained_from(found, TopicPolicy(retention_ms=5), 16) == 2

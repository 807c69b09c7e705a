"""Segment files and what compaction makes of them: sizes, index files, windows, and which segments become one."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from flowql.runtime.log import policy
from flowql.runtime.log.base import HEADERS_TYPE, TopicPartition
from flowql.runtime.log.embedded import ledger, segment, upkeep
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.embedded.records import SegmentImage
from flowql.runtime.log.embedded.segment import HEADER, SegmentFiles, _tight, encode, numbered
from flowql.runtime.log.embedded.state import Segment, segment_path
from flowql.runtime.log.embedded.upkeep import Compactable, Compacted, compact, worthwhile
from flowql.runtime.log.policy import TopicPolicy
from tests.runtime.log.records import batch, produce, values
from tests.simulated_disk import SimulatedDisk

A0 = TopicPartition("A", 0)


# Files


def test_an_index_file_has_the_place_of_each_batch_of_its_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As FORMAT.md says: blocks of (entries, checksum) and pairs of offset and byte, one block for each snapshot."""
    monkeypatch.setattr(ledger, "ROLL_BYTES", 1)
    monkeypatch.setattr(ledger, "_ROLL_SNAPSHOTS", 0)
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("A", 1)
    for n in range(3):
        produce(log, "p", (A0, [b"%d" % n] * 2))
    (known,) = log._state.topics["A"].partitions[0].segments
    data = disk.open(segment.index_path(known.path)).pread(0, 1_000)
    assert len(data) == known.index_bytes == 3 * (8 + 16)
    found = []
    for at in range(0, len(data), 24):
        count, crc = struct.unpack_from("<II", data, at)
        assert (count, zlib.crc32(data[at + 8 : at + 24])) == (1, crc)
        found.append(struct.unpack_from("<qq", data, at + 8))
    assert found == list(zip(known.bases, known.starts, strict=True))
    assert [base for base, _ in found] == [0, 2, 4]
    assert found[0][1] == HEADER.size

    again = EmbeddedLog("/log", disk)
    (other,) = again._state.topics["A"].partitions[0].segments
    scanned: list[int] = []
    monkeypatch.setattr(SegmentFiles, "_verify", lambda self, path, start, message: scanned.append(start))
    again._segments.load_index(other)
    assert (other.bases, other.starts, other.is_loaded) == (known.bases, known.starts, True)
    assert scanned == [found[-1][1]], "only the last batch is read: its end is not known"


def test_a_batch_is_verified_once_until_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("A", 1)
    produce(log, "p", (A0, [b"1"]))
    produce(log, "p", (A0, [b"2"]))
    computed: list[int] = []
    damage = segment.damage

    def counted(message: pa.Buffer, *, must_be_sealed: bool) -> str | None:
        computed.append(message.size)
        return damage(message, must_be_sealed=must_be_sealed)

    monkeypatch.setattr(segment, "damage", counted)
    assert values(log, A0) == values(log, A0) == [b"1", b"2"]
    assert len(computed) == 2
    log._segments.forget_verified()
    values(log, A0)
    assert len(computed) == 4
    monkeypatch.setattr(segment, "VERIFIED_KEPT", 1)
    log._segments.forget_verified()
    values(log, A0)
    values(log, A0)
    assert len(computed) == 8, "of so many as are kept"


@pytest.mark.parametrize("rows", [1, 7, 1_000])
def test_the_head_of_a_large_batch_is_stored_without_the_rest(rows: int) -> None:
    headers = [{"key": "h", "value": b"x" * 30}]
    every = [(n, b"%06d" % n, b"v%06d" % n, None if n % 3 and n > rows else headers) for n in range(2_000)]
    large = numbered(0, batch(every))
    (head,) = (sum(map(len, m)) for m in encode([large.slice(0, rows)]))
    (alone,) = (
        sum(map(len, m)) for m in encode([pa.RecordBatch.from_pylist(large.slice(0, rows).to_pylist(), large.schema)])
    )
    assert alone <= head <= alone + 3 * 200
    (message,) = encode([large.slice(0, rows)])
    assert pa.ipc.read_record_batch(pa.py_buffer(b"".join(map(bytes, message))), large.schema) == large.slice(0, rows)


def test_a_column_without_unused_bytes_is_stored_as_it_is() -> None:
    for column in numbered(0, batch([(n, b"%d" % n, b"v", [{"key": "h", "value": b"x"}]) for n in range(50)])).columns:
        assert _tight(column) is column


def test_rows_without_headers_take_no_bytes_for_elements_of_lists() -> None:
    """An offset and a bit each: with as many empty elements it was twelve bytes."""
    sizes = []
    for n in (1_000, 2_000):
        headers = pa.nulls(n, HEADERS_TYPE)
        tight = _tight(headers)
        tight.validate(full=True)
        assert tight.equals(headers)
        sizes.append(sum(b.size for b in tight.buffers() if b is not None))
    assert sizes[1] - sizes[0] == 1_000 * 4 + 1_000 // 8
    rows = numbered(0, batch([(n, b"k", b"v") for n in range(100)]))
    (message,) = encode([rows.slice(3, 50)])
    assert pa.ipc.read_record_batch(pa.py_buffer(b"".join(map(bytes, message))), rows.schema) == rows.slice(3, 50)
    assert len(_tight(headers.slice(0, 0))) == 0


def test_a_link_takes_the_place_of_what_a_failed_transaction_has_left() -> None:
    work = Compacting([(b"k", b"v")])
    (first,) = work.segments
    for name in ("/log/t/1-0.arrows", "/log/t/1-0.index"):
        work.disk.open(name, create=True).pwrite(0, [b"left"])
    reading = SegmentFiles(work.disk)
    reading.link(first, "/log/t/1-0.arrows")
    assert work.disk.open("/log/t/1-0.arrows").size() == first.length
    assert not work.disk.exists("/log/t/1-0.index")


def test_windows_of_files_are_reused_and_the_oldest_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "WINDOWS_KEPT", 2)
    monkeypatch.setattr(policy, "SEGMENT_BYTES", 1)
    log = EmbeddedLog("/log", SimulatedDisk())
    log.create_topic("A", 1)
    for n in range(4):
        produce(log, "p", (A0, [b"%d" % n]))
    paths = [s.path for s in log._state.topics["A"].partitions[0].segments]
    kept = lambda: [path for path, _ in log._segments._windows]  # noqa: E731
    reader = log.reader(A0)
    for expected in ([0], [0, 1], [1, 2]):
        assert reader.read(1, 1 << 20) is not None
        assert kept() == [paths[n] for n in expected]
    window = log._segments._windows[paths[1], 0]
    reader.seek(1)
    reader.read(1, 1 << 20)
    assert kept() == [paths[2], paths[1]], "the one that was used last stays longest"
    assert log._segments._windows[paths[1], 0] is window
    log.drop_before(A0, 2)
    assert kept() == [paths[2]]
    log.close()
    assert kept() == []


# Compaction


NOW, DAY = 100 * 86_400_000, 86_400_000
Rows = list[tuple[bytes | None, bytes | None]]


class Compacting:
    """Closed segments on a disk, one for each list of (key, value)."""

    def __init__(
        self, *contents: Rows, cleaned: tuple[int, ...] = (), start: int = 0, floor: int = 1_000, read: int = 1_000
    ) -> None:
        self.disk = SimulatedDisk()
        self.disk.makedirs("/log/t")
        self.segments, base = list[Segment](), 0
        for n, rows in enumerate(contents):
            path = segment_path("/log/t", 0, base)
            file = self.disk.open(path, create=True)
            (message,) = encode([numbered(base, batch([(base + i, *row) for i, row in enumerate(rows)]))])
            file.pwrite(0, [HEADER, *message])
            since = cleaned[n] if n < len(cleaned) else 0
            end = base + len(rows)
            image = SegmentImage(base, file.size(), end, end - 1, 0, 0, since, sum(v is None for _, v in rows))
            self.segments.append(Segment(path, image))
            base = end
        self.what = Compactable("/log/t", 0, self.segments, start, floor, read)

    def run(self, now_ms: int = NOW, **options: int) -> Compacted | None:
        return compact(self.disk, SegmentFiles(self.disk), self.what, TopicPolicy(**options), now_ms)  # type: ignore[arg-type]

    def read(self, image: SegmentImage) -> list[tuple[int, bytes | None]]:
        found = Segment(segment_path("/log/t", 0, image.base, image.life), image)
        batches: Iterator[pa.RecordBatch] = SegmentFiles(self.disk).batches(found)
        return [(r["offset"], r["value"]) for b in batches for r in b.to_pylist()]


A, B, C = ((k, b"v") for k in (b"a", b"b", b"c"))


def test_small_neighbours_become_one_segment_and_what_is_whole_and_alone_stays() -> None:
    work = Compacting([A, B], [A], [C])
    done = work.run()
    assert done is not None
    (image,) = done.images
    assert (image.base, image.end_offset, image.max_timestamp, image.life, image.cleaned_ms) == (0, 4, 3, 1, NOW)
    assert (image.index_bytes, image.tombstones, image.shift) == (0, 0, None)
    assert work.read(image) == [(1, b"v"), (2, b"v"), (3, b"v")]
    assert image.length == work.disk.open(segment_path("/log/t", 0, 0, 1)).size()
    assert (done.replaced, done.made) == ([s.path for s in work.segments], [segment_path("/log/t", 0, 0, 1)])

    alone = Compacting([A, B])
    done = alone.run()
    assert done is not None
    assert (done.images, done.made) == ([alone.segments[0].image().cleaned(NOW, 0)], []), "and is clean now"
    clean = Compacting([A, B], cleaned=(5,))
    assert clean.run() is None


def test_segments_join_up_to_the_size_of_a_segment() -> None:
    sizes = [1 for _ in range(4)]
    contents = [[(b"%d" % n, b"v" * 100)] for n in range(len(sizes))]
    work = Compacting(*contents)
    each = next(SegmentFiles(work.disk).batches(work.segments[0])).nbytes
    for most, groups in (
        (4 * each, [4]),
        (4 * each - 1, [3, 1]),
        (2 * each, [2, 2]),
        (each, [1, 1, 1, 1]),
        (1, [1] * 4),
    ):
        done = Compacting(*contents).run(segment_bytes=most)
        assert done is not None
        assert [i.end_offset - i.base for i in done.images] == groups, most


def test_segments_whose_tombstones_began_at_other_times_do_not_join() -> None:
    gone = [(b"x", None)]
    work = Compacting([A, *gone], [B], [C], cleaned=(NOW - 5, NOW - 5, NOW - 4))
    work.what = Compactable("/log/t", 0, work.segments, 1, 1_000, 1_000)  # the first record is gone
    done = work.run()
    assert done is not None
    assert [(i.base, i.end_offset, i.cleaned_ms, i.tombstones) for i in done.images] == [
        (0, 3, NOW - 5, 1),
        (3, 4, NOW - 4, 0),
    ]
    old = Compacting([A, *gone], [B], [C], cleaned=(NOW - 3 * DAY, NOW - 2 * DAY, NOW - DAY))
    done = old.run()
    assert done is not None
    assert [(i.base, i.end_offset, i.cleaned_ms, i.tombstones) for i in done.images] == [(0, 4, NOW - DAY, 0)]
    assert [offset for offset, _ in old.read(done.images[0])] == [0, 2, 3], "all have had their time"


def test_a_segment_of_which_nothing_stays_widens_the_one_before() -> None:
    work = Compacting([B], [A], [A, C])
    done = work.run(segment_bytes=1)
    assert done is not None
    assert [(i.base, i.end_offset) for i in done.images] == [(0, 2), (2, 4)]
    first = Compacting([A], [A, C]).run(segment_bytes=1)
    assert first is not None
    assert [(i.base, i.end_offset) for i in first.images] == [(1, 3)], "there is none before"


@pytest.mark.parametrize(
    ("cleaned_ms", "now_ms", "floor", "stays"),
    [
        (NOW, NOW + DAY - 1, 9, True),
        (NOW, NOW + DAY, 9, False),
        (NOW, NOW + DAY, 2, False),
        (NOW, NOW + DAY, 1, True),
        (0, NOW, 9, True),
    ],
)
def test_a_tombstone_stays_for_its_time_and_for_readers(cleaned_ms: int, now_ms: int, floor: int, stays: bool) -> None:
    work = Compacting([B, (b"x", None)], cleaned=(cleaned_ms,), floor=floor)
    done = work.run(now_ms)
    left = work.segments[0].image() if done is None else done.images[0]
    assert [v for _, v in work.read(left)] == [b"v", *([None] if stays else [])]
    assert left.tombstones == stays
    if cleaned_ms:
        assert worthwhile(work.what, TopicPolicy(), now_ms) == (not stays)


def test_records_that_a_group_has_still_to_read_stay_and_are_compacted_later() -> None:
    """The tick of a group may end between two records of a key."""
    x, y = (b"x", b"v"), (b"y", b"v")
    work = Compacting([A, C], [A, B], [A, B, x], [y], cleaned=(5,), read=3)
    for again in range(2):
        done = work.run()
        if not again:
            assert done is not None
            images = done.images
            assert [work.read(i) for i in images] == [[(1, b"v")], [(n, b"v") for n in range(3, 8)]]
            assert [i.cleaned_ms for i in images] == [5, 0], "never compacted, so that it is looked at again"
        else:
            assert done is None, "nothing changes before the group goes on"
        work.what = replace(work.what, segments=[Segment(segment_path("/log/t", 0, i.base, i.life), i) for i in images])
    work.what = replace(work.what, read=8)
    done = work.run()
    assert done is not None
    assert [offset for i in done.images for offset, _ in work.read(i)] == [1, 4, 5, 6, 7]
    assert all(i.cleaned_ms for i in done.images)


def test_what_was_left_to_groups_is_not_worth_a_pass_before_they_go_on() -> None:
    work = Compacting([A], [B], [C], [A], cleaned=(5, 5, 5))
    for is_held in (False, True):
        assert worthwhile(work.what, TopicPolicy(dirty_ratio=0.0), NOW, is_held=is_held) != is_held


@pytest.mark.parametrize(("dirty", "ratio", "is_worth_it"), [(1, 0.25, True), (1, 0.26, False), (0, 0.0, False)])
def test_so_much_is_dirty_before_it_is_compacted(dirty: int, ratio: float, is_worth_it: bool) -> None:
    work = Compacting([A], [B], [C], [A], cleaned=(5,) * (4 - dirty))
    assert worthwhile(work.what, TopicPolicy(dirty_ratio=ratio), NOW) == is_worth_it


def test_what_is_dirty_is_compacted_in_parts_of_a_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Compacting([A], [A], [A], [A], cleaned=(5,))
    length = work.segments[1].length
    for most, replaced in ((2 * length, 3), (2 * length - 1, 2), (1, 2), (3 * length, 4)):
        monkeypatch.setattr(upkeep, "DIRTY_BYTES", most)
        done = work.run()
        assert done is not None
        assert len(done.replaced) == replaced, most


def test_records_are_stored_again_in_batches_of_some_size(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = [[(b"%d" % n, b"v" * 100)] for n in range(6)]
    work = Compacting(*contents)
    each = next(SegmentFiles(work.disk).batches(work.segments[0])).nbytes
    monkeypatch.setattr(upkeep, "BATCH_BYTES", 2 * each)
    done = work.run()
    assert done is not None
    found = Segment(segment_path("/log/t", 0, 0, 1), done.images[0])
    assert [b.num_rows for b in SegmentFiles(work.disk).batches(found)] == [2, 2, 2]


def test_a_compaction_that_fails_leaves_no_file() -> None:
    work = Compacting([A, B], [A], [C])
    before = set(work.disk._nodes)
    work.disk.full_at = work.disk.writes + 2
    with pytest.raises(OSError, match="No space"):
        work.run()
    assert set(work.disk._nodes) == before

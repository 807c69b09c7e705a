"""Retention and compaction of the embedded log, which has no broker that would do it.

What costs time - reading and writing segments - is done without the append lock. Under it, for a moment, the commit log says what
takes the place of what; if something else did so meanwhile, the work is thrown away. One process at a time compacts.

As in Kafka, only closed segments are compacted, and the last record of each key stays, at its offset. The last offset of each key is looked
up in the segments that were never compacted (*dirty*). Then all segments are read, and a record with a later one of its key among them is
dropped. Records without a key stay. A tombstone stays until its retention time has passed since it was first compacted: earlier records of
its key are gone by then. All records that a group has not read yet stay, and their segments stay dirty: a later record may belong to a later
tick, and until then its reader would have no record of the key.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowql.runtime.errors import BatchDamaged, LogFull
from flowql.runtime.log.base import Position
from flowql.runtime.log.embedded.ledger import COMPACTION_LOCK, Ledger
from flowql.runtime.log.embedded.records import AdvanceStart, Replace, SegmentImage
from flowql.runtime.log.embedded.segment import HEADER, MISSING, SegmentFiles, encode
from flowql.runtime.log.embedded.state import Partition, Segment, Topic, segment_path
from flowql.runtime.log.files import Files
from flowql.runtime.log.murmur2 import partitions
from flowql.runtime.log.policy import TopicPolicy, imported_topic

DIRTY_BYTES = 256 << 20  # of dirty segments that are compacted at once; what is behind them waits for the next time
# Memory for the last offsets of keys. Measured for 2.5 million keys of 8 bytes, grouped and looked up: 140 bytes each.
TABLE_BYTES, ENTRY_BYTES = 48 << 20, 120
HASHES = 251  # ranges of hashes; a prime, as the number of a topic's partitions divides hashes of all keys of a partition alike
BATCH_BYTES = 1 << 20  # kept records are stored again in batches of about this size


_NO_KEYS, _NO_OFFSETS = pa.nulls(0, pa.binary()), pa.nulls(0, pa.int64())


@dataclass(frozen=True, slots=True)
class Compactable:
    """The input of a compaction. segments: from the partition's first one on, without the one that is written to.

    start: the partition's start offset. floor: tombstones from this offset on have readers that have not seen them. read: records from this
    offset on stay, as groups have still to read them. skipped: ranges of damaged records, which are dropped.
    """

    directory: str
    number: int
    segments: Sequence[Segment]
    start: int
    floor: int
    read: int
    skipped: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class Compacted:
    """Segments that may take the place of others, durable. replaced: paths of those; made: new paths among the images'."""

    replaced: list[str]
    images: list[SegmentImage]
    made: list[str]


def worthwhile(what: Compactable, policy: TopicPolicy, now_ms: int, *, is_held: bool = False) -> bool:
    """Whether enough is dirty, or tombstones have had their time. is_held: the last pass left dirty records for groups that have not moved since."""
    dirty = 0 if is_held else sum(s.length for s in what.segments if not s.cleaned_ms)
    total = sum(s.length for s in what.segments)
    if dirty and dirty >= policy.dirty_ratio * total:
        return True
    return any(s.tombstones and _is_past(s, policy, now_ms) and s.end_offset <= what.floor for s in what.segments)


def compact(
    files: Files, reading: SegmentFiles, what: Compactable, policy: TopicPolicy, now_ms: int
) -> Compacted | None:
    """None if nothing changes. FileNotFoundError if another process was quicker. What was written is removed on an error."""
    segments = _bounded(what.segments)
    superseded = _Superseded(reading, segments, what, TABLE_BYTES)
    out = _Output(files, what, policy, 1 + max((s.life for s in segments), default=0))
    try:
        for segment in segments:
            kept = _kept(superseded, segment, what, drop_tombstones=_is_past(segment, policy, now_ms))
            out.add(kept, _is_past(segment, policy, now_ms), 0 if superseded.is_held else now_ms)
        out.finish()
    except BaseException:
        out.discard()
        raise
    if out.images == [s.image() for s in segments]:
        return None
    return Compacted([s.path for s in segments], out.images, out.made)


def _is_past(segment: Segment, policy: TopicPolicy, now_ms: int) -> bool:
    return bool(segment.cleaned_ms) and segment.cleaned_ms + policy.delete_retention_ms <= now_ms


def _bounded(segments: Sequence[Segment]) -> list[Segment]:
    """Those that are compacted at once: the clean ones before, and a limited number of dirty ones."""
    taken: list[Segment] = []
    dirty = 0
    for segment in segments:
        if not segment.cleaned_ms:
            if dirty and dirty + segment.length > DIRTY_BYTES:
                break
            dirty += segment.length
        taken.append(segment)
    return taken


class _Superseded:
    """Marks records that all groups have read and whose key has a later record in a dirty segment. is_held: such a record stays for a group.

    The table of last offsets takes more memory than the keys themselves, so it is made for a part of all keys at a time: those whose hashes
    lie in one range.
    """

    def __init__(self, reading: SegmentFiles, segments: Sequence[Segment], what: Compactable, at_once: int) -> None:
        """at_once: bytes of one table."""
        self._reading, self._skipped, self.is_held = reading, what.skipped, False
        self._of: dict[str, npt.NDArray[np.bool_]] = {}
        self._hashes: dict[str, npt.NDArray[np.uint8]] = {}
        dirty = [s for s in segments if not s.cleaned_ms]
        self._parts = min(HASHES, 1 + sum(map(self._table_bytes, dirty)) // at_once)
        for part in range(self._parts):
            latest = _Latest.of([self._selected(s, part)[:2] for s in dirty])
            for segment in segments:
                keys, offsets, rows = self._selected(segment, part)
                marks = latest.superseded(keys, offsets)
                is_read = pc.less(offsets, what.read).to_numpy(zero_copy_only=False)
                self._of[segment.path][rows] = marks & is_read
                self.is_held |= bool((marks & ~is_read).any())

    def batches(self, segment: Segment) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """The records of a segment, each batch with the marks of its records."""
        gone, first = self._of[segment.path], 0
        for batch in self._reading.batches(segment, self._skipped):
            yield batch, pa.array(gone[first : first + batch.num_rows])
            first += batch.num_rows

    def _table_bytes(self, segment: Segment) -> int:
        """About as much as its keys take in a table."""
        first = next(self._reading.batches(segment, self._skipped), None)
        if first is None or not first.num_rows:
            return 0
        return (segment.end_offset - segment.base) * (ENTRY_BYTES + first.column("key").nbytes // first.num_rows)

    def _selected(self, segment: Segment, part: int) -> tuple[pa.Array, pa.Array, npt.NDArray[np.int64] | slice]:
        """Keys and offsets of the records of one part, and which of the segment's records these are."""
        batches = list(self._reading.batches(segment, self._skipped))
        keys = pa.concat_arrays([b.column("key") for b in batches]) if batches else _NO_KEYS
        offsets = pa.concat_arrays([b.column("offset") for b in batches]) if batches else _NO_OFFSETS
        self._of.setdefault(segment.path, np.zeros(len(keys), np.bool_))
        if self._parts == 1:
            return keys, offsets, slice(None)
        if segment.path not in self._hashes:
            self._hashes[segment.path] = partitions(keys, HASHES).astype(np.uint8)
        rows = np.flatnonzero(self._hashes[segment.path].astype(np.int64) * self._parts // HASHES == part)
        return keys.take(pa.array(rows)), offsets.take(pa.array(rows)), rows


class _Latest:
    """The last offset of each key."""

    def __init__(self, keys: pa.Array, offsets: pa.Array) -> None:
        self._keys, self._offsets = keys, offsets

    @classmethod
    def of(cls, parts: Sequence[tuple[pa.Array, pa.Array]]) -> _Latest:
        """parts: keys and offsets of records."""
        tables = [pa.table({"key": keys, "offset": offsets}).drop_null() for keys, offsets in parts]
        if not tables:
            return cls(_NO_KEYS, _NO_OFFSETS)
        found = pa.concat_tables(tables).group_by("key").aggregate([("offset", "max")]).combine_chunks()
        return cls(_array(found.column("key")), _array(found.column("offset_max")))

    def superseded(self, keys: pa.Array, offsets: pa.Array) -> npt.NDArray[np.bool_]:
        """For each record, whether its key has a later one.

        Pass as many records at once as possible: each call makes a hash table of all keys.
        """
        at = pc.index_in(keys, self._keys, skip_nulls=True)
        gone = pc.fill_null(pc.less(offsets, self._offsets.take(at)), fill_value=False)
        found: npt.NDArray[np.bool_] = gone.to_numpy(zero_copy_only=False)
        return found


def _array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


@dataclass(slots=True)
class _Kept:
    """The records of one segment that stay."""

    segment: Segment
    pieces: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0
    tombstones: int = 0
    is_whole: bool = True


def _kept(superseded: _Superseded, segment: Segment, what: Compactable, *, drop_tombstones: bool) -> _Kept:
    kept = _Kept(segment)
    kept.is_whole = not any(first < segment.end_offset and segment.base < end for first, end in what.skipped)
    for batch, marks in superseded.batches(segment):
        gone = marks
        deletes = pc.and_(pc.is_null(batch.column("value")), pc.is_valid(batch.column("key")))
        if drop_tombstones:
            gone = pc.or_(gone, pc.and_(deletes, pc.less(batch.column("offset"), what.floor)))
        if segment.base < what.start:
            gone = pc.or_(gone, pc.less(batch.column("offset"), what.start))
        stays = pc.invert(gone)
        rows = pc.sum(stays).as_py() or 0
        kept.tombstones += pc.sum(pc.and_(stays, deletes)).as_py() or 0
        kept.is_whole &= rows == batch.num_rows
        if rows:
            kept.pieces.append(batch if rows == batch.num_rows else batch.filter(stays))
            kept.size += kept.pieces[-1].nbytes
    return kept


class _Output:
    """Turns what stays of segments into segments: small neighbours become one, what is whole and alone stays as it is.

    Tombstones count from when their segment was first compacted. So only segments join whose tombstones have had their time all, or
    began at the same one.
    """

    def __init__(self, files: Files, what: Compactable, policy: TopicPolicy, life: int) -> None:
        self._files, self._what, self._life = files, what, life
        self._segment_bytes = policy.segment_limit
        self._group: list[_Kept] = []
        self._age: tuple[bool, int] = (False, 0)
        self.images: list[SegmentImage] = []
        self.made: list[str] = []

    def add(self, kept: _Kept, is_past: bool, now_ms: int) -> None:
        """now_ms: the time of this pass; 0 if dirty segments stay dirty."""
        cleaned_ms = kept.segment.cleaned_ms or now_ms
        age = (True, 0) if is_past else (False, cleaned_ms)
        if self._group and (age != self._age or sum(k.size for k in self._group) + kept.size > self._segment_bytes):
            self._flush()
        self._age = age
        self._group.append(kept)

    def finish(self) -> None:
        if self._group:
            self._flush()
        if self.made:
            self._files.fsync_dir(self._what.directory)

    def discard(self) -> None:
        for path in self.made:
            with contextlib.suppress(OSError):  # the next one that opens the log removes what no record names
                self._files.unlink(path)

    def _flush(self) -> None:
        group, self._group = self._group, []
        first, last = group[0].segment, group[-1].segment
        cleaned_ms = max(k.segment.cleaned_ms for k in group) or self._age[1]
        tombstones = sum(k.tombstones for k in group)
        if len(group) == 1 and group[0].is_whole:
            self.images.append(first.image().cleaned(cleaned_ms, tombstones))
        elif any(k.pieces for k in group):
            length = self._write(first.base, _drained(group))
            newest = max(k.segment.max_timestamp for k in group)
            self.images.append(
                SegmentImage(first.base, length, last.end_offset, newest, 0, self._life, cleaned_ms, tombstones)
            )
        elif self.images:  # segments follow each other without a gap, so that each offset lies in one
            self.images[-1] = self.images[-1].until(last.end_offset)

    def _write(self, base: int, pieces: Iterator[pa.RecordBatch]) -> int:
        """The length of the new segment. A batch at a time: a segment would be in memory three times."""
        path = segment_path(self._what.directory, self._what.number, base, self._life)
        self.made.append(path)
        self._files.unlink(path)  # a crash may have left one, or a link to a segment of another partition
        file = self._files.open(path, create=True, write=True)
        try:
            length = 0
            for buffers in chain([[HEADER]], encode(_joined(pieces))):
                file.pwrite(length, buffers)
                length += sum(map(len, buffers))
            file.fsync()
        finally:
            file.close()
        return length


def _drained(group: Sequence[_Kept]) -> Iterator[pa.RecordBatch]:
    """The remaining records of these segments; only the caller holds each piece."""
    for kept in group:
        kept.pieces.reverse()
        while kept.pieces:
            yield kept.pieces.pop()


def _joined(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same records in batches of about BATCH_BYTES."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += piece.nbytes
        if size >= BATCH_BYTES:
            yield pa.concat_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


# A group that has not yet read a tombstone keeps it, but not for longer than this: it may be long gone.
READERS_MS = 30 * 86_400_000
# A position that so many later commits of its writer did not carry belongs to no running query.
COMMITS = 10_000


class Upkeep:
    """Rounds over all topics. One thread."""

    def __init__(self, files: Files, directory: str, ledger: Ledger) -> None:
        self._files, self._directory, self._ledger = files, directory, ledger
        # By topic and partition, from the last pass that left records for groups: the lowest position of groups, and the end of closed segments.
        self._held = dict[tuple[int, int], tuple[int, int]]()

    def run(self, now_ms: int) -> None:
        """One round. now_ms: since the epoch, as records' timestamps. LogFull if there is no space to compact; retention was done then.

        Any other trouble with the disk is a LogError, and the log is as it was.
        """
        self._ledger.refresh()
        for topic in self._topics():
            self._retain(topic, now_ms)
        with self._ledger.errors():
            lock = self._files.lock(f"{self._directory}/{COMPACTION_LOCK}", wait=False)
            if lock is None:  # another process is at it
                return
            try:
                damaged: BatchDamaged | None = None
                for topic, partition in [(t, p) for t in self._topics() if t.policy.compacts for p in t.partitions]:
                    try:
                        self._compact(topic, partition, now_ms)
                    except BatchDamaged as e:  # it stays as it is; others go on
                        damaged = e
                if damaged is not None:
                    raise damaged
            finally:
                lock.release()

    def _topics(self) -> list[Topic]:
        with self._ledger.lock:
            return list(self._ledger.state.topics.values())

    def _is_there(self, topic: Topic) -> bool:
        return self._ledger.state.by_id.get(topic.id) is topic

    # Retention

    def _retain(self, topic: Topic, now_ms: int) -> None:
        policy = topic.policy
        if not policy.deletes:
            return
        with self._ledger.lock:
            due = any(_retained_from(p, policy, now_ms) > p.start_offset for p in topic.partitions)
        if not due:
            return
        with self._ledger.owning([topic.owner_name]), self._ledger.appending():
            if not self._is_there(topic):
                return
            for partition in topic.partitions:
                start = _retained_from(partition, policy, now_ms)
                if start > partition.start_offset:
                    with self._ledger.removing([partition]):
                        self._ledger.write(AdvanceStart(topic.id, partition.number, start))

    # Compaction

    def _compact(self, topic: Topic, partition: Partition, now_ms: int) -> None:
        policy = topic.policy
        with self._ledger.lock:
            if not self._is_there(topic):
                return
            closed, skipped = list(partition.segments[:-1]), list(partition.skipped)
            floor, read = self._floor(topic, partition, now_ms), self._read(topic, partition)
            what = Compactable(
                partition.directory, partition.number, closed, partition.start_offset, floor, read, skipped
            )
        if not closed:
            return
        key, until = (topic.id, partition.number), (read, closed[-1].end_offset)
        if not worthwhile(what, policy, now_ms, is_held=self._held.get(key) == until):
            return
        try:
            done = compact(self._files, self._ledger.segments, what, policy, now_ms)
        except FileNotFoundError:
            self._check_removed(topic, partition, closed)
            return
        if any(not image.cleaned_ms for image in (done.images if done is not None else [s.image() for s in closed])):
            self._held[key] = until
        if done is not None:
            self._take_place(topic, partition, done)

    def _check_removed(self, topic: Topic, partition: Partition, segments: Sequence[Segment]) -> None:
        """Raises BatchDamaged unless retention or a deletion was quicker, which tell the commit log before they remove files."""
        gone = [s for s in segments if not self._files.exists(s.path)]
        with self._ledger.appending():  # all that other processes have told is known
            missing = next((s for s in gone if self._is_there(topic) and s in partition.segments), None)
        if missing is not None:
            whose = f"offsets {missing.base} to {missing.end_offset - 1} of {topic.info.name}-{partition.number}"
            raise BatchDamaged(missing.path, 0, MISSING, whose)

    def _take_place(self, topic: Topic, partition: Partition, done: Compacted) -> None:
        count = len(done.replaced)
        try:
            with self._ledger.appending():
                current = [s.path for s in partition.segments[:count]]
                if not self._is_there(topic) or current != done.replaced or len(partition.segments) <= count:
                    self._discard(done)
                    return
                with self._ledger.removing([partition]):
                    self._ledger.write(Replace(topic.id, partition.number, count, done.images))
        except LogFull:
            self._discard(done)
            raise

    def _discard(self, done: Compacted) -> None:
        for path in done.made:
            self._files.unlink(path)

    def _floor(self, topic: Topic, partition: Partition, now_ms: int) -> int:
        """Tombstones from here on a group has still to read."""
        floor = min([partition.end_offset, *(p.offset for p in self._positions(topic, partition))])
        old = [s.end_offset for s in partition.segments if s.cleaned_ms and s.cleaned_ms + READERS_MS <= now_ms]
        return max([floor, *old])

    def _read(self, topic: Topic, partition: Partition) -> int:
        """The offset up to which all active groups have read the partition."""
        live = (p.offset for p in self._positions(topic, partition) if not self._is_left(p))
        return min([partition.end_offset, *live])

    def _positions(self, topic: Topic, partition: Partition) -> list[Position]:
        readers = [e for g, e in self._ledger.state.groups.items() if not imported_topic(g)]
        return [e[topic.id, partition.number] for e in readers if (topic.id, partition.number) in e]

    def _is_left(self, position: Position) -> bool:
        """Whether its query has stopped or was removed: each commit of an application carries the positions of all its other queries.

        Positions that no commit of an instance wrote, such as those of Spark's queries, tell nothing of the kind, and hold no record back.
        """
        if position.commit is None:
            return True
        writer, sequence = position.commit
        newest = self._ledger.state.producers.get(writer)
        return newest is not None and newest.sequence - sequence > COMMITS


def _retained_from(partition: Partition, policy: TopicPolicy, now_ms: int) -> int:
    """The offset below which records may go: whole segments from the first on, the last one only for its age."""
    start = partition.start_offset
    size = sum(s.length for s in partition.segments)
    for i, segment in enumerate(partition.segments):
        is_last = i + 1 == len(partition.segments)
        too_old = policy.retention_ms >= 0 and segment.max_timestamp < now_ms - policy.retention_ms
        too_much = policy.retention_bytes >= 0 and not is_last and size - segment.length >= policy.retention_bytes
        if not (too_old or too_much):
            break
        start = segment.end_offset
        size -= segment.length
    return max(start, partition.start_offset)

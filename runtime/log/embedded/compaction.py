"""Compaction of one partition: of each key the last record stays, at its offset.

As in Kafka: only segments that nobody writes to any more take part. Of those that were never compacted (*dirty*) the last offset
of each key is found; then all are read, and a record with a later one of its key among them goes. Records without a key stay.
A tombstone stays until its time has passed since it was first compacted: earlier records of its key are gone by then.
What is left is written to new files; nothing here makes them part of the log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from runtime.log.embedded.records import SegmentImage
from runtime.log.embedded.segment import HEADER, SegmentFiles, encode
from runtime.log.embedded.state import Segment, segment_path
from runtime.log.files import Files
from runtime.log.policy import TopicPolicy

# Of so many bytes of dirty segments the keys are held in memory at once; what is behind them waits for the next time.
DIRTY_BYTES = 256 << 20
BATCH_BYTES = 1 << 20  # kept records are stored again in batches of about this size


@dataclass(frozen=True, slots=True)
class Compactable:
    """What is compacted. segments: from the partition's first one on, without the one that is written to.

    start: the partition's start offset. floor: tombstones from this offset on have readers that have not seen them. skipped: ranges of
    damaged records, which are dropped.
    """

    directory: str
    number: int
    segments: Sequence[Segment]
    start: int
    floor: int
    skipped: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class Compacted:
    """Segments that may take the place of others, durable. replaced: paths of those; made: new paths among the images'."""

    replaced: list[str]
    images: list[SegmentImage]
    made: list[str]


def worthwhile(what: Compactable, policy: TopicPolicy, now_ms: int) -> bool:
    """Whether enough is dirty, or tombstones have had their time."""
    dirty = sum(s.length for s in what.segments if not s.cleaned_ms)
    total = sum(s.length for s in what.segments)
    if dirty and dirty >= policy.dirty_ratio * total:
        return True
    return any(s.tombstones and _is_past(s, policy, now_ms) and s.end_offset <= what.floor for s in what.segments)


def compact(
    files: Files, reading: SegmentFiles, what: Compactable, policy: TopicPolicy, now_ms: int
) -> Compacted | None:
    """None if nothing changes. FileNotFoundError if another process was quicker. What was written is removed on an error."""
    segments = _bounded(what.segments)
    latest = _Latest.of(reading, [s for s in segments if not s.cleaned_ms], what.skipped)
    out = _Output(files, what, policy, 1 + max((s.life for s in segments), default=0))
    try:
        for segment in segments:
            kept = _kept(reading, segment, latest, what, drop_tombstones=_is_past(segment, policy, now_ms))
            out.add(kept, _is_past(segment, policy, now_ms), now_ms)
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


class _Latest:
    """The last offset of each key."""

    def __init__(self, keys: pa.Array, offsets: pa.Array) -> None:
        self._keys, self._offsets = keys, offsets

    @classmethod
    def of(cls, reading: SegmentFiles, segments: Sequence[Segment], skipped: Sequence[tuple[int, int]] = ()) -> _Latest:
        parts = [
            pa.table({"key": batch.column("key"), "offset": batch.column("offset")}).drop_null()
            for segment in segments
            for batch in reading.batches(segment, skipped)
        ]
        if not parts:
            return cls(pa.array([], pa.binary()), pa.array([], pa.int64()))
        found = pa.concat_tables(parts).group_by("key").aggregate([("offset", "max")]).combine_chunks()
        return cls(_array(found.column("key")), _array(found.column("offset_max")))

    def superseded(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.Array]:
        """Of each batch: of each record, whether there is a later one of its key.

        Of many batches at once: each look-up makes a hash table of all keys anew, and a commit may leave batches of a few records.
        """
        if not batches:
            return
        keys, offsets = (pa.concat_arrays([b.column(name) for b in batches]) for name in ("key", "offset"))
        at = pc.index_in(keys, self._keys, skip_nulls=True)
        gone = pc.fill_null(pc.less(offsets, self._offsets.take(at)), fill_value=False)
        first = 0
        for batch in batches:
            yield gone.slice(first, batch.num_rows)
            first += batch.num_rows


def _array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


@dataclass(slots=True)
class _Kept:
    """What stays of one segment."""

    segment: Segment
    pieces: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0
    tombstones: int = 0
    is_whole: bool = True


def _kept(
    reading: SegmentFiles, segment: Segment, latest: _Latest, what: Compactable, *, drop_tombstones: bool
) -> _Kept:
    kept = _Kept(segment)
    kept.is_whole = not any(first < segment.end_offset and segment.base < end for first, end in what.skipped)
    batches = list(reading.batches(segment, what.skipped))
    for batch, superseded in zip(batches, latest.superseded(batches), strict=True):
        gone = superseded
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
            image = first.image()
            self.images.append(
                SegmentImage(
                    *(image.base, image.length, image.end_offset, image.max_timestamp, image.index_bytes),
                    image.life,
                    cleaned_ms,
                    tombstones,
                )
            )
        elif any(k.pieces for k in group):
            length = self._write(first.base, [p for k in group for p in k.pieces])
            newest = max(k.segment.max_timestamp for k in group)
            self.images.append(
                SegmentImage(first.base, length, last.end_offset, newest, 0, self._life, cleaned_ms, tombstones)
            )
        elif self.images:  # segments follow each other without a gap, so that each offset lies in one
            self.images[-1] = self.images[-1].until(last.end_offset)

    def _write(self, base: int, pieces: list[pa.RecordBatch]) -> int:
        path = segment_path(self._what.directory, self._what.number, base, self._life)
        self.made.append(path)
        buffers = [HEADER, *chain.from_iterable(encode(_joined(pieces)))]
        file = self._files.open(path, create=True, write=True)
        try:
            file.truncate(0)  # a crash may have left one
            file.pwrite(0, buffers)
            file.fsync()
        finally:
            file.close()
        return sum(map(len, buffers))


def _joined(pieces: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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

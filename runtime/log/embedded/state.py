"""The log's state after reading its commit log: topics, partitions, segments, positions, producers. No I/O.

`apply` is the only thing that changes it; the caller holds the log's state lock.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from flowql.runtime.errors import LogCorrupt, LogError
from flowql.runtime.log.base import Position, TopicInfo, TopicPartition
from flowql.runtime.log.embedded.records import (
    AdvanceStart,
    Append,
    Commit,
    CreateTopic,
    DeleteTopic,
    GroupPosition,
    InitProducer,
    Link,
    NewShape,
    PartitionImage,
    ProducerImage,
    Record,
    Redo,
    Replace,
    SegmentImage,
    SetConfig,
    Skip,
    Snapshot,
    TopicImage,
    TrimRedo,
)
from flowql.runtime.log.policy import TopicPolicy, imported_topic

WRITERS_MAX = 8  # transactional ids kept of a partition: a lookup needs no more


class Segment:
    """A segment file up to its committed length.

    bases, starts: offset and byte at which each stored batch begins, from some batch on to the last. Batches before byte
    `indexed_to` are in the index file too (its first `index_bytes`) if `is_indexed`; those of them that are not in memory are
    loaded when they are read (then `is_loaded`). life, cleaned_ms, tombstones, shift: see SegmentImage. All offsets but those in the file are
    of the partition that it is a segment of.
    """

    __slots__ = (
        "base",
        "bases",
        "cleaned_ms",
        "end_offset",
        "index_bytes",
        "indexed_to",
        "is_indexed",
        "is_loaded",
        "length",
        "life",
        "max_timestamp",
        "path",
        "shift",
        "starts",
        "tombstones",
    )

    def __init__(self, path: str, image: SegmentImage) -> None:
        self.path = path
        self.base, self.length, self.end_offset = image.base, image.length, image.end_offset
        self.max_timestamp, self.index_bytes = image.max_timestamp, image.index_bytes
        self.life, self.cleaned_ms, self.tombstones, self.shift = (
            image.life,
            image.cleaned_ms,
            image.tombstones,
            image.shift,
        )
        self.indexed_to = image.length
        self.is_indexed = not image.length  # else nobody has looked: a pinned log has batches that no index file has
        self.is_loaded = False
        self.bases, self.starts = array("q"), array("q")

    def image(self) -> SegmentImage:
        return SegmentImage(
            *(self.base, self.length, self.end_offset, self.max_timestamp, self.index_bytes),
            *(self.life, self.cleaned_ms, self.tombstones, self.shift),
        )

    def linked(self, path: str, by: int) -> Segment:
        """The same file under another path as a segment whose offsets are higher by so much."""
        image = SegmentImage(
            *(self.base + by, self.length, self.end_offset + by, self.max_timestamp, 0),
            *(self.life, self.cleaned_ms, self.tombstones, (self.shift or 0) + by),
        )
        linked = Segment(path, image)
        linked.bases, linked.starts = array("q", (b + by for b in self.bases)), array("q", self.starts)
        linked.is_loaded = self.covers(self.base)
        if linked.is_loaded:  # else the places of its batches are found by reading it, as it has no index file
            linked.indexed_to, linked.is_indexed = 0, True
        return linked

    def append(self, a: Append) -> None:
        self.bases.append(a.base_offset)
        self.starts.append(a.start)
        self.length = a.start + a.length
        self.end_offset = a.base_offset + a.rows
        self.max_timestamp = max(self.max_timestamp, a.max_timestamp)

    def covers(self, offset: int) -> bool:
        """Whether the index in memory knows the batch of this offset."""
        return self.is_loaded or (len(self.bases) > 0 and self.bases[0] <= offset)

    def not_indexed(self) -> tuple[array[int], array[int]]:
        """Bases and starts of the batches that the index file lacks."""
        i = bisect_left(self.starts, self.indexed_to)
        return self.bases[i:], self.starts[i:]

    def locate(self, offset: int) -> Stored:
        """The stored batch that holds this offset unless there is a gap. Only if the index `covers` the offset."""
        i = max(bisect_right(self.bases, offset) - 1, 0)
        last = i + 1 == len(self.bases)
        stop = self.length if last else self.starts[i + 1]
        end_offset = self.end_offset if last else self.bases[i + 1]
        return Stored(self.path, self.starts[i], stop, self.bases[i], end_offset, self.shift or 0)


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored batch: bytes [start, stop) of a segment file, offsets [base, end_offset), in the file lower by `shift`."""

    path: str
    start: int
    stop: int
    base: int
    end_offset: int
    shift: int = 0


def after_ranges(ranges: Sequence[tuple[int, int]], offset: int) -> int:
    """The offset itself, or the first one behind the ranges (first, end), in order, that it lies in."""
    for first, end in ranges:
        if first <= offset < end:
            offset = end
    return offset


class Partition:
    """Segments in offset order; the last one is written to. skipped: ranges of damaged records that readers leave out."""

    __slots__ = ("directory", "end_offset", "number", "segments", "skipped", "start_offset", "writers")

    def __init__(self, directory: str, number: int) -> None:
        self.directory, self.number = directory, number
        self.start_offset = self.end_offset = 0
        self.segments: list[Segment] = []
        self.writers: set[str] = set()
        self.skipped: list[tuple[int, int]] = []

    def skip(self, first: int, end: int) -> None:
        self.skipped = sorted({*self.skipped, (first, end)})

    def after_skipped(self, offset: int) -> int:
        """The offset itself, or the first one behind the skipped ranges that it lies in."""
        return after_ranges(self.skipped, offset)

    def is_cut_off(self, segment: Segment) -> bool:
        """Whether readers leave out the end of a segment: nothing more is written to it, and its file may be shorter, or gone."""
        return self.after_skipped(segment.end_offset - 1) >= segment.end_offset > segment.base

    def written_by(self, transactional_id: str) -> None:
        if len(self.writers) < WRITERS_MAX:
            self.writers.add(transactional_id)

    def segment_path(self, base: int, life: int = 0) -> str:
        return segment_path(self.directory, self.number, base, life)

    def segment_of(self, offset: int) -> Segment:
        i = bisect_right(self.segments, offset, key=lambda s: s.base) - 1
        return self.segments[max(i, 0)]

    def restore(self, image: PartitionImage) -> None:
        self.start_offset, self.end_offset = image.start_offset, image.end_offset
        self.segments = [self._segment(s) for s in image.segments]
        self.writers = set(image.writers)
        self.skipped = sorted(image.skipped)

    def image(self) -> PartitionImage:
        return PartitionImage(
            self.start_offset, self.end_offset, [s.image() for s in self.segments], sorted(self.writers), self.skipped
        )

    def append(self, a: Append) -> None:
        if a.base_offset != self.end_offset:
            raise LogCorrupt(f"{self.segment_path(a.segment)}: offset {a.base_offset} follows {self.end_offset}")
        if not self.segments or self.segments[-1].base != a.segment:
            image = SegmentImage(a.segment, a.start, a.base_offset, a.max_timestamp, 0)
            self.segments.append(self._segment(image))
        self.segments[-1].append(a)
        self.end_offset = a.base_offset + a.rows

    def visible(self) -> list[Segment]:
        """Segments with records that are not gone."""
        return [s for s in self.segments if s.end_offset > self.start_offset]

    def links(self, source: Partition) -> list[Segment]:
        """The visible segments of another partition, placed behind the end of this one. LogError if records are gone in the midst of one."""
        by, visible = self.end_offset - source.start_offset, source.visible()
        if visible and visible[0].base < source.start_offset:
            raise LogError(f"{visible[0].path} cannot be linked: its records below {source.start_offset} are gone")
        return [s.linked(self.segment_path(s.base + by, s.life), by) for s in visible]

    def link(self, source: Partition) -> None:
        """The records of another one follow."""
        by = self.end_offset - source.start_offset
        self.segments += self.links(source)
        for first, end in source.skipped:
            if end > source.start_offset:
                self.skip(first + by, end + by)
        self.end_offset = source.end_offset + by

    def replace(self, count: int, images: list[SegmentImage]) -> None:
        """Compaction wrote the first `count` segments again. One whose file is still the same keeps what it knows."""
        known = {s.path: s for s in self.segments[:count]}
        fresh = [self._segment(image) for image in images]
        for i, segment in enumerate(fresh):
            old = known.get(segment.path)
            if old is not None:
                old.end_offset, old.cleaned_ms, old.tombstones = (
                    segment.end_offset,
                    segment.cleaned_ms,
                    segment.tombstones,
                )
                fresh[i] = old
        self.segments[:count] = fresh

    def _segment(self, image: SegmentImage) -> Segment:
        return Segment(self.segment_path(image.base, image.life), image)

    def advance_start(self, offset: int) -> None:
        """Forget records below; whole segments go, the last one stays because it is written to."""
        self.start_offset = max(self.start_offset, offset)
        while len(self.segments) > 1 and self.segments[0].end_offset <= self.start_offset:
            self.segments.pop(0)


@dataclass(slots=True)
class Topic:
    """A topic and its partitions by number."""

    id: int
    info: TopicInfo
    partitions: list[Partition]

    @property
    def policy(self) -> TopicPolicy:
        return TopicPolicy.of(self.info.config)

    def reshaped(self, partitions: int, offset: int) -> list[Partition]:
        """The new partitions: empty, all beginning at `offset`."""
        found = [Partition(self.partitions[0].directory, i) for i in range(partitions)]
        for partition in found:
            partition.start_offset = partition.end_offset = offset
        return found

    @property
    def owner_name(self) -> str:
        """The name that its owner locks; it is never used again for another topic."""
        return topic_directory(self.info.name, self.id)


RUNS_MAX = 64  # starts of instances that are remembered; of a state from before them nothing tells whose it is


@dataclass(slots=True)
class ProducerState:
    """redo_lost: the highest sequence whose redo payload was trimmed away. runs: the last starts of instances, each with the sequence
    at which it began.
    """

    epoch: int = 0
    sequence: int = 0
    redo_lost: int = 0
    redo: list[Redo] = field(default_factory=list)
    runs: list[tuple[int, int]] = field(default_factory=list)

    def begin(self, record: InitProducer) -> None:
        self.epoch = record.epoch
        if record.run and (not self.runs or self.runs[-1][0] != record.run):
            self.runs = [*self.runs, (record.run, self.sequence)][-RUNS_MAX:]

    def why_foreign(self, sequence: int, run: int) -> str:
        """Why a state at this commit, last opened by this run, was not made from this log; empty if it was, or nothing tells."""
        if sequence > self.sequence:
            return f"the state is at commit {sequence}, the log only at {self.sequence}: they do not belong together"
        if not run or not self.runs or sequence < self.runs[0][1]:
            return ""
        if len(self.runs) == RUNS_MAX and sequence == self.runs[0][1]:  # it may be of a start that is forgotten
            return ""
        ends = [begin for _, begin in self.runs[1:]] + [self.sequence]
        if any(run == r and begin <= sequence <= end for (r, begin), end in zip(self.runs, ends, strict=True)):
            return ""
        return f"the state at commit {sequence} was made from another log, or before a backup was restored: they do not belong together"


class LogState:
    """The whole of it. `directory`: where topics' directories lie."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.next_topic_id = 1
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[int, Topic] = {}
        self.groups: dict[str, dict[tuple[int, int], Position]] = {}
        self.producers: dict[str, ProducerState] = {}
        self.redo_file = self.redo_end = 0

    def apply(self, record: Record) -> None:
        match record:
            case Commit():
                self._commit(record)
            case CreateTopic():
                empty = [PartitionImage(0, 0, [])] * record.partitions
                self._add_topic(TopicImage(record.topic_id, record.name, record.config, empty))
                self.next_topic_id = record.topic_id + 1
            case DeleteTopic():
                self._drop_topic(record.topic_id)
            case AdvanceStart():
                self.by_id[record.topic_id].partitions[record.partition].advance_start(record.offset)
            case SetConfig():
                topic = self.by_id[record.topic_id]
                topic.info = replace(topic.info, config=record.config)
            case Replace():
                self.by_id[record.topic_id].partitions[record.partition].replace(record.count, record.segments)
            case Skip():
                self.by_id[record.topic_id].partitions[record.partition].skip(record.first, record.end)
            case InitProducer():
                self._producer(record.transactional_id).begin(record)
            case TrimRedo():
                self._trim_redo(record)
            case Snapshot():
                self._restore(record)

    def snapshot(self) -> Snapshot:
        topics = [
            TopicImage(
                t.id,
                t.info.name,
                dict(t.info.config),
                [p.image() for p in t.partitions],
            )
            for t in self.topics.values()
        ]
        positions = [
            GroupPosition(group, topic_id, partition, p.offset, p.metadata)
            for group, entries in self.groups.items()
            for (topic_id, partition), p in entries.items()
        ]
        producers = [
            ProducerImage(i, p.epoch, p.sequence, p.redo_lost, list(p.redo), p.runs) for i, p in self.producers.items()
        ]
        return Snapshot(self.next_topic_id, topics, positions, producers, self.redo_file, self.redo_end)

    def redo_files(self) -> set[int]:
        """Numbers of the redo files that hold a payload that may be read again, and of the one written to."""
        return {self.redo_file} | {r.file for p in self.producers.values() for r in p.redo}

    def committed(self, group: str) -> dict[TopicPartition, Position]:
        entries = self.groups.get(group, {})
        return {TopicPartition(self.by_id[t].info.name, p): position for (t, p), position in entries.items()}

    def _reshape(self, shape: NewShape) -> None:
        topic = self.by_id[shape.topic_id]
        before, topic.partitions = topic.partitions, topic.reshaped(shape.partitions, shape.offset)
        topic.info = replace(topic.info, partitions=shape.partitions)
        for partition in before:  # readers that still have it find no records
            partition.segments = []
        for partition in topic.partitions:
            partition.writers = set(shape.writers)
        self._drop_positions(shape.topic_id, imports=not shape.writers)

    def _drop_positions(self, topic_id: int, *, imports: bool = True) -> None:
        """imports: whether to drop those of imports, too."""
        for group, entries in self.groups.items():
            if not imports and imported_topic(group):
                continue
            for key in [k for k in entries if k[0] == topic_id]:
                del entries[key]

    def _commit(self, record: Commit) -> None:
        for shape in record.shapes:
            self._reshape(shape)
        for start in record.starts:
            partition = self.by_id[start.topic_id].partitions[start.partition]
            if start.offset >= partition.end_offset:  # before the appends: all older records go
                partition.writers.clear()
        for link in record.links:
            self._link(link, record.transactional_id)
        for a in record.appends:
            partition = self.by_id[a.topic_id].partitions[a.partition]
            partition.append(a)
            partition.written_by(record.transactional_id)
        for start in record.starts:
            self.by_id[start.topic_id].partitions[start.partition].advance_start(start.offset)
        for g in record.positions:
            if g.topic_id in self.by_id:
                self.groups.setdefault(g.group, {})[g.topic_id, g.partition] = Position(g.offset, g.metadata)
        producer = self._producer(record.transactional_id)
        producer.sequence = record.sequence
        if record.redo is not None:
            producer.redo.append(record.redo)
            self.redo_file, self.redo_end = record.redo.file, record.redo.start + record.redo.length

    def _link(self, link: Link, writer: str) -> None:
        partition = self.by_id[link.topic_id].partitions[link.partition]
        partition.link(self.by_id[link.source_topic_id].partitions[link.source_partition])
        partition.written_by(writer)

    def _trim_redo(self, record: TrimRedo) -> None:
        producer = self._producer(record.transactional_id)
        gone = [r.sequence for r in producer.redo if r.sequence <= record.sequence]
        producer.redo = producer.redo[len(gone) :]
        producer.redo_lost = max([producer.redo_lost, *gone])
        if self.redo_end and not any(p.redo for p in self.producers.values()):
            self.redo_file, self.redo_end = self.redo_file + 1, 0

    def _producer(self, transactional_id: str) -> ProducerState:
        return self.producers.setdefault(transactional_id, ProducerState())

    def _add_topic(self, image: TopicImage) -> None:
        info = TopicInfo(image.name, len(image.partitions), image.config)
        directory = f"{self._directory}/{topic_directory(image.name, image.topic_id)}"
        topic = Topic(image.topic_id, info, [Partition(directory, i) for i in range(info.partitions)])
        for partition, partition_image in zip(topic.partitions, image.partitions, strict=True):
            partition.restore(partition_image)
        self.topics[image.name] = self.by_id[image.topic_id] = topic

    def _drop_topic(self, topic_id: int) -> None:
        topic = self.by_id.pop(topic_id)
        del self.topics[topic.info.name]
        self._drop_positions(topic_id)

    def _restore(self, image: Snapshot) -> None:
        self.next_topic_id = image.next_topic_id
        self.topics, self.by_id, self.groups = {}, {}, {}
        for topic in image.topics:
            self._add_topic(topic)
        for g in image.positions:
            self.groups.setdefault(g.group, {})[g.topic_id, g.partition] = Position(g.offset, g.metadata)
        self.producers = {
            p.transactional_id: ProducerState(p.epoch, p.sequence, p.redo_lost, list(p.redo), p.runs)
            for p in image.producers
        }
        self.redo_file, self.redo_end = image.redo_file, image.redo_end


def segment_path(directory: str, partition: int, base: int, life: int = 0) -> str:
    """A segment's file; compaction gives it another one for each of its lives."""
    return f"{directory}/{partition}-{base:020}{f'.{life}' if life else ''}.arrows"


def topic_directory(name: str, topic_id: int) -> str:
    """The name of a topic's directory: legible, unique for ever, and safe whatever the topic is called."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "_-.") else f"%{c.encode().hex()}" for c in name)
    return f"{safe[:150]}.{topic_id}"

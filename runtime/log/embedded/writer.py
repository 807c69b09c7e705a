"""Writes the data of a transaction, before its commit record: records into segments, redo into redo files.

Everything written here lies after the committed length of its file, so it is invisible until the commit record names it
and is overwritten by the next transaction if none ever does. All calls are made by the owner of the topics (and of the redo)
that are written, see `Ledger.owning`; the append lock is not needed.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from itertools import accumulate

import pyarrow as pa

from flowql.runtime.errors import LogCorrupt
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded.records import Append, Commit, GroupPosition, Link, NewShape, NewStart, Redo
from flowql.runtime.log.embedded.segment import HEADER, BufferLike, SegmentFiles, encode, numbered
from flowql.runtime.log.embedded.state import LogState, Partition, Topic
from flowql.runtime.log.files import File, Files
from flowql.runtime.log.policy import TopicPolicy
from flowql.runtime.log.transaction import Shape, Transaction, max_timestamp

REDO_FILE_BYTES = 64 << 20
# Larger files are written in parts, each made durable before the next one. Else the system writes hundreds of megabytes at the
# fsync, and those of other writers wait for it: records that were appended during the swap of 3 M records took 200 ms.
PIECE_BYTES = 4 << 20

Batches = list[tuple[TopicPartition, list[pa.RecordBatch]]]


class Writer:
    """One transaction's writes. `touched` are the files written, with their committed length; `linked` are new names of segments."""

    def __init__(self, files: Files, segments: SegmentFiles, directory: str, state: LogState) -> None:
        self._files, self._segments, self._directory, self._state = files, segments, directory, state
        self._touched: list[tuple[str, int]] = []
        self._linked: list[str] = []
        self._new_names: list[str] = []  # directories with names that are not durable yet
        self._policies: dict[int, TopicPolicy] = {}  # by topic

    def write(
        self,
        transactional_id: str,
        epoch: int,
        transaction: Transaction,
        batches: Batches,
        shaped: Mapping[str, list[Partition]],
    ) -> Commit:
        """Write everything, not yet durable; the record that will commit it.

        shaped: the partitions as they will be, of topics that the transaction repartitions.
        """
        sequence = self._state.producers[transactional_id].sequence + 1
        links: list[Link] = []
        ends: dict[TopicPartition, int] = {}  # of partitions, behind what is linked
        for tp, source in transaction.sources.items():
            partition, other = self._partition(tp, shaped), self._partition(source, {})
            if other.end_offset > other.start_offset:
                ends[tp] = self._link(partition, other)
                ids = (self._state.topics[t.topic].id for t in (tp, source))
                links.append(Link(next(ids), tp.partition, next(ids), source.partition))
        appends: list[Append] = []
        for tp, parts in batches:
            appends += self._append(self._state.topics[tp.topic], self._partition(tp, shaped), parts, ends.get(tp))
        positions = [
            GroupPosition(group, self._state.topics[tp.topic].id, tp.partition, p.offset, p.metadata)
            for (group, tp), p in transaction.positions.items()
        ]
        redo = None if transaction.redo is None else self._write_redo(sequence, transaction.redo)
        starts = [NewStart(self._state.topics[tp.topic].id, tp.partition, at) for tp, at in transaction.starts.items()]
        shapes = [self._new_shape(t, s) for t, s in transaction.shapes.items()]
        return Commit(transactional_id, epoch, sequence, appends, positions, redo, starts, shapes, links)

    def _partition(self, tp: TopicPartition, shaped: Mapping[str, list[Partition]]) -> Partition:
        return shaped.get(tp.topic, self._state.topics[tp.topic].partitions)[tp.partition]

    def _link(self, partition: Partition, source: Partition) -> int:
        """Names for the segments of `source` among those of a partition, which then ends at the offset that is given back."""
        for segment, linked in zip(source.visible(), partition.links(source), strict=True):
            self._linked.append(linked.path)
            self._segments.link(segment, linked.path)
        self._new_names.append(partition.directory)
        return partition.end_offset + source.end_offset - source.start_offset

    def _new_shape(self, name: str, shape: Shape) -> NewShape:
        topic = self._state.topics[name]
        writers = set().union(*(p.writers for p in topic.partitions)) if shape.keeps else set[str]()
        return NewShape(topic.id, shape.partitions, shape.offset, sorted(writers))

    def make_durable(self) -> None:
        """Contents and names of all that was written. Comes before the commit record, always."""
        self._segments.fsync([path for path, _ in self._touched])
        for directory in dict.fromkeys(self._new_names):
            self._files.fsync_dir(directory)

    def undo(self) -> None:
        """Give the space back. An OSError here may be ignored: the next writer of the file removes the bytes too."""
        for path in self._linked:
            self._segments.remove(path)
        for path, _ in self._touched:
            self._segments.forget(path)
        for path, committed in self._touched:
            file = self._files.open(path, write=True)
            file.truncate(committed)
            file.close()

    def _append(
        self, topic: Topic, partition: Partition, parts: list[pa.RecordBatch], behind: int | None
    ) -> list[Append]:
        """behind: where the partition ends with what is linked, if something is."""
        last = partition.segments[-1] if partition.segments and behind is None else None
        end = partition.end_offset if behind is None else behind
        gone = partition.start_offset == partition.end_offset  # nothing of the last one is visible: let it go
        newest = [max_timestamp(part) for part in parts]
        if (policy := self._policies.get(topic.id)) is None:
            policy = self._policies[topic.id] = topic.policy
        is_full = last is not None and (
            last.length >= policy.segment_limit or policy.begins_segment(last.max_timestamp, max(newest, default=0))
        )
        if last is not None and last.shift is None and not gone and not is_full and not partition.is_cut_off(last):
            base, committed = last.base, last.length
        else:
            base, committed = end, 0
        file_path = partition.segment_path(base)
        file = self._open(file_path, committed, partition.directory)
        buffers: list[BufferLike] = [] if committed else [HEADER]
        appends: list[Append] = []
        start, offset = committed or HEADER.size, end
        firsts = accumulate((part.num_rows for part in parts), initial=offset)
        written = committed
        for part, message, time in zip(parts, encode(map(numbered, firsts, parts)), newest, strict=True):
            if start - written >= PIECE_BYTES:
                file.pwrite(written, buffers)
                file.fsync()
                written, buffers = start, []
            buffers += message
            size, rows = sum(map(len, message)), part.num_rows
            appends.append(Append(topic.id, partition.number, base, start, size, offset, rows, time))
            start, offset = start + size, offset + rows
        file.pwrite(written, buffers)
        self._segments.written(file_path)
        return appends

    def _write_redo(self, sequence: int, payload: bytes) -> Redo:
        number, start = self._state.redo_file, self._state.redo_end
        if start >= REDO_FILE_BYTES:
            number, start = number + 1, 0
        path = redo_path(self._directory, number)
        file = self._open(path, start, self._directory)
        file.pwrite(start, [payload])
        self._segments.written(path)
        return Redo(sequence, number, start, len(payload), zlib.crc32(payload))

    def _open(self, path: str, committed: int, directory: str) -> File:
        file, fresh = self._segments.appender(path, committed)
        self._touched.append((path, committed))
        if fresh:
            self._new_names.append(directory)
        return file


def redo_path(directory: str, number: int) -> str:
    return f"{directory}/redo-{number:012}.bin"


def read_redo(files: Files, directory: str, redo: Redo) -> bytes:
    """A payload; LogCorrupt if it is not what was written."""
    path = redo_path(directory, redo.file)
    try:
        file = files.open(path)
    except FileNotFoundError as e:
        raise LogCorrupt(f"{path} is missing, which holds the redo of commit {redo.sequence}") from e
    payload = file.pread(redo.start, redo.length)
    file.close()
    if len(payload) != redo.length or zlib.crc32(payload) != redo.crc:
        raise LogCorrupt(f"{path}: the redo payload at byte {redo.start} is damaged")
    return payload

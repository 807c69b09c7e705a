"""The in-memory log: the same interface and promises without files, for tests and `flowql test`."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from flowql.runtime.errors import Fenced, InstanceRunning, LogCorrupt, LogError, PartitionGone, TopicMissing
from flowql.runtime.log.base import (
    EARLIEST,
    PRODUCE_SCHEMA,
    RECORD_SCHEMA,
    Position,
    Producer,
    Reader,
    TopicDescription,
    TopicInfo,
    TopicPartition,
)
from flowql.runtime.log.clients import LocalLog, LogProducer, LogReader, answered, check_topic_name
from flowql.runtime.log.policy import TopicPolicy, altered, imported_topic
from flowql.runtime.log.repartition import followed_by, moved
from flowql.runtime.log.transaction import (
    Shape,
    Transaction,
    check_count,
    check_end,
    check_shape,
    check_sources,
    check_start,
)


@dataclass(slots=True)
class _Partition:
    start: int = 0
    end: int = 0
    bases: list[int] = field(default_factory=list)
    batches: list[pa.RecordBatch] = field(default_factory=list)
    writers: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _ProducerState:
    epoch: int = 0
    sequence: int = 0
    redo_lost: int = 0
    redo: list[tuple[int, bytes]] = field(default_factory=list)


class MemoryLog(LocalLog):
    """A log that lives as long as this object.

    >>> log = MemoryLog()
    >>> log.create_topic("ORDERS", 2).partitions
    2
    """

    producer_class = LogProducer

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()  # guards everything below
        self._topics: dict[str, TopicInfo] = {}
        self._ids: Counter[str] = Counter()  # how often a topic of that name was made
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._groups: dict[str, dict[TopicPartition, Position]] = {}
        self._producers: dict[str, _ProducerState] = {}
        self._held_by: str | None = None

    def crash(self) -> None:
        """Simulates a kill of the process: aborts open transactions, fences their producers and frees the hold."""
        with self._lock:
            for state in self._producers.values():
                state.epoch += 1
            self._held_by = None

    def reader(self, tp: TopicPartition, offset: int = EARLIEST) -> Reader:
        return LogReader(self, tp, offset)

    def producer(self, transactional_id: str) -> Producer:
        with self._lock:
            state = self._producers.setdefault(transactional_id, _ProducerState())
            state.epoch += 1
            return self._clients.producer(self.producer_class(self, transactional_id, state.epoch))

    def last_sequence(self, transactional_id: str) -> int:
        with self._lock:
            state = self._producers.get(transactional_id)
            return state.sequence if state else 0

    def redo_after(self, transactional_id: str, sequence: int) -> Iterator[tuple[int, bytes]]:
        with self._lock:
            state = self._producers.get(transactional_id, _ProducerState())
            if state.redo_lost > sequence:
                raise LogCorrupt(f"redo of {transactional_id} after {sequence}: trimmed up to {state.redo_lost}")
            return iter([r for r in state.redo if r[0] > sequence])

    def redo_place(self, transactional_id: str, sequence: int) -> str:
        return f"redo {sequence} of {transactional_id}"

    def trim_redo(self, transactional_id: str, sequence: int) -> None:
        with self._lock:
            state = self._producers.setdefault(transactional_id, _ProducerState())
            state.redo_lost = max([state.redo_lost, *(s for s, _ in state.redo if s <= sequence)])
            state.redo = [r for r in state.redo if r[0] > sequence]

    def opener(self) -> None:
        """None: no other process can read it."""

    def maintain(self, now_ms: int) -> None:
        """Does nothing: the log ends with the process."""

    def hold(self, transactional_id: str) -> None:
        with self._lock:
            if self._held_by is not None:
                raise InstanceRunning(f"process {os.getpid()} runs {self._held_by} on this log")
            self._held_by = transactional_id

    def close(self) -> None:
        with self._lock:
            self._held_by = None

    # Admin

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> TopicInfo:
        check_topic_name(name)
        TopicPolicy.of(config or {})
        with self._lock:
            known = self._topics.get(name)
            if known is None:
                if partitions < 1:
                    raise LogError(f"topic {name}: {partitions} partitions")
                known = self._topics[name] = TopicInfo(name, partitions, dict(config or {}))
                self._ids[name] += 1
                self._partitions.update({TopicPartition(name, p): _Partition() for p in range(partitions)})
            elif known.partitions != partitions:
                raise LogError(f"topic {name} exists with {known.partitions} partitions, not {partitions}")
            return known

    def alter_topic(self, name: str, changes: Mapping[str, str | None]) -> TopicInfo:
        with self._lock:
            known = self._topics.get(name)
            if known is None:
                raise TopicMissing(f"there is no topic {name}")
            self._topics[name] = TopicInfo(name, known.partitions, altered(known.config, changes))
            return self._topics[name]

    def delete_topic(self, name: str) -> None:
        with self._lock:
            if self._topics.pop(name, None) is None:
                raise TopicMissing(f"there is no topic {name}")
            self._partitions = {tp: p for tp, p in self._partitions.items() if tp.topic != name}
            self._groups = {
                g: {tp: o for tp, o in positions.items() if tp.topic != name} for g, positions in self._groups.items()
            }

    def topics(self) -> dict[str, TopicInfo]:
        with self._lock:
            return dict(self._topics)

    def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        with self._lock:
            return {name: topic.partitions for name, topic in self._topics.items() if name in topics}

    def describe_topics(self, topics: Collection[str]) -> Future[dict[str, TopicDescription]]:
        with self._lock:
            found = {
                name: TopicDescription(str(self._ids[name]), self._topics[name].partitions)
                for name in topics
                if name in self._topics
            }
        return answered(lambda: found)

    def committed(self, group: str) -> dict[TopicPartition, Position]:
        with self._lock:
            return dict(self._groups.get(group, {}))

    def groups(self, prefix: str) -> list[str]:
        with self._lock:
            return sorted(g for g, positions in self._groups.items() if positions and g.startswith(prefix))

    def was_compacted(self, tp: TopicPartition) -> bool | None:
        """False: it keeps all records."""
        self._partition(tp)
        return False

    def files_of(self, tp: TopicPartition) -> frozenset[tuple[int, int]] | None:
        """None of them: it keeps all records."""
        self._partition(tp)
        return frozenset()

    def writers(self, tp: TopicPartition) -> frozenset[str] | None:
        with self._lock:
            return frozenset(self._partition(tp).writers)

    def drop_before(self, tp: TopicPartition, offset: int) -> None:
        """Records below `offset` are gone (retention)."""
        with self._lock:
            partition = self._partition(tp)
            check_start(tp, offset, partition.end)
            partition.start = max(partition.start, offset)
            whole = bisect_right(partition.bases, partition.start) - 1  # those before the one that holds the start
            if whole > 0:
                del partition.bases[:whole], partition.batches[:whole]

    # For readers and producers

    def refresh(self) -> None:
        """There is no other process."""

    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        with self._lock:
            partition = self._partition(tp)
            return partition.start, partition.end

    def stored(self, tp: TopicPartition, offset: int) -> pa.RecordBatch | None:
        with self._lock:
            partition = self._partition(tp)
            if offset >= partition.end:
                return None
            return partition.batches[bisect_right(partition.bases, offset) - 1]

    def check_partition(self, tp: TopicPartition) -> None:
        self._partition(tp)

    def check_epoch(self, transactional_id: str, epoch: int) -> None:
        if self._producers[transactional_id].epoch != epoch:
            raise Fenced(f"a newer producer {transactional_id} exists, or this one's process crashed")

    def commit(self, transactional_id: str, epoch: int, transaction: Transaction) -> int:
        batches = transaction.batches()
        with self._lock:
            self.check_epoch(transactional_id, epoch)
            check_sources(transaction)
            for topic, count in transaction.counts.items():
                check_count(topic, count, self._topics[topic].partitions if topic in self._topics else 0)
            for tp, _ in batches:
                if tp.topic not in transaction.shapes:
                    self.check_partition(tp)
            for tp, offset in transaction.starts.items():
                check_start(tp, offset, self._partition(tp).end)
            for tp, offset in transaction.ends.items():
                check_end(tp, offset, self._partition(tp).end)
            for topic, shape in transaction.shapes.items():
                count = self._topics[topic].partitions
                ends = {tp: self._partition(tp).end for tp in [TopicPartition(topic, p) for p in range(count)]}
                check_shape(topic, shape, ends)
                if shape.keeps:
                    batches = followed_by(moved(self, topic, count, shape.partitions), batches)
                self._reshape(topic, shape)
            for tp, offset in transaction.starts.items():
                self.drop_before(tp, offset)
                if offset == self._partition(tp).end:
                    self._partition(tp).writers.clear()
            for tp, source in transaction.sources.items():
                self._append(self._partition(tp), self._all(self._partition(source)))
                self._partition(tp).writers.add(transactional_id)
            for tp, parts in batches:
                self._append(self._partition(tp), parts)
                self._partition(tp).writers.add(transactional_id)
            for (group, tp), position in transaction.positions.items():
                self._groups.setdefault(group, {})[tp] = position
            state = self._producers[transactional_id]
            state.sequence += 1
            if transaction.redo is not None:
                state.redo.append((state.sequence, transaction.redo))
            return state.sequence

    def _reshape(self, topic: str, shape: Shape) -> None:
        self._topics[topic] = replace(self._topics[topic], partitions=shape.partitions)
        kept = {tp: p for tp, p in self._partitions.items() if tp.topic != topic}
        writers = {w for tp, p in self._partitions.items() if tp.topic == topic and shape.keeps for w in p.writers}
        tps = [TopicPartition(topic, p) for p in range(shape.partitions)]
        fresh = {tp: _Partition(shape.offset, shape.offset, writers=set(writers)) for tp in tps}
        self._partitions = kept | fresh
        self._groups = {
            g: {tp: o for tp, o in of.items() if tp.topic != topic or (shape.keeps and imported_topic(g))}
            for g, of in self._groups.items()
        }

    def _all(self, partition: _Partition) -> list[pa.RecordBatch]:
        """PRODUCE_SCHEMA. Records that are gone lie before the first one in its batch."""
        cut = [
            b.slice(max(0, partition.start - base)) for base, b in zip(partition.bases, partition.batches, strict=True)
        ]
        return [b.select(PRODUCE_SCHEMA.names) for b in cut if b.num_rows]

    def _append(self, partition: _Partition, parts: list[pa.RecordBatch]) -> None:
        for part in parts:
            offsets = pa.array(np.arange(partition.end, partition.end + part.num_rows, dtype=np.int64))
            partition.bases.append(partition.end)
            partition.batches.append(pa.RecordBatch.from_arrays([offsets, *part.columns], schema=RECORD_SCHEMA))
            partition.end += part.num_rows

    def _partition(self, tp: TopicPartition) -> _Partition:
        partition = self._partitions.get(tp)
        if partition is None:
            if tp.topic in self._topics:
                raise PartitionGone(
                    f"topic {tp.topic} has {self._topics[tp.topic].partitions} partitions, not {tp.partition + 1}"
                )
            raise TopicMissing(f"there is no topic {tp.topic}")
        return partition

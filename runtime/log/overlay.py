"""A log over another one: topics of the other are read, everything that is written stays in memory.

Who runs queries on it sees what another instance runs on and leaves no trace there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future

from flowql.runtime.errors import CommitTorn, LogError
from flowql.runtime.log.base import (
    EARLIEST,
    Clients,
    Consumer,
    Log,
    Position,
    RawBatch,
    Reader,
    TopicDescription,
    TopicInfo,
    TopicPartition,
)
from flowql.runtime.log.bounded import BoundedConsumer, BoundedReader
from flowql.runtime.log.clients import LogProducer, answered
from flowql.runtime.log.memory import MemoryLog

_NO_STARTS: Mapping[TopicPartition, int] = {}


class _Producer(LogProducer):
    """It does not commit positions in the topics below."""

    def send_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        """Does nothing: these positions are never read."""

    def attach_redo(self, payload: bytes) -> None:
        raise AssertionError("an overlay keeps no redo")


class OverlayLog(MemoryLog):
    """Topics of `base`, from `starts` on where that says so, and topics of its own.

    until: offsets at which partitions of `base` end for now; replaced as a whole by the thread that polls.
    supports_redo: False, as nothing of it outlives this object. Positions that are committed are not kept.
    """

    supports_redo = False
    producer_class = _Producer

    def __init__(self, base: Log, starts: Mapping[TopicPartition, int] = _NO_STARTS) -> None:
        super().__init__()
        self._base, self._below, self._starts = base, base.admin(), starts
        self.until: Mapping[TopicPartition, int] = {}

    def reader(self, tp: TopicPartition, offset: int = EARLIEST) -> Reader:
        if self.is_own(tp):
            return super().reader(tp, offset)
        reader = self._base.reader(tp, self.begin_offset(tp) if offset == EARLIEST else offset)
        return BoundedReader(reader, self._bound)

    def consumer(self, client_id: str) -> Consumer:
        below = BoundedConsumer(self._base.consumer(client_id), self._bound)
        return _Consumer(self, below, super().consumer(client_id))

    def clients(self) -> Clients:
        return self._base.clients()

    def close(self) -> None:
        super().close()
        self._base.close()

    # Admin

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> TopicInfo:
        known = self._below.topics().get(name)
        if known is None:
            return super().create_topic(name, partitions, config)
        if known.partitions != partitions:
            raise LogError(f"topic {name} exists with {known.partitions} partitions, not {partitions}")
        return known

    def topics(self) -> dict[str, TopicInfo]:
        return {**self._below.topics(), **super().topics()}

    def writers(self, tp: TopicPartition) -> frozenset[str] | None:
        return super().writers(tp) if self.is_own(tp) else self._below.writers(tp)

    def torn_commits(self) -> Sequence[CommitTorn]:
        return self._below.torn_commits()

    def was_compacted(self, tp: TopicPartition) -> bool | None:
        return super().was_compacted(tp) if self.is_own(tp) else self._below.was_compacted(tp)

    def files_of(self, tp: TopicPartition) -> frozenset[tuple[int, int]] | None:
        return super().files_of(tp) if self.is_own(tp) else self._below.files_of(tp)

    def with_replaced_times(self, topics: Collection[str]) -> set[str]:
        return self._below.with_replaced_times(topics)

    def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        return {**self._below.partition_counts(topics), **super().partition_counts(topics)}

    def begin_offset(self, tp: TopicPartition) -> int:
        if self.is_own(tp):
            return super().begin_offset(tp)
        begin = self._below.begin_offset(tp)
        return max(begin, self._starts.get(tp, begin))

    def begin_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        own = [tp for tp in tps if self.is_own(tp)]
        below = self._below.begin_offsets([tp for tp in tps if tp not in own])
        starts = {tp: max(begin, self._starts.get(tp, begin)) for tp, begin in below.items()}
        return {**starts, **super().begin_offsets(own)}

    def end_offset(self, tp: TopicPartition) -> int:
        return super().end_offset(tp) if self.is_own(tp) else self._bounded({tp: self._below.end_offset(tp)})[tp]

    def end_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        own = [tp for tp in tps if self.is_own(tp)]
        below = [tp for tp in tps if tp not in own]
        return {**self._bounded(self._below.end_offsets(below)), **super().end_offsets(own)}

    def describe_topics(self, topics: Collection[str]) -> Future[dict[str, TopicDescription]]:
        """It is read for the time of one query: nothing is kept of it that could be of another topic."""
        return answered(dict)

    def written_offset(self, tp: TopicPartition) -> int:
        return (
            super().written_offset(tp) if self.is_own(tp) else self._bounded({tp: self._below.written_offset(tp)})[tp]
        )

    def is_own(self, tp: TopicPartition) -> bool:
        """Whether a partition is of this log and not of the one below."""
        return tp.topic in self._topics

    def _bound(self, tp: TopicPartition) -> int | None:
        return self.until.get(tp)

    def _bounded(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        until = self.until
        return {tp: min(end, until.get(tp, end)) for tp, end in ends.items()}


class _Consumer:
    """Two consumers as one."""

    def __init__(self, log: OverlayLog, below: Consumer, own: Consumer) -> None:
        self._log, self._below, self._own = log, below, own

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        own = {tp: o for tp, o in positions.items() if self._log.is_own(tp)}
        self._own.assign(own)
        self._below.assign({tp: o for tp, o in positions.items() if tp not in own})

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._of(tp).seek(tp, offset)

    def pause(self, tps: Sequence[TopicPartition]) -> None:
        for tp in tps:
            self._of(tp).pause([tp])

    def resume(self, tps: Sequence[TopicPartition]) -> None:
        for tp in tps:
            self._of(tp).resume([tp])

    def poll(self, max_records: int, max_bytes: int) -> list[RawBatch]:
        return [*self._below.poll(max_records, max_bytes), *self._own.poll(max_records, max_bytes)]

    def close(self) -> None:
        self._below.close()
        self._own.close()

    def _of(self, tp: TopicPartition) -> Consumer:
        return self._own if self._log.is_own(tp) else self._below

"""Reads of a log up to offsets that are moved on from time to time, so that a reader sees nothing of what has been begun and is not whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from flowql.runtime.log.base import Consumer, RawBatch, Reader, TopicPartition
from flowql.runtime.log.clients import ReaderOver

Stop = Callable[[TopicPartition], int | None]  # the offset that is not read; None where all is


def split(raw: RawBatch, stop: int | None) -> tuple[RawBatch, RawBatch | None]:
    """The records before an offset, and the others; None if there are none. The first part reaches the offset if there are."""
    if stop is None or raw.next_offset <= stop:
        return raw, None
    kept = int(np.searchsorted(raw.records.column(0).to_numpy(), stop))
    size = raw.size_bytes * kept // max(1, raw.records.num_rows)
    before = RawBatch(raw.tp, raw.records.slice(0, kept), stop, size)
    return before, RawBatch(raw.tp, raw.records.slice(kept), raw.next_offset, raw.size_bytes - size)


class StoppedReader(ReaderOver):
    """A reader that finds its end at the stop."""

    def __init__(self, reader: Reader, stop: Stop) -> None:
        super().__init__(reader)
        self._stop = stop

    def read(self, max_records: int, max_bytes: int) -> RawBatch | None:
        return None if self._is_at_stop else self._before_stop(self._reader.read(max_records, max_bytes))

    def take(self, max_records: int, max_bytes: int) -> RawBatch | None:
        return None if self._is_at_stop else self._before_stop(self._reader.take(max_records, max_bytes))

    def arrived(self) -> bool:
        return self._is_at_stop or self._reader.arrived()

    @property
    def _is_at_stop(self) -> bool:
        stop = self._stop(self.tp)
        return stop is not None and self._reader.position >= stop

    def _before_stop(self, raw: RawBatch | None) -> RawBatch | None:
        if raw is None:
            return None
        before, rest = split(raw, self._stop(self.tp))
        if rest is not None:
            self._reader.seek(before.next_offset)
        return before


class StoppedConsumer:
    """A consumer that finds the ends of its partitions at their stops. It keeps at most one batch of a partition that goes beyond."""

    def __init__(self, consumer: Consumer, stop: Stop) -> None:
        self._consumer, self._stop = consumer, stop
        self._beyond: dict[TopicPartition, tuple[int | None, RawBatch]] = {}  # with the stop that it goes beyond
        self._paused = set[TopicPartition]()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._beyond.clear()
        self._paused.clear()
        self._consumer.assign(positions)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._consumer.seek(tp, offset)
        if self._beyond.pop(tp, None) is not None and tp not in self._paused:
            self._consumer.resume([tp])

    def pause(self, tps: Sequence[TopicPartition]) -> None:
        self._paused.update(tps)
        self._consumer.pause(tps)

    def resume(self, tps: Sequence[TopicPartition]) -> None:
        self._paused.difference_update(tps)
        self._consumer.resume([tp for tp in tps if tp not in self._beyond])

    def poll(self, max_records: int, max_bytes: int) -> list[RawBatch]:
        moved = [tp for tp, (stop, _) in self._beyond.items() if tp not in self._paused and self._stop(tp) != stop]
        found = [self._before_stop(self._beyond.pop(tp)[1]) for tp in moved]
        self._consumer.resume([tp for tp in moved if tp not in self._beyond])
        return found or [self._before_stop(raw) for raw in self._consumer.poll(max_records, max_bytes)]

    def close(self) -> None:
        self._consumer.close()

    def _before_stop(self, raw: RawBatch) -> RawBatch:
        stop = self._stop(raw.tp)
        before, rest = split(raw, stop)
        if rest is not None:
            self._beyond[raw.tp] = stop, rest
            self._consumer.pause([raw.tp])
        return before

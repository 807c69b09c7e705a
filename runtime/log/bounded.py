"""Reads a log up to bounds. The caller moves the bounds on, so a reader never sees a part of a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from flowql.runtime.log.base import Consumer, RawBatch, Reader, TopicPartition
from flowql.runtime.log.clients import ReaderOver

Bound = Callable[[TopicPartition], int | None]  # the offset at which reads end; None if the partition has no bound


def split(raw: RawBatch, bound: int | None) -> tuple[RawBatch, RawBatch | None]:
    """Splits a batch at a bound. The second part is None if all records are before the bound; else the first part ends at the bound."""
    if bound is None or raw.next_offset <= bound:
        return raw, None
    kept = int(np.searchsorted(raw.records.column(0).to_numpy(), bound))
    size = raw.size_bytes * kept // max(1, raw.records.num_rows)
    before = RawBatch(raw.tp, raw.records.slice(0, kept), bound, size)
    return before, RawBatch(raw.tp, raw.records.slice(kept), raw.next_offset, raw.size_bytes - size)


class BoundedReader(ReaderOver):
    """A reader whose partition ends at the bound."""

    def __init__(self, reader: Reader, bound: Bound) -> None:
        super().__init__(reader)
        self._bound = bound

    def read(self, max_records: int, max_bytes: int) -> RawBatch | None:
        return None if self._is_at_bound else self._before_bound(self._reader.read(max_records, max_bytes))

    def take(self, max_records: int, max_bytes: int) -> RawBatch | None:
        return None if self._is_at_bound else self._before_bound(self._reader.take(max_records, max_bytes))

    def arrived(self) -> bool:
        return self._is_at_bound or self._reader.arrived()

    @property
    def _is_at_bound(self) -> bool:
        bound = self._bound(self.tp)
        return bound is not None and self._reader.position >= bound

    def _before_bound(self, raw: RawBatch | None) -> RawBatch | None:
        if raw is None:
            return None
        before, rest = split(raw, self._bound(self.tp))
        if rest is not None:
            self._reader.seek(before.next_offset)
        return before


class BoundedConsumer:
    """A consumer whose partitions end at their bounds. It keeps at most one batch of each partition with records beyond the bound."""

    def __init__(self, consumer: Consumer, bound: Bound) -> None:
        self._consumer, self._bound = consumer, bound
        self._beyond: dict[TopicPartition, tuple[int | None, RawBatch]] = {}  # with the bound at which it was split
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
        moved = [tp for tp, (bound, _) in self._beyond.items() if tp not in self._paused and self._bound(tp) != bound]
        found = [self._before_bound(self._beyond.pop(tp)[1]) for tp in moved]
        self._consumer.resume([tp for tp in moved if tp not in self._beyond])
        return found or [self._before_bound(raw) for raw in self._consumer.poll(max_records, max_bytes)]

    def close(self) -> None:
        self._consumer.close()

    def _before_bound(self, raw: RawBatch) -> RawBatch:
        bound = self._bound(raw.tp)
        before, rest = split(raw, bound)
        if rest is not None:
            self._beyond[raw.tp] = bound, rest
            self._consumer.pause([raw.tp])
        return before

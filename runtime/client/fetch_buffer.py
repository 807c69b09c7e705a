"""Completed fetches between the background thread and the polling thread, bounded in bytes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection

from flowql.runtime.log.base import RawBatch, TopicPartition


class FetchBuffer:
    """FIFO per partition. The background thread adds while there is room; the polling thread takes.

    The bound is soft by one fetch: a batch that arrives is never refused for its size, the next fetch waits.

    Each partition has a *generation*. Who moves a read position restarts the partition; what was fetched from the old position
    and arrives afterwards belongs to the old generation and is refused, or readers would see a gap.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()  # guards the next three fields
        self._queues: dict[TopicPartition, deque[RawBatch]] = {}
        self._bytes: dict[TopicPartition, int] = {}
        self._generations: dict[TopicPartition, int] = {}
        self._assigned: frozenset[TopicPartition] = frozenset()  # the polling thread's

    def full(self, tps: Collection[TopicPartition]) -> set[TopicPartition]:
        """Those of the assigned partitions that fill their equal shares, so that one busy partition never starves the others."""
        share = self._bytes_max // max(1, len(tps))
        with self._lock:
            return {tp for tp in tps if self._bytes.get(tp, 0) >= share}

    def add(self, batch: RawBatch, generation: int) -> None:
        with self._lock:
            if generation != self._generations.get(batch.tp):
                return
            self._queues.setdefault(batch.tp, deque()).append(batch)
            self._bytes[batch.tp] = self._bytes.get(batch.tp, 0) + batch.size_bytes

    def take(self, wanted: Callable[[TopicPartition], bool]) -> list[RawBatch]:
        """Everything buffered of the partitions that `wanted` accepts now, asked again before each batch."""
        out: list[RawBatch] = []
        with self._lock:
            tps = sorted(tp for tp, q in self._queues.items() if q)
        for tp in tps:
            while wanted(tp):
                with self._lock:
                    queue = self._queues.get(tp)
                    if not queue:
                        break
                    batch = queue.popleft()
                    self._bytes[tp] -= batch.size_bytes
                out.append(batch)
                break  # one batch per partition and call: the caller distributes it before `wanted` is asked again
        return out

    def restart(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Forget what is buffered of these partitions and refuse what is on its way; their new generations."""
        with self._lock:
            for tp in tps:
                self._queues.pop(tp, None)
                self._bytes.pop(tp, None)
                self._generations[tp] = self._generations.get(tp, 0) + 1
            return {tp: self._generations[tp] for tp in tps}

    def assign(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """From now on exactly these partitions are read; their generations. Those that were read before go on: what is buffered of them
        stays, and what is on its way is taken.
        """
        assigned = frozenset(tps)
        self.restart(assigned ^ self._assigned)
        self._assigned = assigned
        with self._lock:
            return {tp: self._generations[tp] for tp in tps}

    @property
    def empty(self) -> bool:
        with self._lock:
            return not any(self._queues.values())

"""Readers of a Kafka log: any number of positions served by one consumer of the instance, the restore consumer.

Catch-up readers and restoration read through it in chunks. A partition that is read on stays assigned, so that the next chunk is there
already; of two readers at different places of one partition, each begins anew when it is its turn.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from flowql.runtime.clock import SystemClock
from flowql.runtime.errors import LogError, LogUnavailable
from flowql.runtime.log.base import EARLIEST, LATEST, KeyValues, RawBatch, TopicPartition
from flowql.runtime.log.kafka.admin import TIMEOUT_S, KafkaAdmin
from flowql.runtime.log.kafka.fetching import Cursor, FetchClient

PARTITIONS_MAX = 64  # read on in the background at a time
IDLE_MS = 10_000  # idle readers are closed after so long
TAIL_WAIT_MS = 1_000  # beyond the time between two heartbeats, which end a wait
CALM_MS = 3_000  # after the last new partition of a tail; until then fetches wait for WAIT_MS only
WAIT_MS = 20  # a fetch that waits longer at a broker would hold up the next partition that is asked for


Batch = TypeVar("Batch", RawBatch, KeyValues)


class SharedReading:
    """The one consumer behind all readers. Any thread; one at a time."""

    def __init__(
        self,
        admin: KafkaAdmin,
        make_client: Callable[[], FetchClient],
        make_calm: Callable[[], FetchClient] | None = None,
    ) -> None:
        """make_calm: of a tail, a client whose fetches wait for long. A broker answers nothing else on the connection of a fetch that waits, so a
        new topic would be found only after that.
        """
        self.admin = admin
        self._make_client, self._make_calm = make_client, make_calm
        self._calm_at_ms = 0
        self._client: FetchClient | None = None  # made when first needed
        self._lock = threading.Lock()  # guards the client and the order of use
        self._used: OrderedDict[TopicPartition, int] = OrderedDict()
        self._clock = SystemClock()

    def read(self, tp: TopicPartition, offset: int, max_records: int, max_bytes: int) -> tuple[RawBatch | None, int]:
        """The next records from an offset (None at the end), and the offset after them, or after what is no record."""
        assert max_records > 0, "a read asks for at least one record"
        return self._read(tp, offset, lambda cursor: cursor.take(max_records, max_bytes), bare=False)

    def read_bare(self, tp: TopicPartition, offset: int) -> tuple[KeyValues | None, int]:
        """The same of keys and values alone, in the pieces they were fetched in."""
        return self._read(tp, offset, Cursor.take_bare, bare=True)

    def take(self, tp: TopicPartition, offset: int, max_records: int, max_bytes: int) -> tuple[RawBatch | None, int]:
        """The next records that have arrived from an offset, and the offset after them."""
        with self.client() as client:
            cursor = client.cursors.get(tp)
            if cursor is None or cursor.position != offset or cursor.error is not None:
                cursor = client.start(tp, offset)
                self._calm_at_ms = self._clock.timer_ms() + CALM_MS
            self._touch(client, tp)
            client.pump()
            if self._make_calm is not None and self._clock.timer_ms() >= self._calm_at_ms:
                client, cursor = self._calm(client, self._make_calm, tp)
            batch = self._first(cursor, lambda c: c.take(max_records, max_bytes))
            if batch is None:
                self._check(client, cursor)
            return batch, cursor.position

    def _calm(
        self, client: FetchClient, make: Callable[[], FetchClient], tp: TopicPartition
    ) -> tuple[FetchClient, Cursor]:
        """The client that reads from now on, and its cursor of a partition. It takes over when nothing is prefetched."""
        if any(c.batches or c.error is not None for c in client.cursors.values()):
            return client, client.cursors[tp]
        calm = self._client = make()
        self._make_calm = None
        try:
            calm.start_all({tp: c.position for tp, c in client.cursors.items()})
        finally:
            client.close()
        return calm, calm.cursors[tp]

    def arrived(self, tp: TopicPartition, offset: int, *, bare: bool = False) -> bool:
        """Whether `read` (or `read_bare`) would return without waiting. Fetches the next records if no fetch is in progress."""
        with self.client() as client:
            known = client.cursors.get(tp)
            if known is not None and known.position == offset and known.error is not None:
                return True  # `read` begins anew and says what is wrong
            cursor = self._at(client, tp, offset, bare=bare)
            if cursor is None:
                return True
            if not cursor.batches:
                client.pump()
            return bool(cursor.batches) or cursor.ended or cursor.error is not None

    @contextmanager
    def client(self) -> Iterator[FetchClient]:
        """The consumer, for one thread at a time; others wait meanwhile."""
        with self._lock:
            if self._client is None:
                self._client = self._make_client()
            yield self._client

    def forget(self, topic: str) -> None:
        """The topic is gone, and one of the same name would be another."""
        with self._lock:
            if self._client is not None:
                self._client.stop([tp for tp in self._client.cursors if tp.topic == topic])

    def stop(self, tp: TopicPartition) -> None:
        """Drops prefetched records of a partition."""
        with self._lock:
            self._used.pop(tp, None)
            if self._client is not None:
                self._client.stop([tp])

    def stop_idle(self) -> None:
        """Stops partitions that were not read for `IDLE_MS`. Without it the last of them would be fetched until another one is read."""
        with self._lock:
            if self._client is not None:
                self._stop_idle(self._client, self._clock.timer_ms())

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _at(self, client: FetchClient, tp: TopicPartition, offset: int, *, bare: bool) -> Cursor | None:
        """The partition as it is read on from an offset; None if that is the end."""
        cursor = client.cursors.get(tp)
        if cursor is None or cursor.position != offset or cursor.bare != bare or cursor.error is not None:
            if self.admin.end_offset(tp) <= offset:
                return None
            cursor = client.start(tp, offset, bare=bare)
        self._touch(client, tp)
        return cursor

    def _read(
        self, tp: TopicPartition, offset: int, take: Callable[[Cursor], Batch | None], *, bare: bool
    ) -> tuple[Batch | None, int]:
        with self.client() as client:
            cursor = self._at(client, tp, offset, bare=bare)
            return (None, offset) if cursor is None else self._next(client, cursor, take)

    def _next(
        self, client: FetchClient, cursor: Cursor, take: Callable[[Cursor], Batch | None]
    ) -> tuple[Batch | None, int]:
        batch = self._first(cursor, take)
        if batch is None:
            end = self.admin.end_offset(cursor.tp)
            limit = self._clock.timer_ms() + TIMEOUT_S * 1000
            while batch is None and cursor.position < end:
                self._check(client, cursor)
                client.pump(WAIT_MS / 1000)
                batch = self._first(cursor, take)
                if batch is None and self._clock.timer_ms() > limit:
                    client.stop([cursor.tp])  # the next read begins anew
                    raise LogUnavailable(f"{cursor.tp}: nothing arrives from offset {cursor.position} on")
        return batch, cursor.position

    def _check(self, client: FetchClient, cursor: Cursor) -> None:
        if cursor.error is not None:
            client.stop([cursor.tp])
            raise cursor.error

    @staticmethod
    def _first(cursor: Cursor, take: Callable[[Cursor], Batch | None]) -> Batch | None:
        """The next batch with rows; those without only move the position."""
        while (batch := take(cursor)) is not None:
            if batch.rows:
                return batch
        return None

    def _touch(self, client: FetchClient, tp: TopicPartition) -> None:
        now = self._clock.timer_ms()
        self._used[tp] = now
        self._used.move_to_end(tp)
        self._stop_idle(client, now)

    def _stop_idle(self, client: FetchClient, now: int) -> None:
        while self._used:
            oldest, used = next(iter(self._used.items()))
            if len(self._used) <= PARTITIONS_MAX and now - used <= IDLE_MS:
                break
            del self._used[oldest]
            client.stop([oldest])


class GroupClients:
    """Clients for the positions of groups that are asked about again and again. Any thread; one at a time."""

    def __init__(self, make_client: Callable[[str], FetchClient]) -> None:
        self._make_client = make_client
        self._clients: dict[str, FetchClient] = {}
        self._lock = threading.Lock()  # guards the clients and their use

    def __contains__(self, group: str) -> bool:
        return group in self._clients

    @contextmanager
    def of(self, group: str) -> Iterator[FetchClient]:
        """The client of a group, made when first needed."""
        with self._lock:
            if group not in self._clients:
                self._clients[group] = self._make_client(group)
            yield self._clients[group]

    def close(self) -> None:
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()


class _Position:
    """One read position. tailing: for what is looked at again and again, with a fetch that waits at the brokers."""

    def __init__(
        self, reading: SharedReading, tp: TopicPartition, offset: int, tailing: Callable[[], SharedReading]
    ) -> None:
        self.tp = tp
        self._reading, self._tailing, self._tails = reading, tailing, False
        self._position = 0
        reading.admin.check_partition(tp)
        self.seek(offset)

    @property
    def position(self) -> int:
        return self._position

    def seek(self, offset: int) -> None:
        self._position = resolve(self._reading.admin, self.tp, offset)

    def close(self) -> None:
        self._reading.stop(self.tp)
        if self._tails:
            self._tailing().stop(self.tp)


class KafkaReader(_Position):
    """Whole records."""

    def read(self, max_records: int, max_bytes: int) -> RawBatch | None:
        batch, self._position = self._reading.read(self.tp, self._position, max_records, max_bytes)
        return batch

    def take(self, max_records: int, max_bytes: int) -> RawBatch | None:
        self._tails = True
        batch, self._position = self._tailing().take(self.tp, self._position, max_records, max_bytes)
        return batch

    def arrived(self) -> bool:
        return self._reading.arrived(self.tp, self._position)


class KafkaKeyValues(_Position):
    """Keys and values. A reader of whole records at the same place makes both begin anew at every turn."""

    def read(self, max_records: int, max_bytes: int) -> KeyValues | None:
        batch, self._position = self._reading.read_bare(self.tp, self._position)
        return batch

    def take(self, max_records: int, max_bytes: int) -> KeyValues | None:
        return self.read(max_records, max_bytes) if self.arrived() else None

    def arrived(self) -> bool:
        return self._reading.arrived(self.tp, self._position, bare=True)


def resolve(admin: KafkaAdmin, tp: TopicPartition, offset: int) -> int:
    """EARLIEST and LATEST as offsets."""
    if offset == EARLIEST:
        return admin.begin_offset(tp)
    if offset == LATEST:
        return admin.end_offset(tp)
    if offset < 0:
        raise LogError(f"{tp}: {offset} is not an offset")
    return offset

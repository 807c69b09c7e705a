"""One Kafka consumer read by partition: what it fetches is kept in order per partition until it is taken.

Positions move over what is no record (markers of transactions, aborted records): the client reports the end of a partition, and
a batch without rows tells how far it is.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby, repeat
from operator import is_not
from typing import Any

from confluent_kafka import Consumer as KafkaClient
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from flowql.runtime.clock import SystemClock
from flowql.runtime.errors import LogError, LogUnavailable, OffsetOutOfRange
from flowql.runtime.log.base import KeyValues, Position, RawBatch, TopicPartition, no_records
from flowql.runtime.log.clients import fitting
from flowql.runtime.log.kafka import errors
from flowql.runtime.log.kafka.admin import KafkaAdmin
from flowql.runtime.log.kafka.connection import LOGGER, Connection
from flowql.runtime.log.kafka.records import to_arrow, to_key_values

CONSUME_MAX = 5_000  # messages turned into one batch while they are in the processor's cache
SETTLE_S = 0.02  # between two looks at what should change by itself
FIND_S = 1.0
# Above the first a partition is paused at the brokers, below the second it goes on: pausing throws away what is prefetched.
HIGH_BYTES, LOW_BYTES = 8 << 20, 1 << 20
RETRY_MS = 100  # between two attempts to have a partition read
PATIENT_MS = 300  # a partition that was assigned a moment ago cannot be moved yet; after this it is assigned anew
SILENT_MS = 5_000  # from the start of a partition to its first record or its end; then it is started again
TOLD_MS = 1_000  # trouble that lasts longer is told


@dataclass(slots=True)
class Cursor:
    """One partition. position: next offset to hand out; fetched: after what is in `batches`, and if `ended` nothing followed when it
    was fetched. error: why it is not read on. bare: only keys and values are kept of what is fetched.

    started_ms: since when the client should read it, until something arrives. retry_ms: when it is told so again, if it refused or
    has given up. lost: seeking is of no use any more. trouble: what `take_trouble` gives next.
    """

    tp: TopicPartition
    position: int
    fetched: int
    bare: bool = False
    batches: deque[RawBatch | KeyValues] = field(default_factory=deque)
    size_bytes: int = 0
    paused: bool = False
    ended: bool = False
    error: LogError | None = None
    started_ms: int | None = None
    retry_ms: int | None = None
    lost: bool = False
    trouble: LogError | None = None

    @property
    def place(self) -> KafkaPartition:
        return KafkaPartition(self.tp.topic, self.tp.partition, self.fetched)

    def retry(self, now_ms: int, error: LogError, *, lost: bool = False) -> None:
        """The client does not read it now. It is tried again, and told if that takes long."""
        if self.started_ms is None:
            self.started_ms = now_ms
        self.retry_ms, self.lost = now_ms + RETRY_MS, self.lost or lost
        if now_ms - self.started_ms >= TOLD_MS:
            error.partition = self.tp
            self.trouble = error

    def heard(self) -> None:
        """The client reads it."""
        self.started_ms = self.retry_ms = None
        self.lost = False

    def take_trouble(self) -> LogError | None:
        """Why it is not read, each time it was found out; it is tried again by itself."""
        trouble, self.trouble = self.trouble, None
        return trouble

    def take(self, max_records: int, max_bytes: int) -> RawBatch | None:
        """The next records, at least one if there are any; a batch without rows where only the position moved."""
        head = self._take_piece()
        if head is None:
            return None
        assert isinstance(head, RawBatch), f"{self.tp} is fetched without all of its records"
        records, size = fitting(head.records.slice(0, max_records), max_bytes, at_least_one=True)
        rest = head.records.slice(records.num_rows)
        if rest.num_rows:
            left = RawBatch(self.tp, rest, head.next_offset, max(0, head.size_bytes - size))
            self.batches.appendleft(left)
            self.size_bytes += left.size_bytes
            head = RawBatch(self.tp, records, int(records.column(0)[-1].as_py()) + 1, size)
        self.position = head.next_offset
        return head

    def take_bare(self) -> KeyValues | None:
        """The same of a bare one: what was fetched at once."""
        head = self._take_piece()
        if head is None:
            return None
        assert isinstance(head, KeyValues), f"{self.tp} is fetched with all of its records"
        self.position = head.next_offset
        return head

    def _take_piece(self) -> RawBatch | KeyValues | None:
        if not self.batches:
            return None
        head = self.batches.popleft()
        self.size_bytes -= head.size_bytes
        return head

    def add(self, batch: RawBatch | KeyValues) -> None:
        self.batches.append(batch)
        self.size_bytes += batch.size_bytes
        self.fetched = batch.next_offset
        self.ended = False

    def skip_to(self, offset: int) -> None:
        """Up to here there are no more records."""
        if offset <= self.fetched:
            return
        if self.batches:
            self.batches.append(replace(self.batches.pop(), next_offset=offset))
            self.fetched = offset
        else:
            self.add(KeyValues(self.tp, [], [], offset, 0) if self.bare else RawBatch(self.tp, no_records(), offset, 0))


def _keep(client: KafkaClient) -> None:
    """Keeps a consumer that was not closed from ever being freed, even at the end of the process.

    When the garbage collector frees it, the client library waits for its main thread, which may wait for the answer to a callback that
    no thread will serve: the collecting thread would then block for ever, holding the interpreter lock.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))


def _let_go(client: KafkaClient) -> None:
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(client))


class FetchClient:
    """Owned by one thread at a time: calls of a Kafka consumer wait for each other, and spin while they do."""

    def __init__(
        self,
        connection: Connection,
        admin: KafkaAdmin,
        client_id: str,
        group: str,
        wait_ms: int,
    ) -> None:
        self._admin, self._group, self.closed = admin, group, False
        self._clock = SystemClock()
        settings = connection.consumer(client_id, group, wait_ms)
        self._client = KafkaClient(settings, logger=LOGGER)
        _keep(self._client)
        self.cursors: dict[TopicPartition, Cursor] = {}
        self._found: set[str] = set()  # topics whose leaders the client was told

    def is_at(self, tp: TopicPartition, offset: int) -> bool:
        """Whether the partition is read, and goes on with this offset: to start it again would throw away what was prefetched."""
        cursor = self.cursors.get(tp)
        return cursor is not None and cursor.position == offset and cursor.error is None

    def start(self, tp: TopicPartition, offset: int, *, bare: bool = False) -> Cursor:
        """Read a partition from an offset; where it was read before is forgotten."""
        self.start_all({tp: offset}, bare=bare)
        return self.cursors[tp]

    def start_all(self, offsets: Mapping[TopicPartition, int], *, bare: bool = False) -> None:
        """The same of many, which so come side by side."""
        self.stop(offsets)
        now = self._clock.timer_ms()
        cursors = {tp: Cursor(tp, offset, offset, bare, started_ms=now) for tp, offset in offsets.items()}
        with errors.naming(f"{', '.join(map(str, offsets))} cannot be read"):
            self._find({tp.topic for tp in offsets})
            self._client.incremental_assign([c.place for c in cursors.values()])
        self.cursors |= cursors

    def _begin(self, cursors: Sequence[Cursor]) -> None:
        """Have partitions read again. Each by itself: what is refused of one holds up no other."""
        now = self._clock.timer_ms()
        for cursor in cursors:
            try:
                if (
                    cursor.lost
                ):  # what the client has given up it does not move; only a new assignment makes it read again
                    with suppress(KafkaException):  # it is not assigned
                        self._client.incremental_unassign([cursor.place])
                    self._client.incremental_assign([cursor.place])
                else:
                    self._client.seek(cursor.place)
                cursor.retry_ms, cursor.lost = None, False
            except KafkaException as error:
                late = cursor.started_ms is not None and now - cursor.started_ms >= PATIENT_MS
                cursor.retry(now, errors.failure(errors.of(error), f"{cursor.tp} cannot be read yet"), lost=late)

    def _mend(self) -> None:
        """Start again what is not read though it should be: refused, given up after an error, or silent."""
        now, due = self._clock.timer_ms(), []
        for cursor in self.cursors.values():
            if cursor.started_ms is None or cursor.error is not None:
                continue
            if cursor.retry_ms is None and now - cursor.started_ms >= SILENT_MS and not cursor.paused:
                cursor.retry(
                    now, LogUnavailable(f"{cursor.tp}: nothing arrives from offset {cursor.fetched} on"), lost=True
                )
                cursor.retry_ms = now
                cursor.started_ms = now
            if cursor.retry_ms is not None and cursor.retry_ms <= now:
                due.append(cursor)
        if due:
            self._begin(due)

    def _find(self, topics: set[str]) -> None:
        """The client looks for the leaders of topics that are new to it only once a second, unless it is told to."""
        try:
            for topic in sorted(topics - self._found):
                self._client.list_topics(topic, timeout=FIND_S)
                self._found.add(topic)
        except KafkaException as error:  # it goes on looking by itself
            LOGGER.warning("%s", errors.of(error).str())

    def stop(self, tps: Iterable[TopicPartition]) -> None:
        known = [c for tp in tps if (c := self.cursors.pop(tp, None)) is not None]
        if known:
            with errors.naming("partitions cannot be given up"):
                if paused := [KafkaPartition(*c.tp) for c in known if c.paused]:  # a pause outlives the assignment
                    self._client.resume(paused)
                self._client.incremental_unassign([KafkaPartition(*c.tp) for c in known])

    def pump(self, wait_s: float = 0.0) -> None:
        """Take over what has arrived; wait for the first message if there is none."""
        self._control()
        with errors.naming("nothing can be read"):
            messages = self._client.consume(CONSUME_MAX, 0.0)
            if not messages and wait_s > 0:
                first = self._client.poll(wait_s)
                messages = [] if first is None else [first, *self._client.consume(CONSUME_MAX, 0.0)]
        for (topic, partition, failed), run in _runs(messages):
            cursor = self.cursors.get(TopicPartition(topic, partition)) if topic is not None else None
            if failed:
                self._report(run, cursor)
            elif cursor is not None:
                self._add(cursor, run)
        if len(messages) < CONSUME_MAX:  # the client's queue is empty
            self._mend()

    def committed(self, tps: Iterable[TopicPartition], timeout_s: float) -> dict[TopicPartition, Position]:
        """Positions of this client's group, as of the last finished transaction: it waits for one that is being committed.

        Not `AdminClient.list_consumer_group_offsets`, which would do without a consumer: while a group's coordinator is moving
        or loading, it ends the process (segmentation fault; confluent-kafka 2.16.1 on a broker just made).
        """
        asked = [KafkaPartition(tp.topic, tp.partition) for tp in tps]
        limit = self._clock.timer_ms() + timeout_s * 1000
        while True:
            try:
                found = self._client.committed(asked, timeout=timeout_s)
                break
            except KafkaException as error:
                failed = errors.failure(errors.of(error), f"positions of group {self._group}")
                if not failed.retriable or self._clock.timer_ms() > limit:
                    raise failed from error
                futures.wait([Future()], SETTLE_S)
        return {
            TopicPartition(p.topic, p.partition): Position(int(p.offset), p.metadata or "")
            for p in found
            if p.error is None and p.offset >= 0
        }

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Move positions of this client's group at once, without a transaction."""
        given = [KafkaPartition(tp.topic, tp.partition, o.offset, o.metadata) for tp, o in positions.items()]
        with errors.naming(f"positions of group {self._group} cannot be committed"):
            for done in self._client.commit(offsets=given, asynchronous=False) or ():
                if done.error is not None:
                    raise KafkaException(done.error)

    def group_metadata(self) -> object:
        """The proof for a transaction that it may move positions of this client's group."""
        return self._client.consumer_group_metadata()

    def close(self) -> None:
        again, self.closed = self.closed, True
        self.cursors.clear()
        try:
            self._client.close()
        # Raised by the client library. The consumer is not used any more, and the group removes it when its session ends.
        except SystemError as error:
            LOGGER.warning("a consumer was not closed in order: %s", error)
        else:
            if not again:
                _let_go(self._client)

    def _add(self, cursor: Cursor, messages: list[Message]) -> None:
        cursor.heard()
        if messages[0].offset() < cursor.fetched:  # from before it was moved
            messages = [m for m in messages if m.offset() >= cursor.fetched]
            if not messages:
                return
        next_offset = int(messages[-1].offset()) + 1
        if cursor.bare:
            keys, values, size = to_key_values(messages)
            cursor.add(KeyValues(cursor.tp, keys, values, next_offset, size))
        else:
            records, size = to_arrow(messages)
            cursor.add(RawBatch(cursor.tp, records, next_offset, size))

    def _report(self, messages: list[Message], cursor: Cursor | None) -> None:
        """Handles messages other than records: the end of a partition, or an error. Errors without a partition the client mends by itself."""
        for message in messages:
            error = message.error()
            if error.code() == KafkaError._PARTITION_EOF:
                if cursor is not None and message.offset() >= cursor.fetched:
                    cursor.heard()
                    cursor.skip_to(int(message.offset()))
                    cursor.ended = True
                continue
            LOGGER.warning("%s", error.str())
            if cursor is None:
                if error.fatal():
                    raise errors.failure(error, "the consumer")
                continue
            failed = self._out_of_range(cursor) if error.code() in errors.OUT_OF_RANGE else None
            failed = failed or errors.failure(error, f"{cursor.tp} cannot be read")
            if not failed.retriable:
                failed.partition = cursor.tp
                cursor.error = failed
            elif error.code() in errors.OUT_OF_RANGE:  # the client has given it up
                cursor.retry(self._clock.timer_ms(), failed, lost=True)

    def _out_of_range(self, cursor: Cursor) -> LogError | None:
        """Below the start it is an error that names the gap; above the end the position waits for records to come."""
        try:
            begin = self._admin.begin_offset(cursor.tp)
        except LogError as error:
            return error
        if cursor.fetched >= begin:
            return LogUnavailable(f"{cursor.tp}: offset {cursor.fetched} is not there yet")
        return OffsetOutOfRange(
            f"{cursor.tp}: offset {cursor.fetched} is below the log's start {begin}: "
            f"records {cursor.fetched} to {begin - 1} are gone"
        )

    def _control(self) -> None:
        full = [c for c in self.cursors.values() if c.size_bytes > HIGH_BYTES and not c.paused]
        free = [c for c in self.cursors.values() if c.size_bytes < LOW_BYTES and c.paused]
        for cursors, call, paused in ((full, self._client.pause, True), (free, self._client.resume, False)):
            if cursors:
                with errors.naming("partitions cannot be paused or resumed"):
                    call([KafkaPartition(c.tp.topic, c.tp.partition) for c in cursors])
                for c in cursors:
                    c.paused = paused


def _runs(messages: list[Message]) -> Iterator[tuple[tuple[Any, Any, bool], list[Message]]]:
    """Messages that follow each other from one partition, with (topic, partition, whether they are errors)."""
    topics, partitions = list(map(Message.topic, messages)), list(map(Message.partition, messages))
    failed = list(map(is_not, map(Message.error, messages), repeat(None)))
    n = len(messages)
    if n and not any(failed) and topics.count(topics[0]) == partitions.count(partitions[0]) == n:
        yield (topics[0], partitions[0], False), messages  # large fetches hold one partition's records in a row
        return
    start = 0
    for place, run in groupby(zip(topics, partitions, failed, strict=True)):
        end = start + len(list(run))
        yield place, messages[start:end]
        start = end

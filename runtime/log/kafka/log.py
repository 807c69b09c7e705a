"""KafkaLog: the log on a Kafka cluster. Factory of clients: two consumers, one producer, one admin, whatever the number of queries. A member has two
more: a consumer that waits for news of the others, and a producer of heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from flowql.runtime.clock import SystemClock
from flowql.runtime.errors import CommitTorn, Fenced, LogError
from flowql.runtime.log.base import (
    EARLIEST,
    Admin,
    Clients,
    Consumer,
    KeyValueReader,
    Log,
    Position,
    Producer,
    RawBatch,
    Reader,
    TopicPartition,
)
from flowql.runtime.log.clients import OpenClients, naming
from flowql.runtime.log.kafka.admin import AHEAD_MAX, TIMEOUT_S, KafkaAdmin
from flowql.runtime.log.kafka.at_least_once import AtLeastOnceProducer, PlainWriter
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.fetching import Cursor, FetchClient
from flowql.runtime.log.kafka.producer import TAKE_OVER_S, KafkaProducer, committed_sequence, sequence_partition
from flowql.runtime.log.kafka.reading import (
    TAIL_WAIT_MS,
    WAIT_MS,
    GroupClients,
    KafkaKeyValues,
    KafkaReader,
    SharedReading,
    resolve,
)
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.log.kafka.torn import CommitCheck, Torn


class KafkaConsumer:
    """Reads many partitions in turn. Owned by one thread. Its client is made when it is told what to read."""

    def __init__(self, admin: KafkaAdmin, make_client: Callable[[], FetchClient], client_id: str) -> None:
        self.client_id = client_id
        self._admin, self._make_client = admin, make_client
        self._client: FetchClient | None = None
        self._paused: set[TopicPartition] = set()
        self._turn = 0

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        resolved: dict[TopicPartition, int] = {}
        for tp, offset in positions.items():
            try:
                with naming(tp):
                    self._admin.check_partition(tp)
                    resolved[tp] = resolve(self._admin, tp, offset)
            except LogError as error:
                if not error.retriable or offset < 0:
                    raise
                resolved[tp] = (
                    offset  # its brokers are away: the client goes on asking, and the others are read meanwhile
                )
        if self._client is None:
            self._client = self._make_client()
        self._client.stop([tp for tp in self._client.cursors if tp not in resolved])
        moved = {tp: o for tp, o in resolved.items() if not self._client.is_at(tp, o)}
        if moved:
            self._client.start_all(moved)
        self._paused.clear()
        self._turn = 0

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._cursor(tp)
        assert self._client is not None
        self._client.start(tp, resolve(self._admin, tp, offset))

    def pause(self, tps: Sequence[TopicPartition]) -> None:
        """Nothing of these is handed out. The brokers are asked to pause only when too much has arrived."""
        self._paused.update(self._cursor(tp).tp for tp in tps)

    def resume(self, tps: Sequence[TopicPartition]) -> None:
        self._paused.difference_update(tps)

    def poll(self, max_records: int, max_bytes: int) -> list[RawBatch]:
        if self._client is None:
            return []
        self._client.pump()
        batches: list[RawBatch] = []
        enough_records, enough_bytes = -(-max_records // 2), -(-max_bytes // 2)  # no small pieces of large batches
        cursors = list(self._client.cursors.values())
        for i in range(len(cursors)):
            cursor = cursors[(self._turn + i) % len(cursors)]
            if cursor.tp in self._paused:
                continue
            if max_records < enough_records or max_bytes < enough_bytes:
                self._turn = (self._turn + i) % len(cursors)
                return batches
            batch = cursor.take(max_records, max_bytes)
            if batch is not None:
                batches.append(batch)
                max_records -= batch.records.num_rows
                max_bytes -= batch.size_bytes
            elif cursor.error is not None and not batches:  # else it is raised when nothing gets lost with it
                self._turn = (self._turn + i + 1) % len(cursors)
                raise cursor.error
            elif not batches and (trouble := cursor.take_trouble()) is not None:
                raise trouble
        self._turn += 1
        return batches

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _cursor(self, tp: TopicPartition) -> Cursor:
        cursor = self._client.cursors.get(tp) if self._client is not None else None
        if cursor is None:
            raise LogError(f"{tp} is not assigned to consumer {self.client_id}")
        return cursor


MAIN_WAIT_MS = 300
CLIENT_BYTES_MAX = 1_000_000  # what the client library takes where nothing is said
BATCH_BYTES_MIN = 69  # brokers count what a batch of one record takes beside key and value
STABLE_S = 0.5  # for a transaction to be finished, before the caller is told to ask again


class KafkaLog(KafkaAdmin):
    """A log on the cluster of `connection`. Nothing is connected to before the first call.

    It keeps no redo: instances write changelogs. Fencing decides which instance runs an application: `hold` takes over.
    """

    supports_redo = False
    drops_with_commits = False

    def __init__(
        self, connection: Connection, application_id: str = "flowql", *, at_least_once: str | None = None
    ) -> None:
        """at_least_once: the application's producer does without transactions, and writes this topic last in each commit."""
        super().__init__(connection, f"{application_id}-admin")
        self._application_id, self._at_least_once = application_id, at_least_once
        self._counter = sequence_partition(application_id)
        self._shared: SharedReading | None = None
        self._metadata: dict[str, object] = {}
        self._held: dict[str, KafkaProducer | AtLeastOnceProducer] = {}
        self._term = 0  # of the only instance of an application, since `hold`
        self._torn: Torn = {}
        self._appending: PlainWriter | None = None
        self._tail: SharedReading | None = None
        self._clients = OpenClients()
        self._asking = GroupClients(lambda group: self._fetch_client(f"{application_id}-asks", WAIT_MS, group))

    # Factory of clients

    def admin(self) -> Admin:
        return self

    def reader(self, tp: TopicPartition, offset: int = EARLIEST) -> Reader:
        return KafkaReader(self._reading, tp, offset, self._tailing)

    def key_values(self, tp: TopicPartition, offset: int = EARLIEST) -> KeyValueReader:
        return KafkaKeyValues(self._reading, tp, offset, self._tailing)

    def consumer(self, client_id: str) -> Consumer:
        def make() -> FetchClient:
            return self._fetch_client(client_id, MAIN_WAIT_MS, self._application_id)

        return KafkaConsumer(self, make, client_id)

    def append(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        if self._appending is None:
            self._appending = self._clients.producer(PlainWriter(self._connection, f"{self._application_id}-append"))
        self._appending.write(tp, records)

    def producer(self, transactional_id: str) -> Producer:
        held = self._held.pop(transactional_id, None)
        return held if held is not None else self._new_producer(transactional_id)

    def clients(self) -> Clients:
        return self._clients.count(admins=int(self.is_connected))

    def last_sequence(self, transactional_id: str) -> int:
        return committed_sequence(self, transactional_id, self._counter)

    def redo_after(self, transactional_id: str, sequence: int) -> Iterator[tuple[int, bytes]]:
        raise LogError("Kafka keeps no redo; state comes back from changelogs")

    def redo_place(self, transactional_id: str, sequence: int) -> str:
        raise LogError("Kafka keeps no redo; state comes back from changelogs")

    def trim_redo(self, transactional_id: str, sequence: int) -> None:
        """There is none."""

    def opener(self) -> Callable[[], Log]:
        c = self._connection
        return partial(
            open_log,
            KafkaSettings(c.bootstrap, dict(c.options), c.replication, c.shared, rack=c.rack),
            self._application_id,
        )

    def record_bytes_max(self, topic: str) -> int | None:
        """By the options of the client and the topic's own config. None where records are compressed."""
        options = self._connection.options
        if options.get("compression.type", options.get("compression.codec", "none")) != "none":
            return None
        own = self.options_of([topic]).get(topic, {}).get("max.message.bytes")
        by_client = int(options.get("message.max.bytes", CLIENT_BYTES_MAX))
        return by_client if own is None else min(by_client, int(own) - BATCH_BYTES_MIN)

    def record_ahead_ms_max(self, topic: str) -> int | None:
        said = self.configs_of([topic]).get(topic, {}).get(AHEAD_MAX)
        return None if said is None else int(said)

    def maintain(self, now_ms: int) -> None:
        """Brokers apply retention and compaction."""
        for reading in (self._shared, self._tail):
            if reading is not None:
                reading.stop_idle()

    def hold(self, transactional_id: str) -> None:
        """Take over: an instance of this name that still runs is fenced, and what a killed one left open is aborted.

        Before anything is read, or its last positions would be held back until its transaction times out.
        """
        alone = transactional_id == self._application_id and self._at_least_once is None
        self._held[transactional_id] = self._take_over() if alone else self._new_producer(transactional_id)

    def _take_over(self) -> KafkaProducer:
        """One that goes on may fence this one, before it can see that its place is taken."""
        clock = SystemClock()
        limit = clock.timer_ms() + TAKE_OVER_S * 1000
        while True:
            producer = self._transactional(self._application_id, 0)
            try:
                self._term = producer.take_over()
                return producer
            except Fenced:
                producer.close()
                if clock.timer_ms() > limit:
                    raise

    def close(self) -> None:
        for producer in self._held.values():
            producer.close()
        self._held.clear()
        for client in (self._shared, self._tail, self._appending):
            if client is not None:
                client.close()
        self._shared = self._tail = self._appending = None
        self._asking.close()

    # Groups

    def committed(self, group: str) -> dict[TopicPartition, Position]:
        tps = [TopicPartition(name, p) for name, info in self.topics().items() for p in range(info.partitions)]
        found = self.committed_positions(group, tps)
        found.pop(self._counter, None)
        return found

    def committed_positions(self, group: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, Position]:
        """The committed positions of a group as of the last finished transaction."""
        if not tps:
            return {}
        with self._client_of(group) as client:
            return client.committed(tps, TIMEOUT_S)

    def stable_positions(self, group: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, Position]:
        """The committed positions of a group without open transactions. For groups other than the application's own, a client is kept for later calls
        and the call waits for its answer: a new client has to find the coordinator of the group, which blocks no work of the application.
        """
        if not tps:
            return {}
        with self._client_of(group, keep=True) as client:
            return client.committed(tps, STABLE_S if group == self._application_id else TIMEOUT_S)

    def commit_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        """Move positions of a group without members, outside of a transaction."""
        with self._client_of(group) as client:
            client.commit(positions)

    def group_metadata(self, group: str) -> object:
        """The metadata that transactions name to move positions of a group; for a group without members it is a constant."""
        if group not in self._metadata:
            with self._client_of(group) as client:
                self._metadata[group] = client.group_metadata()
        return self._metadata[group]

    @contextmanager
    def _client_of(self, group: str, *, keep: bool = False) -> Iterator[FetchClient]:
        """The restore consumer speaks for the application's own group; for another one there is a client for a moment, or to keep."""
        if group == self._application_id:
            with self._reading.client() as client:
                yield client
            return
        if keep or group in self._asking:
            with self._asking.of(group) as client:
                yield client
            return
        client = self._fetch_client(f"{self._application_id}-asks", WAIT_MS, group)
        try:
            yield client
        finally:
            client.close()

    @property
    def _reading(self) -> SharedReading:
        if self._shared is None:
            app = self._application_id
            self._shared = SharedReading(self, lambda: self._fetch_client(f"{app}-restore", WAIT_MS, app))
        return self._shared

    def _tailing(self) -> SharedReading:
        """A client of its own, made when first needed: its fetches wait at the brokers until something is written."""
        if self._tail is None:
            app = self._application_id
            first, calm = (partial(self._fetch_client, f"{app}-tail", ms, app) for ms in (WAIT_MS, TAIL_WAIT_MS))
            self._tail = SharedReading(self, first, calm)
        return self._tail

    def _fetch_client(self, client_id: str, wait_ms: int, group: str) -> FetchClient:
        client = FetchClient(self._connection, self, client_id, group, wait_ms)
        return self._clients.consumer(client)

    def _new_producer(self, transactional_id: str) -> KafkaProducer | AtLeastOnceProducer:
        if self._at_least_once is not None and transactional_id == self._application_id:
            last = self._at_least_once
            made = AtLeastOnceProducer(self._connection, self, transactional_id, self._counter, self, last)
            return self._clients.producer(made)
        return self._transactional(transactional_id, self._term if transactional_id == self._application_id else 0)

    def _transactional(self, transactional_id: str, term: int) -> KafkaProducer:
        check = CommitCheck(self._connection, self, self._torn)
        made = KafkaProducer(self._connection, self, transactional_id, self._counter, self, check, term)
        return self._clients.producer(made)

    # Admin

    def delete_topic(self, name: str) -> None:
        super().delete_topic(name)
        for reading in (self._reading, self._tail):
            if reading is not None:
                reading.forget(name)

    def writers(self, tp: TopicPartition) -> None:
        """None: brokers do not report the writer of a record."""

    def torn_commits(self) -> list[CommitTorn]:
        return list(dict(self._torn).values())

    def was_compacted(self, tp: TopicPartition) -> None:
        """None: brokers do not report it."""

    def files_of(self, tp: TopicPartition) -> None:
        """None: brokers do not report them."""


def open_log(settings: KafkaSettings, application_id: str) -> Log:
    """To read, beside the instance that runs the application."""
    return KafkaLog(Connection.to(settings), application_id)

"""The clients of one process on a simulated cluster, behind the interfaces of `flowql.runtime.log.base`.

They behave as those of `flowql.runtime.log.kafka`: a producer's records are at the brokers before its commit, its positions with it; after
an error whose branch is not "retry" a producer is of no more use; `last_sequence` is a committed position.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Protocol

import pyarrow as pa

from flowql.runtime.errors import Fenced, LogDenied, LogError, LogUnavailable, RecordRefused, StaleMember, TopicMissing
from flowql.runtime.log.base import (
    EARLIEST,
    Admin,
    Clients,
    Consumer,
    KeyValueReader,
    NewTopic,
    Position,
    Producer,
    RawBatch,
    Reader,
    TopicDescription,
    TopicInfo,
    TopicPartition,
    no_records,
)
from flowql.runtime.log.clients import KeyValuesOf, LogConsumer, LogReader, answered, check_topic_name, naming
from flowql.runtime.log.kafka.commit_writers import CommitWriters, decode
from flowql.runtime.log.policy import TopicPolicy, altered
from flowql.runtime.log.transaction import check_start, conform
from tests.sim.broker import Broker, Partition, Transaction

VISIBLE_MS = 1_000


class Network(Protocol):
    """What lies between a process and the brokers. Each may take its time, raise LogUnavailable, or find the process dead."""

    def call(self, what: str) -> None:
        """Before a request is made."""
        ...

    def commit(self, send: Callable[[], None], send_later: Callable[[int], None]) -> None:
        """Make a request whose outcome matters; LogUnavailable leaves it open whether it was done. send_later: after so many ms."""
        ...

    def takes(self, topic: str) -> bool:
        """Whether brokers take records for a topic."""
        ...

    def check_read(self, tps: Iterable[TopicPartition]) -> None:
        """LogDenied if this process may not read one of them."""
        ...

    def wait(self, done: Callable[[], bool], ms: int) -> None:
        """Until something is done, or for so long."""
        ...


class Calm:
    """A network without trouble."""

    def call(self, what: str) -> None:
        """Nothing happens."""

    def commit(self, send: Callable[[], None], send_later: Callable[[int], None]) -> None:
        send()

    def takes(self, topic: str) -> bool:
        return True

    def check_read(self, tps: Iterable[TopicPartition]) -> None:
        """Everybody may."""

    def wait(self, done: Callable[[], bool], ms: int) -> None:
        """Nobody is waited for."""


class SimulatedLog:
    """A factory of clients on `broker`."""

    supports_redo = False
    drops_with_commits = False

    def __init__(self, broker: Broker, network: Network | None = None, application_id: str = "flowql") -> None:
        self.broker, self.network = broker, network or Calm()
        self._counter = TopicPartition(f"{application_id}-commits", 0)
        self._held: dict[str, SimulatedProducer] = {}
        self.consumers: list[SimulatedConsumer] = []

    # Factory of clients

    def admin(self) -> Admin:
        return self

    def reader(self, tp: TopicPartition, offset: int = EARLIEST) -> Reader:
        return SimulatedReader(self, tp, offset)

    def key_values(self, tp: TopicPartition, offset: int = EARLIEST) -> KeyValueReader:
        return KeyValuesOf(self.reader(tp, offset))

    def consumer(self, client_id: str) -> Consumer:
        made = SimulatedConsumer(self, client_id)
        self.consumers.append(made)
        return made

    def append(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        self.network.call("append")
        self.broker.append(tp, conform(records))

    def producer(self, transactional_id: str) -> Producer:
        held = self._held.pop(transactional_id, None)
        return held if held is not None else SimulatedProducer(self, transactional_id, self._counter)

    def clients(self) -> Clients:
        return Clients(len(self.consumers), 1, 1)

    def last_sequence(self, transactional_id: str) -> int:
        self.network.call("last sequence")
        position = self.broker.stable_positions(transactional_id, [self._counter]).get(self._counter)
        return 0 if position is None else position.offset

    def redo_after(self, transactional_id: str, sequence: int) -> Iterator[tuple[int, bytes]]:
        raise LogError("there is no redo; state comes back from changelogs")

    def redo_place(self, transactional_id: str, sequence: int) -> str:
        raise LogError("there is no redo; state comes back from changelogs")

    def trim_redo(self, transactional_id: str, sequence: int) -> None:
        """There is none."""

    def opener(self) -> None:
        """Nobody else reads it."""

    def record_bytes_max(self, topic: str) -> int | None:
        return None

    def record_ahead_ms_max(self, topic: str) -> int | None:
        return None

    def maintain(self, now_ms: int) -> None:
        """Brokers do it."""

    def hold(self, transactional_id: str) -> None:
        self._held[transactional_id] = SimulatedProducer(self, transactional_id, self._counter)

    def close(self) -> None:
        for producer in self._held.values():
            producer.close()
        self._held.clear()

    # Admin

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> TopicInfo:
        check_topic_name(name)
        TopicPolicy.of(config or {})
        self.network.call("create topic")
        known = self.broker.topics.get(name)
        if known is None:
            if partitions < 1:
                raise LogError(f"topic {name}: {partitions} partitions")
            self.broker.topic_ids[name] += 1
            known = self.broker.topics[name] = TopicInfo(name, partitions, dict(config or {}))
            self.broker.partitions.update({TopicPartition(name, p): Partition() for p in range(partitions)})
        elif known.partitions != partitions:
            raise LogError(f"topic {name} exists with {known.partitions} partitions, not {partitions}")
        return known

    def create_topics(self, topics: Mapping[str, NewTopic]) -> dict[str, TopicInfo]:
        return {name: self.create_topic(name, new.partitions, new.config) for name, new in topics.items()}

    def alter_topic(self, name: str, changes: Mapping[str, str | None]) -> TopicInfo:
        self.network.call("alter topic")
        known = self.broker.topics.get(name)
        if known is None:
            raise TopicMissing(f"there is no topic {name}")
        info = TopicInfo(name, known.partitions, altered(known.config, changes))
        self.broker.topics[name] = info
        return info

    def delete_topic(self, name: str) -> None:
        self.network.call("delete topic")
        if self.broker.topics.pop(name, None) is None:
            raise TopicMissing(f"there is no topic {name}")
        for tp in [tp for tp in self.broker.partitions if tp.topic == name]:
            del self.broker.partitions[tp]
            for group in self.broker.groups.values():
                group.positions.pop(tp, None)

    def topics(self) -> dict[str, TopicInfo]:
        self.network.call("topics")
        return dict(self.broker.topics)

    def with_replaced_times(self, topics: Collection[str]) -> set[str]:
        """Empty: records keep their times."""
        return set()

    def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        self.network.call("partition counts")
        self.network.check_read(TopicPartition(topic, 0) for topic in topics)
        return {name: self.broker.topics[name].partitions for name in topics if name in self.broker.topics}

    def begin_offset(self, tp: TopicPartition) -> int:
        self.network.call("begin offset")
        return self.broker.partition(tp).start

    def begin_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if tps:
            self.network.call("begin offsets")
        known = self.broker.partitions
        return {tp: known[tp].start for tp in tps if tp in known}

    def end_offset(self, tp: TopicPartition) -> int:
        self.network.call("end offset")
        return self.broker.partition(tp).stable_end

    def end_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if tps:
            self.network.call("end offsets")
            self.network.check_read(tps)
        known = self.broker.partitions
        return {tp: known[tp].stable_end for tp in tps if tp in known}

    def ask_written_offsets(self, tps: Sequence[TopicPartition]) -> Future[dict[TopicPartition, int]]:
        return answered(lambda: {tp: self.written_offset(tp) for tp in tps if tp in self.broker.partitions})

    def ask_end_offsets(self, tps: Sequence[TopicPartition]) -> Future[dict[TopicPartition, int]]:
        return answered(lambda: self.end_offsets(tps))

    def describe_topics(self, topics: Collection[str]) -> Future[dict[str, TopicDescription]]:
        return answered(lambda: self._descriptions(topics))

    def _descriptions(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        self.network.call("topic descriptions")
        ids, known = self.broker.topic_ids, self.broker.topics
        return {t: TopicDescription(str(ids[t]), known[t].partitions) for t in topics if t in known}

    def written_offset(self, tp: TopicPartition) -> int:
        self.network.call("written offset")
        return self.broker.partition(tp).end

    def committed(self, group: str) -> dict[TopicPartition, Position]:
        self.network.call("committed")
        return dict(self.broker.group(group).positions)

    def stable_positions(self, group: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, Position]:
        if not tps:
            return {}
        self.network.call("stable positions")
        return self.broker.stable_positions(group, tps)

    def groups(self, prefix: str) -> list[str]:
        self.network.call("groups")
        return sorted(g for g, group in self.broker.groups.items() if group.positions and g.startswith(prefix))

    def writers(self, tp: TopicPartition) -> None:
        """Brokers do not say who has written a record."""

    def torn_commits(self) -> tuple[()]:
        """Brokers of the simulation lose nothing of a commit."""
        return ()

    def was_compacted(self, tp: TopicPartition) -> None:
        """Brokers do not say."""

    def files_of(self, tp: TopicPartition) -> None:
        return None

    def drop_before(self, tp: TopicPartition, offset: int) -> None:
        self.network.call("drop before")
        partition = self.broker.partition(tp)
        check_start(tp, offset, partition.stable_end)
        partition.start = max(partition.start, offset)

    # What readers look up

    def refresh(self) -> None:
        """There is nothing to see anew."""

    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        partition = self.broker.partition(tp)
        return partition.start, partition.stable_end

    def stored(self, tp: TopicPartition, offset: int) -> pa.RecordBatch | None:
        return self.broker.partition(tp).visible_from(offset)


class SimulatedReader(LogReader):
    """Its position moves over what is no record."""

    def __init__(self, log: SimulatedLog, tp: TopicPartition, offset: int) -> None:
        self._network = log.network
        super().__init__(log, tp, offset)

    def read(self, max_records: int, max_bytes: int) -> RawBatch | None:
        self._network.call("read")
        self._network.check_read([self.tp])
        batch = super().read(max_records, max_bytes)
        if batch is None:
            self._position = max(self._position, self._lookup.bounds(self.tp)[1])
        return batch


class FetchedReader(LogReader):
    """Says so when only its position has moved: a batch without rows."""

    def __init__(self, log: SimulatedLog, tp: TopicPartition, offset: int) -> None:
        self._network = log.network
        super().__init__(log, tp, offset)

    def read(self, max_records: int, max_bytes: int, *, look: bool = True) -> RawBatch | None:
        self._network.check_read([self.tp])
        batch, end = super().read(max_records, max_bytes, look=look), self._lookup.bounds(self.tp)[1]
        if batch is None and self._position < end:
            self._position = end
            return RawBatch(self.tp, no_records(), end, 0)
        return batch


class SimulatedConsumer(LogConsumer):
    """Positions move over what is no record."""

    def __init__(self, log: SimulatedLog, client_id: str) -> None:
        super().__init__(log, client_id)
        self._log = log

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        readers: dict[TopicPartition, Reader] = {}
        for tp, offset in positions.items():
            with naming(tp):
                self._log.network.call("assign")
                readers[tp] = FetchedReader(self._log, tp, offset)
        self._readers, self._turn = readers, 0
        self._paused.clear()

    def poll(self, max_records: int, max_bytes: int) -> list[RawBatch]:
        try:
            self._log.network.call("poll")
        except LogUnavailable:  # nothing arrives
            return []
        return super().poll(max_records, max_bytes)


class SimulatedProducer:
    """begin -> send* -> commit | abort, as `flowql.runtime.log.kafka.producer` does it."""

    def __init__(self, log: SimulatedLog, transactional_id: str, counter: TopicPartition) -> None:
        log.network.call("init")
        self.transactional_id = transactional_id
        self._broker, self._network, self._counter = log.broker, log.network, counter
        if counter.topic not in self._broker.topics:
            log.create_topic(counter.topic, 1, {"cleanup.policy": "compact"})
        self._is_open = False
        self._sent: set[TopicPartition] = set()
        self.ends: Mapping[TopicPartition, int] = {}
        self._failure: LogError | None = None
        self._epoch = self._broker.init(transactional_id)
        self._network.call("init answered")
        self._sequence, self._log = log.last_sequence(transactional_id), log
        self._name, self._writers = f"{self._epoch:x}", self._known_writers(self._sequence)
        self._positions: dict[str, dict[TopicPartition, Position]] = {}

    def begin(self) -> None:
        self._check()
        if self._is_open:
            raise LogError(f"producer {self.transactional_id}: a transaction is open already")
        self._broker.check_epoch(self.transactional_id, self._epoch)
        self._is_open, self._positions = True, {}
        self._sent, self.ends = set(), {}

    def send(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        self._check_open()
        self._broker.partition(tp)
        if records.num_rows:
            self._sent.add(tp)
            self._ask("send", lambda: self._write(tp, conform(records)))

    def send_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        self._check_open()
        for tp in positions:
            self._broker.partition(tp)
        self._positions.setdefault(group, {}).update(positions)

    def drop_before(self, tp: TopicPartition, offset: int) -> None:
        self._check_open()
        raise LogError(f"records of {tp} below {offset} cannot be dropped as part of a transaction")

    def expect_end(self, tp: TopicPartition, offset: int) -> None:
        self._check_open()
        raise LogError(f"a transaction cannot depend on {tp} ending at {offset}")

    def append_from(self, tp: TopicPartition, source: TopicPartition) -> None:
        self._check_open()
        raise LogError(f"records of {source} cannot be copied to {tp} as part of a transaction")

    def repartition(self, topic: str, partitions: int, offset: int, *, keeps: bool) -> None:
        del partitions, offset, keeps
        self._check_open()
        raise LogError(f"the partitions of {topic} cannot be changed as part of a transaction")

    def expect_partitions(self, topic: str, partitions: int) -> None:
        """Partitions are only ever added; brokers do not look at what records were partitioned by."""

    def attach_redo(self, payload: bytes) -> None:
        self._check_open()
        raise LogError("there is no redo; state comes back from changelogs")

    def commit(self) -> int:
        self._check_open()
        sequence = self._sequence + 1
        writers = self._writers.after(self._name, sequence)
        self._positions.setdefault(self.transactional_id, {})[self._counter] = Position(sequence, writers.encode())
        for group, positions in self._positions.items():
            self._ask("positions", lambda g=group, p=positions: self._move(g, p))
        transaction = self._current()
        self.ends = {tp: self._broker.partition(tp).end for tp in self._sent}
        try:
            self._ask("end", self._commit_once)
        except (Fenced, LogUnavailable) as error:
            error.is_outcome_unknown = True
            raise
        self._is_open, self._sequence, self._writers = False, sequence, writers
        self._network.wait(lambda: self._broker.written(transaction), VISIBLE_MS)
        return sequence

    def has_committed(self) -> bool | None:
        found = self._known_writers(self._log.last_sequence(self.transactional_id))
        return found.has_committed(self._name, self._sequence + 1)

    def _known_writers(self, sequence: int) -> CommitWriters:
        position = self._broker.stable_positions(self.transactional_id, [self._counter]).get(self._counter)
        return decode("" if position is None else position.metadata, sequence)

    def abort(self) -> None:
        self._check_open()
        self._is_open = False
        self._ask("abort", lambda: self._broker.end(self.transactional_id, self._epoch, commit=False))

    def close(self) -> None:
        if self._failure is None and self._is_open:
            with suppress(LogError):
                self.abort()
        self._failure = self._failure or LogError(f"producer {self.transactional_id} is of no more use: closed")

    def _write(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        if not self._network.takes(tp.topic):
            error = RecordRefused(f"{tp}: a record is too large")
            error.partition = tp
            raise error
        self._broker.write(self.transactional_id, self._epoch, tp, records)

    def _move(self, group: str, positions: dict[TopicPartition, Position]) -> None:
        self._network.check_read(positions)
        self._broker.move_positions(self.transactional_id, self._epoch, group, positions)

    def _commit_once(self) -> None:
        name, epoch = self.transactional_id, self._epoch
        self._network.commit(
            lambda: self._broker.end(name, epoch, commit=True),
            lambda after_ms: self._broker.end_later(name, epoch, after_ms),
        )

    def _current(self) -> Transaction | None:
        return self._broker.writers[self.transactional_id].current

    def _ask(self, what: str, request: Callable[[], None]) -> None:
        """A request and what its errors mean for this producer."""
        try:
            self._network.call(what)
            request()
        except (RecordRefused, StaleMember, LogDenied) as error:
            self._broker.end(self.transactional_id, self._epoch, commit=False)
            raise self._give_up(error) from None
        except (Fenced, LogUnavailable) as error:
            raise self._give_up(error) from None

    def _give_up(self, error: LogError) -> LogError:
        self._failure, self._is_open = error, False
        return error

    def _check_open(self) -> None:
        self._check()
        if not self._is_open:
            raise LogError(f"producer {self.transactional_id}: no transaction is open")

    def _check(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(str(self._failure))
        self._broker.check_epoch(self.transactional_id, self._epoch)

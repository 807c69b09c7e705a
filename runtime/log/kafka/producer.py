"""The transactional producer on Kafka.

Each transaction also commits a position that is its sequence (rule R3): in group = transactional id, of the one partition of
topic `<application id>-commits`, which holds no records. After a commit of unknown outcome a new producer finds it there. Its metadata
also names the producers of the last commits (`CommitWriters`), as processes that share an id give the same number to their next transaction: if
the answer to a commit is lost and another process commits next, the number does not tell whose transaction has it.

Who runs an application alone begins a new *term*, with a transaction that writes its number beside the sequence (`take_over`). So a
producer that is fenced can tell whether another one has its place, or the brokers have ended a transaction that took too long:
an instance that was suspended for a while goes on.

Errors take one of three branches: *fatal* or unknown - nothing more is tried; *abort* - the transaction is aborted and left no
trace; *retry* - the same call again, until there is no more time. After the first two this producer is of no more use: one that
went on after an abort was seen to skip sequence numbers (librdkafka 2.16, a record too large for the topic).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Protocol

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as KafkaProducerClient
from confluent_kafka import TopicPartition as KafkaPartition

from flowql.runtime.clock import SystemClock
from flowql.runtime.errors import (
    Fenced,
    LogDenied,
    LogError,
    LogUnavailable,
    RecordRefused,
    StaleMember,
    TopicMissing,
    TransactionAborted,
)
from flowql.runtime.log.base import NewTopic, Position, TopicPartition
from flowql.runtime.log.kafka import commit_writers, errors
from flowql.runtime.log.kafka.admin import KafkaAdmin
from flowql.runtime.log.kafka.commit_writers import CommitWriters
from flowql.runtime.log.kafka.connection import LOGGER, Connection
from flowql.runtime.log.kafka.records import send_all
from flowql.runtime.log.kafka.torn import CommitCheck, WrittenEnd, decode, encode, mark_of
from flowql.runtime.log.transaction import conform

GRACE_S = 5.0  # beyond the timeout that the client was given


def ending(call: Callable[[float], None], seconds: float, what: str) -> None:
    """Make a call with this timeout; LogUnavailable if it has not ended a while after. Its client is of no more use then."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            call(seconds)
            done.set_result(None)
        except BaseException as error:  # raised by the calling thread
            done.set_exception(error)

    threading.Thread(target=run, name="kafka-call", daemon=True).start()
    if not futures.wait([done], seconds + GRACE_S).done:
        raise LogUnavailable(f"{what}: the client does not come back; whether brokers have done it is not known")
    done.result()


def served(call: Callable[..., Any], *args: Any) -> Any:
    """Make a call that serves callbacks. KafkaException where a fatal error came before one of them."""
    try:
        return call(*args)
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise


class ProducerClient(KafkaProducerClient):
    """A producer of the client library whose calls raise their fatal errors."""

    def poll(self, *args: Any) -> int:
        return int(served(super().poll, *args))

    def flush(self, *args: Any) -> int:
        return int(served(super().flush, *args))

    def commit_transaction(self, *args: Any) -> None:
        served(super().commit_transaction, *args)

    def abort_transaction(self, *args: Any) -> None:
        served(super().abort_transaction, *args)


CALL_S = 5.0  # of one call of the client, after which it is made again
INIT_S, COMMIT_S, ABORT_S, SEND_S = 60.0, 60.0, 30.0, 60.0
VISIBLE_MS = 1_000
REPORTS_MS = 1_000  # how long the reports of records are waited for when a transaction is lost
TAKE_OVER_S = 60.0  # one that goes on may fence the next one a few times before it sees its term
_SERVE_ROWS = 20_000  # delivery reports are looked at after so many
# Errors of a commit after which the transaction is known to have left no trace.
_ABORTED = (TransactionAborted, RecordRefused, TopicMissing, LogDenied, StaleMember)


def sequence_partition(application_id: str) -> TopicPartition:
    """The partition whose position in the group of a transactional id counts its commits."""
    return TopicPartition(f"{application_id}-commits", 0)


class Groups(Protocol):
    """Positions of consumer groups, and what proves the right to move them."""

    def committed_positions(self, group: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, Position]: ...

    def group_metadata(self, group: str) -> object: ...


def committed_sequence(groups: Groups, transactional_id: str, counter: TopicPartition) -> int:
    """How many transactions of that id were committed."""
    return sequence_of(committed_count(groups, transactional_id, counter))


def committed_count(groups: Groups, transactional_id: str, counter: TopicPartition) -> Position:
    """The same, and in which term (`term_of`)."""
    return groups.committed_positions(transactional_id, [counter]).get(counter, Position(0))


def count(
    sequence: int,
    term: int,
    ends: Mapping[TopicPartition, WrittenEnd] | None = None,
    writers: CommitWriters | None = None,
) -> Position:
    """The position that each transaction commits with its number. term: 0 for transactions of a group's members. ends: of what it wrote. writers: of
    the last commits.

    All are in the metadata. The topic has no records, so that an offset above 0 would be a negative lag for Kafka's tools.
    """
    by = "" if writers is None else writers.encode()
    told = {"seq": str(sequence), "term": str(term or ""), "by": by, "ends": encode(ends or {})}
    return Position(0, " ".join(f"{name}={value}" for name, value in told.items() if value))


def sequence_of(counted: Position) -> int:
    """The number in it; 0 where nothing was committed."""
    return int(_told(counted, "seq") or 0)


def term_of(counted: Position) -> int:
    """The term in it."""
    return int(_told(counted, "term") or 0)


def ends_of(counted: Position) -> dict[TopicPartition, WrittenEnd]:
    """The ends of the partitions that the commit wrote."""
    return decode(_told(counted, "ends"))


def writers_of(counted: Position) -> CommitWriters:
    """The producers of the last commits."""
    return commit_writers.decode(_told(counted, "by"), sequence_of(counted))


def _told(counted: Position, name: str) -> str:
    found = (entry.partition("=") for entry in counted.metadata.split(" "))
    return next((value for told, _, value in found if told == name), "")


class BaseProducer:
    """The calls of a producer that are the same with transactions and without."""

    unit: ClassVar[str]  # ended by `commit`, for messages

    def __init__(
        self,
        config: Mapping[str, Any],
        admin: KafkaAdmin,
        transactional_id: str,
        counter: TopicPartition,
        groups: Groups,
    ) -> None:
        self.transactional_id, self.closed = transactional_id, False
        self.ends: Mapping[TopicPartition, int] = {}
        self._admin, self._groups, self._counter = admin, groups, counter
        self._clock = SystemClock()
        self._positions: dict[str, dict[TopicPartition, Position]] = {}
        self._is_open = False
        self._refused: tuple[TopicPartition, KafkaError] | None = None  # the first record that was not delivered
        admin.create_topics({counter.topic: NewTopic(1, {"cleanup.policy": "compact"})})
        self._client = ProducerClient({**config, "on_delivery": self._undelivered}, logger=LOGGER)

    def _check(self) -> None:
        """Raises where it is of no more use."""

    def _check_open(self) -> None:
        self._check()
        if not self._is_open:
            raise LogError(f"producer {self.transactional_id}: no {self.unit} is open")

    def _room(self, tp: TopicPartition) -> Callable[[], None]:
        """Waits for room in the client's queue; not for ever."""
        limit: int | None = None

        def wait() -> None:
            nonlocal limit
            now = self._clock.timer_ms()
            limit = limit or now + int(SEND_S * 1000)
            if now > limit:
                raise self._give_up(LogUnavailable(f"{tp}: brokers have taken nothing for {SEND_S:.0f} s"))
            self._client.poll(0.05)

        return wait

    def _give_up(self, error: LogError) -> LogError:
        return error

    def _undelivered(self, error: KafkaError | None, message: Message) -> None:
        """Called for records that the brokers did not take, from within other calls."""
        if error is not None and self._refused is None and error.code() != KafkaError._PURGE_QUEUE:
            self._refused = TopicPartition(message.topic(), message.partition()), error

    def _purge(self) -> None:
        with suppress(KafkaException):
            self._client.purge(in_queue=True, in_flight=True)

    def send_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        self._check_open()
        for tp in positions:
            self._admin.check_partition(tp)
        self._positions.setdefault(group, {}).update(positions)

    def drop_before(self, tp: TopicPartition, offset: int) -> None:
        self._check_open()
        raise LogError(f"Kafka cannot drop records of {tp} below {offset} as part of a {self.unit}")

    def expect_end(self, tp: TopicPartition, offset: int) -> None:
        self._check_open()
        raise LogError(f"Kafka cannot make a transaction depend on {tp} ending at {offset}")

    def append_from(self, tp: TopicPartition, source: TopicPartition) -> None:
        self._check_open()
        raise LogError(f"Kafka cannot copy the records of {source} to {tp} as part of a {self.unit}")

    def repartition(self, topic: str, partitions: int, offset: int, *, keeps: bool) -> None:
        del partitions, offset, keeps
        self._check_open()
        raise LogError(f"the partitions of {topic} cannot be changed as part of a transaction")

    def expect_partitions(self, topic: str, partitions: int) -> None:
        """Partitions are only ever added; brokers do not look at what records were partitioned by."""
        del topic, partitions

    def attach_redo(self, payload: bytes) -> None:
        self._check_open()
        raise LogError("Kafka keeps no redo; state comes back from changelogs")


class KafkaProducer(BaseProducer):
    """begin -> send* -> commit | abort. Its creation fences older producers and aborts their open transactions.

    term: of the only instance of an application, else 0. Raises Fenced if a later term has begun.
    """

    unit = "transaction"

    def __init__(
        self,
        connection: Connection,
        admin: KafkaAdmin,
        transactional_id: str,
        counter: TopicPartition,
        groups: Groups,
        check: CommitCheck,
        term: int = 0,
    ) -> None:
        super().__init__(connection.producer(transactional_id), admin, transactional_id, counter, groups)
        self._sent: set[TopicPartition] = set()
        self._marks: dict[TopicPartition, int] = {}  # of the last records sent
        self._check_commit, self._term = check, term
        self._failure: LogError | None = None
        try:
            self._repeat(self._client.init_transactions, INIT_S)
        except KafkaException as error:
            self.close()  # or it would go on asking for an epoch, and fence the next one
            raise errors.failure(errors.of(error), f"producer {transactional_id} cannot start") from error
        counted = committed_count(groups, transactional_id, counter)
        self._sequence, self._begun = sequence_of(counted), term_of(counted)
        self._name, self._writers = os.urandom(4).hex(), writers_of(counted)
        if term and term != self._begun:
            self.close()
            raise Fenced(f"another instance of {transactional_id} has taken over")
        if ends := ends_of(counted):
            check.look(ends)

    def take_over(self) -> int:
        """Begins a new term. Raises Fenced if the owner of the previous term committed at the same time; then it may be repeated."""
        self._term = self._begun + 1
        self.begin()
        self._finish(self._sequence)
        return self._term

    def begin(self) -> None:
        self._check()
        if self._is_open:
            raise LogError(f"producer {self.transactional_id}: a transaction is open already")
        self._guard(self._client.begin_transaction)
        self._is_open, self._positions, self._sent, self._refused = True, {}, set(), None
        self._marks, self.ends = {}, {}

    def send(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        self._check_open()
        self._admin.check_partition(tp)
        conform(records)
        self._sent.add(tp)
        if records.num_rows:
            self._marks[tp] = mark_of(records)
        for start in range(0, records.num_rows, _SERVE_ROWS):
            try:
                send_all(records.slice(start, _SERVE_ROWS), tp, self._client.produce, self._room(tp))
            except KafkaException as error:
                self._fail(error, tp)
            self._serve()

    def commit(self) -> int:
        self._check_open()
        return self._finish(self._sequence + 1)

    def _finish(self, sequence: int) -> int:
        """Commit, as the transaction of this number."""
        check, writers = self._check_commit, self._writers.after(self._name, sequence)
        try:
            for group, positions in self._positions.items():
                self._send_positions(group, positions)
            if self._sent and not any(self._positions.values()):  # brokers abort no transaction that has not begun
                self._send_count(count(sequence, self._term, check.suspects, writers))
            self._client.flush(CALL_S)
            ends = self.ends = self._ends()
            written = {tp: WrittenEnd(end, self._marks[tp]) for tp, end in ends.items() if tp in self._marks}
            self._send_count(count(sequence, self._term, {**check.suspects, **written}, writers))
            self._commit_transaction()
        except KafkaException as error:
            self._fail(error)
        self._is_open, self._sequence, self._writers = False, sequence, writers
        hidden = self._await_visible(ends)
        if hidden or check.suspects:
            check.look({**check.suspects, **{tp: written[tp] for tp in hidden if tp in written}})
        return sequence

    def _commit_transaction(self) -> None:
        try:
            try:
                self._repeat(self._client.commit_transaction, COMMIT_S)
            except KafkaException as error:
                self._fail(error)
        except LogError as error:  # fenced too: the answer may be lost, and another producer have begun since
            error.is_outcome_unknown = not isinstance(error, _ABORTED)
            raise

    def has_committed(self) -> bool | None:
        counted = committed_count(self._groups, self.transactional_id, self._counter)
        return writers_of(counted).has_committed(self._name, self._sequence + 1)

    def _send_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        offsets = [KafkaPartition(t, p, o.offset, o.metadata) for (t, p), o in positions.items()]
        metadata = self._groups.group_metadata(group)
        self._repeat(partial(self._client.send_offsets_to_transaction, offsets, metadata), COMMIT_S)

    def _send_count(self, counted: Position) -> None:
        self._send_positions(self.transactional_id, {self._counter: counted})

    def _ends(self) -> dict[TopicPartition, int]:
        """Where partitions end with what was just written."""
        try:
            return self._admin.written_offsets(sorted(self._sent))
        except LogError:  # readers may see it later, and a restoration may begin earlier
            return {}

    def _await_visible(self, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Brokers answer a commit before readers see it. Not for ever: another's open transaction may hide what is behind it. Returns those that are
        not known to be visible.
        """
        limit = self._clock.timer_ms() + VISIBLE_MS
        hidden = sorted(ends)
        with suppress(
            LogError, KafkaException
        ):  # it is committed, whenever readers see it, and if this producer is fenced now
            while hidden and self._clock.timer_ms() < limit:
                seen = self._admin.end_offsets(hidden)
                hidden = [tp for tp in hidden if seen.get(tp, ends[tp]) < ends[tp]]
                if hidden:
                    self._client.poll(0.002)
        return hidden

    def abort(self) -> None:
        self._check_open()
        self._abort()

    def close(self) -> None:
        """Closes the producer. An open transaction is aborted; if brokers are unreachable, they abort it after its timeout."""
        self.closed = True
        if self._failure is None and self._is_open:
            with suppress(LogError):
                self._abort()
        self._failure = self._failure or LogError(f"producer {self.transactional_id} is of no more use: closed")
        self._purge()

    # -- calls of the client

    def _serve(self) -> None:
        """Hears the client's reports. That another producer has its id, or another fatal error, is told by whichever call comes next: by this too."""
        self._guard(partial(self._client.poll, 0))

    def _repeat(self, call: Callable[[float], None], seconds: float) -> None:
        """A call again and again while the client says that this helps and there is time."""
        limit = self._clock.timer_ms() + seconds * 1000
        while True:
            try:
                ending(call, CALL_S, f"producer {self.transactional_id}")
                return
            except LogUnavailable as error:
                raise self._give_up(error) from error
            except KafkaException as error:
                failed = errors.of(error)
                again = failed.retriable() or failed.code() == KafkaError._TIMED_OUT
                if failed.fatal() or failed.txn_requires_abort() or not again or self._clock.timer_ms() > limit:
                    raise
                self._client.poll(0.05)

    def _guard(self, call: Callable[[], object]) -> None:
        try:
            call()
        except KafkaException as error:
            self._fail(error)

    # -- the three branches

    def _fail(self, error: KafkaException, tp: TopicPartition | None = None) -> None:
        """Ends the transaction, or the producer; always raises."""
        failed = self._first_cause(errors.of(error))
        if failed.txn_requires_abort():
            self._hear_reports()
        named = self._named(failed, tp)
        if isinstance(named, Fenced) and self._has_term():
            named = LogUnavailable(f"{named}: brokers have ended a transaction that took too long")
        if isinstance(named, Fenced) or failed.fatal():
            raise self._give_up(named) from error
        refused = isinstance(named, RecordRefused | TopicMissing) or (isinstance(named, LogDenied) and named.partition)
        if failed.txn_requires_abort() or refused:
            self._abort()
            known = refused or isinstance(named, StaleMember)
            raise self._give_up(named if known else TransactionAborted(str(named))) from error
        raise self._give_up(LogUnavailable(f"{named}; whether the transaction was committed is not known")) from error

    def _first_cause(self, failed: KafkaError) -> KafkaError:
        """To produce after a fatal error fails without its reason. The client raises the error itself once, when reports are asked for."""
        if failed.code() == KafkaError._FATAL:
            try:
                self._client.poll(0)
            except KafkaException as fatal:
                return errors.of(fatal)
        return failed

    def _hear_reports(self) -> None:
        """Serves outstanding delivery reports: one may have the reason why a transaction can only be aborted."""
        limit = self._clock.timer_ms() + REPORTS_MS
        with suppress(KafkaException):  # fatal now: the abort says so
            while self._refused is None and len(self._client) and self._clock.timer_ms() < limit:
                self._client.poll(0.01)

    def _has_term(self) -> bool:
        """Whether no other producer has taken over, as far as is known now: the next producer checks it again."""
        if not self._term:
            return False
        with suppress(LogError):
            return term_of(committed_count(self._groups, self.transactional_id, self._counter)) == self._term
        return True

    def _named(self, failed: KafkaError, tp: TopicPartition | None) -> LogError:
        """Prefers the error of the undelivered record: it tells more than the failure of the flush."""
        cause = failed
        if self._refused is not None and not failed.fatal():
            tp, cause = self._refused
        kind = type(errors.failure(cause, ""))
        if tp is None and kind in (TopicMissing, LogDenied):
            tp = self._forbidden()
        what = f"producer {self.transactional_id}" if tp is None else f"producer {self.transactional_id}, {tp}"
        named = errors.failure(cause, what)
        named.partition = tp
        if isinstance(named, TopicMissing) and tp is not None:
            self._admin.forget(tp.topic)
        return named

    def _forbidden(self) -> TopicPartition | None:
        """Which partition brokers did not let into the transaction: they say why, and not which."""
        moved = {tp for positions in self._positions.values() for tp in positions} - {self._counter}
        with suppress(LogError):
            for tps, permitted in ((self._sent, self._admin.writable), (moved, self._admin.readable)):
                allowed = permitted({tp.topic for tp in tps}) if tps else set()
                if found := sorted(tp for tp in tps if tp.topic not in allowed):
                    return found[0]
        return None

    def _give_up(self, error: LogError) -> LogError:
        self._failure, self._is_open = error, False
        return error

    def _abort(self) -> None:
        """Aborts the open transaction. If that takes too long, the next producer with this id aborts it."""
        self._is_open = False
        try:
            self._repeat(self._client.abort_transaction, ABORT_S)
        except KafkaException as error:
            raise self._give_up(self._named(errors.of(error), None)) from error

    def _check(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(str(self._failure))

"""Statements that change local tables: each is a transaction, and those that wait at the same time are committed together.

A table has one owner in a process: the thread that finds none carries out all statements that wait, in order, over the rows as the ones
before leave them. It commits them in one transaction of the log and hands the table to the next that waits. Owners in other processes write the
same topic: an embedded log compares the end of the topic, and the second writer reads on and carries out its statements again. On Kafka the
producers have one transactional id, and the broker shuts out the older one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import groupby, takewhile

import pyarrow as pa

from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import SourceDef
from flowql.runtime.batch import Row
from flowql.runtime.clock import Clock, SystemClock
from flowql.runtime.errors import (
    EndMoved,
    Fenced,
    LogError,
    OutcomeUnknown,
    RowFailed,
    RuntimeFailure,
    StateError,
    TableBusy,
    TransactionAborted,
)
from flowql.runtime.log.base import Log, Producer, TopicPartition
from flowql.runtime.topology.bulk_insert import BulkInsert, takes_columns
from flowql.runtime.topology.row_store import OpenedAgain, RowsInMemory, RowStore, RowStores, StoresInMemory
from flowql.runtime.topology.table_changes import Changed
from flowql.runtime.topology.table_groups import (
    NOTHING,
    BulkGroup,
    Group,
    Mark,
    Rehearsed,
    Statement,
    Table,
    TableStatement,
    Waiter,
)
from flowql.runtime.topology.table_image import Ends
from flowql.runtime.topology.table_rows import Key

FULL = ", as the disk takes none of them: make room there, or raise `memory` of the target"
POLICY = {"cleanup.policy": "compact"}
GROUP_MAX = 1_000  # statements in one transaction
# So long after a group, the next one waits for statements of the clients that were answered; no longer than the last group took.
GATHER_NS_MAX = 10_000_000
GATHERS_LEFT_OUT_MAX = 63  # after a wait in vain; their number doubles each time
TRIES = 1_000  # of a group, while writers in other processes come first: one of them gets on each time
TRIES_BROKER = 5  # on Kafka they may shut each other out


def writer_id(application_id: str, table: str) -> str:
    """The transactional id of a table's writer."""
    return f"{application_id}-table-{table}"


class TableWriters:
    """Changes local tables of one log. Any thread."""

    def __init__(
        self,
        log: Log,
        application_id: str,
        writer: str = "",
        stores: RowStores | None = None,
        memory_max: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        """writer: tells this process and its log apart from others that change tables at the same time. stores: for the rows of the tables.
        memory_max: of rows in memory, for tables whose store takes no rows as its disk is full.
        """
        self.log = log
        self.inserting = threading.Lock()  # held by who writes to topics with a transactional id that threads share
        self._application_id, self._writer = application_id, writer
        self._clock = clock or SystemClock()
        self._stores = stores or StoresInMemory()
        self._spare = StoresInMemory(memory_max, FULL)
        self._lock = threading.Lock()  # guards the tables
        self._tables: dict[str, _TableWriter] = {}

    def change(
        self,
        source: SourceDef,
        change: TableChange,
        now_ms: int,
        selected: Sequence[Row] | None = None,
        seen: Ends | None = None,
        mark: Mark | None = None,
        before: Callable[[Changed], None] | None = None,
    ) -> Changed:
        """Carry out a statement; what it inserted, updated or deleted. It is durable. now_ms: the time of the records.

        selected: the rows of the statement's query, values of its columns. seen: the ends of the table's topic before that query was asked, if
        the table must not have changed since. mark: gives a record that is written in the same
        transaction, also where no row changes. before: called before anything is written, perhaps again, perhaps in another thread. Raises
        StatementFailed, TableBusy or LogError; then nothing was changed.
        """
        return self._of(source).carry_out(Statement(source, change, now_ms, selected, seen, mark, before))

    def begin(
        self,
        source: SourceDef,
        change: TableChange,
        now_ms: int,
        told: Callable[[Changed | BaseException], None],
        own: Callable[[Callable[[], None]], object],
        mark: Mark | None = None,
        before: Callable[[Changed], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        """As `change`, without waiting. told: called once with the outcome, in another thread; it must be quick. own: makes a call in a thread that
        may wait. after: called in that thread after all statements of the group were told; equal functions are called once.
        """
        statement = Statement(source, change, now_ms, None, None, mark, before, after=after)
        statement.turn = lambda: told(statement.outcome)
        self._of(source).begin(statement, own)

    def insert(
        self,
        source: SourceDef,
        change: TableChange,
        now_ms: int,
        given: Sequence[pa.RecordBatch],
        mark: Mark | None = None,
    ) -> Changed:
        """Carries out an INSERT of many rows in one transaction. given: as for `BulkInsert`.

        Raises RowFailed, TableBusy or LogError; then nothing was changed.
        """
        bulk = BulkInsert(source, change, given)
        return self._of(source).carry_out(Statement(source, change, now_ms, None, None, mark, None, bulk))

    def rehearse(self, statement: TableStatement, now_ms: int, over: dict[Key, Row | None], first: int) -> Rehearsed:
        """The changes that a statement of a transaction would make now. Nothing is written. over: the changes of statements before it in the table,
        to which its changes are added. first: the number of rows that these wrote. Raises StatementFailed, LogError.
        """
        writer = self._of(statement.source)
        with writer.held():
            group = writer.group(writer.declared(statement.source), [_by_rows(statement, now_ms)], over, first)
            group.raise_first()
            over.update(group.changes)
            (changed,) = group.changed()
            return Rehearsed(changed, dict(group.ends))

    def transact(
        self,
        statements: Sequence[TableStatement],
        now_ms: int,
        expected: Callable[[Sequence[Rehearsed]], None],
        send: Callable[[Producer], None] = lambda _: None,
    ) -> None:
        """Carries out the statements of a transaction over all of their tables, in one transaction of the log. On Kafka they are of one table.

        expected: raises an error if they change something else than their client was told. send: writes more records in the same transaction.
        Raises StatementFailed, TableBusy or LogError; then nothing was changed.
        """
        by_topic: dict[str, list[int]] = {}
        for n, statement in enumerate(statements):
            by_topic.setdefault(statement.source.topic, []).append(n)
        embedded = self.log.drops_with_commits
        assert embedded or len(by_topic) <= 1, "the broker shuts out other writers of one table"
        with ExitStack() as stack:
            # In one order, so that no two threads wait for each other.
            writers = {topic: self._of(statements[by_topic[topic][0]].source) for topic in sorted(by_topic)}
            for writer in writers.values():
                stack.enter_context(writer.held())
            for _ in range(TRIES if embedded else TRIES_BROKER):
                parts = [
                    writer.part([statements[n] for n in by_topic[topic]], now_ms) for topic, writer in writers.items()
                ]
                found: dict[int, Rehearsed] = {}
                for topic, part in zip(writers, parts, strict=True):
                    part.raise_first()
                    found |= {n: Rehearsed(c, part.ends) for n, c in zip(by_topic[topic], part.changed(), strict=True)}
                expected([found[n] for n in range(len(statements))])
                try:
                    self._commit(list(zip(writers.values(), parts, strict=True)), send)
                except (Fenced, EndMoved):
                    continue
                for part in parts:
                    part.succeed(self.log)
                return
        raise TableBusy("others write to the tables of this transaction all the time; nothing was written: repeat it")

    def _commit(
        self, parts: Sequence[tuple[_TableWriter, Group | BulkGroup]], send: Callable[[Producer], None]
    ) -> None:
        if len(parts) == 1:
            ((writer, part),) = parts
            writer.write(part, send)
            return
        with self.inserting, ExitStack() as stack:

            def opened() -> Producer:
                made = self.log.producer(f"{self._application_id}-tables-{self._writer}")
                return stack.enter_context(closing(made))

            producer = opened()
            try:
                _write(self.log, producer, [part for _, part in parts], send)
            except LogError as error:
                _check_committed(error, producer, opened)

    @property
    def memory_bytes(self) -> int:
        """That kept rows take now, about."""
        return self._stores.memory_bytes + self._spare.memory_bytes

    def close(self) -> None:
        """Waits for no statement: none may be in progress."""
        for table in self._tables.values():
            table.close()
        self._stores.close()

    def _of(self, source: SourceDef) -> _TableWriter:
        with self._lock:
            known = self._tables.get(source.topic)
            if known is None:
                name = writer_id(self._application_id, source.name)
                if self._writer and self.log.drops_with_commits:
                    name = f"{name}-{self._writer}"
                stores = (self._stores, self._spare)
                known = self._tables[source.topic] = _TableWriter(self.log, name, source.topic, self._clock, *stores)
            return known


class _TableWriter:
    """The statements of one table."""

    def __init__(
        self,
        log: Log,
        transactional_id: str,
        topic: str,
        clock: Clock,
        stores: RowStores,
        in_memory: StoresInMemory,
    ) -> None:
        """in_memory: for rows that `stores` does not take."""
        self._log, self._transactional_id, self._topic = log, transactional_id, topic
        self._clock, self._stores, self._in_memory = clock, stores, in_memory
        self._store: RowStore = stores.of(topic)
        self._refused: StateError | None = None  # the rows do not fit into memory either
        self._lock = threading.Lock()  # guards the four below
        self._gathered = threading.Condition(self._lock)
        self._waiting: list[Waiter] = []
        self._owned = False
        self._expected = 0  # statements that the next group will have if all clients of the last one go on
        self._wakes_at = GROUP_MAX  # waiting statements for which the owner wakes
        # For the owner alone:
        self._took_ns = self._ended_ns = 0  # the last group
        self._gathers_left_out = self._in_vain = 0
        self._table: Table | None = None
        self._producer: Producer | None = None

    def begin(self, statement: Statement, own: Callable[[Callable[[], None]], object]) -> None:
        """As `carry_out`, without waiting. own: see `TableWriters.begin`."""
        told = statement.turn
        assert told is not None

        def turn() -> None:
            if statement.done:
                told()
            else:
                own(self._own)

        statement.turn = turn
        if not self._enqueue(statement):
            turn()

    def _enqueue(self, waiter: Waiter) -> bool:
        """Returns whether the table has another owner."""
        with self._lock:
            self._waiting.append(waiter)
            waits, self._owned = self._owned, True
            if len(self._waiting) >= self._wakes_at:
                self._gathered.notify_all()
        return waits

    def _await_turn(self, waiter: Waiter) -> None:
        """Returns when this thread owns the table, or its statement was carried out."""
        waiter.woken = woken = threading.Event()
        if self._enqueue(waiter):
            try:
                woken.wait()
            except BaseException:  # Ctrl-C
                self._abandon(waiter)
                raise

    def carry_out(self, statement: Statement) -> Changed:
        self._await_turn(statement)
        if not statement.done:
            self._own()
        outcome = statement.outcome
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    @contextmanager
    def held(self) -> Iterator[None]:
        """Owns the table for a while."""
        waiter = Waiter()
        self._await_turn(waiter)
        with self._lock:
            self._waiting.remove(waiter)
        try:
            yield
        finally:
            self._hand_over()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()

    def _own(self) -> None:
        """Carries out what waits, and hands the table to the first that came meanwhile."""
        group, begun = list[Statement](), self._clock.cost_ns()
        try:
            try:
                self._gather()
            finally:  # also after Ctrl-C, whose error these get
                group, begun = self._taken(), self._clock.cost_ns()
            for _, statements in groupby(group, lambda s: (s.source, s.bulk)):
                alike = list(statements)
                self._carry_out(self.declared(alike[0].source), alike)
        except BaseException as error:
            for statement in group:
                if statement.changed is None and statement.error is None:
                    statement.error = error
            if not isinstance(error, Exception):
                raise
        finally:
            for statement in group:
                statement.done = True
                statement.wake()
            self._ended_ns = self._clock.cost_ns()
            self._took_ns = self._ended_ns - begun
            self._hand_over(len(group))
            for after in dict.fromkeys(statement.after for statement in group):
                if after is not None:
                    after()

    def _taken(self) -> list[Statement]:
        with self._lock:
            waiting = takewhile(lambda w: isinstance(w, Statement), self._waiting[:GROUP_MAX])
            group = [w for w in waiting if isinstance(w, Statement)]
            self._waiting = self._waiting[len(group) :]
        return group

    def _gather(self) -> None:
        """Waits a little for the next statements of the clients that were just answered. Otherwise two halves of the clients would take turns, and
        each would wait for the transaction of the other. If few come, the next groups do not wait.
        """
        begun = self._clock.cost_ns()
        left_ns = min(self._took_ns, GATHER_NS_MAX) - (begun - self._ended_ns)
        with self._lock:
            here, expected, self._expected = len(self._waiting), min(self._expected, GROUP_MAX), 0
            if expected <= here or left_ns <= 0:
                return
            if self._gathers_left_out:
                self._gathers_left_out -= 1
                return
            self._wakes_at = expected
            self._gathered.wait_for(lambda: len(self._waiting) >= expected, left_ns / 1e9)
            self._wakes_at, came, waited_ns = GROUP_MAX, len(self._waiting) - here, self._clock.cost_ns() - begun
        # Those that came would have waited for a group that takes as long as the last one.
        pays = came * self._took_ns >= here * waited_ns
        self._in_vain = 0 if pays else min(2 * self._in_vain + 1, GATHERS_LEFT_OUT_MAX)
        self._gathers_left_out = self._in_vain

    def _abandon(self, statement: Waiter) -> None:
        """Its thread waits no more. If an owner has taken it already, it is carried out all the same."""
        with self._lock:
            owns = statement in self._waiting and statement.woken is not None and statement.woken.is_set()
            if statement in self._waiting:
                self._waiting.remove(statement)
        if owns:
            self._hand_over()

    def _hand_over(self, answered: int = 0) -> None:
        """answered: statements whose clients learn their outcome now."""
        with self._lock:
            self._owned = bool(self._waiting)
            self._expected = answered and answered + len(self._waiting)
            following = self._waiting[0] if self._waiting else None
            if following is not None and following.woken is not None:
                following.woken.set()  # under the lock, or `_abandon` would take it for one that still waits
        if following is not None and following.turn is not None:
            following.turn()  # may carry it out in this thread

    def declared(self, source: SourceDef) -> Table:
        """The table as a statement knows it: a deployment may have added columns."""
        if self._table is None or (self._table.source is not source and self._table.source != source):
            self._table = Table(self._log, source, self._store)
        return self._table

    def part(self, statements: Sequence[TableStatement], now_ms: int) -> Group | BulkGroup:
        """The changes of a transaction's statements. The caller holds the table."""
        table, (first, *more) = self.declared(statements[0].source), statements
        given = first.given
        if more or given is None or not takes_columns(first.source, given.change):
            return self.group(table, [_by_rows(s, now_ms) for s in statements])
        made = Statement(first.source, given.change, now_ms, None, None, None, None)
        try:
            group = self.group(table, [made], bulk=BulkInsert(first.source, given.change, given.columns()))
            group.raise_first()
            return group
        except RowFailed as error:
            raise given.failure(error) from error

    def group(
        self,
        table: Table,
        statements: list[Statement],
        over: Mapping[Key, Row | None] = NOTHING,
        written: int = 0,
        bulk: BulkInsert | None = None,
    ) -> Group | BulkGroup:
        """The changes of the statements. over: changes of others before them, in so many written rows. The caller owns the table."""
        if self._refused is not None:
            if not self._stores.takes_rows():
                raise self._refused
            self._refused, self._store, self._table = None, self._stores.of(self._topic), None
            table = self.declared(table.source)
        while True:
            try:
                if not self._log.drops_with_commits:  # opening it fences the older producer before the topic is read
                    self._opened_producer()
                if bulk is not None:
                    return BulkGroup(self._log, table, statements[0], bulk)
                return Group(table, statements, over, written)
            except OpenedAgain:
                continue
            except StateError as error:  # the disk is full, or has failed
                if isinstance(self._store, RowsInMemory):
                    self._refused = error
                    raise
                self._store, self._table = self._in_memory.of(self._topic), None
                table = self.declared(table.source)

    def _carry_out(self, table: Table, statements: list[Statement]) -> None:
        """In one transaction. Statements that fail are left out of it."""
        for _ in range(TRIES if self._log.drops_with_commits else TRIES_BROKER):
            try:
                group = self.group(table, statements, bulk=statements[0].bulk)
                if group.parts or group.marks:
                    self.write(group)
            except (Fenced, EndMoved):  # read what was written meanwhile, and carry them out again
                table = self.declared(table.source)
                continue
            group.succeed(self._log)
            return
        title = f"others write to {table.source.name} all the time; nothing of this statement was written: repeat it"
        raise TableBusy(title)

    def _opened_producer(self) -> Producer:
        if self._producer is None:
            self._producer = self._log.producer(self._transactional_id)
        return self._producer

    def write(self, group: Group | BulkGroup, send: Callable[[Producer], None] = lambda _: None) -> None:
        """One transaction. send: see `TableWriters.transact`."""
        try:
            _write(self._log, self._opened_producer(), [group], send)
        except EndMoved:  # the producer is as good as before
            raise
        except BaseException as error:
            failed, self._producer = self._producer, None
            if failed is None:
                raise
            with suppress(RuntimeFailure):
                failed.close()
            _check_committed(error, failed, self._opened_producer)


def _check_committed(error: BaseException, failed: Producer, opened: Callable[[], Producer]) -> None:
    """Returns if the transaction that an error has broken off was committed, else raises: nothing may be repeated before that is known.

    opened: opens a newer producer, after which a request that is still on its way changes nothing.
    """
    if not (isinstance(error, LogError) and error.is_outcome_unknown):
        raise error
    try:
        opened()
        found = failed.has_committed()
    except LogError:
        found = None
    if found is None:
        raise OutcomeUnknown(f"whether the rows were written is not known: {error}") from error
    if not found:
        if isinstance(error, Fenced):
            error.is_outcome_unknown = False
            raise error
        raise TransactionAborted(f"nothing was written: {error}") from error


def _by_rows(s: TableStatement, now_ms: int) -> Statement:
    change, rows = (s.change, None) if s.given is None else (s.given.change, s.given.rows())
    return Statement(s.source, change, now_ms, rows, None, None, None, told=s.told)


def _write(log: Log, producer: Producer, groups: Sequence[Group | BulkGroup], send: Callable[[Producer], None]) -> None:
    """One transaction of the log. Raises EndMoved where others have written to a table since it was read."""
    producer.begin()
    try:
        for group in groups:
            topic = group.source.topic
            producer.expect_partitions(topic, len(group.ends))
            if log.drops_with_commits:  # the log compares; on Kafka the producer's id is what keeps others out
                for tp, end in group.ends.items():
                    producer.expect_end(tp, end)
            for partition, part in group.parts:
                producer.send(TopicPartition(topic, partition), part)
            for mark in group.marks:
                producer.send(*mark)
        send(producer)
    except Exception:
        producer.abort()
        raise
    try:
        producer.commit()
    finally:  # its outcome may be asked for later
        for group in groups:
            group.written = {**group.ends, **{tp: end for tp, end in producer.ends.items() if tp in group.ends}}

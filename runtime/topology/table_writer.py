"""Statements that change local tables: each is a transaction, and those that wait at the same time are committed together.

A table has one owner in a process: the thread that finds none carries out all statements that wait, in order, over the rows as the ones
before leave them. It commits them in one transaction of the log and hands the table to the next that waits. Owners in other processes write the
same topic: an embedded log compares the end of the topic, and who comes second reads on and carries out its statements again. On Kafka the
producers have one transactional id, and the broker shuts out the older one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from types import MappingProxyType

import pyarrow as pa

from flowql.compiler.plan.logical import Sink
from flowql.compiler.plan.tables import ROW_NUMBER, TableChange
from flowql.compiler.plan.topology import SourceDef
from flowql.runtime.batch import DELETE, INSERT, Row, from_rows
from flowql.runtime.errors import (
    BadRecord,
    EndMoved,
    Fenced,
    RowFailed,
    RuntimeFailure,
    StateError,
    StatementFailed,
    TableBusy,
)
from flowql.runtime.log.base import Log, Producer, TopicPartition
from flowql.runtime.operators.encode import Encoder
from flowql.runtime.output.partitioner import split
from flowql.runtime.state.values import encode_value
from flowql.runtime.topology.bulk_insert import BulkInsert, GivenRows, takes_columns
from flowql.runtime.topology.key_conditions import keys_read
from flowql.runtime.topology.row_store import RowsInMemory, RowStore, RowStores, StoresInMemory
from flowql.runtime.topology.table_changes import Changed, RowRules, delete, given_rows, insert, update
from flowql.runtime.topology.table_image import Ends, Pending, TableImage
from flowql.runtime.topology.table_rows import Key

Mark = Callable[[int], tuple[TopicPartition, pa.RecordBatch]]  # given the sum of the topic's ends after the statement
POLICY = {"cleanup.policy": "compact"}
GROUP_MAX = 1_000  # statements in one transaction
TRIES = 1_000  # of a group, while writers in other processes come first: one of them gets on each time
NOTHING: Mapping[Key, Row | None] = MappingProxyType({})
TRIES_BROKER = 5  # on Kafka they may shut each other out


def writer_id(application_id: str, table: str) -> str:
    """The transactional id of a table's writer."""
    return f"{application_id}-table-{table}"


@dataclass(slots=True, eq=False)
class _Waiter:
    """A thread that waits for a table. woken: it owns the table now, or its statement was carried out."""

    woken: threading.Event = field(default_factory=threading.Event, kw_only=True)


@dataclass(slots=True, eq=False)
class _Statement(_Waiter):
    """One that waits. Its outcome is `changed` or `error` once it is `done`; woken before that, its thread owns the table."""

    source: SourceDef
    change: TableChange
    now_ms: int
    selected: Sequence[Row] | None
    seen: Ends | None
    mark: Mark | None
    before: Callable[[Changed], None] | None
    bulk: BulkInsert | None = None
    changed: Changed | None = None
    told: Rehearsed | None = None
    error: BaseException | None = None
    done: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class TableStatement:
    """A statement of a transaction. given: the rows that were sent or computed for it. told: what its client was told that it changes."""

    source: SourceDef
    change: TableChange
    given: GivenRows | None = None
    told: Rehearsed | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsed:
    """What a statement changes in a table whose topic ends there. `TableWriters.transact` takes it as it is if the topic has not grown: values of
    functions such as RANDOM() stay the same.
    """

    changed: Changed
    ends: Ends


class TableWriters:
    """Changes local tables of one log. Any thread."""

    def __init__(self, log: Log, application_id: str, writer: str = "", stores: RowStores | None = None) -> None:
        """writer: tells this process and its log apart from others that change tables at the same time. stores: for the rows of the tables."""
        self.log = log
        self.inserting = threading.Lock()  # held by who writes to topics with a transactional id that threads share
        self._application_id, self._writer = application_id, writer
        self._stores = stores or StoresInMemory()
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
        return self._of(source).carry_out(_Statement(source, change, now_ms, selected, seen, mark, before))

    def insert(
        self,
        source: SourceDef,
        change: TableChange,
        now_ms: int,
        given: Sequence[pa.RecordBatch],
        mark: Mark | None = None,
    ) -> int:
        """Carries out an INSERT of many rows in one transaction; the number of rows written. given: as for `BulkInsert`.

        Raises RowFailed, TableBusy or LogError; then nothing was changed.
        """
        bulk = BulkInsert(source, change, given)
        return self._of(source).carry_out(_Statement(source, change, now_ms, None, None, mark, None, bulk)).count

    def rehearse(self, statement: TableStatement, now_ms: int, over: dict[Key, Row | None], first: int) -> Rehearsed:
        """What a statement of a transaction would change now. Nothing is written. over: what the statements before it have changed in the table,
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
        self, parts: Sequence[tuple[_TableWriter, _Group | _BulkGroup]], send: Callable[[Producer], None]
    ) -> None:
        if len(parts) == 1:
            ((writer, part),) = parts
            writer.write(part, send)
            return
        with self.inserting:
            producer = self.log.producer(f"{self._application_id}-tables-{self._writer}")
            try:
                _write(self.log, producer, [part for _, part in parts], send)
            finally:
                producer.close()

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
                known = self._tables[source.topic] = _TableWriter(self.log, name, self._stores.of(source.topic))
            return known


class _TableWriter:
    """The statements of one table."""

    def __init__(self, log: Log, transactional_id: str, store: RowStore) -> None:
        self._log, self._transactional_id, self._store = log, transactional_id, store
        self._lock = threading.Lock()  # guards the two below
        self._waiting: list[_Waiter] = []
        self._owned = False
        # For the owner alone:
        self._table: _Table | None = None
        self._producer: Producer | None = None

    def carry_out(self, statement: _Statement) -> Changed:
        with self._lock:
            self._waiting.append(statement)
            waits, self._owned = self._owned, True
        if waits:
            try:
                statement.woken.wait()
            except BaseException:  # Ctrl-C
                self._abandon(statement)
                raise
        if not statement.done:
            self._own()
        if statement.error is not None:
            raise statement.error
        assert statement.changed is not None
        return statement.changed

    @contextmanager
    def held(self) -> Iterator[None]:
        """Owns the table for a while."""
        waiter = _Waiter()
        with self._lock:
            self._waiting.append(waiter)
            waits, self._owned = self._owned, True
        if waits:
            try:
                waiter.woken.wait()
            except BaseException:  # Ctrl-C
                self._abandon(waiter)
                raise
        with self._lock:
            self._waiting.remove(waiter)
        try:
            yield
        finally:
            with self._lock:
                self._hand_over()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()

    def _own(self) -> None:
        """Carries out what waits, and hands the table to the first that came meanwhile."""
        with self._lock:
            waiting = takewhile(lambda w: isinstance(w, _Statement), self._waiting[:GROUP_MAX])
            group = [w for w in waiting if isinstance(w, _Statement)]
            self._waiting = self._waiting[len(group) :]
        try:
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
                statement.woken.set()
            with self._lock:
                self._hand_over()

    def _abandon(self, statement: _Waiter) -> None:
        """Its thread waits no more. If an owner has taken it already, it is carried out all the same."""
        with self._lock:
            if statement in self._waiting:
                self._waiting.remove(statement)
                if statement.woken.is_set():
                    self._hand_over()

    def _hand_over(self) -> None:
        self._owned = bool(self._waiting)
        if self._waiting:
            self._waiting[0].woken.set()

    def declared(self, source: SourceDef) -> _Table:
        """The table as a statement knows it: a deployment may have added columns."""
        if self._table is None or (self._table.source is not source and self._table.source != source):
            self._table = _Table(self._log, source, self._store)
        return self._table

    def part(self, statements: Sequence[TableStatement], now_ms: int) -> _Group | _BulkGroup:
        """What statements of a transaction change. The caller holds the table."""
        table, (first, *more) = self.declared(statements[0].source), statements
        given = first.given
        if more or given is None or not takes_columns(first.source, given.change):
            return self.group(table, [_by_rows(s, now_ms) for s in statements])
        made = _Statement(first.source, given.change, now_ms, None, None, None, None)
        try:
            group = self.group(table, [made], bulk=BulkInsert(first.source, given.change, given.columns()))
            group.raise_first()
            return group
        except RowFailed as error:
            raise given.failure(error) from error

    def group(
        self,
        table: _Table,
        statements: list[_Statement],
        over: Mapping[Key, Row | None] = NOTHING,
        written: int = 0,
        bulk: BulkInsert | None = None,
    ) -> _Group | _BulkGroup:
        """What the statements change. over: what others have changed before them, in so many written rows. The caller owns the table."""
        while True:
            try:
                if not self._log.drops_with_commits:  # opening it fences the older producer before the topic is read
                    self._opened_producer()
                if bulk is not None:
                    return _BulkGroup(self._log, table, statements[0], bulk)
                return _Group(table, statements, over, written)
            except StateError:  # the disk is full, or has failed
                if isinstance(self._store, RowsInMemory):
                    raise
                self._store, self._table = RowsInMemory(), None
                table = self.declared(table.source)

    def _carry_out(self, table: _Table, statements: list[_Statement]) -> None:
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

    def write(self, group: _Group | _BulkGroup, send: Callable[[Producer], None] = lambda _: None) -> None:
        """One transaction. send: see `TableWriters.transact`."""
        try:
            _write(self._log, self._opened_producer(), [group], send)
        except EndMoved:  # the producer is as good as before
            raise
        except BaseException:
            failed, self._producer = self._producer, None
            if failed is not None:
                with suppress(RuntimeFailure):
                    failed.close()
            raise


def _by_rows(s: TableStatement, now_ms: int) -> _Statement:
    change, rows = (s.change, None) if s.given is None else (s.given.change, s.given.rows())
    return _Statement(s.source, change, now_ms, rows, None, None, None, told=s.told)


def _write(
    log: Log, producer: Producer, groups: Sequence[_Group | _BulkGroup], send: Callable[[Producer], None]
) -> None:
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
    producer.commit()


class _Table:
    """A table as a deployment declares it."""

    def __init__(self, log: Log, source: SourceDef, store: RowStore) -> None:
        self.source, self._rules = source, RowRules(source)
        self.image = TableImage(log, source, store)
        self.by_number = source.schema.get(ROW_NUMBER) is not None
        self._encoder = Encoder(
            Sink(source.name, source.topic, "table", source.key_format, source.value_format), source.schema
        )

    def needs_rows(self, change: TableChange) -> bool:
        return change.kind != "insert" or not self.by_number

    def changed(self, statement: _Statement, pending: Pending, first: int) -> Changed:
        """What a statement changes. first: the number of the first row that it inserts. Raises StatementFailed."""
        source, change, selected = self.source, statement.change, statement.selected
        if change.kind == "insert":
            given = given_rows(change) if selected is None else selected
            return insert(self._rules, change, given, {} if self.by_number else pending, first)
        rows = self._candidates(change, pending, selected)
        if change.kind == "update":
            return update(self._rules, change, rows, pending, selected)
        return delete(source, change, rows, selected)

    def _candidates(
        self, change: TableChange, pending: Pending, selected: Sequence[Row] | None
    ) -> Iterable[tuple[Key, Row]]:
        """At least the rows that an UPDATE or DELETE is about: found by their keys if these are known."""
        keys = keys_read(self.source, change, selected)
        if keys is None:
            return pending.items()
        found = ((k, pending.get(k)) for k in dict.fromkeys(map(encode_value, keys)))
        return ((k, row) for k, row in found if row is not None)

    def encoded(self, rows: list[Row], ops: Sequence[int], times: Sequence[int]) -> pa.RecordBatch:
        """Records of rows that are new or have changed, and tombstones. Raises StatementFailed."""
        batch = from_rows(self.source.schema, rows, times, ops, range(len(rows)))
        try:
            return self._encoder.encode(batch)
        except BadRecord as error:
            raise StatementFailed(f"a row of {self.source.name} cannot be written: {error}") from error


class _Group:
    """Statements carried out in order over the rows at the end of the topic, and what is to be written for them.

    ends: of the topic. parts: records by partition. marks: see `Mark`.
    """

    def __init__(
        self,
        table: _Table,
        statements: Sequence[_Statement],
        over: Mapping[Key, Row | None] = NOTHING,
        written: int = 0,
    ) -> None:
        """over: what statements have changed before these that are not committed, in so many written rows."""
        self.source, self._over = table.source, over
        self._table, self._now_ms = table, max(s.now_ms for s in statements)
        self.ends = table.image.look()
        if any(table.needs_rows(s.change) for s in statements):
            table.image.follow(self.ends, self._now_ms)
            self.ends = dict(table.image.ends)
        self._first = sum(self.ends.values()) + written
        self._statements = statements
        self._carry_out(checked=False)
        try:
            self.records = self._encoded()
        except StatementFailed:  # one row of them cannot be written
            self._carry_out(checked=True)
            self.records = self._encoded()
        self.parts = split(self.records, len(self.ends), 0)

    @property
    def changes(self) -> Mapping[Key, Row | None]:
        """The rows of the keys that they change, as they are afterwards."""
        return self._pending.changes

    def raise_first(self) -> None:
        """Raises the error of the first statement that fails."""
        for _, found in self._outcomes:
            if not isinstance(found, Changed):
                raise found

    def changed(self) -> list[Changed]:
        """Of each statement; none has failed."""
        return [found for _, found in self._outcomes if isinstance(found, Changed)]

    def succeed(self, log: Log) -> None:
        """It is committed: tells the statements, and keeps what they changed."""
        for statement, found in self._outcomes:
            if isinstance(found, Changed):
                statement.changed = found
            else:
                statement.error = found
        image = self._table.image
        if log.drops_with_commits and image.ends == self.ends and self.records.num_rows:
            with suppress(RuntimeFailure):  # the next statement reads it from the topic
                image.apply(self._pending.changes, self.parts, self._now_ms)

    def _carry_out(self, *, checked: bool) -> None:
        """checked: fail statements whose rows cannot be written."""
        self._rows, self._ops, self._times = list[Row](), list[int](), list[int]()
        self.marks = list[tuple[TopicPartition, pa.RecordBatch]]()
        self._pending = Pending(self._table.image, self._over)
        self._outcomes = [(s, self._outcome(s, checked=checked)) for s in self._statements]

    def _outcome(self, statement: _Statement, *, checked: bool) -> Changed | Exception:
        try:
            return self._carried_out(statement, checked=checked)
        except StateError:
            raise
        except Exception as error:  # it fails, and the others do not
            return error

    def _carried_out(self, statement: _Statement, *, checked: bool) -> Changed:
        table = self._table
        if statement.seen is not None and (statement.seen != self.ends or self._rows):
            title = f"another statement changed {table.source.name} after the query of this one read it; nothing was written: repeat it"
            raise TableBusy(title)
        told = statement.told
        if told is not None and told.ends == self.ends:
            changed = told.changed
        else:
            changed = table.changed(statement, self._pending, self._first + len(self._rows))
        rows = [*changed.gone.values(), *changed.rows.values()]
        ops = [DELETE] * len(changed.gone) + [INSERT] * len(changed.rows)
        times = [statement.now_ms] * len(rows)
        if checked:
            table.encoded(rows, ops, times)
        if statement.before is not None:
            statement.before(changed)
        if statement.mark is not None:
            self.marks.append(statement.mark(self._first + len(self._rows) + len(rows)))
        self._rows += rows
        self._ops += ops
        self._times += times
        self._pending.changes.update(dict.fromkeys(changed.gone))
        self._pending.changes.update(changed.rows)
        return changed

    def _encoded(self) -> pa.RecordBatch:
        return self._table.encoded(self._rows, self._ops, self._times)


class _BulkGroup:
    """An INSERT of many rows, alone in its transaction. Fields as in `_Group`. The table image reads the rows with the next statement."""

    def __init__(self, log: Log, table: _Table, statement: _Statement, bulk: BulkInsert) -> None:
        self.source, self._statement, self._bulk = table.source, statement, bulk
        self.ends = table.image.look()
        self.parts: list[tuple[int, pa.RecordBatch]] = []
        self.marks: list[tuple[TopicPartition, pa.RecordBatch]] = []
        self._failure: StatementFailed | None = None
        try:
            found = bulk.records(log, self.ends, statement.now_ms)
        except StatementFailed as error:
            self._failure = error
            return
        self.parts = [part for records in found for part in split(records, len(self.ends), 0)]
        if statement.mark is not None:
            rows = sum(part.num_rows for _, part in self.parts)
            self.marks = [statement.mark(sum(self.ends.values()) + rows)]

    @property
    def changes(self) -> Mapping[Key, Row | None]:
        return NOTHING

    def raise_first(self) -> None:
        if self._failure is not None:
            raise self._failure

    def changed(self) -> list[Changed]:
        return [Changed(self._bulk.count)]

    def succeed(self, log: Log) -> None:
        del log
        if self._failure is not None:
            self._statement.error = self._failure
        else:
            self._statement.changed = Changed(self._bulk.count)

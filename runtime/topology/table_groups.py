"""Statements about one local table, carried out in order over the rows at the end of its topic: what is to be written for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from math import isnan, prod
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.plan.expr import Call, Column, Expr, Literal, columns_of, conjuncts
from flowql.compiler.plan.logical import Sink
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.tables import HIDDEN, ROW_NUMBER, TableChange
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import UUID, Kind, SqlType
from flowql.runtime.batch import DELETE, INSERT, Row, from_rows
from flowql.runtime.errors import BadRecord, RuntimeFailure, StateError, StatementFailed, TableBusy
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.operators.encode import Encoder
from flowql.runtime.output.partitioner import split
from flowql.runtime.state.values import encode_value
from flowql.runtime.topology.bulk_insert import BulkInsert, GivenRows
from flowql.runtime.topology.row_store import RowStore
from flowql.runtime.topology.table_changes import Changed, RowRules, delete, given_rows, insert, update
from flowql.runtime.topology.table_image import Ends, Pending, TableImage
from flowql.runtime.topology.table_rows import Key

KEYS_MAX = 10_000  # a condition that leaves more is checked row by row
_ONE_FORM = (
    *(Kind.BOOLEAN, Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL, Kind.STRING),
    *(Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS),
)
_EQUAL, _IN, _OR = ("sql_eq", "eq"), "sql_in", "or"


class _Unknown(Exception):
    """The condition says nothing about the column."""


def keys_read(source: SourceDef, change: TableChange, selected: Sequence[Row] | None) -> list[Row] | None:
    """The keys of the rows that an UPDATE or DELETE reads; None if it reads all rows. selected: rows of the statement's query, if it has one."""
    if selected is None:
        return keys_of(source, change.where)
    key = source.schema.key
    return [row[: len(key)] for row in selected] if _chosen_by_key(source) else None


def reads_text(source: SourceDef, change: TableChange) -> str:
    """The rows of its table that a statement reads, in words."""
    if change.kind == "insert":
        if source.schema.get(ROW_NUMBER) is not None:
            return "reads no rows"
        return "looks up the keys of its query" if change.select else f"looks up {_keys(len(change.rows))}"
    if change.select:
        by_key = _chosen_by_key(source)
        return (
            "looks up the keys that its query chooses" if by_key else "reads all rows, for those that its query chooses"
        )
    keys = keys_of(source, change.where)
    return "reads all rows" if keys is None else f"looks up {_keys(len(keys))}"


def _keys(count: int) -> str:
    return "1 key" if count == 1 else f"{count:,} keys"


def _chosen_by_key(source: SourceDef) -> bool:
    """Whether the query of a statement tells the rows to change apart by their key."""
    return source.identity == tuple(f.name for f in source.schema.key)


def keys_of(source: SourceDef, where: Expr | None) -> list[Row] | None:
    """Values of the key columns of all rows that can meet the condition; None if the condition does not say.

    A row with such a key may still fail the condition.
    """
    fields = source.schema.key
    if where is None or any(f.name.startswith(HIDDEN) for f in fields):
        return None
    found: dict[str, list[Any]] = {}
    for part in conjuncts(where):
        try:
            name, values = _values(part, fields)
        except _Unknown:
            continue
        before = found.get(name)
        found[name] = values if before is None else [v for v in before if v in values]
    if found.keys() != {f.name for f in fields} or prod(map(len, found.values())) > KEYS_MAX:
        return None
    return list(product(*(found[f.name] for f in fields)))


def _values(e: Expr, fields: Sequence[Field]) -> tuple[str, list[Any]]:
    """A key column and the values that it must have one of. Raises _Unknown."""
    if not isinstance(e, Call):
        raise _Unknown
    if e.name == _OR:
        parts = [_values(a, fields) for a in e.args]
        if len({name for name, _ in parts}) != 1:
            raise _Unknown
        return parts[0][0], list(dict.fromkeys(v for _, values in parts for v in values))
    if e.name not in (*_EQUAL, _IN):
        raise _Unknown
    column, *constants = e.args if isinstance(e.args[0], Column) else reversed(e.args)
    field = next((f for f in fields if isinstance(column, Column) and f.name == column.name), None)
    if field is None or (e.name == _IN and column is not e.args[0]) or columns_of(*constants):
        raise _Unknown
    if not _has_one_form(field.type) or any(_as(c.type) != _as(field.type) for c in constants):
        raise _Unknown
    values = [_as_stored(v, field) for v in _evaluated(constants)]
    return field.name, list(dict.fromkeys(v for v in values if v is not None))


def _evaluated(constants: Sequence[Expr]) -> Row:
    if all(isinstance(c, Literal) for c in constants):
        return tuple(c.value for c in constants if isinstance(c, Literal))
    try:
        return compile_row(constants, [], on_error=_failed, constants_apart=True)(())
    except Exception as error:  # the condition fails where it is checked, if a row is there
        raise _Unknown from error


def _failed(_index: int, error: Exception) -> None:
    raise _Unknown from error


def _has_one_form(t: SqlType) -> bool:
    """Whether equal values of the type are stored alike."""
    return t.kind in _ONE_FORM and t.form in ("", UUID.form)


def _as(t: SqlType) -> tuple[Kind, str]:
    return t.kind, t.form


def _as_stored(value: Any, field: Field) -> Any:
    """The value of a key column that equals a constant; None if no value does. Raises _Unknown for NaN."""
    if value is None:
        return None
    kind = field.type.kind
    if kind is Kind.DECIMAL:
        scaled = Decimal(value).quantize(Decimal(1).scaleb(-field.type.scale)) if _fits(value, field) else None
        return scaled if scaled == value else None
    if kind is Kind.DOUBLE:
        if isnan(value):
            raise _Unknown
        return float(value) + 0.0  # zero has no sign
    return value


def _fits(value: Any, field: Field) -> bool:
    return abs(Decimal(value)) < Decimal(10) ** (field.type.precision - field.type.scale)


Mark = Callable[[int], tuple[TopicPartition, pa.RecordBatch]]  # given the sum of the topic's ends after the statement
NOTHING: Mapping[Key, Row | None] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Waiter:
    """A statement or thread that waits for a table. woken: its thread, when it owns the table or its statement was carried out. turn: called instead, where no
    thread waits. after: called after the turns of all statements of its group; equal functions are called once.
    """

    woken: threading.Event | None = field(default=None, kw_only=True)
    turn: Callable[[], None] | None = field(default=None, kw_only=True)
    after: Callable[[], None] | None = field(default=None, kw_only=True)

    def wake(self) -> None:
        if self.woken is not None:
            self.woken.set()
        if self.turn is not None:
            self.turn()


@dataclass(slots=True, eq=False)
class Statement(Waiter):
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

    @property
    def outcome(self) -> Changed | BaseException:
        """Once it is done."""
        if self.error is not None:
            return self.error
        assert self.changed is not None
        return self.changed


@dataclass(frozen=True, slots=True, eq=False)
class TableStatement:
    """A statement of a transaction. given: the rows that were sent or computed for it. told: what its client was told that it changes."""

    source: SourceDef
    change: TableChange
    given: GivenRows | None = None
    told: Rehearsed | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsed:
    """The changes of a statement in a table whose topic ends there. `TableWriters.transact` takes it as it is if the topic has not grown: values of
    functions such as RANDOM() stay the same.
    """

    changed: Changed
    ends: Ends


class Table:
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

    def changed(self, statement: Statement, pending: Pending, first: int) -> Changed:
        """The changes of a statement. first: the number of the first row that it inserts. Raises StatementFailed."""
        change, selected = statement.change, statement.selected
        if change.kind == "insert":
            given = given_rows(change) if selected is None else selected
            return insert(self._rules, change, given, {} if self.by_number else pending, first)
        rows = self._candidates(change, pending, selected)
        if change.kind == "update":
            return update(self._rules, change, rows, pending, selected)
        return delete(self._rules, change, rows, selected)

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


class Group:
    """Statements carried out in order over the rows at the end of the topic, and what is to be written for them.

    ends: of the topic. parts: records by partition. marks: see `Mark`. written: the ends behind these records, once they are committed.
    """

    def __init__(
        self,
        table: Table,
        statements: Sequence[Statement],
        over: Mapping[Key, Row | None] = NOTHING,
        written: int = 0,
    ) -> None:
        """over: what statements have changed before these that are not committed, in so many written rows."""
        self.source, self._over = table.source, over
        self.written: Ends = {}
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
        """The changes of each statement; none has failed."""
        return [found for _, found in self._outcomes if isinstance(found, Changed)]

    def succeed(self, log: Log) -> None:
        """It is committed: tells the statements, and keeps what they changed."""
        for statement, found in self._outcomes:
            if isinstance(found, Changed):
                found.ends = self.written or self.ends
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

    def _outcome(self, statement: Statement, *, checked: bool) -> Changed | Exception:
        try:
            return self._carried_out(statement, checked=checked)
        except StateError:
            raise
        except Exception as error:  # it fails, and the others do not
            return error

    def _carried_out(self, statement: Statement, *, checked: bool) -> Changed:
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


class BulkGroup:
    """An INSERT of many rows, alone in its transaction. Fields as in `Group`. The table image reads the rows with the next statement."""

    def __init__(self, log: Log, table: Table, statement: Statement, bulk: BulkInsert) -> None:
        self.source, self._statement, self._bulk = table.source, statement, bulk
        self.written: Ends = {}
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
            self._statement.changed = Changed(self._bulk.count, ends=self.written or self.ends)

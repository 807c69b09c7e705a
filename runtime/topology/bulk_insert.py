"""INSERT of many rows by columns. It computes values, rules and keys by columns, and reads only the keys of the topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.functions.duckdb_sql import lower
from flowql.compiler.plan.expr import Column, Expr, Literal
from flowql.compiler.plan.logical import NamedExpr, Project, Sink
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.tables import ROW_NUMBER, TableChange
from flowql.compiler.plan.topology import Operator, SourceDef
from flowql.compiler.plan.types import Kind, arrow_type
from flowql.runtime.batch import Batch, Ints, Row, empty, record_of
from flowql.runtime.errors import BadRecord, LogUnavailable, RowFailed, StatementFailed
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.encode import Encoder
from flowql.runtime.operators.projections import ProjectionChain
from flowql.runtime.topology.table_changes import INT_MAX, broken_rule, duplicate, null_given

ROWS_MIN = 500  # of an INSERT that is computed by columns; fewer rows cost less one by one
PIECE_ROWS = 100_000
READ_RECORDS, READ_BYTES = 200_000, 64 << 20
LOOKED_UP_AT_ONCE = 1_000_000  # keys of the topic; each look-up hashes the new keys once
Bools = npt.NDArray[np.bool_]
Ends = Mapping[TopicPartition, int]


def takes_columns(source: SourceDef, change: TableChange) -> bool:
    """Whether an INSERT needs only the keys of its table, and returns no rows."""
    assert source.rules is not None
    by_rows = change.on_duplicate in ("fill", "update") or (
        change.on_duplicate == "replace" and bool(source.rules.versions)
    )
    return change.kind == "insert" and not change.returning and not by_rows


class Projected:
    """Computes columns from columns, of all rows at once. One thread at a time.

    Columns that DuckDB does not compute exactly are computed row by row, apart from the others.
    """

    def __init__(self, columns: Sequence[NamedExpr], source: Schema) -> None:
        self.schema = Schema(tuple(Field(c.name, c.expr.type) for c in columns))
        exact = [lower(c.expr) is not None for c in columns]
        self._groups: list[tuple[list[int], ProjectionChain]] = []
        for which in (True, False):
            at = [i for i, e in enumerate(exact) if e is which]
            if at:
                schema = Schema(tuple(self.schema.fields[i] for i in at))
                spec = Project(tuple(columns[i] for i in at), drop_failed=True)
                chain = ProjectionChain([Operator("insert", spec, (), schema, "append")], source, "append")
                self._groups.append((at, chain))

    def __call__(self, batch: Batch) -> Batch:
        """Raises RowFailed for the first row of which a value cannot be computed."""
        run = MicroBatchContext(NO_STATE)
        made = [(at, chain.process([batch], run) or empty(chain.schema)) for at, chain in self._groups]
        if run.dead_letters:
            first = min(run.dead_letters, key=lambda letter: letter.seq)
            raise RowFailed(f"column {first.message}", row=first.seq)
        if len(made) == 1:
            return made[0][1]
        columns: dict[int, pa.Array] = {}
        for at, found in made:
            columns |= zip(at, found.arrow().columns, strict=True)
        arrays = [columns[i] for i in range(len(self.schema.fields))]
        return columns_batch(self.schema, record_of(arrays, self.schema))


def columns_batch(schema: Schema, columns: pa.RecordBatch) -> Batch:
    """A batch of n rows given by columns of `arrow_type`, numbered from 0."""
    n = columns.num_rows
    return Batch(
        schema, arrow=columns, rowtime=np.zeros(n, np.int64), op=np.zeros(n, np.int8), seq=np.arange(n, dtype=np.int64)
    )


@dataclass(frozen=True, slots=True)
class GivenRows:
    """The rows of an INSERT in batches, with the columns of `change`. failure: makes the error for a row that fails."""

    change: TableChange
    parts: Sequence[Batch]
    failure: Callable[[RowFailed], StatementFailed]

    def columns(self) -> list[pa.RecordBatch]:
        return [part.arrow() for part in self.parts]

    def rows(self) -> list[Row]:
        return [row for part in self.parts for row in part.rows()]

    def __len__(self) -> int:
        return sum(map(len, self.parts))


class BulkInsert:
    """The rows of an INSERT and their records. One thread at a time; between calls it may wait for the owner of the table.

    given: batches with the statement's columns, of `arrow_type`.
    """

    def __init__(self, source: SourceDef, change: TableChange, given: Sequence[pa.RecordBatch]) -> None:
        """Raises RowFailed for the first row that breaks a rule of the table; keys are checked later."""
        assert takes_columns(source, change)
        assert source.rules is not None
        self.source, self._change = source, change
        self._names = source.schema.names
        sink = Sink(source.name, source.topic, "table", source.key_format, source.value_format)
        self._encoder = Encoder(sink, source.schema)
        self._numbered = ROW_NUMBER in self._names
        identity = source.rules.identity_column
        self._identity = None if identity is None or identity in change.columns else source.schema.get(identity)
        fields = [source.schema.field(n) for n in change.columns]
        self._completed = _completing(source, fields)
        self._generated = Projected(source.rules.generated, source.schema) if source.rules.generated else None
        self._checks = (*source.rules.limits, *source.rules.checks)
        held = [NamedExpr(f"check{i}", c.expr) for i, c in enumerate(self._checks)]
        self._holds = Projected(held, source.schema) if held else None
        shape = Schema(tuple(fields))
        completed = _each(_pieces(given), lambda part, _: self._completed(columns_batch(shape, part)).arrow())
        self._rows, self._order = _in_time(source, completed)
        self.count = sum(part.num_rows for part in self._rows)
        self._stored: list[pa.RecordBatch] | None = None
        self._records: list[pa.RecordBatch] = []
        self._existing: ExistingKeys | None = None
        self._first = -1
        if self._identity is None:
            self._store(0)

    def records(self, log: Log, ends: Ends, now_ms: int) -> list[pa.RecordBatch]:
        """The records of the rows, if the topic of the table ends at `ends`. Call it again if the topic has grown.

        Raises RowFailed for a key that exists; LogError.
        """
        first = sum(ends.values())
        if self._identity is not None and first != self._first:
            self._store(first)
        if not self._records or (self._numbered and first != self._first):
            self._records = self._encoded(first, now_ms)
        self._first = first
        if self._numbered:
            return self._records
        if self._existing is None:
            self._existing = ExistingKeys(pa.chunked_array([r.column("key") for r in self._records], pa.binary()))
        self._existing.follow(log, ends)
        return self._chosen(self._existing)

    def _store(self, first: int) -> None:
        """The rows as they are stored, checked. first: the number of the first row."""
        try:
            self._stored = _each(self._rows, lambda part, at: self._checked(self._with_numbers(part, first + at)))
        except RowFailed as error:
            raise self._as_given(error) from error
        self._records = []

    def _as_given(self, error: RowFailed) -> RowFailed:
        """The error with the number of the row in the given order."""
        return error if self._order is None else RowFailed(str(error), row=int(self._order[error.row]))

    def _with_numbers(self, part: pa.RecordBatch, first: int) -> pa.RecordBatch:
        field = self._identity
        if field is None:
            return part
        numbers = np.arange(first + 1, first + 1 + part.num_rows)
        if field.type.kind is Kind.INT and len(numbers) and numbers[-1] > INT_MAX:
            title = f"column {field.name} of {self.source.name} is INT, and its numbers are used up"
            raise RowFailed(title, row=max(0, INT_MAX - first))
        at = self._names.index(field.name)
        return part.set_column(at, part.schema.field(at), pa.array(numbers, arrow_type(field.type)))

    def _checked(self, part: pa.RecordBatch) -> pa.RecordBatch:
        assert self.source.rules is not None
        rules, failed = self.source.rules, list[RowFailed]()
        part = self._one_zero(part)
        if self._generated is not None:
            made = self._generated(columns_batch(self.source.schema, part)).arrow()
            for name, column in zip(made.schema.names, made.columns, strict=True):
                at = self._names.index(name)
                part = part.set_column(at, part.schema.field(at), column)
            part = self._one_zero(part)
        for name in rules.not_null:
            column = part.column(self._names.index(name))
            if column.null_count:
                failed.append(RowFailed(null_given(self.source, name), row=_first(column.is_null())))
        if self._holds is not None:
            held = self._holds(columns_batch(self.source.schema, part)).arrow()
            for check, column in zip(self._checks, held.columns, strict=True):
                broken = pc.equal(column, False)
                if pc.any(broken).as_py():
                    at = _first(broken)
                    row = columns_batch(self.source.schema, part.slice(at, 1)).rows()[0]
                    failed.append(RowFailed(broken_rule(self.source, check, row), row=at))
        if failed:
            raise min(failed, key=lambda error: error.row)
        return part

    def _one_zero(self, part: pa.RecordBatch) -> pa.RecordBatch:
        """Zero has no sign in keys (`KeyOf.as_stored`)."""
        for field in self.source.schema.key:
            if field.type.kind is Kind.DOUBLE:
                at = self._names.index(field.name)
                part = part.set_column(at, part.schema.field(at), pc.add(part.column(at), 0.0))
        return part

    def _encoded(self, first: int, now_ms: int) -> list[pa.RecordBatch]:
        assert self._stored is not None

        def encoded(part: pa.RecordBatch, before: int) -> pa.RecordBatch:
            if self._numbered:
                at = self._names.index(ROW_NUMBER)
                numbers = pa.array(np.arange(first + before, first + before + part.num_rows))
                part = part.set_column(at, part.schema.field(at), numbers)
            batch = columns_batch(self.source.schema, part)
            batch.rowtime[:] = now_ms
            try:
                return self._encoder.encode(batch)
            except BadRecord as error:
                raise RowFailed(f"a row of {self.source.name} cannot be written: {error}", row=0) from error

        return _each(self._stored, encoded)

    def _chosen(self, existing: ExistingKeys) -> list[pa.RecordBatch]:
        """The records of rows that are written."""
        taken = self._taken(existing)
        self.count = int(taken.sum()) if self._change.on_duplicate == "nothing" else len(taken)
        if taken.all():
            return self._records
        parts, before = list[pa.RecordBatch](), 0
        for part in self._records:
            parts.append(part.filter(pa.array(taken[before : before + part.num_rows])))
            before += part.num_rows
        return parts

    def _taken(self, existing: ExistingKeys) -> Bools:
        index, n = existing.index, len(existing.index)
        taken = np.ones(n, bool)
        several = len(existing.present) < n
        if self._change.on_duplicate == "replace":
            if several:
                last = np.zeros(len(existing.present), np.int64)
                last[index] = np.arange(n)
                taken = last[index] == np.arange(n)
            return taken
        if several:
            _, first = np.unique(index, return_index=True)
            taken[:] = False
            taken[first] = True
        taken &= ~existing.present[index]
        if self._change.on_duplicate == "error" and not taken.all():
            at = int(np.argmin(taken))
            raise self._as_given(RowFailed(duplicate(self.source, self._row(at)), row=at))
        return taken

    def _row(self, at: int) -> tuple[object, ...]:
        assert self._stored is not None
        before = 0
        for part in self._stored:
            if at < before + part.num_rows:
                return columns_batch(self.source.schema, part.slice(at - before, 1)).rows()[0]
            before += part.num_rows
        raise IndexError(at)


class ExistingKeys:
    """Which of some keys have a row in the topic of their table. One thread at a time.

    index: per key, its number among the different ones. present: whether these have a row.
    """

    def __init__(self, keys: pa.ChunkedArray) -> None:
        encoded = keys.combine_chunks().dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        self._different = encoded.dictionary
        self.index: Ints = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self.present: Bools = np.zeros(len(self._different), bool)
        self._read: dict[TopicPartition, int] = {}

    def follow(self, log: Log, ends: Ends) -> None:
        """Reads the keys up to these ends, or a little beyond. LogError."""
        for tp, end in sorted(ends.items()):
            reader = log.reader(tp, self._read.get(tp, log.admin().begin_offset(tp)))
            keys, gone, waiting = list[pa.Array](), list[Bools](), 0
            try:
                while reader.position < end and (raw := reader.read(READ_RECORDS, READ_BYTES)) is not None:
                    keys.append(raw.records.column("key"))
                    gone.append(raw.records.column("value").is_null().to_numpy(zero_copy_only=False))
                    waiting += raw.rows
                    if waiting >= LOOKED_UP_AT_ONCE:
                        self._note(keys, gone)
                        keys, gone, waiting = [], [], 0
                if reader.position < end:
                    raise LogUnavailable(f"{tp}: records {reader.position} to {end - 1} cannot be read now")
                self._note(keys, gone)
                self._read[tp] = reader.position
            finally:
                reader.close()

    def _note(self, keys: Sequence[pa.Array], gone: Sequence[Bools]) -> None:
        if not keys:
            return
        found = pc.index_in(pa.chunked_array(keys, pa.binary()), value_set=self._different)
        number = found.fill_null(-1).to_numpy()
        known = number >= 0
        self.present[number[known]] = ~np.concatenate(gone)[known]  # the last record of a key counts


def _completing(source: SourceDef, fields: Sequence[Field]) -> Projected:
    """Completes rows with the defaults of columns that are not given; without numbers."""
    assert source.rules is not None
    given = {f.name for f in fields}
    defaults = {d.name: d.expr for d in source.rules.defaults}

    def value(field: Field) -> Expr:
        if field.name in given:
            return Column(field.type, field.name)
        return defaults.get(field.name, Literal(field.type, None))

    return Projected([NamedExpr(f.name, value(f)) for f in source.schema], Schema(tuple(fields)))


def _pieces(given: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for part in given:
        for first in range(0, part.num_rows, PIECE_ROWS):
            yield part.slice(first, PIECE_ROWS)


def _each(
    parts: Iterable[pa.RecordBatch], make: Callable[[pa.RecordBatch, int], pa.RecordBatch]
) -> list[pa.RecordBatch]:
    """make: given the rows and how many are before them."""
    made, before = list[pa.RecordBatch](), 0
    for part in parts:
        try:
            made.append(make(part, before))
        except RowFailed as error:
            raise error.behind(before) from error
        before += part.num_rows
    return made


def _in_time(source: SourceDef, parts: list[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], Ints | None]:
    """The rows in event-time order if there is a watermark, so no row is late because of another one; and their former numbers if these changed."""
    if source.watermark is None or not parts:
        return parts, None
    table = pa.Table.from_batches(parts)
    column = table.column(source.watermark.column).combine_chunks()
    times = column.view(pa.int64()) if column.type.bit_width == 64 else column.view(pa.int32()).cast(pa.int64())
    order = np.argsort(times.fill_null(np.iinfo(np.int64).min).to_numpy(), kind="stable")
    return list(_pieces(table.take(pa.array(order)).combine_chunks().to_batches())), order


def _first(mask: pa.Array) -> int:
    """The place of the first TRUE."""
    return int(np.argmax(mask.fill_null(False).to_numpy(zero_copy_only=False)))

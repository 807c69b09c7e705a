"""Grouped aggregation in columns: one grouping per batch, then one merge per key.

Taken for large Arrow batches when updates are coalesced. Arrow groups the batch (33 ns a row with 10,000 groups of 20,000
rows; the same statement in DuckDB costs 115), `from_partial` makes accumulators of the partial results and `merge` adds
them to the state, so the meaning stays that of the function. Cases that Arrow would compute differently are declined: NaN, extremes over -0.0, text
order, arguments that are not plain columns. For aggregates with `add_runs` Arrow lists the arguments per group; a batch with a row that
one of them refuses, or with which a sum may leave its range, raises `RowsRefused` before anything has changed, and is folded by rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.functions.numeric import MAX_PRECISION, WIDE
from flowql.compiler.functions.user import plain_name
from flowql.compiler.plan.expr import Column, Literal
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import BIGINT, Kind, SqlType
from flowql.runtime.batch import (
    DELETE,
    INSERT,
    TEMPORAL,
    Batch,
    Ints,
    to_python,
)
from flowql.runtime.functions.workers import FunctionFailed
from flowql.runtime.operators.accumulate import (
    EXACT_SUMS,
    Columns,
    Extent,
    Folding,
    RowsRefused,
    folding,
    is_exact,
    shown_column,
)
from flowql.runtime.operators.base import NO_TIME, MicroBatchContext
from flowql.runtime.operators.fold import NOT_FOR_VALUES, BoundAggregate, Fold, mergeable
from flowql.runtime.operators.group_results import ChangedRows, GroupResults, Shown, by_part, row_times, unchanged
from flowql.runtime.operators.winners import can_win, group_codes, has_null_fields, winners
from flowql.runtime.state.columns.packed import Flags, PackedKeys, key_columns, packed_keys
from flowql.runtime.state.columns.values import (
    PRESENT,
    ColumnKind,
    RowValues,
    ValueColumn,
    ValueLayout,
    concatenated,
    objects,
)
from flowql.runtime.state.layout import store_key_codec
from flowql.runtime.state.store import Store

VECTOR_ROWS = 256  # below, grouping's fixed cost of about 0.1 ms exceeds a loop over rows
_NUMBERS = frozenset({Kind.INT, Kind.BIGINT, Kind.DOUBLE})
_ORDERED = _NUMBERS | {Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS}
COLUMN_KEYS = frozenset({Kind.BOOLEAN, Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.STRING, Kind.BYTES}) | (
    _ORDERED - _NUMBERS
)
_LISTED, _EXACT = "__listed_", "__exact_"
_NO_EXTENT: Extent = (0, 0)
BoundsOf = Callable[[Ints], tuple[Ints, Ints]]  # from the starts of windows to their starts and ends
_NEGATIVE_ZERO = -(2**63)  # the bits of -0.0, which Arrow takes for 0.0


def use_vector(batch: Batch, run: MicroBatchContext, *, silent: bool = False) -> bool:
    """silent: the operator gives no updates (EMIT FINAL), so there is nothing to keep apart where they are not coalesced."""
    if not (run.coalesce or silent):
        return False
    return run.vector if run.vector is not None else batch.is_columns and len(batch) >= VECTOR_ROWS


class _Part:
    """One built-in aggregate: the Arrow aggregations of its partial results, and how they become an accumulator."""

    def __init__(self, b: BoundAggregate, source: Schema) -> None:
        column = b.args[0].name if b.args and isinstance(b.args[0], Column) else None
        names = b.function.arrow
        self.aggregations: list[tuple[Any, str]] = [(column, n) for n in names]
        if column is None:
            self.aggregations = [([], "count_all")]
        field = None if column is None else source.get(column)
        self.struct = column if b.call.type.kind is Kind.STRUCT else None
        self.is_extreme = b.call.function in ("MIN", "MAX")
        self.best, self.greatest = f"__best_{column}_{names[0]}", b.call.function == "MAX"
        if self.struct is not None:  # the rows with the best structs are found before, and Arrow takes one per group
            self.aggregations = [(self.best, "max")]
        self.exact = column if field is not None and is_exact(b.call.function, field.type) else None
        self.is_limited = self.exact is not None and field is not None and field.type.kind is Kind.DECIMAL
        if self.exact is not None:
            self.aggregations = [(_EXACT + self.exact, "sum"), (_EXACT + self.exact, "count")]
        self.doubles = column if field is not None and field.type.kind is Kind.DOUBLE else None
        assert b.function.from_partial is not None
        assert b.function.merge is not None
        self.from_partial = b.function.from_partial(b.resolution, b.init)
        self.merge = b.function.merge(b.resolution, b.init)
        self.result: Callable[[Any], Any] | None = None if _is_identity(b.result) else b.result
        self.type: SqlType = b.call.type
        self.kinds: tuple[ColumnKind, ...] = ("object",)
        self.fold: Folding | None = None
        self.shown: Callable[[Columns], ValueColumn | None] | None = None
        if self.struct is None:
            t = BIGINT if field is None else field.type
            self.kinds, self.fold = folding(b.call.function, t)
            self.shown = shown_column(b.call.function, t, self.type)

    def merged(self, before: Sequence[Any], partial: list[list[Any]]) -> list[Any]:
        """Accumulators after the batch, a call per group."""
        return list(map(self.merge, before, map(self.from_partial, *partial)))

    def results(self, accs: Sequence[Any], run: MicroBatchContext | None, seqs: Sequence[int]) -> Sequence[Any]:
        return accs if self.result is None else list(map(self.result, accs))


class _Called:
    """One aggregate that takes rows in runs: Arrow lists its arguments per group."""

    struct, exact, doubles, best, greatest, fold = None, None, None, "", False, None
    shown: Callable[[Columns], ValueColumn | None] | None = None
    result: Callable[[Any], Any] | None = None
    kinds: tuple[ColumnKind, ...] = ("object",)
    is_limited = is_extreme = False

    def __init__(self, b: BoundAggregate) -> None:
        assert b.function.add_runs is not None
        self._bound, self._add_runs, self.type = b, b.function.add_runs(b.resolution), b.call.type
        self.columns = [a.name for a in b.args if isinstance(a, Column)]
        self.aggregations: list[tuple[Any, str]] = [(_LISTED + name, "list") for name in self.columns]

    def merged(self, before: Sequence[Any], partial: list[pa.ListArray]) -> list[Any]:
        """Accumulators after the batch. Raises RowsRefused."""
        columns = [to_python(p.values, a.type) for p, a in zip(partial, self._bound.args, strict=True)]
        try:
            return self._add_runs(before, partial[0].offsets.to_pylist(), columns)
        except NOT_FOR_VALUES:
            raise
        except Exception as error:
            raise RowsRefused from error

    def results(self, accs: Sequence[Any], run: MicroBatchContext | None, seqs: Sequence[int]) -> Sequence[Any]:
        """run: None for results whose dead letters were written before; seqs: where they go."""
        b = self._bound
        if b.function.result_many is not None:
            try:
                made = b.function.result_many(accs)
            except FunctionFailed:
                pass  # a process ended: one by one it is known for which
            else:
                return [
                    Fold.failed_result(b, failure, run, seq) if failure else value
                    for (value, failure), seq in zip(made, seqs, strict=True)
                ]
        return [Fold.result(b, acc, run, seq) for acc, seq in zip(accs, seqs, strict=True)]


class Partials:
    """The columnar form of a `Fold`."""

    def __init__(self, fold: Fold, source: Schema) -> None:
        self._fold, self._source = fold, source
        self.parts = [_Part(b, source) if b.function.add_runs is None else _Called(b) for b in fold.bound]
        self._names = [f"__key_{i}" for i in range(len(fold.key.fields))]
        plain = [p for p in self.parts if isinstance(p, _Part) and p.struct is None and p.exact is None]
        self._exact = sorted({p.exact for p in self.parts if p.exact is not None})
        self._used = sorted({c for p in plain for c, _ in p.aggregations if isinstance(c, str)})
        self._listed = sorted({c for p in self.parts if isinstance(p, _Called) for c in p.columns})
        self._structs = {p.best: p for p in self.parts if isinstance(p, _Part) and p.struct is not None}
        self.layout = ValueLayout((*(p.kinds for p in self.parts), ("integer",)))  # the row time comes last
        self.initial = RowValues.of(self.layout, [(*fold.initial, NO_TIME)])

    @staticmethod
    def of(fold: Fold, source: Schema) -> Partials | None:
        """The partial aggregation of a fold; None if a key or an aggregate has no columnar form (`without_columns`)."""
        return None if without_columns(fold, source) else Partials(fold, source)

    def declines(self, batch: Batch) -> bool:
        """The batch holds what Arrow would fold otherwise than the reference."""
        arrow, names = batch.arrow(), self._source.names
        for s in self._structs.values():
            if has_null_fields(arrow.column(names.index(s.struct)), s.type):
                return True
        doubles = [(p, arrow.column(names.index(p.doubles))) for p in self.parts if p.doubles is not None]
        return any(
            bool(pc.any(pc.is_nan(d)).as_py())
            or (p.is_extreme and bool(pc.any(pc.equal(d.view(pa.int64()), _NEGATIVE_ZERO)).as_py()))
            for p, d in doubles
        )

    def closed(
        self,
        plan: Operator,
        keys: PackedKeys,
        values: RowValues,
        seq: Ints,
        run: MicroBatchContext,
        bounds_of: BoundsOf | None = None,
    ) -> Batch | None:
        """The results of groups or windows, by their keys. None if `keys` is empty, or a key has no columnar form."""
        types = self._fold.key.types
        columns = key_columns(types if bounds_of is None else (*types, BIGINT), keys)
        if columns is None or not len(keys):
            return None
        results = self.results(plan, columns, bounds_of)
        return results.batch(results.of(values, run, seq), values, np.full(len(seq), INSERT, np.int8), seq)

    def results(self, plan: Operator, keys: Sequence[pa.Array], bounds_of: BoundsOf | None = None) -> GroupResults:
        """Groups, to be given as rows. keys: the columns of their keys. bounds_of: for windows, whose starts are the last of these columns."""
        if bounds_of is None:
            return GroupResults(plan, self._fold, self.parts, keys, None)
        *keys, starts = keys
        return GroupResults(plan, self._fold, self.parts, keys, bounds_of(starts.to_numpy()))

    def taken(self, batch: Batch) -> Ints:
        """Rows with a value and a key (one whose parts are not all null, unless NULL is a group)."""
        keep = batch.op != DELETE
        if self._fold.null_groups:
            return np.flatnonzero(keep).astype(np.int64)
        missing = np.ones(len(batch), bool)
        arrow, names = batch.arrow(), self._source.names
        for f in self._fold.key.fields:
            missing &= pc.is_null(arrow.column(names.index(f.name))).to_numpy(zero_copy_only=False)
        return np.flatnonzero(keep & ~missing).astype(np.int64)

    def grouped(self, batch: Batch, rows: Ints, order: Ints, starts: Ints | None, *, by_keys: bool = True) -> _Groups:
        """Partial results of rows by key and start. by_keys: without it by start, which then stands for the key too."""
        arrow, names = batch.arrow(), self._source.names
        if self._listed and starts is not None:  # lists are in the order of rows
            place = np.argsort(order)
            rows, order, starts = rows[place], order[place], starts[place]
        whole = len(rows) == len(batch) and starts is None
        pick = None if whole else pa.array(rows)
        columns: dict[str, pa.Array] = {}
        fields = [(n, f.name) for n, f in zip(self._names, self._fold.key.fields, strict=True) if by_keys]
        for name, source in [*fields, *((u, u) for u in self._used)]:
            i = names.index(source)
            column = arrow.column(i)
            kind = self._source.fields[i].type.kind
            column = column.cast(TEMPORAL[kind]) if kind in TEMPORAL else column
            columns[name] = column if pick is None else column.take(pick)
        for name in self._listed:
            column = arrow.column(names.index(name))
            columns[_LISTED + name] = column if pick is None else column.take(pick)
        extents = {name: extent_of(arrow.column(names.index(name))) for name in self._exact}
        for name, extent in extents.items():
            column = arrow.column(names.index(name))
            columns[_EXACT + name] = _summable(column if pick is None else column.take(pick), extent)
        by = [n for n, _ in fields]
        if starts is not None:
            columns["__start"] = pa.array(starts)
            by.append("__start")
        structs = self._structs_of(arrow, pick)
        if structs:
            codes, count = group_codes([columns[n] for n in by])
            for best, column in structs.items():
                part = self._structs[best]
                columns[best] = winners(column, part.type, codes, count, greatest=part.greatest)
        columns["__time"] = pa.array(batch.rowtime[rows])
        columns["__order"] = pa.array(order)
        wanted = [a for p in self.parts for a in p.aggregations]
        table = pa.table(columns).group_by(by, use_threads=False)
        made = table.aggregate([*wanted, ("__time", "max"), ("__order", "max")])
        last = made.column("__order_max").to_numpy()
        place = np.argsort(last)
        made = made.take(pa.array(place))
        groups = _Groups(made, len(by), last[place], extents)
        for i, (name, _) in enumerate(wanted):
            if isinstance(name, str) and name in structs:  # the winner's struct in place of its row
                won = structs[name].take(made.column(len(by) + i).combine_chunks())
                groups.won[len(by) + i] = to_python(won, self._structs[name].type)
        return groups

    def _structs_of(self, arrow: pa.RecordBatch, pick: pa.Array | None) -> dict[str, pa.Array]:
        """The structs to be compared, row by row of what is grouped, by the name of their winners' column."""
        found = {}
        for best, part in self._structs.items():
            column = arrow.column(self._source.names.index(part.struct))
            found[best] = column if pick is None else column.take(pick)
        return found

    def merge(self, groups: _Groups, store: Store) -> _Merged:
        """State after the batch is staged; one look-up and one write for all keys."""
        columns = store.columns(self.layout)
        arrays = [groups.array(i) for i in range(groups.keys)]
        keys = packed_keys(store_key_codec(store.spec), arrays)
        found = columns.find(keys)
        known = found.values.known
        before = found.values
        if not known.all():
            before = concatenated([before, self.initial]).take(np.where(known, np.arange(len(known)), len(known)))
        after = self.folded(groups, before) or self._in_rows(groups, before)
        columns.stage(found, after)
        return _Merged(keys, arrays, known, before, after)

    def folded(self, groups: _Groups, before: RowValues) -> RowValues | None:
        """Values after the batch; None where a column declines. Raises RowsRefused."""
        if before.odd:
            return None
        at, made = groups.keys, list[ValueColumn]()
        for part, columns in zip(self.parts, self.layout.part_columns(before.columns)[:-1], strict=True):
            given = range(at, at + len(part.aggregations))
            at = given.stop
            if part.fold is None:
                accs = part.merged(columns[0].to_list(), [groups.values(i) for i in given])
                made.append(objects(accs))
                continue
            extent = _NO_EXTENT if part.exact is None else groups.extents[part.exact]
            folded = part.fold(columns, [groups.array(i) for i in given], extent)
            if folded is None:
                return None
            made += folded
        made.append(ValueColumn(np.maximum(before.columns[-1].data, groups.array(at).to_numpy())))
        return RowValues(self.layout, np.full(len(before), PRESENT, np.int8), made, {})

    def _in_rows(self, groups: _Groups, before: RowValues) -> RowValues:
        """The same by a call per group and aggregate. Raises RowsRefused for a sum that has a range."""
        if any(p.is_limited for p in self.parts):
            raise RowsRefused
        *old, times = by_part(before)
        at, made = groups.keys, list[Sequence[Any]]()
        for part, accs in zip(self.parts, old, strict=True):
            given = range(at, at + len(part.aggregations))
            at = given.stop
            made.append(part.merged(accs, [groups.values(i) for i in given]))
        return RowValues.of(self.layout, list(zip(*made, map(max, times, groups.values(at)), strict=True)))


class _Groups:
    """One row per group, in order of the groups' last rows.

    last: the order value of each group's last row. extents: of the arguments of exact sums, by name. won: values by column, in place of those
    in the table.
    """

    __slots__ = ("extents", "keys", "last", "table", "won")

    def __init__(self, table: pa.Table, keys: int, last: Ints, extents: dict[str, Extent]) -> None:
        self.table, self.keys, self.last, self.extents = table, keys, last, extents
        self.won: dict[int, list[Any]] = {}

    def array(self, i: int) -> pa.Array:
        return self.table.column(i).combine_chunks()

    def values(self, i: int) -> Any:
        return self.won[i] if i in self.won else _values(self.table.column(i))


class _Merged:
    """Groups with their values before and after the batch, to be given as rows. before: as of no rows where a group was not known."""

    def __init__(
        self, keys: PackedKeys, columns: list[pa.Array], known: Flags, before: RowValues, after: RowValues
    ) -> None:
        self._keys, self.columns = keys, columns
        self._known, self._before, self._after = known, before, after

    @property
    def new_groups(self) -> tuple[PackedKeys, list[pa.Array]]:
        """The keys of groups that were not known, and the columns of these keys."""
        new = np.flatnonzero(~self._known)
        at = pa.array(new)
        return self._keys.take(new), [c.take(at) for c in self.columns]

    def batch(
        self, plan: Operator, results: GroupResults, source: Batch, last: Ints, run: MicroBatchContext
    ) -> Batch | None:
        """One after-image per group; if the output retracts, per group that changed, with its before-image where somebody reads it."""
        known, seq, retracts = self._known, source.seq[last], plan.change == "retract"
        after, before, n = results.of(self._after, run, seq), list[Shown](), len(known)
        lives = differs = np.ones(n, bool)
        if retracts and known.any():
            before = results.of(self._before, None, seq)
            differs = ~unchanged(before, after, n)
        headers = None if source.headers is None else [source.headers[i] for i in last.tolist()]
        changes = ChangedRows(known, lives, differs, row_times(self._after), seq, np.arange(n), headers)

        def rows(shown: Sequence[Shown], at: Ints) -> pa.RecordBatch:
            record = results.record(shown)
            return record if len(at) == n else record.take(pa.array(at))

        return changes.batch(plan.schema, partial(rows, before), partial(rows, after), befores=retracts and run.befores)


def extent_of(column: pa.Array) -> Extent:
    """The least and the greatest value of integers or Decimals."""
    found = pc.min_max(column).as_py()
    scale = column.type.scale if pa.types.is_decimal(column.type) else 0
    least, greatest = (0 if v is None else int(WIDE.scaleb(Decimal(v), scale)) for v in (found["min"], found["max"]))
    return least, greatest


def _summable(column: pa.Array, extent: Extent) -> pa.Array:
    """Integers whose sums might leave 64 bits, in which Arrow adds them, as Decimals."""
    if pa.types.is_decimal(column.type) or max(-extent[0], extent[1]) * len(column) < 2**63:
        return column
    return column.cast(pa.decimal128(MAX_PRECISION, 0))


def without_columns(fold: Fold, source: Schema) -> str:
    """The key or the aggregate of a fold that has no columnar form; empty if all have one."""
    if not fold.key.fields:
        return "it has no keys"
    if odd := [t for t in fold.key.types if t.kind not in COLUMN_KEYS]:
        return f"a key of type {odd[0]}"
    return next((call_text(b) for b in fold.bound if not _columnar(b, source)), "")


def call_text(b: BoundAggregate) -> str:
    """A call as `explain` shows it."""
    computed = [a for a in b.args if not isinstance(a, (Column, Literal))]
    return typed_call(b.call.function, ["an expression"] if computed else [str(a.type) for a in b.args])


def typed_call(function: str, of: Sequence[str]) -> str:
    """A function of columns of these types.

    >>> typed_call("sql_sum", ["DOUBLE"])
    'SUM(DOUBLE)'
    """
    return f"{plain_name(function).removeprefix('sql_').upper()}({', '.join(of)})"


def _columnar(b: BoundAggregate, source: Schema) -> bool:
    if b.function.add_runs is not None:
        names = [a.name for a in b.args if isinstance(a, Column) and a.type.kind in COLUMN_KEYS | _NUMBERS]
        return bool(names) and len(names) == len(b.args) and set(names) <= set(source.names)
    if not mergeable(b.function):
        return False
    if b.call.function == "COUNT":
        if not b.args or (isinstance(b.args[0], Literal) and b.args[0].value is not None):
            return True
        return _plain(b, source) and b.args[0].type.kind in COLUMN_KEYS | _NUMBERS
    if b.call.function in ("MIN", "MAX") and can_win(b.args[0].type):
        return _plain(b, source)
    if not _plain(b, source):
        return False
    t = b.args[0].type
    if b.call.function in EXACT_SUMS:  # sums of doubles are exact by rows, and so is a mean that may be out of range
        digits = b.call.type.precision - b.call.type.scale
        narrow = b.call.function == "sql_sum" or t.kind is not Kind.DECIMAL or t.precision - t.scale <= digits
        return narrow and t.kind in (Kind.INT, Kind.BIGINT, Kind.DECIMAL)
    if t.kind is Kind.DECIMAL:
        return b.call.function != "AVG"
    return t.kind in (_NUMBERS if b.call.function in ("SUM", "AVG") else _ORDERED)


def _plain(b: BoundAggregate, source: Schema) -> bool:
    return len(b.args) == 1 and isinstance(b.args[0], Column) and b.args[0].name in source.names


def _is_identity(result: Callable[[Any], Any]) -> bool:
    """The accumulator is the result."""
    probe = object()
    try:
        return result(probe) is probe
    except (TypeError, AttributeError):
        return False


def _values(column: pa.ChunkedArray) -> Any:
    """A column as Python values; numbers without nulls by way of numpy, which is faster. Lists stay an array."""
    if pa.types.is_list(column.type):
        return column.combine_chunks()
    if not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return column.to_numpy().tolist()
    return column.to_pylist()

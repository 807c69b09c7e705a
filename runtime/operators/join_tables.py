"""Join of two tables on their keys."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.logical import Join
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import arrow_type
from flowql.runtime.batch import DELETE, UPDATE_BEFORE, Batch, Ints, Row, record_of
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.group_results import ChangedRows, unchanged
from flowql.runtime.operators.join_rows import VECTOR_ROWS, JoinedRow
from flowql.runtime.operators.keys import RowKey, is_frozen, key_fields, value_fields, without_key_columns
from flowql.runtime.operators.row_columns import RowColumns, value_array
from flowql.runtime.operators.rows import Changes, interleave
from flowql.runtime.state.columns.layer import Found
from flowql.runtime.state.columns.packed import Flags, joined
from flowql.runtime.state.columns.values import RowValues, ValueColumn, concatenated
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import ColumnStore, Store

_NO_ROWS = np.zeros(0, np.int64)


class Declined(Exception):
    """The batch, or the state of its keys, needs a look at each row."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One table. found, after: by key of the micro-batch its place in the store, with the value before, and the value after.

    changed: the numbers of the keys that the batch writes `written` to.
    """

    store: ColumnStore
    found: Found
    after: RowValues
    changed: Ints
    written: RowValues | None

    def stage(self) -> None:
        if self.written is not None:
            self.store.stage(self.found.take(self.changed), self.written)


@dataclass(frozen=True, slots=True)
class _Last:
    """By key of the micro-batch its last row. side, row: the input and the place in it. place: among the rows of both sides."""

    side: Ints
    row: Ints
    rowtime: Ints
    seq: Ints
    place: Ints


class TableColumns:
    """The columnar form of a `TableTableJoin`. needs: which sides must be present for a joined row. Holds no data."""

    def __init__(self, plan: Operator, inputs: Sequence[Schema], needs: tuple[bool, bool]) -> None:
        self._schema, self._needs = plan.schema, needs
        self._retract = plan.change == "retract"
        self._split = [RowColumns(s, timed=True) for s in inputs]
        self._from = _origins(plan.schema, inputs)

    @staticmethod
    def of(plan: Operator, inputs: Sequence[Schema], needs: tuple[bool, bool]) -> TableColumns | None:
        """None where a key is not its own frozen form, or there is none."""
        types = [tuple(f.type for f in key_fields(s)) for s in inputs]
        return TableColumns(plan, inputs, needs) if types[0] and all(map(is_frozen, types)) else None

    def apply(self, inputs: Sequence[Batch | None], stores: Sequence[Store], run: MicroBatchContext) -> Batch | None:
        """The changes of joined rows; state is staged. Raises Declined, with nothing staged."""
        given = [
            (i, b, rows)
            for i, (b, s) in enumerate(zip(inputs, self._split, strict=True))
            if b is not None and len(rows := s.changing(b))
        ]
        if not given:
            return None
        keys = joined([self._split[i].keys(b, rows) for i, b, rows in given])
        codes, places = keys.numbered()
        keys, n = keys.take(places), len(places)
        by_side = dict(zip([i for i, _, _ in given], np.split(codes, [len(given[0][2])]), strict=False))
        rows_of = {i: (b, rows) for i, b, rows in given}
        sides = []
        for i, (split, store) in enumerate(zip(self._split, stores, strict=True)):
            columns = store.columns(split.layout)
            found = columns.find(keys)
            if found.values.odd:
                raise Declined
            if i in rows_of:
                sides.append(_written(split, columns, found, by_side[i], *rows_of[i]))
            else:
                sides.append(_Side(columns, found, found.values, _NO_ROWS, None))
        left, right = sides
        before, after = (left.found.values, right.found.values), (left.after, right.after)
        known, lives = self._exists(before), self._exists(after)
        if (known & ~lives & (np.bincount(codes) > 1)).any():  # which of its rows removed the joined row?
            raise Declined
        last = _last_rows(given, codes, n)
        time = last.rowtime
        for i, values in enumerate(after):
            other = (last.side != i) & values.known
            time = np.where(other, np.maximum(time, values.columns[-1].data), time)
        parts = self._keys_of(given, places)
        was, is_ = self._shown(before, parts), self._shown(after, parts)
        headers = None
        if any(b.headers is not None for _, b, _ in given):
            headers = [_header(inputs[s], r) for s, r in zip(last.side.tolist(), last.row.tolist(), strict=True)]
        made = ChangedRows(known, lives, ~self._same(was, is_, sides), time, last.seq, last.place, headers)
        out = made.batch(
            self._schema,
            lambda at: self._record(was, at),
            lambda at: self._record(is_, at),
            befores=self._retract and run.befores,
        )
        for side in sides:
            side.stage()
        return out

    def _exists(self, values: tuple[RowValues, RowValues]) -> Flags:
        """For which keys there is a joined row."""
        left, right = (v.known for v in values)
        found: Flags = (left | right) & (left | (not self._needs[0])) & (right | (not self._needs[1]))
        return found

    def _keys_of(self, given: Sequence[tuple[int, Batch, Ints]], places: Ints) -> list[pa.Array]:
        """The parts of the keys, whichever side they came from, in the types of the left."""
        columns = [self._split[i].key_columns(b, rows) for i, b, rows in given]
        types = [c.type for c in columns[0]]
        at = pa.array(places)
        return [
            pa.concat_arrays([c.cast(t) for c in of_part]).take(at)
            for t, of_part in zip(types, zip(*columns, strict=True), strict=True)
        ]

    def _shown(self, values: tuple[RowValues, RowValues], keys: Sequence[pa.Array]) -> list[pa.Array | ValueColumn]:
        """The output's columns before or after the batch, by key: parts of keys as Arrow has them."""
        found: list[pa.Array | ValueColumn] = []
        for origin in self._from:
            if origin.side is None:
                found.append(keys[origin.at])
                continue
            there = values[origin.side].known
            if origin.is_key:
                part = keys[origin.at]
                found.append(part if there.all() else pc.if_else(pa.array(there), part, pa.scalar(None, part.type)))
            else:
                found.append(_where(there, values[origin.side].columns[origin.at]))
        return found

    def _same(
        self, was: Sequence[pa.Array | ValueColumn], is_: Sequence[pa.Array | ValueColumn], sides: Sequence[_Side]
    ) -> Flags:
        """For which keys the joined row is the same. NaN differs from NaN where its side has a new row."""
        n = len(sides[0].found.slots)
        fresh = [np.zeros(n, bool) for _ in sides]
        for flags, side in zip(fresh, sides, strict=True):
            flags[side.changed] = True
        same = np.ones(n, bool)
        for origin, a, b in zip(self._from, was, is_, strict=True):
            if origin.side is None:
                continue
            if isinstance(a, ValueColumn) and isinstance(b, ValueColumn):
                same &= unchanged([a], [b], n) | ~fresh[origin.side]
            elif not isinstance(a, ValueColumn) and not isinstance(b, ValueColumn):
                same &= a.is_valid().to_numpy(zero_copy_only=False) == b.is_valid().to_numpy(zero_copy_only=False)
        return same

    def _record(self, shown: Sequence[pa.Array | ValueColumn], at: Ints) -> pa.RecordBatch:
        places = pa.array(at)
        made = [
            value_array(c.take(at), f.type) if isinstance(c, ValueColumn) else c.take(places).cast(arrow_type(f.type))
            for c, f in zip(shown, self._schema.fields, strict=True)
        ]
        return record_of(made, self._schema)


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where an output column comes from: a part of the join key, or a part of the key or a value of one side, NULL without it. at: which."""

    side: int | None
    at: int
    is_key: bool = True


def _origins(schema: Schema, inputs: Sequence[Schema]) -> list[_Origin]:
    """As `JoinedRow` finds them: the key, then columns by name, left before right."""
    own = [f.name for f in key_fields(schema)]
    found = []
    for f in schema:
        if f.name in own:
            found.append(_Origin(None, own.index(f.name)))
            continue
        side = 0 if f.name in inputs[0].names else 1
        keys = [k.name for k in key_fields(inputs[side])]
        if f.name in keys:
            found.append(_Origin(side, keys.index(f.name)))
        else:
            values = [v.name for v in value_fields(inputs[side])]
            found.append(_Origin(side, values.index(f.name), is_key=False))
    return found


def _written(split: RowColumns, columns: ColumnStore, found: Found, codes: Ints, batch: Batch, rows: Ints) -> _Side:
    changed, last = np.unique(codes[::-1], return_index=True)
    written = split.values(batch, rows[len(codes) - 1 - last])
    at = np.arange(len(found.slots))
    at[changed] = len(at) + np.arange(len(changed))
    return _Side(columns, found, concatenated([found.values, written]).take(at), changed, written)


def _last_rows(given: Sequence[tuple[int, Batch, Ints]], codes: Ints, n: int) -> _Last:
    """Rows of both sides go by their place in the run, those of the left first."""
    side = np.concatenate([np.full(len(rows), i) for i, _, rows in given])
    row = np.concatenate([rows for _, _, rows in given])
    seq = np.concatenate([b.seq[rows] for _, b, rows in given])
    rowtime = np.concatenate([b.rowtime[rows] for _, b, rows in given])
    order = np.lexsort((row, side, seq))
    last = np.zeros(n, np.int64)
    last[codes[order]] = order  # of several the last one stays
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return _Last(side[last], row[last], rowtime[last], seq[last], place[last])


def _where(there: Flags, column: ValueColumn) -> ValueColumn:
    """A column of values with NULL where there is none."""
    if there.all():
        return column
    if column.data.dtype == np.object_:
        data = column.data.copy()
        data[~there] = None
        return ValueColumn(data)
    null = ~there if column.null is None else column.null | ~there
    return ValueColumn(column.data, null, column.scale)


def _header(batch: Batch | None, row: int) -> Any:
    return None if batch is None or batch.headers is None else batch.headers[row]


LEFT, RIGHT = 0, 1


def _vector(inputs: Sequence[Batch | None], run: MicroBatchContext) -> bool:
    if not run.coalesce:
        return False
    given = [b for b in inputs if b is not None]
    return (
        run.vector
        if run.vector is not None
        else all(b.is_columns for b in given) and sum(map(len, given)) >= VECTOR_ROWS
    )


class TableTableJoinOperator:
    """Each change of either side changes the joined row of its key: what it was and what it is are compared.

    Stores: left rows and right rows, key -> (value columns..., row time), so inputs may be upserts. A removal is given
    only for a key that was joined. Row time: the later of both sides; of a removal, of the change and the other side.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Join)
        assert len(plan.stores) == 2, "a table-table join keeps both sides"
        self.plan = plan
        kind = plan.spec.kind
        # Which sides must be present for a joined row.
        self._needs = (kind in ("inner", "left"), kind in ("inner", "right"))
        self._keys = tuple(RowKey(i.schema) for i in inputs)
        self._joined = JoinedRow(plan, inputs[0].schema, inputs[1].schema)
        self._retract = plan.change == "retract"
        self._columns = TableColumns.of(plan, [i.schema for i in inputs], self._needs)
        self.by_row = next(filter(None, (without_key_columns(k.types) for k in self._keys)), "")

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        if self._columns is not None and _vector(inputs, run):
            with suppress(Declined, UnicodeEncodeError):
                return self._columns.apply(inputs, [run.state.store(s.name) for s in self.plan.stores], run)
        return self._rows(inputs, run)

    def _rows(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        keys = [[] if b is None else [k.of(r) for r in b.rows()] for k, b in zip(self._keys, inputs, strict=True)]
        distinct = list(dict.fromkeys(key for side in keys for key in side))
        if not distinct:
            return None
        run.took_by_row(self.plan.id, sum(map(len, keys)))
        stores = [run.state.store(s.name) for s in self.plan.stores]
        known = [dict(zip(distinct, s.get_many(distinct), strict=True)) for s in stores]
        written: list[dict[Key, None]] = [{}, {}]
        changes = Changes(self.plan.schema, retract=self._retract, coalesce=run.coalesce)
        for side, i in interleave(inputs):
            batch, split, key = inputs[side], self._keys[side], keys[side][i]
            assert batch is not None
            op, rowtime = int(batch.op[i]), int(batch.rowtime[i])
            if op == UPDATE_BEFORE or split.missing(key):
                continue
            before = self._row(key, known[LEFT][key], known[RIGHT][key])
            known[side][key] = None if op == DELETE else (*split.value(batch.rows()[i]), rowtime)
            written[side][key] = None
            after = self._row(key, known[LEFT][key], known[RIGHT][key])
            if before is None and after is None:
                continue
            other = known[1 - side][key]
            time = rowtime if other is None else max(rowtime, other[-1])
            head = batch.headers[i] if batch.headers is not None else None
            changes.add(key, before, after, time, int(batch.seq[i]), head)
        for store, values, keyed in zip(stores, known, written, strict=True):
            store.put_many(list(keyed), [values[k] for k in keyed])
        return changes.batch()

    def _row(self, key: Key, left: Value | None, right: Value | None) -> Row | None:
        """The joined row of a key, or None where the join kind gives none."""
        if (left is None and (self._needs[LEFT] or right is None)) or (right is None and self._needs[RIGHT]):
            return None
        return self._joined(
            key,
            None if left is None else self._keys[LEFT].row(key, left[:-1]),
            None if right is None else self._keys[RIGHT].row(key, right[:-1]),
        )

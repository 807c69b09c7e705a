"""Join of a stream with the latest rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.logical import Join
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import DELETE, INSERT, UPDATE_BEFORE, Batch, Ints, Row, from_columns
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.join_rows import DICTIONARY_KEYS, NOT_ONE_KEY, VECTOR_ROWS, JoinedRow
from flowql.runtime.operators.keys import RowKey, value_fields
from flowql.runtime.operators.row_columns import RowColumns, plain_column, value_array
from flowql.runtime.operators.rows import Emitter, interleave
from flowql.runtime.state.columns.packed import Flags, packed_keys
from flowql.runtime.state.columns.values import RowValues, concatenated
from flowql.runtime.state.layout import store_key_codec
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Store


class StreamTableJoinOperator:
    """Each stream row meets the table as of its place in the run (rule R5); at equal `seq` the table goes first.

    Inner and left. Stream rows without a key or a value are dropped. The output has the stream row's time. The table is
    kept as key -> (value columns..., row time).
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Join)
        assert plan.spec.kind in ("inner", "left"), "a stream-table join is inner or left"
        self.plan = plan
        left, right = inputs[0].schema, inputs[1].schema
        self._inner = plan.spec.kind == "inner"
        self._left, self._right = RowKey(left), RowKey(right)
        self._joined = JoinedRow(plan, left, right)
        self._store = plan.stores[0].name
        self._columns = _ColumnJoin.of(plan, left, right, inner=self._inner)
        self.by_row = "" if self._columns else NOT_ONE_KEY

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        stream, table = (None if b is None or not len(b) else b for b in inputs)
        store = run.state.store(self._store)
        columns = self._columns
        if table is not None:
            run.took_table_rows(self.plan.id, int(table.rowtime.max()))
        if table is not None and (stream is None or table.seq[-1] <= stream.seq[0]):
            if columns is not None and self._vector(table, run):
                columns.update(table, store)
            else:
                run.took_by_row(self.plan.id, len(table))
                self._update(store, table)
            table = None
        if stream is None:
            return None
        if columns is not None and self._vector(stream, run):
            try:
                return columns.join(stream, table, store, run)
            except (_Odd, UnicodeEncodeError):  # a value of the state fits no column
                pass
        return self._rows(stream, table, store, run)

    def _vector(self, stream: Batch, run: MicroBatchContext) -> bool:
        if run.vector is not None:
            return run.vector
        return stream.is_columns and len(stream) >= VECTOR_ROWS

    def _update(self, store: Store, table: Batch) -> None:
        """The last row of each key."""
        latest: dict[Key, Value | None] = {}
        split = self._right
        for row, rowtime, op in zip(table.rows(), table.rowtime.tolist(), table.op.tolist(), strict=True):
            key = split.of(row)
            if op != UPDATE_BEFORE and not split.missing(key):
                latest[key] = None if op == DELETE else (*split.value(row), rowtime)
        store.put_many(list(latest), list(latest.values()))

    def _rows(self, stream: Batch, table: Batch | None, store: Store, run: MicroBatchContext) -> Batch | None:
        run.took_by_row(self.plan.id, len(stream) + (0 if table is None else len(table)))
        rows, ops = stream.rows(), stream.op.tolist()
        keys = [self._left.of(r) for r in rows]
        distinct = list(dict.fromkeys(keys))
        known: dict[Key, Row | None] = {}
        for key, value in zip(distinct, store.get_many(distinct), strict=True):
            known[key] = None if value is None else self._right.row(key, value[:-1])
        changed: dict[Key, Value | None] = {}
        out = Emitter(self.plan.schema)
        looked = found = 0
        for side, i in interleave([stream, table], first=1):
            if side == 1:
                assert table is not None
                self._table_row(table, i, known, changed)
                continue
            key = keys[i]
            if ops[i] == DELETE or self._left.missing(key):
                continue
            right = known[key]
            looked, found = looked + 1, found + (right is not None)
            if right is not None or not self._inner:
                head = stream.headers[i] if stream.headers is not None else None
                row = self._joined(key, rows[i], right)
                out.add(row, int(stream.rowtime[i]), INSERT, int(stream.seq[i]), head)
        if changed:
            store.put_many(list(changed), list(changed.values()))
        run.looked_up(self.plan.id, looked, found, int(stream.rowtime.max()))
        return out.batch()

    def _table_row(self, table: Batch, i: int, known: dict[Key, Row | None], changed: dict[Key, Value | None]) -> None:
        op, row = int(table.op[i]), table.rows()[i]
        key = self._right.of(row)
        if op == UPDATE_BEFORE or self._right.missing(key):
            return
        known[key] = None if op == DELETE else row
        changed[key] = None if op == DELETE else (*self._right.value(row), int(table.rowtime[i]))


class _Odd(Exception):
    """A value of the state does not fit its columns."""


class _ColumnJoin:
    """The join in columns: one look-up per distinct key, the version of its value that each row meets, then `take`."""

    def __init__(self, plan: Operator, left: Schema, right: Schema, *, inner: bool) -> None:
        self._schema, self._inner, self._id = plan.schema, inner, plan.id
        self._key = left.names.index(left.key[0].name)
        self._right, self._right_key = RowColumns(right, timed=True), right.names.index(right.key[0].name)
        self._codec = store_key_codec(plan.stores[0])
        self._types = [f.type for f in value_fields(right)]
        names = [f.name for f in value_fields(right)]
        # Where each output column comes from: ("left", column), ("right", stored column) or ("found", key of the right).
        self._from: list[tuple[str, int]] = []
        for f in plan.schema:
            if f.role == "key":
                self._from.append(("left", self._key))
            elif f.name in left.names:
                self._from.append(("left", left.names.index(f.name)))
            elif f.name == right.key[0].name:
                self._from.append(("found", self._key))
            else:
                self._from.append(("right", names.index(f.name)))

    @staticmethod
    def of(plan: Operator, left: Schema, right: Schema, *, inner: bool) -> _ColumnJoin | None:
        """None where keys cannot be dictionary-encoded: several columns, windowed or nested keys."""
        one = len(left.key) == len(right.key) == len(plan.schema.key) == 1
        windowed = left.window is not None or right.window is not None
        if not one or windowed or left.key[0].type.kind not in DICTIONARY_KEYS:
            return None
        return _ColumnJoin(plan, left, right, inner=inner)

    def update(self, table: Batch, store: Store) -> None:
        """Keeps the last row of each key."""
        rows = self._right.changing(table)
        keys = self._right.keys(table, rows)
        last = keys.last_of_each()
        columns = store.columns(self._right.layout)
        columns.stage(columns.find(keys.take(last)), self._right.values(table, rows[last]))

    def join(self, stream: Batch, table: Batch | None, store: Store, run: MicroBatchContext) -> Batch | None:
        """table: rows that come between those of the stream. Raises _Odd, with nothing staged."""
        source, n = stream.arrow(), len(stream)
        keys = [plain_column(source.column(self._key))]
        rows = np.zeros(0, np.int64)
        if table is not None:
            rows = self._right.changing(table)
            changing = plain_column(table.arrow().column(self._right_key)).take(pa.array(rows))
            keys.append(changing.cast(keys[0].type))
        encoded = pa.concat_arrays(keys).dictionary_encode()
        codes = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        keep = (stream.op != DELETE) & encoded.indices.is_valid().to_numpy(zero_copy_only=False)[:n]
        slots, columns = codes[:n], store.columns(self._right.layout)
        found = columns.find(packed_keys(self._codec, [encoded.dictionary]))
        values = found.values
        if table is not None and len(rows):
            slots = _versions(len(values), slots, stream.seq, codes[n:], table.seq[rows])
            values = concatenated([values, self._right.values(table, rows)])
        if values.odd:
            raise _Odd
        have = values.known
        hit = have[slots] if len(have) else np.zeros(n, bool)
        looked, met = int(np.count_nonzero(keep)), int(np.count_nonzero(keep & hit))
        if self._inner:
            keep &= hit
        out = self._output(stream, np.flatnonzero(keep), values, slots, hit)
        run.looked_up(self._id, looked, met, int(stream.rowtime.max()))
        if len(rows):
            changed, last = np.unique(codes[n:][::-1], return_index=True)
            columns.stage(found.take(changed), values.take(len(have) - 1 - last))
        return out

    def _output(self, stream: Batch, rows: Ints, values: RowValues, slots: Ints, hit: Flags) -> Batch | None:
        if not len(rows):
            return None
        if len(rows) != len(stream):
            stream, slots, hit = stream.take(rows), slots[rows], hit[rows]
        source, places = stream.arrow(), pa.array(slots, mask=~hit)
        arrays = []
        for origin, i in self._from:
            if origin == "left":
                arrays.append(source.column(i))
            elif origin == "found":
                column = source.column(i)
                arrays.append(column if hit.all() else pc.if_else(pa.array(hit), column, pa.scalar(None, column.type)))
            else:
                arrays.append(value_array(values.columns[i], self._types[i]).take(places))
        return from_columns(self._schema, arrays, stream.rowtime, seq=stream.seq, headers=stream.headers)


def _versions(keys: int, slots: Ints, seq: Ints, changed: Ints, at: Ints) -> Ints:
    """For each stream row (its key's number, its place in the run) the number of the value that it meets.

    That is its key's, for the value before the run, or `keys` + the number of a change. changed, at: the key's number and the place of each
    change, of which there are some. At equal places the change comes first.
    """
    first = min(int(seq[0]), int(at[0]))
    span = max(int(seq[-1]), int(at[-1])) - first + 1
    place = changed * span + (at - first)
    order = np.argsort(place, kind="stable")  # at equal places the later change is the one that counts
    found = np.searchsorted(place[order], slots * span + (seq - first), side="right") - 1
    last = order[np.maximum(found, 0)]
    met = (found >= 0) & (changed[last] == slots)
    return np.where(met, keys + last, slots)

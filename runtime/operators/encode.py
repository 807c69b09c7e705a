"""Rows to records of a topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.logical import Format, Sink
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.batch import DELETE, UPDATE_BEFORE, Batch, Headers, Ints, Row
from flowql.runtime.errors import BadRecord
from flowql.runtime.log.base import HEADERS_TYPE, PRODUCE_SCHEMA
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.decode import BAD_TIME, NO_TIME, Time, time_reader
from flowql.runtime.operators.keys import picker
from flowql.runtime.serde.codec import row_encoder
from flowql.runtime.serde.json import double_json
from flowql.runtime.serde.windowed import join_window

_INTEGERS = {
    Kind.INT: None,
    Kind.BIGINT: None,
    Kind.DATE: pa.int32(),
    Kind.TIME: pa.int32(),
    Kind.TIMESTAMP: pa.int64(),
    Kind.MICROS: pa.int64(),
}
_WHOLE_MAX = 1e15  # whole doubles below are written as integers with `.0`
_PLAIN_MAX = 1e10  # Arrow writes doubles from here on, and below 1e-6, with an exponent
_SUPPORTED = frozenset({*_INTEGERS, Kind.BOOLEAN, Kind.DOUBLE, Kind.DECIMAL, Kind.STRING})


class JsonText:
    """Columns to JSON texts with Arrow, byte for byte as `flowql.runtime.serde.json` writes them: texts that Arrow would write differently are the reference's.

    Encodes n rows of flat columns as JSON objects.
    """

    def __init__(self, names: Sequence[str], types: Sequence[SqlType]) -> None:
        self._leads = [("," if i else "{") + orjson.dumps(n).decode() + ":" for i, n in enumerate(names)]
        self._types = tuple(types)

    @staticmethod
    def supports(types: Sequence[SqlType]) -> bool:
        return bool(types) and all(t.kind in _SUPPORTED for t in types)

    def encode(self, columns: Sequence[pa.Array]) -> pa.Array:
        """One JSON object per row, as binary. STRING columns may be the views of `json_scan`, whose texts need no escapes."""
        parts: list[Any] = []
        lead = ""
        for literal, column, t in zip(self._leads, columns, self._types, strict=True):
            lead += literal
            text, plain = text_of(column, t)
            quoted = plain and t.kind is Kind.STRING  # unescaped, no nulls: the quotes go into the literals
            parts += [pa.scalar(lead + ('"' if quoted else "")), text]
            lead = '"' if quoted else ""
        parts.append(pa.scalar(lead + "}"))
        return pc.binary_join_element_wise(*parts, "").view(pa.binary())


def text_of(column: pa.Array, t: SqlType) -> tuple[pa.Array, bool]:
    """JSON values; and, for STRING, whether they are all plain texts that lack only their quotes."""
    if t.kind is Kind.STRING:
        return _strings(column)
    text = _TEXTS.get(t.kind, _integers)(column, t)
    return (text.fill_null("null") if column.null_count else text), True


def _integers(column: pa.Array, t: SqlType) -> pa.Array:
    storage = _INTEGERS[t.kind]
    return (column if storage is None else column.view(storage)).cast(pa.string())


def _booleans(column: pa.Array, _t: SqlType) -> pa.Array:
    return column.cast(pa.string())


def _decimals(column: pa.Array, _t: SqlType) -> pa.Array:
    text = column.cast(pa.string())
    scientific = pc.match_substring(text, "E").fill_null(False).to_numpy(zero_copy_only=False)
    return _replaced(text, scientific, lambda i: format(column[i].as_py(), "f"))


def _doubles(column: pa.Array, _t: SqlType) -> pa.Array:
    """Arrow writes the same shortest digits, but whole numbers without `.0` and other exponents."""
    value = column.fill_null(0.5).to_numpy(zero_copy_only=False) if column.null_count else column.to_numpy()
    size = np.abs(value)
    with np.errstate(invalid="ignore"):
        whole = (value == np.trunc(value)) & (size < _WHOLE_MAX) & ((value != 0) | ~np.signbit(value))
        usual = whole | (size >= 1e-5) & (size < _PLAIN_MAX)
    text = column.cast(pa.string())
    rows = np.flatnonzero(whole)
    if len(rows):
        digits = pa.array(value[rows].astype(np.int64)).cast(pa.string())
        text = _put(text, rows, pc.binary_join_element_wise(digits, ".0", ""))
    return _replaced(text, ~usual, lambda i: double_json(float(value[i])))


def _strings(column: pa.Array) -> tuple[pa.Array, bool]:
    views = column.type == pa.string_view()
    text = column.cast(pa.string()) if views else column
    special = None if views else _special(text)
    if special is None and not text.null_count:
        return text, True
    quoted = pc.binary_join_element_wise('"', text, '"', "")
    if special is not None:
        quoted = _replaced(quoted, special, lambda i: orjson.dumps(text[i].as_py()).decode())
    return quoted.fill_null("null"), False


def _special(text: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Rows with characters that JSON escapes; None if there are none."""
    n = len(text)
    offsets = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + n + 1]
    if not n or offsets[0] == offsets[-1]:
        return None
    data = np.frombuffer(text.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    odd = (data == 34) | (data == 92) | (data < 0x20)
    if not odd.any():
        return None
    rows = np.zeros(n, bool)
    rows[np.searchsorted(offsets[1:], np.flatnonzero(odd) + offsets[0], side="right")] = True
    if text.null_count:
        rows &= text.is_valid().to_numpy(zero_copy_only=False)
    return rows


def _replaced(text: pa.Array, where: npt.NDArray[np.bool_], write: Callable[[int], str]) -> pa.Array:
    """`text` with the values at `where` written one by one."""
    rows = np.flatnonzero(where)
    if not len(rows):
        return text
    return _put(text, rows, pa.array([write(int(i)) for i in rows], pa.string()))


def _put(text: pa.Array, rows: Ints, new: pa.Array) -> pa.Array:
    """`text` with other values at `rows`. Half the time of `replace_with_mask`, which builds them one by one."""
    places = np.arange(len(text))
    places[rows] = len(text) + np.arange(len(new))
    return pa.concat_arrays([text, new]).take(pa.array(places))


_TEXTS: dict[Kind, Callable[[pa.Array, SqlType], pa.Array]] = {
    Kind.BOOLEAN: _booleans,
    Kind.DECIMAL: _decimals,
    Kind.DOUBLE: _doubles,
}


FROM_ROWS = 500  # rows are made columns first: about 0.1 us per value, a row's text costs ten times that
VECTOR_ROWS = 128  # measured: below, the fixed 0.15 ms of the vector encoder exceed 1.5 us per row
_NULL = b"null"
_OBJECTS = frozenset({"JSON", "JSON_SR", "AVRO"})  # they write a NULL among several key columns as such
_FIXED = {Kind.INT: ">i4", Kind.BIGINT: ">i8", Kind.DOUBLE: ">f8"}


class KeyEncoder:
    """The key bytes of rows of a schema; also what repartitions hash.

    A single key column that is null is a null key. Several that are all null are an object of nulls, as PARTITION BY
    makes it; with `null_key` they are a null key, as of records that came without one. With `null_group` NULL is written as a value, for
    it is the key of a group.
    """

    def __init__(self, schema: Schema, fmt: Format, *, null_key: bool = False, null_group: bool = False) -> None:
        names = schema.names
        self._window = schema.window
        self._fields = schema.key
        self._format = fmt
        self._null_key = (null_key or len(schema.key) == 1) and not null_group
        self._null_group = null_group
        self._json = fmt.name == "JSON" and bool(schema.key)
        self._pick = picker([names.index(f.name) for f in schema.key])
        self._indices = [names.index(f.name) for f in schema.key]
        self._encoder = row_encoder(schema.key, fmt, is_key=True) if schema.key else None
        types = [f.type for f in schema.key]
        self._object = JsonText([f.name for f in schema.key], types) if len(types) > 1 else None
        if self._window is not None:
            self._bounds = [names.index(n) for n in ("WINDOWSTART", "WINDOWEND")]

    @property
    def has_vector(self) -> bool:
        if not self._fields:
            return True
        kind = self._fields[0].type.kind
        if self._json:
            return JsonText.supports([f.type for f in self._fields])
        return self._format.name == "KAFKA" and not self._null_group and (kind in _FIXED or kind is Kind.STRING)

    def encode(self, row: Row) -> bytes | None:
        key = self._pick(row)
        if self._encoder is None or (self._null_key and all(v is None for v in key)):
            return None
        data = self._encoder.encode(key)
        if self._null_group and None in key:
            data = self._of_null_group(key, data)
        if data is None or self._window is None:
            return data
        return join_window(data, self._window, *(row[i] for i in self._bounds))

    def _of_null_group(self, key: Row, data: bytes | None) -> bytes:
        """The key of a group with NULL in it. Raises BadRecord for formats that write NULL as something else, or not at all."""
        if self._json and len(key) == 1:
            return _NULL
        if data is None or len(key) == 1 or self._format.name not in _OBJECTS:
            name = self._format.name
            raise BadRecord(f"the group NULL has no key in the {name} format; write it WITH (KEY_FORMAT='JSON')")
        return data

    def columns(self, columns: Sequence[pa.Array], n: int) -> pa.Array:
        """Key bytes of n rows given as the columns of the schema."""
        if not self._fields:
            return pa.nulls(n, pa.binary())
        keys = self._plain(columns, n)
        if self._window is None:
            return keys
        start, end = (columns[i] for i in self._bounds)
        bounds = [end, start] if self._window.kind == "session" else [start]
        # NULL beside a key that is NULL, which stays one.
        times = np.stack([pc.fill_null(c, 0).to_numpy(zero_copy_only=False) for c in bounds], axis=1).astype(">i8")
        offsets = np.arange(n + 1, dtype=np.int32) * (8 * len(bounds))
        behind = pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(offsets), pa.py_buffer(times.tobytes())])
        return pc.binary_join_element_wise(keys, behind, b"")

    def _plain(self, columns: Sequence[pa.Array], n: int) -> pa.Array:
        """Keys without the bounds of windows."""
        if self._json:
            return self._json_keys([columns[i] for i in self._indices])
        column = columns[self._indices[0]]
        layout = _FIXED.get(self._fields[0].type.kind)
        if layout is None:
            return column.cast(pa.string()).view(pa.binary())
        filled = column.fill_null(0) if column.null_count else column
        data = filled.to_numpy(zero_copy_only=False).astype(layout)
        size = data.dtype.itemsize
        offsets = np.arange(0, size * n + 1, size, dtype=np.int32)
        keys = pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(offsets), pa.py_buffer(data.tobytes())])
        return pc.if_else(column.is_valid(), keys, pa.scalar(None, pa.binary())) if column.null_count else keys

    def _json_keys(self, columns: Sequence[pa.Array]) -> pa.Array:
        if self._object is not None:
            keys = self._object.encode(columns)
        else:
            text, plain = text_of(columns[0], self._fields[0].type)
            if plain and self._fields[0].type.kind is Kind.STRING:
                text = pc.binary_join_element_wise('"', text, '"', "")
            keys = text.view(pa.binary())
        if not self._null_key or not all(c.null_count for c in columns):
            return keys
        there = columns[0].is_valid()
        for c in columns[1:]:
            there = pc.or_(there, c.is_valid())
        return pc.if_else(there, keys, pa.scalar(None, pa.binary()))


class Encoder:
    """Encodes batches of one schema for a sink. Holds no data; may be shared between threads. null_key: see `KeyEncoder`."""

    def __init__(self, sink: Sink, schema: Schema, *, null_key: bool = False) -> None:
        self.sink, self.schema = sink, schema
        names = schema.names
        self.key = KeyEncoder(schema, sink.key_format, null_key=null_key, null_group=sink.null_group)
        values = schema.value
        self._value = row_encoder(values, sink.value_format, is_key=False)
        self._pick = picker([names.index(f.name) for f in values])
        self._value_at = [names.index(f.name) for f in values]
        self._text = self._vector_text(values)
        self._time: Time | None = None
        self._time_field: Field | None = None
        if sink.timestamp is not None:
            self._time_field = schema.get(sink.timestamp.column)
            assert self._time_field is not None, f"timestamp column {sink.timestamp.column} is not in the sink"
            self._time = time_reader(self._time_field.type, sink.timestamp.pattern)
            self._time_at = names.index(sink.timestamp.column)

    def _vector_text(self, values: Sequence[Field]) -> JsonText | None:
        fmt, types = self.sink.value_format, [f.type for f in values]
        if fmt.name != "JSON" or (len(values) == 1 and not fmt.wrap) or not JsonText.supports(types):
            return None
        return JsonText([f.name for f in values], types)

    @property
    def has_vector(self) -> bool:
        plain_time = self._time_field is None or self._time_field.type.kind is not Kind.STRING
        return self._text is not None and self.key.has_vector and plain_time

    def encode(self, batch: Batch, run: MicroBatchContext | None = None, vector: bool | None = None) -> pa.RecordBatch:
        """PRODUCE_SCHEMA records in row order: none for UPDATE_BEFORE, a null value for DELETE.

        Rows whose timestamp column cannot be used are dropped, with a dead letter of `run`.
        """
        return self.encode_with_origin(batch, run, vector)[0]

    def encode_with_origin(
        self, batch: Batch, run: MicroBatchContext | None = None, vector: bool | None = None
    ) -> tuple[pa.RecordBatch, Ints]:
        """The records, and the row of `batch` each was made from (to cut them by partition)."""
        if vector is None and run is not None:
            vector = run.vector
        if vector is None:
            vector = len(batch) >= (VECTOR_ROWS if batch.is_columns else FROM_ROWS)
        if vector and self.has_vector:
            return self._by_columns(batch, run)
        return self._by_rows(batch, run)

    def _by_rows(self, batch: Batch, run: MicroBatchContext | None) -> tuple[pa.RecordBatch, Ints]:
        kept: list[int] = []
        times: list[int] = []
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        rowtime = batch.rowtime.tolist()
        encode_key, encode_value, pick = self.key.encode, self._value.encode, self._pick
        for i, (row, op) in enumerate(zip(batch.rows(), batch.op.tolist(), strict=True)):
            if op == UPDATE_BEFORE:
                continue
            time = rowtime[i]
            if self._time is not None and op != DELETE:
                found = self._time_of(row[self._time_at], int(batch.seq[i]), run)
                if found is None:
                    continue
                time = found
            try:
                key, value = encode_key(row), None if op == DELETE else encode_value(pick(row))
            except BadRecord as e:
                if run is None:
                    raise
                run.fail_row(int(batch.seq[i]), e.code, str(e))
                continue
            kept.append(i)
            times.append(time)
            keys.append(key)
            values.append(value)
        headers = None if batch.headers is None else [batch.headers[i] for i in kept]
        records = _records(
            pa.array(times, pa.int64()), pa.array(keys, pa.binary()), pa.array(values, pa.binary()), headers
        )
        return records, np.array(kept, np.int64)

    def _time_of(self, value: Any, seq: int, run: MicroBatchContext | None) -> int | None:
        assert self._time is not None
        assert self._time_field is not None
        try:
            if value is None:
                raise ValueError("it is NULL")
            time = self._time(value)
            if why_not := self.sink.times.why_not(time, 0, of_column=True):
                raise ValueError(why_not)
        except (ValueError, ArithmeticError) as e:
            if run is not None:
                run.fail_row(seq, BAD_TIME, f"timestamp column {self._time_field.name} cannot be used: {e}")
            return None
        return time

    def _by_columns(self, batch: Batch, run: MicroBatchContext | None) -> tuple[pa.RecordBatch, Ints]:
        columns = batch.arrow().columns
        live = batch.op != UPDATE_BEFORE
        times, usable = self._times(columns, batch)
        for i in np.flatnonzero(live & ~usable).tolist():
            self._time_of(columns[self._time_at].slice(i, 1).view(pa.int64())[0].as_py(), int(batch.seq[i]), run)
        live &= usable
        records = self.columns(columns, times, batch.op, batch.headers)
        kept = np.flatnonzero(live)
        return (records, kept) if len(kept) == len(batch) else (records.take(pa.array(kept)), kept)

    def columns(
        self,
        columns: Sequence[pa.Array],
        times: Ints,
        op: npt.NDArray[np.int8] | None = None,
        headers: Headers | None = None,
        values: pa.Array | None = None,
    ) -> pa.RecordBatch:
        """One record per row of the schema's columns (`has_vector`). op: None means that no row is a DELETE.

        values: the values, where they are known already.
        """
        assert self._text is not None
        n = len(times)
        if values is None:
            values = self._text.encode(self.value_columns(columns))
        if op is not None and (deleted := op == DELETE).any():
            values = pc.if_else(pa.array(deleted), pa.scalar(None, pa.binary()), values)
        return _records(pa.array(times, pa.int64()), self.key.columns(columns, n), values, headers)

    def value_columns(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """The columns of the schema that make up the value, in order."""
        return [columns[i] for i in self._value_at]

    def _times(self, columns: Sequence[pa.Array], batch: Batch) -> tuple[Ints, npt.NDArray[np.bool_]]:
        everything = np.ones(len(batch), bool)
        if self._time is None:
            return batch.rowtime, everything
        column = columns[self._time_at].view(pa.int64())
        times = (column.fill_null(NO_TIME) if column.null_count else column).to_numpy(zero_copy_only=False)
        times = np.where(batch.op == DELETE, batch.rowtime, times)
        wanted = self.sink.times
        usable = (times >= wanted.first_ms(of_column=True)) & (times < wanted.latest_ms)
        return times, usable | (batch.op == DELETE)


def _records(times: pa.Array, keys: pa.Array, values: pa.Array, headers: Headers | None) -> pa.RecordBatch:
    n = len(times)
    if headers is None or not any(headers):
        column = pa.nulls(n, HEADERS_TYPE)
    else:
        texts = [None if not h else [{"key": k, "value": v} for k, v in h] for h in headers]
        column = pa.array(texts, HEADERS_TYPE)
    return pa.RecordBatch.from_arrays([times, keys, values, column], schema=PRODUCE_SCHEMA)

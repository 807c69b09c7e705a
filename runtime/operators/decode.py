"""Records of a topic to rows: value, key, window, headers, position and time.

`Decoder` is the shared step per (topic, format, schema): build it for the union of the columns that readers need
(`union_scan`), decode a RawBatch once, give each reader `batch.select(its schema)`. A record that the union cannot read may be
good for a reader of other columns: `flowql.runtime.topology.scans` decodes such records for each reader by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.functions.java_time import parse_timestamp
from flowql.compiler.plan.logical import Scan
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import Kind, SqlType, arrow_type
from flowql.compiler.schemas.ref import DEBEZIUM, is_wrapped, reads_by_name
from flowql.runtime.batch import DELETE, INSERT, Batch, Ints, Row, concat, from_columns, from_rows, to_arrow
from flowql.runtime.clock import SystemClock
from flowql.runtime.errors import BadRecord, FatalRecord, PlanUnsupported
from flowql.runtime.log.base import RawBatch
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.json_scalars import (
    PAD,
    Bools,
    RecordBytes,
    Scalars,
    Spans,
    column,
    integers,
    is_null,
    nullable,
    take,
)
from flowql.runtime.operators.json_scan import JsonScan, Located
from flowql.runtime.operators.key_columns import KeyColumns
from flowql.runtime.operators.keys import picker
from flowql.runtime.operators.mend import Mending
from flowql.runtime.serde.codec import UNREADABLE, row_decoder, what_is_wrong
from flowql.runtime.serde.debezium import DebeziumDecoder
from flowql.runtime.serde.delimited import delimiter_of
from flowql.runtime.serde.windowed import split_window

_SUPPORTED = frozenset(
    {Kind.BOOLEAN, Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL, Kind.STRING, Kind.DATE, Kind.TIME, Kind.TIMESTAMP}
    | {Kind.MICROS}
)
_SPECIAL = (34, 10, 13)  # a quote, and the ends of a line
_MINUS = 45


class DelimitedScan:
    """Decodes lines of CSV, all records of a batch at once: the columns at `places` of the declared ones.

    One pass finds the delimiters of all records. It declines records with another number of fields, quotes or line ends. It also declines
    values that it does not read exactly as `flowql.runtime.serde.delimited` does, such as signs and zeros in front of numbers. Holds no data;
    safe to share between threads.
    """

    def __init__(
        self, names: Sequence[str], types: Sequence[SqlType], places: Sequence[int], count: int, delimiter: str
    ) -> None:
        self._names, self._types, self._places = tuple(names), tuple(types), tuple(places)
        self._count = count
        self._delimiter = ord(delimiter_of(delimiter))

    @staticmethod
    def supports(types: Sequence[SqlType], delimiter: str) -> bool:
        character = delimiter_of(delimiter)
        return len(character) == 1 and character.isascii() and all(t.kind in _SUPPORTED for t in types)

    def locate(
        self, values: pa.Array, *, views: bool = False, unread: frozenset[str] = frozenset()
    ) -> tuple[list[pa.Array], Bools, None]:
        """Columns of n rows, and which rows they are true for. `values`: n non-null binary values (32-bit offsets).

        views: STRING columns are string_view. unread: STRING columns that are not read (they come as nulls).
        """
        data = RecordBytes(values)
        spans, good = self._fields(data)
        good &= data.are_texts(Spans(data.starts, data.ends))
        columns = []
        for name, t, place in zip(self._names, self._types, self._places, strict=True):
            if name in unread and t.kind is Kind.STRING:
                columns.append(pa.nulls(data.rows, pa.string()))
                continue
            found, read = _column(data, spans[place], t)
            good &= read
            columns.append(found)
        return [a.cast(pa.string_view()) if views and a.type == pa.string() else a for a in columns], good, None

    def _fields(self, data: RecordBytes) -> tuple[list[Spans], Bools]:
        """Where the fields lie, and in which records they do."""
        found = np.flatnonzero(data.data == self._delimiter) + PAD
        first = np.searchsorted(found, data.starts)
        good: Bools = (np.searchsorted(found, data.ends) - first == self._count - 1) & (data.ends > data.starts)
        for special in _SPECIAL:
            places = np.flatnonzero(data.data == special) + PAD
            if len(places):
                good[np.searchsorted(data.ends, places, side="right")] = False
        known = np.append(found, data.ends[-1:])  # so that a record without any has a place to look at
        borders: list[Ints] = [data.starts - 1]
        borders += [
            np.where(good, known[np.minimum(first + k, len(found))], data.starts) for k in range(self._count - 1)
        ]
        borders.append(np.where(good, data.ends, data.starts))
        return [Spans(a + 1, np.maximum(b, a + 1)) for a, b in pairwise(borders)], good


def _column(data: RecordBytes, span: Spans, t: SqlType) -> tuple[pa.Array, Bools]:
    """The column of one field, and the rows it is true for; an empty field is NULL."""
    present = span.end > span.start
    if t.kind is Kind.STRING:
        return nullable(data.texts(span), present), np.ones(data.rows, bool)
    values = Scalars.read(data.words, span)
    found, good = column(values, integers(values), t)
    good = good & ~is_null(values)  # a word like any other here
    if t.kind is Kind.DOUBLE:  # -0 has a sign
        zero = pc.fill_null(pc.equal(found, 0.0), fill_value=False).to_numpy(zero_copy_only=False)
        good &= ~zero | (data.bytes[span.start] != _MINUS)
    return nullable(found if found.type == arrow_type(t) else found.cast(arrow_type(t)), present), good | ~present


VECTOR_ROWS = 256  # measured: below, the fixed 0.45 ms of the vector decoder exceed 2.2 us per row
RETRY_BATCHES = 32  # after a batch that the vector decoder mostly declined, as many go by rows before it is tried again
NULL_KEY, BAD_TIME = "FQ4022", "FQ4023"
NO_TIME = np.iinfo(np.int64).min  # of a column that gives none; in no range
_HEADERS = ("KEY", "VALUE")
Time = Callable[[Any], int]
WallTime = Callable[[], int]


class ValueScan(Protocol):
    """Values of records to columns, all rows at once."""

    def locate(
        self, values: pa.Array, *, views: bool = False, unread: frozenset[str] = frozenset()
    ) -> tuple[list[pa.Array], Bools, Located | None]:
        """Columns of n rows, which rows they are true for, and where the values lie if that is known of all of these."""
        ...


class _Skip(Exception):
    """A record that gives no row: (code, message)."""


class _Nothing(Exception):
    """A record that says nothing of any row."""


def union_scan(scans: Sequence[tuple[Scan, Schema]]) -> tuple[Scan, Schema]:
    """One scan with the columns of all: the same source, format and timestamp is the caller's condition for sharing."""
    scan, first = scans[0]
    fields: dict[str, Field] = {f.name: f for f in first.fields}
    for other, schema in scans[1:]:
        assert (other.topic, other.kind, other.timestamp) == (scan.topic, scan.kind, scan.timestamp), "not shareable"
        assert (other.key_format, other.value_format) == (scan.key_format, scan.value_format), "not shareable"
        for f in schema.fields:
            assert fields.setdefault(f.name, f) == f, f"column {f.name} is declared differently"
    order = {role: i for i, role in enumerate(("key", "window", "value", "header", "pseudo"))}
    place = {f.name: i for i, f in enumerate(scan.declared.fields)}
    merged = sorted(fields.values(), key=lambda f: (order[f.role], place.get(f.name, 0)))
    return scan, Schema(tuple(merged), first.window)


def time_reader(t: SqlType, pattern: str) -> Time:
    """A record's time from a non-null column value. The reader raises ValueError."""
    if t.kind is Kind.STRING and pattern:
        return lambda v: parse_timestamp(v, pattern)
    if t.kind in (Kind.BIGINT, Kind.TIMESTAMP):
        return lambda v: int(v)
    raise PlanUnsupported(f"a timestamp column is BIGINT, TIMESTAMP or STRING with a format, not {t}")


class Decoder:
    """Decodes raw batches into rows of `schema`. Holds no data; may be shared between threads."""

    def __init__(self, scan: Scan, schema: Schema, wall_ms: WallTime | None = None) -> None:
        """wall_ms: the wall clock, for sources that say how far a record may be ahead of it."""
        self.schema, self._wall_ms = schema, wall_ms or SystemClock().wall_ms
        declared_keys = scan.declared.key or schema.key
        self._time_field = self._find_time(scan, schema)
        values = list(schema.value)
        if self._time_field is not None and schema.get(self._time_field.name) is None:
            values.append(self._time_field)
        declared_values = scan.declared.value or schema.value
        self._unwanted: frozenset[str] = frozenset()
        if reads_by_name(scan.value_format, declared_values):
            # Such a record is bad by its structure or by what is read of it, whatever else its source declares.
            scan = replace(scan, value_format=replace(scan.value_format, wrap=True))
            declared_values = tuple(values)
        else:  # of a line of CSV, or of one bare value, all declared columns are the structure
            known = {v.name for v in values}
            others = [f for f in declared_values if f.name not in known]
            self._unwanted = frozenset(f.name for f in others if f.type.kind is Kind.STRING)
            values += others
        self.scan = scan
        self._value_fields = tuple(values)
        self._windows = tuple(f for f in schema.fields if f.role == "window")
        self._extra = tuple(f for f in schema.fields if f.role in ("header", "pseudo"))
        self._key = row_decoder(schema.key, scan.key_format, declared_keys, is_key=True) if schema.key else None
        self._value = row_decoder(values, scan.value_format, declared_values, is_key=False)
        self._events = DebeziumDecoder(schema.key, values) if scan.value_format.name == DEBEZIUM else None
        self._mending = Mending.of(scan, values, declared_values)
        layout = [f.name for f in (*schema.key, *self._windows, *values, *self._extra)]
        self._arrange = None if tuple(layout) == schema.names else picker([layout.index(n) for n in schema.names])
        self._time: Time | None = None
        self._time_at = -1
        if self._time_field is not None and scan.timestamp is not None:
            self._time = time_reader(self._time_field.type, scan.timestamp.pattern)
            self._time_at = layout.index(self._time_field.name)
        self._skip = 0  # batches to go by rows; threads may race on it, at worst for one more try
        self._no_values: Row = (None,) * len(values)
        self._scan_columns = self._vector_scan(declared_values)
        self._key_columns = KeyColumns.of(schema, scan.key_format)

    @staticmethod
    def _find_time(scan: Scan, schema: Schema) -> Field | None:
        if scan.timestamp is None:
            return None
        field = schema.get(scan.timestamp.column) or scan.declared.get(scan.timestamp.column)
        assert field is not None, f"timestamp column {scan.timestamp.column} is not declared"
        return field

    def _vector_scan(self, declared: Sequence[Field]) -> ValueScan | None:
        fmt = self.scan.value_format
        names, types = [f.name for f in self._value_fields], [f.type for f in self._value_fields]
        if not is_wrapped(fmt, declared, is_key=False):
            return None
        if fmt.name == "JSON" and JsonScan.supports(types):
            return JsonScan(names, types, standard=fmt.standard)
        if fmt.name == "AVRO":
            from flowql.runtime.operators.avro_scan import AvroScan  # fastavro: 0.01 s, which most projects do without

            return AvroScan(names, types, fmt.schema) if AvroScan.supports(types, fmt.schema) else None
        if fmt.name == "DELIMITED" and DelimitedScan.supports(types, fmt.delimiter):
            places = [[f.name for f in declared].index(n) for n in names]
            return DelimitedScan(names, types, places, len(declared), fmt.delimiter)
        return None

    @property
    def locates(self) -> bool:
        """Whether the vector path says where values lie, so that their texts can be passed on."""
        return isinstance(self._scan_columns, JsonScan)

    @property
    def has_vector(self) -> bool:
        return self._scan_columns is not None and self._key_columns is not None

    def takes_columns(self, rows: int, forced: bool | None) -> bool:
        """Whether a batch of that size is to take the vector path. Both paths give the same rows: only the cost differs."""
        if not self.has_vector or forced is not None:
            return self.has_vector and bool(forced)
        if rows < VECTOR_ROWS:
            return False
        self._skip = max(self._skip - 1, -1)
        return self._skip < 0

    def decode(
        self, raw: RawBatch, run: MicroBatchContext, first_seq: int | Ints = 0, vector: bool | None = None
    ) -> Batch:
        """The rows of a raw batch, in order; records that give none are dead letters of `run`.

        first_seq: the `seq` of the first record, or one per record. vector: None = by size (`run.vector` also counts).
        """
        n = raw.records.num_rows
        seq = np.arange(first_seq, first_seq + n, dtype=np.int64) if isinstance(first_seq, int) else first_seq
        if self.takes_columns(n, run.vector if vector is None else vector):
            return self._by_columns(raw, run, seq)
        return self._by_rows(raw, run, seq, None)

    # --- row path -----------------------------------------------------------------------------------------------

    def _by_rows(self, raw: RawBatch, run: MicroBatchContext, seq: Ints, only: Ints | None) -> Batch:
        """The rows of the records at `only` (all for None) by the reference codecs."""
        records = raw.records if only is None else raw.records.take(pa.array(only))
        if only is not None:
            seq = seq[only]
        offsets, times, keys, values, headers = (c.to_pylist() for c in records.columns)
        has_headers = any(headers)
        rows: list[Row] = []
        rowtime: list[int] = []
        op: list[int] = []
        kept: list[int] = []
        for i, (key, value) in enumerate(zip(keys, values, strict=True)):
            try:
                row, null = self._row(key, value, headers[i], raw.tp.partition, offsets[i])
                time = self._time_of(row, times[i], null=null)
            except UNREADABLE as e:
                run.fail_row(int(seq[i]), e.code if isinstance(e, BadRecord) else BadRecord.code, what_is_wrong(e))
                continue
            except _Skip as e:
                run.fail_row(int(seq[i]), *e.args)
                continue
            except _Nothing:
                continue
            rows.append(row if self._arrange is None else self._arrange(row))
            rowtime.append(time)
            op.append(DELETE if null else INSERT)
            kept.append(i)
        forwarded = [_pairs(headers[i]) for i in kept] if has_headers else None
        return from_rows(self.schema, rows, rowtime, op, seq[kept] if len(kept) < len(keys) else seq, forwarded)

    def _row(self, key: Any, value: Any, headers: Any, partition: int, offset: int) -> tuple[Row, bool]:
        """All columns in the decoder's own layout, and whether the value is null. Raises BadRecord and _Skip."""
        if self._events is not None:
            event = self._events.decode(key, value)
            if event is None:
                raise _Nothing
            row, values = event
        else:
            row, values = self._key_row(key), None
        no_key = key is None or not self.scan.null_group
        if self.scan.kind == "table" and self.schema.key and no_key and all(v is None for v in row):
            raise _Skip(NULL_KEY, "a record of a table needs a key")
        if self._events is None:
            values = self._values(value, partition, offset)
        row += self._no_values if values is None else values
        if self._extra:
            row += tuple(_extra_value(f, headers, partition, offset) for f in self._extra)
        return row, values is None

    def _values(self, value: Any, partition: int, offset: int) -> Row | None:
        try:
            return self._value.decode(value)
        except UNREADABLE:
            if self._mending is None:
                raise
        try:
            return self._mending.decode(value)
        except FatalRecord as error:
            raise FatalRecord(f"{self.scan.topic}/{partition}@{offset}: {error}") from error

    def _key_row(self, key: Any) -> Row:
        if self._key is None and self.schema.window is None:
            return ()
        bounds: Row = ()
        if self.schema.window is not None:
            start, end = None, None
            if key is not None:
                key, start, end = split_window(key, self.schema.window)
            bounds = tuple(start if f.name == "WINDOWSTART" else end for f in self._windows)
        decoded = None if self._key is None else self._key.decode(key)
        return (decoded if decoded is not None else (None,) * len(self.schema.key)) + bounds

    def _time_of(self, row: Row, recorded: int, *, null: bool) -> int:
        own = self._time is None or self._time_field is None or (null and self._time_field.role == "value")
        what = "the time of the record" if own else f"timestamp column {self.scan.timestamp.column}"  # type: ignore[union-attr]
        try:
            time = recorded if own else self._column_time(row[self._time_at])
            if why_not := self.scan.times.why_not(time, self._wall_ms(), of_column=not own):
                raise ValueError(why_not)
        except (ValueError, ArithmeticError) as e:
            message = f"{what} cannot be used: {e}"
            if self.scan.throw_on_invalid_timestamp:
                raise FatalRecord(message) from e
            raise _Skip(BAD_TIME, message) from e
        return time

    def _column_time(self, value: Any) -> int:
        assert self._time is not None
        if value is None:
            raise ValueError("it is NULL")
        return self._time(value)

    # --- vector path --------------------------------------------------------------------------------------------

    def _by_columns(self, raw: RawBatch, run: MicroBatchContext, seq: Ints) -> Batch:
        try:
            good, fast = self.columns(raw)
        except (*UNREADABLE, pa.ArrowTypeError, pa.lib.ArrowCapacityError):  # one by one it is known whose value it is
            return self._by_rows(raw, run, seq, None)
        rest = np.flatnonzero(~good)
        if not len(rest):
            return self._batch_of(fast, seq)
        slow = self._by_rows(raw, run, seq, rest)
        kept = np.flatnonzero(good)
        if not len(kept):
            return slow
        both = concat(self.schema, [self._batch_of(fast, seq[kept]), slow])
        return both.take(np.argsort(both.seq, kind="stable"))

    @property
    def value_names(self) -> tuple[str, ...]:
        """The columns read from the value, in the order of `Located.places`."""
        return tuple(f.name for f in self._value_fields)

    def columns(
        self, raw: RawBatch, *, views: bool = False, unread: frozenset[str] = frozenset()
    ) -> tuple[Any, FastRows]:
        """Which records the vector path can read, and these records' columns (see `FastRows`).

        unread: STRING columns that need not be read where the rows are located (they are null then).
        """
        assert self._scan_columns is not None
        assert self._key_columns is not None
        records = raw.records
        n = records.num_rows
        values = records.column("value")
        live = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else None
        if values.null_count:
            values = pc.fill_null(values, b"")
        arrays, good, located = self._scan_columns.locate(values, views=views, unread=unread | self._unwanted)
        if unread and located is None:
            arrays, good, _ = self._scan_columns.locate(values, views=views, unread=self._unwanted)
        matched = np.flatnonzero(good) if located is not None else None
        if live is not None:
            good &= live
        keys, keys_good = self._key_columns.decode(records.column("key"), is_table=self.scan.kind == "table")
        if keys_good is not None:
            good &= keys_good
        if 2 * int(np.count_nonzero(good)) < n:
            self._skip = RETRY_BATCHES
        named = dict(zip((f.name for f in (*self.schema.key, *self._windows)), keys, strict=True))
        named |= zip((f.name for f in self._value_fields), arrays, strict=True)
        times = self._times(records, named, good)
        headers = records.column("headers")
        has_headers = headers.null_count < n
        if self._extra:
            self._add_extra(named, records, raw.tp.partition, has_headers=has_headers)
        columns = [named[name] for name in self.schema.names]
        forwarded = [_pairs(h) for h in headers.to_pylist()] if has_headers else None
        if good.all():
            return good, FastRows(columns, times, forwarded, located)
        kept = np.flatnonzero(good)
        rows = FastRows(columns, times, forwarded).take(kept)
        if located is not None and matched is not None:
            rows.located = located.take(np.searchsorted(matched, kept))
        return good, rows

    def _times(self, records: pa.RecordBatch, named: dict[str, pa.Array], good: Any) -> Ints:
        """The times of all records; those with an unusable time are declined to the row path, which reports the reason."""
        if self._time is None or self._time_field is None:
            times: Ints = records.column("timestamp").to_numpy()
        elif self._time_field.type.kind is Kind.STRING:
            times = self._text_times(named[self._time_field.name])
        else:
            column = named[self._time_field.name].view(pa.int64())
            times = (pc.fill_null(column, NO_TIME) if column.null_count else column).to_numpy(zero_copy_only=False)
        wanted = self.scan.times
        first, last = wanted.first_ms(of_column=self._time is not None), wanted.end_ms(self._wall_ms()) - 1
        if len(times) and (times.min() < first or times.max() > last):
            good &= (times >= first) & (times <= last)
        return times

    def _text_times(self, column: pa.Array) -> Ints:
        """Each distinct text is read once."""
        assert self._time is not None
        encoded = column.cast(pa.string()).dictionary_encode()
        known = np.full(len(encoded.dictionary) + 1, NO_TIME, np.int64)
        for i, text in enumerate(encoded.dictionary.to_pylist()):
            try:
                known[i] = self._time(text)
            except (ValueError, ArithmeticError):  # OverflowError too
                continue
        return known[pc.fill_null(encoded.indices, len(known) - 1).to_numpy(zero_copy_only=False)]

    def _add_extra(
        self, named: dict[str, pa.Array], records: pa.RecordBatch, partition: int, *, has_headers: bool
    ) -> None:
        n = records.num_rows
        for f in self._extra:
            if f.role == "pseudo":
                source = records.column("offset") if f.name == "ROWOFFSET" else pa.array(np.full(n, partition))
                named[f.name] = source.cast(arrow_type(f.type))
            elif not has_headers and f.header_key:
                named[f.name] = pa.nulls(n, arrow_type(f.type))
            else:
                values = [_extra_value(f, h, 0, 0) for h in records.column("headers").to_pylist()]
                named[f.name] = to_arrow(values, f.type)

    def _batch_of(self, fast: FastRows, seq: Ints) -> Batch:
        return from_columns(self.schema, fast.columns, fast.rowtime, seq=seq, headers=fast.headers)


class FastRows:
    """Columns in schema order (STRING maybe as views), times and headers of records with a value; all INSERT."""

    __slots__ = ("columns", "headers", "located", "rowtime")

    def __init__(
        self, columns: list[pa.Array], rowtime: Ints, headers: list[Any] | None, located: Located | None = None
    ) -> None:
        self.columns, self.rowtime, self.headers = columns, rowtime, headers
        self.located = located  # where the values of these rows lie, when they all have one shape

    def __len__(self) -> int:
        return len(self.rowtime)

    def take(self, indices: Ints) -> FastRows:
        chosen = pa.array(indices)
        headers = None if self.headers is None else [self.headers[i] for i in indices]
        located = None if self.located is None else self.located.take(indices)
        return FastRows([take(c, chosen) for c in self.columns], self.rowtime[indices], headers, located)


def _pairs(headers: Any) -> list[tuple[str, bytes | None]] | None:
    return None if not headers else [(h["key"], h["value"]) for h in headers]


def _extra_value(f: Field, headers: Any, partition: int, offset: int) -> Any:
    if f.role == "pseudo":
        return offset if f.name == "ROWOFFSET" else partition
    if f.header_key:
        return next((h["value"] for h in reversed(headers or ()) if h["key"] == f.header_key), None)
    return [dict(zip(_HEADERS, (h["key"], h["value"]), strict=True)) for h in headers or ()]

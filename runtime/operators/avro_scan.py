"""Flat Avro records to Arrow columns, field by field over all records of a batch: what the vector kernels decode with.

A field begins where the one before it ended, in every record somewhere else, so the walk keeps one place per record and
takes a step for each field of the writer's schema: a length or number of up to eight bytes is read as one word and put
together from its groups of seven bits at once. Whatever is not read with exactly the meaning of `flowql.runtime.serde.avro`, the
reference, is *declined* and goes there: records of another shape than their schema, numbers of more than eight bytes, values
out of the range of their column, texts that are no UTF-8, and all records of a schema with anything but plain fields.

Up to `SCHEMAS_MAX` schemas per batch, by the ids in front of the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.functions.numeric import INT_MAX, INT_MIN
from flowql.compiler.functions.temporal import DAY_MS
from flowql.compiler.plan.logical import SchemaRef
from flowql.compiler.plan.types import Kind, SqlType, arrow_type
from flowql.runtime.batch import Ints
from flowql.runtime.errors import BadRecord
from flowql.runtime.operators.json_scalars import Bools, RecordBytes, Spans, as_bytes, nullable
from flowql.runtime.serde.avro import parsed, time_of
from flowql.runtime.serde.generic import same_name
from flowql.runtime.serde.numbers import TIMES, TimeNumber
from flowql.runtime.serde.registry import PREFIX, written_by

SCHEMAS_MAX = 4
_TimeNumbers = type[TimeNumber]
DECIMAL_BYTES_MAX = 8
_STOPS = np.uint64(0x8080808080808080)
# The kinds as which a field of each Avro type may be read; the reference converts some more, value by value.
_READ_AS: dict[str, tuple[Kind, ...]] = {
    "boolean": (Kind.BOOLEAN,),
    "int": (Kind.INT, Kind.BIGINT, Kind.DOUBLE, *TIMES),
    "long": (Kind.INT, Kind.BIGINT, Kind.DOUBLE, *TIMES),
    "float": (Kind.DOUBLE,),
    "double": (Kind.DOUBLE,),
    "string": (Kind.STRING,),
    "enum": (Kind.STRING,),
    "bytes": (Kind.BYTES,),
    "decimal": (Kind.DECIMAL,),
}
_RANGES = {Kind.INT: (INT_MIN, INT_MAX), Kind.DATE: (INT_MIN, INT_MAX), Kind.TIME: (0, DAY_MS - 1)}


_MICROS_PER_MS = 1_000
_MILLIS_MAX = 9_000_000_000_000_000  # that have microseconds within 64 bits


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of the writer's schema. null: the branch of a union that is null, or None. scale: of a decimal. time: what a number counts."""

    name: str
    type: str
    null: int | None = None
    symbols: tuple[str, ...] = ()
    scale: int = 0
    time: _TimeNumbers | None = None


@lru_cache(maxsize=256)
def flat_fields(text: str) -> tuple[AvroField, ...] | None:
    """The fields of a schema that has plain ones only, each maybe in a union with null; None for any other."""
    try:
        schema = parsed(text)
    except ValueError:
        return None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return None
    found = [_flat(f["name"], f["type"]) for f in schema["fields"]]
    return None if None in found else tuple(f for f in found if f is not None)


def _flat(name: str, schema: Any, null: int | None = None) -> AvroField | None:
    if isinstance(schema, str):
        return AvroField(name, schema, null) if schema in _READ_AS and schema != "enum" else None
    if isinstance(schema, list):
        if len(schema) != 2 or "null" not in schema or null is not None:
            return None
        return _flat(name, schema[1 - schema.index("null")], schema.index("null"))
    if schema["type"] == "enum":
        return AvroField(name, "enum", null, symbols=tuple(schema["symbols"]))
    if schema["type"] == "bytes" and schema.get("logicalType") == "decimal":
        return AvroField(name, "decimal", null, scale=schema.get("scale", 0))
    inner = _flat(name, schema["type"], null) if isinstance(schema["type"], str) else None
    return None if inner is None else replace(inner, time=time_of(schema))


class AvroScan:
    """Decodes the wanted columns of flat records. Holds no data; safe to share between threads."""

    def __init__(self, names: Sequence[str], types: Sequence[SqlType], ref: SchemaRef | None) -> None:
        self._names, self._types, self._ref = tuple(names), tuple(types), ref

    @staticmethod
    def supports(types: Sequence[SqlType], ref: SchemaRef | None) -> bool:
        """Whether records of that schema may be read so."""
        plain = all(any(t.kind in kinds for kinds in _READ_AS.values()) for t in types)
        return plain and ref is not None and flat_fields(ref.text) is not None

    def locate(
        self, values: pa.Array, *, views: bool = False, unread: frozenset[str] = frozenset()
    ) -> tuple[list[pa.Array], Bools, None]:
        """Columns of n rows, and which rows they are true for. `values`: n non-null binary values (32-bit offsets).

        views: STRING columns are string_view. unread: STRING columns that are proven but not read (they come as nulls).
        """
        walk = _Walk(values)
        ok = np.zeros(walk.rows, bool)
        columns: list[pa.Array] | None = None
        for schema_id in walk.schema_ids():
            fields = self._fields(int(schema_id))
            if fields is None:
                continue
            mine = (walk.ids == schema_id) & walk.prefixed
            found, good = self._columns(walk, fields, mine, unread)
            columns = found if columns is None else [_either(mine, a, b) for a, b in zip(found, columns, strict=True)]
            ok |= good
        done = columns or [pa.nulls(walk.rows, arrow_type(t)) for t in self._types]
        return [a.cast(pa.string_view()) if views and a.type == pa.string() else a for a in done], ok, None

    def _fields(self, schema_id: int) -> tuple[AvroField, ...] | None:
        try:
            return flat_fields(written_by(schema_id, self._ref, "AVRO").text)
        except BadRecord:  # the reference says so
            return None

    def _columns(
        self, walk: _Walk, fields: tuple[AvroField, ...], rows: Bools, unread: frozenset[str]
    ) -> tuple[list[pa.Array], Bools]:
        """The columns of all rows, true for those of `rows` that the walk gets through."""
        step = _Steps(walk, rows)
        names = tuple(f.name for f in fields)
        readers = [same_name(n, names) for n in self._names]
        columns: list[pa.Array | None] = [None] * len(self._names)
        for field in fields:
            value = step.take(field)
            mine = [c for c, name in enumerate(readers) if name == field.name]
            if all(self._names[c] in unread for c in mine):
                step.prove(value, field)
                continue
            for c in mine:
                columns[c] = step.column(value, field, self._types[c])
        good = step.finished()
        return [
            pa.nulls(walk.rows, arrow_type(t)) if a is None else a for a, t in zip(columns, self._types, strict=True)
        ], good


def _either(mine: Bools, a: pa.Array, b: pa.Array) -> pa.Array:
    return pc.if_else(pa.array(mine), a, b)


class _Walk(RecordBytes):
    """With the ids of the schemas that stand in front of the records."""

    def __init__(self, values: pa.Array) -> None:
        super().__init__(values)
        head = self.words[self.starts]
        self.prefixed: Bools = (self.ends - self.starts >= PREFIX) & ((head & np.uint64(0xFF)) == 0)
        self.ids = (head.byteswap() >> np.uint64(24)).astype(np.int64) & 0xFFFF_FFFF

    def schema_ids(self) -> Ints:
        """The ids that records name: the most frequent ones."""
        ids, counts = np.unique(self.ids[self.prefixed], return_counts=True)
        found: Ints = ids[np.argsort(-counts)][:SCHEMAS_MAX]
        return found


@dataclass(frozen=True, slots=True)
class _Value:
    """A field's value in each row: a number (its bits), or a span of bytes; `present`: it is not null."""

    present: Bools
    number: npt.NDArray[Any] | None = None
    span: Spans | None = None


class _Steps:
    """One place per row, moved from field to field. `good` loses the rows that are not read."""

    def __init__(self, walk: _Walk, mine: Bools) -> None:
        self._walk = walk
        self._good = mine.copy()
        self._at = np.where(mine, walk.starts + PREFIX, walk.ends)

    def finished(self) -> Bools:
        self._good &= self._at == self._walk.ends
        return self._good

    def take(self, field: AvroField) -> _Value:
        """Read a field and go behind it."""
        present = np.ones(self._walk.rows, bool)
        if field.null is not None:
            branch = self._byte()
            self._move(1)
            present = branch == (0 if field.null else 2)  # zigzag: 0, 2 for branches 0, 1
            self._good &= present | (branch == (2 if field.null else 0))
        match field.type:
            case "int" | "long" | "enum":
                number, length = self._number()
                self._move(np.where(present, length, 0))
                return _Value(present, number)
            case "boolean":
                byte = self._byte()
                self._good &= ~present | (byte <= 1)
                self._move(present.astype(np.int64))
                return _Value(present, byte == 1)
            case "float" | "double":
                word = self._walk.words[self._at]
                self._move(np.where(present, 4 if field.type == "float" else 8, 0))
                if field.type == "double":
                    return _Value(present, word.view(np.float64))
                short = (word & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32)
                with np.errstate(invalid="ignore"):  # bits of a signalling NaN, of a record or of none
                    return _Value(present, short.astype(np.float64))
        size, length = self._number()
        self._good &= ~present | (size >= 0)
        self._move(np.where(present, length, 0))
        start = self._at.copy()
        self._move(np.where(present & (size > 0), size, 0))
        return _Value(present, span=Spans(start, self._at.copy()))

    def _byte(self) -> npt.NDArray[np.uint8]:
        byte: npt.NDArray[np.uint8] = self._walk.bytes[self._at]
        return byte

    def _move(self, by: Any) -> None:
        """Further on, but not out of the record: rows that would are not good."""
        left = self._walk.ends - self._at
        beyond = by > left
        if beyond.any():
            self._good &= ~beyond
            by = np.minimum(by, left)
        self._at = self._at + by

    def _number(self) -> tuple[Ints, Ints]:
        """The zigzag number at each place, and of how many bytes it is. Longer ones are not good."""
        word = self._walk.words[self._at]
        stops = ~word & _STOPS
        long = stops == 0
        if long.any():
            self._good &= ~long
        kept = stops ^ (stops - np.uint64(1))  # the bytes up to the first that has no successor
        x = word & kept & ~_STOPS
        x = (x & np.uint64(0x007F007F007F007F)) | ((x & np.uint64(0x7F007F007F007F00)) >> np.uint64(1))
        x = (x & np.uint64(0x00003FFF00003FFF)) | ((x & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2))
        x = (x & np.uint64(0x000000000FFFFFFF)) | ((x & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4))
        value = (x >> np.uint64(1)).view(np.int64) ^ -(x & np.uint64(1)).view(np.int64)
        length = (np.bitwise_count(kept) >> 3).astype(np.int64)
        return value, np.where(long, 0, length)

    def prove(self, value: _Value, field: AvroField) -> None:
        """Checks a field that no query reads, as the reference decodes it, too."""
        if field.type == "string":
            assert value.span is not None
            self._good &= self._walk.are_texts(value.span)
        elif field.type == "enum":
            self._symbols(value, field)

    def column(self, value: _Value, field: AvroField, t: SqlType) -> pa.Array:
        """The column of type `t`."""
        self.prove(value, field)
        other_time = field.time is not None and t.kind in TIMES and not field.time.counts(t.kind)
        if other_time or t.kind not in _READ_AS[field.type]:
            self._good &= ~value.present  # converted value by value
            return pa.nulls(self._walk.rows, arrow_type(t))
        if field.type == "enum":
            return self._symbols(value, field)
        if value.span is None:
            assert value.number is not None
            number = value.number
            if field.time is not None and t.kind in TIMES:
                number = self._in_unit(number, value.present, field.time, t)
            return self._numbers(number, value.present, t)
        if field.type == "decimal":
            return self._decimals(value.span, value.present, field, t)
        texts = self._walk.texts(value.span)
        return nullable(texts if field.type == "string" else as_bytes(texts), value.present)

    def _in_unit(self, number: npt.NDArray[Any], present: Bools, time: _TimeNumbers, t: SqlType) -> npt.NDArray[Any]:
        """Times as the column counts them."""
        if t.kind is not Kind.MICROS:
            return number // time.per_ms
        if time.per_ms >= _MICROS_PER_MS:
            return number // (time.per_ms // _MICROS_PER_MS)
        fits = np.abs(number) < _MILLIS_MAX
        self._good &= ~present | fits
        return np.where(fits, number, 0) * (_MICROS_PER_MS // time.per_ms)

    def _numbers(self, number: npt.NDArray[Any], present: Bools, t: SqlType) -> pa.Array:
        absent = None if present.all() else ~present
        if t.kind in (Kind.DOUBLE, Kind.BOOLEAN):
            return pa.array(number.astype(np.float64) if t.kind is Kind.DOUBLE else number, mask=absent)
        if t.kind in _RANGES:
            low, high = _RANGES[t.kind]
            self._good &= ~present | ((number >= low) & (number <= high))
            number = number.astype(np.int32)
        made = pa.array(number, mask=absent)
        return made if t.kind in (Kind.INT, Kind.BIGINT) else made.view(arrow_type(t))

    def _symbols(self, value: _Value, field: AvroField) -> pa.Array:
        assert value.number is not None
        known = (value.number >= 0) & (value.number < len(field.symbols))
        self._good &= ~value.present | known
        places = pa.array(np.where(known, value.number, 0), mask=~(value.present & known))
        return pa.array(field.symbols, pa.string()).take(places)

    def _decimals(self, span: Spans, present: Bools, field: AvroField, t: SqlType) -> pa.Array:
        """Two's complement, the highest byte first; those of at most eight bytes at the scale of the column."""
        size = span.end - span.start
        fits = (size > 0) & (size <= DECIMAL_BYTES_MAX)
        shift = (64 - 8 * np.clip(size, 1, DECIMAL_BYTES_MAX)).astype(np.int64)
        low = self._walk.words[span.start].byteswap().view(np.int64) >> shift
        if t.precision < 19:
            fits &= np.abs(low) < 10**t.precision
        if field.scale != t.scale:
            fits &= False
        self._good &= ~present | fits
        both = np.empty((len(low), 2), np.int64)
        both[:, 0], both[:, 1] = low, low >> 63
        return nullable(pa.Array.from_buffers(arrow_type(t), len(low), [None, pa.py_buffer(both)]), present & fits)

"""AVRO: a zero byte, the schema's id and one Avro value (fastavro). Records are read with the schema they were written with.

Dates and times stay the numbers that Avro stores, so their logical types are taken off before fastavro sees a schema.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fastavro
from fastavro.read import LOGICAL_READERS
from fastavro.schema import SchemaParseException

from flowql.compiler.plan.logical import SchemaRef
from flowql.compiler.plan.types import Kind, SqlType
from flowql.compiler.schemas.avro import branch_name
from flowql.runtime.batch import Row
from flowql.runtime.errors import BadRecord
from flowql.runtime.serde.generic import reader, same_name, struct_reader
from flowql.runtime.serde.numbers import NAMED_TIMES, TIMES, TimeNumber
from flowql.runtime.serde.registry import PREFIX, numbered, prefix, split_prefix, written_by

Convert = Callable[[Any], Any]
_SCHEMAS_MAX = 1_000
_MICROS, _NANOS = 1_000, 1_000_000
# The unit of a number, by the base type and the logical type of its schema; Avro's specification has all other pairs ignored.
_TIMES: dict[tuple[str, str], type[TimeNumber]] = {
    ("int", "date"): TimeNumber.of(Kind.DATE, 1),
    ("int", "time-millis"): TimeNumber.of(Kind.TIME, 1),
    ("long", "time-micros"): TimeNumber.of(Kind.TIME, _MICROS),
    ("long", "timestamp-millis"): TimeNumber.of(Kind.TIMESTAMP, 1),
    ("long", "timestamp-micros"): TimeNumber.of(Kind.TIMESTAMP, _MICROS),
    ("long", "timestamp-nanos"): TimeNumber.of(Kind.TIMESTAMP, _NANOS),
    ("long", "local-timestamp-millis"): TimeNumber.of(Kind.TIMESTAMP, 1),
    ("long", "local-timestamp-micros"): TimeNumber.of(Kind.TIMESTAMP, _MICROS),
    ("long", "local-timestamp-nanos"): TimeNumber.of(Kind.TIMESTAMP, _NANOS),
    # Debezium's, which stand as `connect.name`, without a logical type.
    **{
        ("int" if name.endswith((".Date", ".Time")) else "long", name): t
        for name, t in NAMED_TIMES.items()
        if name.startswith("io.debezium.")
    },
}
_OURS = "flowql."  # before names of logical types that fastavro reads by functions of ours


def _counting(counted: type[TimeNumber]) -> Callable[[int, Any, Any], int]:
    return lambda number, _writer, _reader: counted(number)


LOGICAL_READERS.update({f"{base}-{_OURS}{name}": _counting(t) for (base, name), t in _TIMES.items()})


def time_of(schema: Any) -> type[TimeNumber] | None:
    """The unit of a schema's numbers (the schema comes from `parsed`); None if it has no unit."""
    logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
    return _TIMES.get((schema["type"], logical.removeprefix(_OURS))) if logical.startswith(_OURS) else None


@functools.lru_cache(maxsize=_SCHEMAS_MAX)
def parsed(text: str) -> Any:
    """A schema ready for fastavro. Raises ValueError."""
    try:
        return fastavro.parse_schema(_plain(_document(text)))
    except (SchemaParseException, KeyError, TypeError, AttributeError) as error:  # fastavro's, and its slips
        raise ValueError(f"not an Avro schema: {error}") from error


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a bare type name


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {k: v for k, v in schema.items() if k != "logicalType" or v == "decimal"}
    if isinstance(kept.get("type"), (dict, list)):
        kept["type"] = _plain(kept["type"])
    else:
        names = [str(schema.get(k)) for k in ("logicalType", "connect.name")]
        known = next((n for n in names if (kept.get("type"), n) in _TIMES), None)
        if known is not None:
            kept["logicalType"] = _OURS + known
    for part in ("items", "values"):
        if part in kept:
            kept[part] = _plain(kept[part])
    if "fields" in kept:
        kept["fields"] = [{**f, "type": _plain(f["type"])} for f in kept["fields"]]
    return kept


class AvroDecoder:
    """Reads the wanted ones of the declared columns."""

    def __init__(
        self,
        names: Sequence[str],
        types: Sequence[SqlType],
        wanted: Sequence[int],
        ref: SchemaRef | None,
        *,
        wrapped: bool,
    ) -> None:
        self._read = struct_reader([(names[i], types[i]) for i in wanted])
        self._single = reader(types[0]) if not wrapped else None
        self._wanted = len(wanted)
        self._ref = ref

    def decode(self, data: bytes | None) -> Row | None:
        if data is None:
            return None
        ref = written_by(split_prefix(data), self._ref, "AVRO")
        try:
            schema = parsed(ref.text)
        except ValueError as error:
            raise BadRecord(f"schema {ref.id} of the registry: {error}") from error
        try:
            value = fastavro.schemaless_reader(io.BytesIO(data[PREFIX:]), schema, None)
        except (EOFError, ValueError, IndexError, OverflowError, UnicodeDecodeError, MemoryError) as error:
            # fastavro names the object it reads from, with its address in memory.
            reason = str(error).partition(" from <")[0] or type(error).__name__
            raise BadRecord(f"not Avro of its schema: {reason}") from error
        if self._single is not None:
            return (self._single(value),)[: self._wanted]
        try:
            return None if value is None else tuple(self._read(value))
        except TypeError as error:
            raise BadRecord(f"the record is {type(value).__name__}, not an Avro record") from error


class AvroEncoder:
    """Writes all columns of a side with the schema of its format."""

    def __init__(self, names: Sequence[str], types: Sequence[SqlType], ref: SchemaRef, *, wrapped: bool) -> None:
        self._ref = numbered(ref)
        self._prefix = prefix(self._ref.id)
        self._schema = parsed(ref.text)
        document = _plain(_document(ref.text))
        self._wrapped = wrapped
        self._write = _record(document, names, types) if wrapped else _writer(types[0], document)

    def encode(self, row: Row) -> bytes | None:
        if not self._wrapped and row[0] is None:
            return None
        out = io.BytesIO()
        out.write(self._prefix)
        try:
            fastavro.schemaless_writer(out, self._schema, self._write(row if self._wrapped else row[0]))
        except (TypeError, ValueError, OverflowError) as error:
            raise BadRecord(f"the row does not fit the Avro schema {self._ref.subject}: {error}") from error
        return out.getvalue()


def _record(schema: Any, names: Sequence[str], types: Sequence[SqlType]) -> Callable[[Sequence[Any]], Any]:
    """From values by place to a record; a field of the schema that is no column keeps its default."""
    schema = _branch(schema)
    fields = {f["name"]: f["type"] for f in schema["fields"]}
    found = [same_name(n, tuple(fields)) for n in names]
    if None in found and len(fields) == len(names):
        found = list(fields)  # keys of one side of a join are written as the other side's, whatever their names
    writers = [(n, _writer(t, fields[n])) for n, t in zip(found, types, strict=True) if n is not None]
    places = [i for i, n in enumerate(found) if n is not None]

    def write(row: Sequence[Any]) -> dict[str, Any]:
        return {n: w(row[i]) for (n, w), i in zip(writers, places, strict=True)}

    return write


def _branch(schema: Any) -> Any:
    """The type of a union with null."""
    if isinstance(schema, list):
        return next((s for s in schema if s != "null"), "null")
    return schema["type"] if isinstance(schema, dict) and isinstance(schema["type"], (dict, list)) else schema


def _writer(t: SqlType, schema: Any) -> Convert:
    """From a reference value, or None, to what fastavro writes as `schema`."""
    if isinstance(schema, list) and len([s for s in schema if s != "null"]) > 1:
        return _union_writer(t, schema)
    inner = _branch(schema)
    if t.kind is Kind.STRUCT:
        names = [n for n, _ in t.fields]
        write = _record(inner, names, [f for _, f in t.fields])
        return lambda v: None if v is None else write([v[n] for n in names])
    if t.kind is Kind.ARRAY:
        element = _writer(t.element, inner["items"])
        return lambda v: None if v is None else [element(x) for x in v]
    if t.kind is Kind.MAP:
        return _map_writer(t, inner)
    if t.kind in TIMES and (counted := time_of(inner)) is not None:
        return lambda v: None if v is None else counted.written(t.kind, v)
    return lambda v: v


def _map_writer(t: SqlType, schema: Mapping[str, Any]) -> Convert:
    if schema["type"] == "array":  # of entries
        entry = {f["name"]: f["type"] for f in schema["items"]["fields"]}
        key, value = _writer(t.args[0], entry["key"]), _writer(t.element, entry["value"])
        return lambda v: None if v is None else [{"key": key(k), "value": value(x)} for k, x in v.items()]
    value = _writer(t.element, schema["values"])
    return lambda v: None if v is None else {k: value(x) for k, x in v.items()}


def _union_writer(t: SqlType, branches: Sequence[Any]) -> Convert:
    """A STRUCT with a field per branch: the one that is not NULL is written, under its branch."""
    writers = {branch_name(b): (b, _writer(f, b)) for b in branches for n, f in t.fields if n == branch_name(b)}

    def write(v: Any) -> Any:
        if v is None:
            return None
        for name, value in v.items():
            if value is not None:
                return writers[name][1](value)
        return None

    return write

"""The forms in which an answer travels: JSON, JSON lines, CSV and Arrow. Each is written piece by piece, as the rows come.

An answer that fails on its way ends with the error where its form has a place for one (JSON, JSON lines), and then raises `BrokenOff`: the
connection ends without the end of the body, which every client notices. An Arrow stream carries the error in its last batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import lru_cache

import orjson
import pyarrow as pa

from flowql.compiler.plan.codec import from_data
from flowql.errors import CommandError
from flowql.query.answer import Answer
from flowql.query.errors import APART, COVERAGE, MISSING, MOMENTS, SEQUENCE, STANDBY, TICK, TYPES
from flowql.server.bodies import Malformed
from flowql.server.failures import to_wire
from flowql.server.row_text import csv_head, csv_rows, json_objects
from flowql.server.streaming import ARROW, BrokenOff, encode

JSON, LINES, CSV = "application/json", "application/x-ndjson", "text/csv"
NOT_ACCEPTABLE = 406
Form = Callable[[Answer], Generator[bytes]]


def chosen(accept: str) -> str:
    """The media type of an answer. accept: the header; the first supported type of the highest quality. Raises Malformed if there is none."""
    wanted = [_quality(item) for item in accept.split(",")] if accept.strip() else [("*/*", 1.0)]
    for name, quality in sorted(wanted, key=lambda item: -item[1]):
        found = {"*/*": JSON, "application/*": JSON, "text/*": CSV}.get(name, name)
        if quality > 0 and found in FORMS:
            return found
    raise Malformed(f"none of the types in `Accept` is available; there are {', '.join(FORMS)}", NOT_ACCEPTABLE)


def _quality(item: str) -> tuple[str, float]:
    name, *parameters = (part.strip().lower() for part in item.split(";"))
    quality = next((p.removeprefix("q=") for p in parameters if p.startswith("q=")), "1")
    try:
        return name, float(quality)
    except ValueError:
        return name, 0.0


def described(schema: pa.Schema) -> str:
    """The head of a JSON answer, before its rows and without its end: columns with types, the commit, and what is missing."""
    metadata = schema.metadata or {}
    told = metadata.get(TYPES)
    said = {_SAID[k]: int(v) if k == SEQUENCE else v.decode() for k, v in metadata.items() if k in _SAID}
    columns = _columns(tuple(schema.names), told if told is not None else tuple(schema.types))
    return json.dumps(said, ensure_ascii=False).removesuffix("}") + ", " * bool(said) + columns


@lru_cache(256)
def _columns(names: tuple[str, ...], types: bytes | tuple[pa.DataType, ...]) -> str:
    """types: the SQL types of the statement if it is standard SQL, else those that hold the values."""
    shown = [str(t) for t in from_data(orjson.loads(types))] if isinstance(types, bytes) else map(_sql_type, types)
    columns = [{"name": name, "type": t} for name, t in zip(names, shown, strict=True)]
    return json.dumps({"columns": columns}, ensure_ascii=False)[1:-1]


_SAID: Mapping[bytes, str] = {
    SEQUENCE: "commit",
    COVERAGE: "partitions",
    MISSING: "missing",
    STANDBY: "standby",
    APART: "inconsistent",
    MOMENTS: "moments",
    TICK: "tick",
}


def _sql_type(t: pa.DataType) -> str:
    if pa.types.is_dictionary(t):
        return _sql_type(t.value_type)
    if pa.types.is_decimal(t):
        return f"DECIMAL({t.precision}, {t.scale})"
    if pa.types.is_timestamp(t):
        return f"TIMESTAMP{'TZ' if t.tz else ''}{'' if t.unit in ('s', 'ms') else '(6)'}"
    if pa.types.is_map(t):
        return f"MAP<{_sql_type(t.key_type)}, {_sql_type(t.item_type)}>"
    if pa.types.is_struct(t):
        return "STRUCT<" + ", ".join(f"{f.name} {_sql_type(f.type)}" for f in t) + ">"
    if pa.types.is_nested(t) and hasattr(t, "value_type"):
        return f"ARRAY<{_sql_type(t.value_type)}>"
    return next((name for is_, name in _NAMES if is_(t)), str(t).upper())


_STRINGS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARIES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_NAMES: Sequence[tuple[Callable[[pa.DataType], bool], str]] = (
    (pa.types.is_boolean, "BOOLEAN"),
    (lambda t: pa.types.is_integer(t) and t.bit_width <= 32 and t != pa.uint32(), "INT"),
    (pa.types.is_integer, "BIGINT"),
    (pa.types.is_floating, "DOUBLE"),
    (lambda t: any(is_(t) for is_ in _STRINGS), "STRING"),
    (lambda t: any(is_(t) for is_ in _BINARIES), "BYTES"),
    (pa.types.is_date, "DATE"),
    (pa.types.is_time, "TIME"),
    (pa.types.is_interval, "INTERVAL"),
)


def _as_json(answer: Answer) -> Generator[bytes]:
    head = described(answer.schema).encode() + b', "rows": [\n'
    separator = b""
    try:
        for batch in _pieces(answer):
            if isinstance(batch, CommandError):
                yield head + b"\n], " + json.dumps(to_wire(batch)).removeprefix("{").encode() + b"\n"
                raise BrokenOff from batch
            if batch.num_rows:
                yield head + separator + json_objects(batch, ",\n")
                head, separator = b"", b",\n"
        yield head + b"\n]}\n"
    finally:
        answer.close()


def _as_lines(answer: Answer) -> Generator[bytes]:
    try:
        for batch in _pieces(answer):
            if isinstance(batch, CommandError):
                yield json.dumps(to_wire(batch)).encode() + b"\n"
                raise BrokenOff from batch
            if batch.num_rows:
                yield json_objects(batch, "\n") + b"\n"
    finally:
        answer.close()


def _as_csv(answer: Answer) -> Generator[bytes]:
    head = csv_head(answer.schema.names)
    try:
        for batch in _pieces(answer):
            if isinstance(batch, CommandError):
                raise BrokenOff from batch
            if batch.num_rows:
                yield head + csv_rows(batch)
                head = b""
        if head:
            yield head
    finally:
        answer.close()


def _pieces(answer: Answer) -> Iterator[pa.RecordBatch | CommandError]:
    """The batches. An error after the first one is the last piece; before it, it is raised: nothing has been sent."""
    begun = False
    try:
        for batch in answer.batches:
            yield batch
            begun = begun or batch.num_rows > 0
    except CommandError as error:
        if not begun:
            raise
        yield error


FORMS: Mapping[str, Form] = {JSON: _as_json, ARROW: encode, CSV: _as_csv, LINES: _as_lines}

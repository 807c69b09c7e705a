"""Columns as texts, with Arrow and NumPy alone: JSON objects and CSV of the rows of an answer.

Values are written as `flowql query -o json` writes them, except integers beyond 2^53, which many readers of JSON cannot hold: they are
strings. `docs/guide/http.md` lists the forms.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from json.encoder import encode_basestring
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.functions.sql_intervals import interval_text
from flowql.compiler.plan.types import DOUBLE, STRING, decimal
from flowql.runtime.operators.encode import text_of

FEW_ROWS = 8  # up to so many, values one by one take less time than calls of kernels (a row of three columns: 0.03 ms and 0.4 ms)
EXACT_MAX = (1 << 53) - 1  # the largest integer up to which a reader with 64-bit floating point confuses none
_Test = Callable[[pa.DataType], bool]


def json_objects(batch: pa.RecordBatch, separator: str) -> bytes:
    """The rows as JSON objects, in one piece; empty without rows."""
    if 0 < batch.num_rows <= FEW_ROWS and batch.num_columns:
        return _few_objects(batch, separator)
    return _joined(_objects(batch.schema.names, batch.columns, batch.num_rows), separator)


def csv_head(names: Sequence[str]) -> bytes:
    """The line of column names."""
    return _joined(_lines([pa.array([name]) for name in names], 1), "\n") + b"\n"


def csv_rows(batch: pa.RecordBatch) -> bytes:
    """The rows as lines of CSV (RFC 4180, with line feeds): NULL is empty, an empty string `""`, arrays, maps and structs are JSON."""
    lines = _lines([_csv_column(c) for c in batch.columns], batch.num_rows)
    return _joined(lines, "\n") + b"\n" if batch.num_rows else b""


def _joined(texts: pa.Array, separator: str) -> bytes:
    if not len(texts):
        return b""
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    return bytes(pc.binary_join(whole, separator)[0].as_buffer())


def _few_objects(batch: pa.RecordBatch, separator: str) -> bytes:
    """The same as by columns."""
    columns = [_few_values(c) for c in batch.columns]
    heads = _heads(tuple(batch.schema.names))
    rows = ("".join(chain.from_iterable(zip(heads, row, strict=True))) + "}" for row in zip(*columns, strict=True))
    return separator.join(rows).encode()


@lru_cache(256)
def _heads(names: tuple[str, ...]) -> list[str]:
    """The text before each value of an object."""
    return [("," if i else "{") + json.dumps(name, ensure_ascii=False) + ":" for i, name in enumerate(names)]


def _few_values(column: pa.Array) -> list[str]:
    """As `json_values`."""
    t = column.type
    if t == pa.string():
        return ["null" if v is None else encode_basestring(v) for v in column.to_pylist()]
    if t in (pa.int64(), pa.int32()):
        return ["null" if v is None else f'"{v}"' if abs(v) > EXACT_MAX else str(v) for v in column.to_pylist()]
    if pa.types.is_decimal(t):
        return ["null" if v is None else f'"{v:f}"' for v in column.to_pylist()]
    found: list[str] = json_values(column).to_pylist()
    return found


def _objects(names: Sequence[str], columns: Sequence[pa.Array], n: int) -> pa.Array:
    parts: list[Any] = []
    for i, (name, column) in enumerate(zip(names, columns, strict=True)):
        parts += [pa.scalar(("," if i else "{") + json.dumps(name, ensure_ascii=False) + ":"), json_values(column)]
    if not parts:
        return pa.array(["{}"] * n, pa.string())
    return pc.binary_join_element_wise(*parts, pa.scalar("}"), "")


def json_values(column: pa.Array) -> pa.Array:
    """Each value as JSON; NULL as `null`."""
    column = _plain(column)
    if pa.types.is_string(column.type):
        text, lacks_quotes = text_of(column, STRING)
        return pc.binary_join_element_wise('"', text, '"', "") if lacks_quotes else text
    text = _text(column)
    if _is_quoted(column.type):
        text = pc.binary_join_element_wise('"', text, '"', "")
    elif pa.types.is_int64(column.type) or pa.types.is_uint64(column.type):
        text = _quoted_if_large(column, text)
    return text.fill_null("null")


def _lines(columns: Sequence[pa.Array], n: int) -> pa.Array:
    cells = [_cells(c) for c in columns]
    return pc.binary_join_element_wise(*cells, ",") if cells else pa.array([""] * n, pa.string())


def _cells(text: pa.Array) -> pa.Array:
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(text, '"', '""'), '"', "")
    needs = pc.or_(pc.match_substring_regex(text, '[",\r\n]'), pc.equal(text, ""))
    return pc.if_else(needs, quoted, text).fill_null("")


def _csv_column(column: pa.Array) -> pa.Array:
    column = _plain(column)
    text = _text(column)
    if pa.types.is_floating(column.type):  # NaN and the infinities bear the quotes of JSON
        return pc.utf8_trim(text, '"')
    return text


def _plain(column: pa.Array) -> pa.Array:
    """The column without dictionaries, extension types and other layouts of strings."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if any(is_(column.type) for is_ in (pa.types.is_large_string, pa.types.is_string_view)):
        column = column.cast(pa.string())
    if pa.types.is_binary_view(column.type) or pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    return column


def _text(column: pa.Array) -> pa.Array:
    """The values as strings; NULL stays NULL."""
    for is_, write in _WRITERS:
        if is_(column.type):
            return write(column)
    return column.cast(pa.string())


def _is_quoted(t: pa.DataType) -> bool:
    """Whether JSON writes the text of such a value as a string."""
    bare = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_nested, pa.types.is_null)
    return not any(is_(t) for is_ in bare)


def _quoted_if_large(column: pa.Array, text: pa.Array) -> pa.Array:
    large = pc.greater(column, pa.scalar(EXACT_MAX, column.type))
    if pa.types.is_int64(column.type):
        large = pc.or_(large, pc.less(column, pa.scalar(-EXACT_MAX, column.type)))
    if not pc.any(large).as_py():
        return text
    return pc.if_else(large, pc.binary_join_element_wise('"', text, '"', ""), text)


def _with_nulls(text: pa.Array, column: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), text, pa.scalar(None, pa.string())) if column.null_count else text


def _decimals(column: pa.Array) -> pa.Array:
    return _with_nulls(text_of(column, decimal(38, 0))[0], column)


def _doubles(column: pa.Array) -> pa.Array:
    return _with_nulls(text_of(column.cast(pa.float64()), DOUBLE)[0], column)


def _moments(column: pa.Array) -> pa.Array:
    """ISO 8601 in UTC, with milliseconds, or microseconds where the moment has some."""
    micros = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    if pa.types.is_timestamp(micros.type) and micros.type.tz is not None:
        micros = micros.cast(pa.timestamp("us", "UTC")).view(pa.int64()).view(pa.timestamp("us"))
    text = micros.cast(pa.string())
    whole = pc.equal(pc.utf8_slice_codeunits(text, -3), "000")
    text = pc.if_else(whole, pc.utf8_slice_codeunits(text, 0, -3), text)
    return pc.binary_join_element_wise(pc.replace_substring(text, " ", "T", max_replacements=1), "Z", "")


def _times(column: pa.Array) -> pa.Array:
    text = column.cast(pa.time64("us"), safe=False).cast(pa.string())
    whole = pc.equal(pc.utf8_slice_codeunits(text, -7), ".000000")
    return pc.if_else(whole, pc.utf8_slice_codeunits(text, 0, -7), text)


def _bytes(column: pa.Array) -> pa.Array:
    """Base64. All values are padded to triples and encoded at once; the padding then becomes `=`."""
    values = column.fill_null(b"").cast(pa.binary())
    n = len(values)
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + n + 1].astype(np.int64)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    sizes = np.diff(offsets)
    triples = -(-sizes // 3)
    starts = np.concatenate([[0], np.cumsum(triples)])
    padded = np.zeros(3 * int(starts[-1]), np.uint8)
    padded[np.arange(len(data)) + np.repeat(3 * starts[:-1] - (offsets[:-1] - offsets[0]), sizes)] = data
    encoded = np.frombuffer(bytearray(base64.b64encode(padded.tobytes())), np.uint8)
    ends = 4 * starts[1:]
    encoded[ends[sizes % 3 != 0] - 1] = encoded[ends[sizes % 3 == 1] - 2] = ord("=")
    buffers = [None, pa.py_buffer((4 * starts).astype(np.int32).tobytes()), pa.py_buffer(encoded.tobytes())]
    return _with_nulls(pa.Array.from_buffers(pa.string(), n, buffers), column)


def _lists(column: pa.Array) -> pa.Array:
    sizes = pc.list_value_length(column).fill_null(0)
    return _enclosed("[", json_values(column.flatten()), np.asarray(sizes), "]", column)


def _structs(column: pa.Array) -> pa.Array:
    names = [f.name for f in column.type]
    return _with_nulls(_objects(names, column.flatten(), len(column)), column)


def _maps(column: pa.Array) -> pa.Array:
    offsets = np.asarray(column.offsets)
    first, n = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys = json_values(column.keys.slice(first, n))
    bare = pc.invert(pc.starts_with(keys, '"'))
    keys = pc.if_else(bare, pc.binary_join_element_wise('"', keys, '"', ""), keys)
    pairs = pc.binary_join_element_wise(keys, json_values(column.items.slice(first, n)), ":")
    return _enclosed("{", pairs, np.diff(offsets), "}", column)


def _enclosed(begin: str, texts: pa.Array, sizes: Any, end: str, column: pa.Array) -> pa.Array:
    """Groups of texts, each between brackets. sizes: of the groups, one for each value of the column."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    inner = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), ",")
    return _with_nulls(pc.binary_join_element_wise(begin, inner, end, ""), column)


def _intervals(column: pa.Array) -> pa.Array:
    """One by one: intervals are rare in answers."""
    spans = (None if v is None else (v.months, v.days, v.nanoseconds // 1000) for v in column.to_pylist())
    return pa.array([None if s is None else interval_text(s) for s in spans], pa.string())


_WRITERS: Sequence[tuple[_Test, Callable[[pa.Array], pa.Array]]] = (
    (pa.types.is_decimal, _decimals),
    (pa.types.is_floating, _doubles),
    (pa.types.is_timestamp, _moments),
    (pa.types.is_time, _times),
    (pa.types.is_binary, _bytes),
    (pa.types.is_large_binary, _bytes),
    (pa.types.is_map, _maps),
    (pa.types.is_struct, _structs),
    (pa.types.is_nested, _lists),
    (pa.types.is_interval, _intervals),
)

"""Values of a column in PostgreSQL's text form."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from flowql.pg.types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INTERVAL,
    JSON,
    JSONB,
    NUMERIC,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    PgType,
)

_STRING = pa.string()
_HEX = np.array([tuple(f"{n:02x}".encode()) for n in range(256)], np.uint8)
_NEEDS_QUOTES = r'^$|[{}",\\\s]|^(?i:null)$'
_DAY_MICROS = 86_400_000_000
_FIRST_DAY, _LAST_DAY = date(1, 1, 1), date(9999, 12, 31)
_EPOCH = date(1970, 1, 1)


def values(column: pa.Array, t: PgType) -> pa.Array:
    """The strings; NULL stays NULL."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_null(column.type):
        return column.cast(_STRING)
    if isinstance(column, pa.ExtensionArray):
        return _one_by_one(column, str) if column.type == pa.uuid() else values(column.storage, t)
    if t.element is not None:
        return _arrays(column, t.element, *("", " ", "") if t.is_vector else _BRACES)
    make = _FORMS.get(t.name)
    return column.cast(_STRING) if make is None else make(column)


def _bools(column: pa.Array) -> pa.Array:
    return pc.if_else(column, "t", "f").cast(_STRING)


def _floats(column: pa.Array) -> pa.Array:
    """Arrow writes the shortest digits as well, and other numbers of them without an exponent."""
    made = column.cast(_STRING)
    numbers = column.to_numpy(zero_copy_only=False).astype(np.float64)
    size = np.abs(numbers)
    with np.errstate(invalid="ignore"):
        plain = (size == 0) | ((size >= 1e-4) & (size < 1e14))
    rare = ~plain & column.is_valid().to_numpy(zero_copy_only=False)
    single = pa.types.is_float32(column.type)
    return _replaced(made, column, rare, lambda v: float_text(v, single=single))


def float_text(value: float, *, single: bool = False) -> str:
    """As PostgreSQL writes a number of 8 bytes, or of 4."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    digits = str(np.float32(value)) if single else repr(value)
    sign, digits = ("-", digits[1:]) if digits[0] == "-" else ("", digits)
    mantissa, _, exponent = digits.partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    point = len(whole) + int(exponent or 0)
    figures = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(figures) if figures else 0
    figures = figures.rstrip("0") or "0"
    if -4 <= point - 1 < (6 if single else 15):
        if point <= 0:
            return f"{sign}0.{'0' * -point}{figures}"
        return sign + figures.ljust(point, "0")[:point] + (f".{figures[point:]}" if len(figures) > point else "")
    rest = f".{figures[1:]}" if len(figures) > 1 else ""
    return f"{sign}{figures[0]}{rest}e{point - 1:+03d}"


def _numerics(column: pa.Array) -> pa.Array:
    made = column.cast(_STRING)
    if not pa.types.is_decimal(column.type):
        return made
    rare = pc.fill_null(pc.match_substring(made, "E"), False).to_numpy(zero_copy_only=False)
    return _replaced(made, column, rare, lambda v: f"{v:f}")


def _bytes(column: pa.Array) -> pa.Array:
    r"""`\x` and two digits for each byte."""
    column = pa.concat_arrays([column]).cast(pa.large_binary())
    begins = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)[begins[0] : begins[-1]]
    digits = _HEX[data].reshape(-1)
    offsets = (begins - begins[0]) * 2
    hexed = pa.Array.from_buffers(pa.large_string(), len(column), [None, pa.py_buffer(offsets), pa.py_buffer(digits)])
    made = pc.binary_join_element_wise(pa.scalar("\\x", pa.large_string()), hexed, pa.scalar("", pa.large_string()))
    return pc.if_else(column.is_valid(), made, pa.scalar(None, pa.large_string())).cast(_STRING)


def _dates(column: pa.Array) -> pa.Array:
    days = pc.fill_null(column.cast(pa.int32()), 0).to_numpy()
    rare = (days < (_FIRST_DAY - _EPOCH).days) | (days > (_LAST_DAY - _EPOCH).days)
    return _replaced(column.cast(_STRING), column.cast(pa.int32()), rare, day_text)


def day_text(days: int) -> str:
    """A day that Python's calendar has not: years before 1 are BC. days: since 1970-01-01."""
    shift = -(days // 146_097)  # cycles of 400 years
    inside = _EPOCH + timedelta(days=days % 146_097)
    year = inside.year - 400 * shift
    suffix = " BC" if year <= 0 else ""
    return f"{year if year > 0 else 1 - year:04d}-{inside.month:02d}-{inside.day:02d}{suffix}"


def _times(column: pa.Array) -> pa.Array:
    return _without_zeros(column.cast(pa.time64("us")).cast(_STRING))


def _timestamps(column: pa.Array) -> pa.Array:
    micros = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    made = _without_zeros(micros.cast(pa.timestamp("us")).cast(_STRING))
    days = pc.fill_null(micros, 0).to_numpy() // _DAY_MICROS
    rare = (days < (_FIRST_DAY - _EPOCH).days) | (days > (_LAST_DAY - _EPOCH).days)
    return _replaced(made, micros, rare, _moment_text)


def _moment_text(micros: int) -> str:
    day = day_text(micros // _DAY_MICROS)
    clock = (datetime(1970, 1, 1) + timedelta(microseconds=micros % _DAY_MICROS)).time().isoformat("microseconds")
    clock = clock.rstrip("0").rstrip(".") if "." in clock else clock
    return f"{day.removesuffix(' BC')} {clock}{' BC' if day.endswith(' BC') else ''}"


def _moments(column: pa.Array) -> pa.Array:
    made = _timestamps(column)
    if pc.any(pc.ends_with(made, " BC")).as_py():
        return pc.replace_substring_regex(made, r"^(.*?)( BC)?$", r"\1+00\2")
    return pc.binary_join_element_wise(made, "+00", "")


def _without_zeros(column: pa.Array) -> pa.Array:
    """Without zeros at the end of fractions of a second."""
    return pc.replace_substring_regex(pc.replace_substring_regex(column, r"\.0+$", ""), r"(\.\d*[1-9])0+$", r"\1")


def _intervals(column: pa.Array) -> pa.Array:
    return _one_by_one(column, lambda v: interval_text(v.months, v.days, v.nanoseconds // 1000))


def interval_text(months: int, days: int, micros: int) -> str:
    """In PostgreSQL's own style: `1 year 2 mons 3 days -04:05:06.5`. A part after a negative one has its sign."""
    years, rest = int(math.copysign(abs(months) // 12, months)), int(math.copysign(abs(months) % 12, months))
    parts, negative = list[str](), False
    for number, unit in ((years, "year"), (rest, "mon"), (days, "day")):
        if number:
            sign = "+" if negative and number > 0 else ""
            parts.append(f"{sign}{number} {unit}{'' if number == 1 else 's'}")
            negative = number < 0
    if micros or not parts:
        sign = "-" if micros < 0 else "+" if negative else ""
        seconds, fraction = divmod(abs(micros), 1_000_000)
        clock = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        parts.append(clock + (f".{fraction:06d}".rstrip("0") if fraction else ""))
    return " ".join(parts)


def _json(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.cast(_STRING)
    return _one_by_one(column, lambda v: orjson.dumps(_plain(v), default=str, option=orjson.OPT_NON_STR_KEYS).decode())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        pairs = value and all(isinstance(v, tuple) for v in value)
        return {str(k): _plain(v) for k, v in value} if pairs else [_plain(v) for v in value]
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, Decimal):
        return float(value) if value.as_tuple().exponent else int(value)
    return str(value) if isinstance(value, UUID | timedelta) else value


_BRACES = "{", ",", "}"


def _arrays(column: pa.Array, element: PgType, begin: str, between: str, end: str) -> pa.Array:
    """`{1,NULL,"a b"}`. Elements of arrays are in braces of their own."""
    column = column.cast(pa.list_(column.type.value_type))
    flat = column.flatten()
    if pa.types.is_list(flat.type):
        inner = _arrays(flat, element, begin, between, end)
    else:
        inner = values(flat, element)
        if element.category not in "BN":
            inner = _in_quotes(inner)
    inner = pc.fill_null(inner, "NULL")
    offsets = np.concatenate([[0], np.cumsum(pc.fill_null(pc.list_value_length(column), 0).to_numpy())]).astype(
        np.int32
    )
    lists = pa.ListArray.from_arrays(pa.array(offsets), inner)
    made = pc.binary_join_element_wise(begin, pc.binary_join(lists, between), end, "")
    return pc.if_else(column.is_valid(), made, pa.scalar(None, _STRING))


def _in_quotes(column: pa.Array) -> pa.Array:
    escaped = pc.replace_substring(pc.replace_substring(column, "\\", "\\\\"), '"', '\\"')
    quoted = pc.binary_join_element_wise('"', escaped, '"', "")
    return pc.if_else(pc.match_substring_regex(column, _NEEDS_QUOTES), quoted, column)


def _one_by_one(column: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if v is None else write(v) for v in column.to_pylist()], _STRING)


def _replaced(made: pa.Array, column: pa.Array, rare: np.ndarray, write: Callable[[Any], str]) -> pa.Array:
    """The strings, with those written one by one that are marked."""
    if not rare.any():
        return made
    found = _one_by_one(column.filter(pa.array(rare)), write)
    return pc.replace_with_mask(made, pa.array(rare), found)


_FORMS: dict[str, Callable[[pa.Array], pa.Array]] = {
    BOOL.name: _bools,
    BYTEA.name: _bytes,
    DATE.name: _dates,
    FLOAT4.name: _floats,
    FLOAT8.name: _floats,
    INTERVAL.name: _intervals,
    JSON.name: _json,
    JSONB.name: _json,
    NUMERIC.name: _numerics,
    TIME.name: _times,
    TIMESTAMP.name: _timestamps,
    TIMESTAMPTZ.name: _moments,
}

"""Values of DuckDB as texts with the names of their types, read as reference values and written as PostgreSQL writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

from flowql.compiler.functions.json_values import read_json
from flowql.compiler.functions.sql_bytes import text_of_bytes
from flowql.compiler.functions.sql_text_casts import (
    read_date,
    read_double,
    read_microstz,
    read_time,
    read_timestamptz,
    text_writer,
)
from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    MICROS,
    MICROSTZ,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
    array,
    decimal,
    struct,
)

# DuckDB writes these otherwise than PostgreSQL, and so everything that holds them.
_SCALARS: Mapping[str, tuple[SqlType, Callable[[str], Any]]] = {
    "BOOLEAN": (BOOLEAN, lambda text: text == "true"),
    "FLOAT": (DOUBLE, read_double),
    "DOUBLE": (DOUBLE, read_double),
    "DATE": (DATE, read_date),
    "TIME": (TIME, read_time),
    "TIMESTAMP": (MICROS, read_microstz),
    "TIMESTAMP_MS": (TIMESTAMP, read_timestamptz),
    "TIMESTAMP WITH TIME ZONE": (MICROSTZ, read_microstz),
    **{f"{u}{size}INT": (BIGINT, int) for u in ("", "U") for size in ("TINY", "SMALL", "BIG", "HUGE")},
    "INTEGER": (BIGINT, int),
    "UINTEGER": (BIGINT, int),
}
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")  # of doubles, which JSON has not
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_ESCAPED = re.compile(rb"\\x([0-9A-F]{2})")
_INTERVAL = re.compile(r"(-?\d+) (year|month|day)s?|(-?\d+:\d\d:\d\d(?:\.\d+)?)")


@cache
def type_named(name: str) -> SqlType:
    """The type that DuckDB calls so; a text, if it has no other name here."""
    if name.endswith("[]"):
        return array(type_named(name[:-2]))
    if fields := _fields(name):
        return struct(*((n, type_named(of)) for n, of in fields))
    if name == "BLOB":
        return BYTES
    if found := _DECIMAL.fullmatch(name):
        return decimal(int(found[1]), int(found[2]))
    return _SCALARS[name][0] if name in _SCALARS else STRING


@cache
def _fields(name: str) -> tuple[tuple[str, str], ...]:
    """The names and types of the fields of `STRUCT(a INTEGER, "b c" DECIMAL(3,1))`; of `TUPLE(INTEGER, VARCHAR)` f1 and so on."""
    kind, _, text = name[:-1].partition("(")
    if kind not in ("STRUCT", "TUPLE"):
        return ()
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and not depth:
            parts.append(text[begin:i].strip())
            begin = i + 1
    parts.append(text[begin:].strip())
    if kind == "TUPLE":
        return tuple((f"f{i}", p) for i, p in enumerate(parts, 1))
    found = [re.fullmatch(r'("(?:[^"]|"")*"|\S+) (.*)', p) for p in parts]
    return tuple((m[1].strip('"'), m[2]) for m in found if m is not None)


def value_of(text: str, name: str) -> Any:
    """The value that DuckDB writes so. name: of its type."""
    if name == "BLOB":
        return bytes_of(text)
    if _DECIMAL.fullmatch(name):
        return Decimal(text)
    return _SCALARS[name][1](text) if name in _SCALARS else text


def bytes_of(text: str) -> bytes:
    r"""DuckDB's text of a BLOB: printable characters, and `\x1F` for others."""
    return _ESCAPED.sub(lambda m: bytes.fromhex(m[1].decode()), text.encode("latin-1"))


def shown(text: str, name: str) -> str:
    """PostgreSQL's text. text: DuckDB's, of arrays and rows that in JSON."""
    if name == "BLOB":
        return text_of_bytes(bytes_of(text))
    if name == "INTERVAL":
        return _shown_interval(text)
    if name.endswith("[]") or _fields(name):
        return text_writer(type_named(name))(_nested(json.loads(text, parse_float=str, parse_int=str), name))
    return text_writer(type_named(name))(value_of(text, name))


def _nested(value: Any, name: str) -> Any:
    if value is None:
        return None
    if name.endswith("[]"):
        return [_nested(v, name[:-2]) for v in value]
    if fields := _fields(name):
        values = value.values() if isinstance(value, dict) else value
        return {n: _nested(v, of) for (n, of), v in zip(fields, values, strict=True)}
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
    return shown(text, name) if name == "INTERVAL" else value_of(text, name)


def _shown_interval(text: str) -> str:
    """DuckDB says months and -1 year, and writes no sign behind negative parts."""
    negative, out = False, []
    for number, unit, clock in _INTERVAL.findall(text):
        sign = "+" if negative and not (number or clock).startswith("-") else ""
        out.append(
            f"{sign}{number} {unit[:3] if unit == 'month' else unit}{'' if number == '1' else 's'}"
            if unit
            else sign + clock
        )
        negative = number.startswith("-")
    return " ".join(out)


def json_of(text: str, name: str) -> Any:
    """The JSON that a value is in PostgreSQL. text: that of DuckDB's JSON of it, whose times have a blank in the middle."""
    return text if text in _NOT_FINITE else _json(read_json(text), name)


def _json(value: Any, name: str) -> Any:
    if value is None or name == "JSON":
        return value
    if name.endswith("[]"):
        return [_json(v, name[:-2]) for v in value]
    if fields := _fields(name):
        values = value.values() if isinstance(value, dict) else value
        return {n: _json(v, of) for (n, of), v in zip(fields, values, strict=True)}
    if name.startswith("TIMESTAMP"):
        return value.replace(" ", "T", 1) + (":00" if name.endswith("ZONE") else "")
    return shown(value, name) if name in ("BLOB", "INTERVAL") else value

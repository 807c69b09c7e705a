"""Rows as the corpus writes them: PostgreSQL's text of each value, one string per row, normalised on both sides."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

_NUMBER = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?")
_FRACTION = re.compile(r"(\d\d:\d\d:\d\d)\.(\d*?)0*(?=$|[+-])")
_OFFSET = re.compile(r"(\d\d:\d\d:\d\d(?:\.\d+)?[+-]\d\d):00$")
_QUOTED_IN_STRUCT = re.compile(r'[\s,()"\\]')
_QUOTED_IN_ARRAY = re.compile(r'[\s,{}"\\]')


def rendered(table: pa.Table) -> list[str]:
    """The rows of an answer, in its order."""
    types = [f.type for f in table.schema]
    columns = [c.to_pylist() for c in table.columns]
    return [" ".join(_cell(v, t) for v, t in zip(row, types, strict=True)) for row in zip(*columns, strict=True)]


def difference(expected: Sequence[str], actual: Sequence[str], *, ordered: bool) -> str:
    """What differs, in words; empty when nothing does."""
    wanted, found = list(map(normalised, expected)), list(map(normalised, actual))
    if not ordered:
        wanted, found = sorted(wanted), sorted(found)
    if wanted == found:
        return ""
    if len(wanted) != len(found):
        return f"{len(found)} rows, expected {len(wanted)}"
    at = next(i for i, (w, f) in enumerate(zip(wanted, found, strict=True)) if w != f)
    return f"row {at} is {found[at]!r}, expected {wanted[at]!r}"


def normalised(row: str) -> str:
    """A row whose numbers and times are written in one way.

    >>> normalised("2.0  1e3 08:00:00.100+00:00 08:00:00.000 abc")
    '2 1000 08:00:00.1+00 08:00:00 abc'
    """
    return " ".join(map(_word, row.split()))


def _word(word: str) -> str:
    if _NUMBER.fullmatch(word):
        return f"{float(word):.12g}"
    word = _FRACTION.sub(lambda m: f"{m[1]}.{m[2]}" if m[2] else m[1], word)
    return _OFFSET.sub(r"\1", word)


def _cell(v: Any, t: pa.DataType) -> str:
    text = value_text(v, t)
    return text if text is not None and text != "" else ("NULL" if text is None else "(empty)")


def value_text(v: Any, t: pa.DataType) -> str | None:
    """PostgreSQL's text of a value; None for NULL."""
    if v is None:
        return None
    if pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t):
        return "{" + ",".join(_element(x, t.value_type) for x in v) + "}"
    if pa.types.is_struct(t):
        return "(" + ",".join(_field(v[f.name], f.type) for f in t) + ")"
    if pa.types.is_map(t):
        return (
            "{"
            + ",".join(
                f"{value_text(k, t.key_type)}:{value_text(x, t.item_type) or ('NULL' if x is None else '')}"
                for k, x in v
            )
            + "}"
        )
    return _scalar(v)


def _scalar(v: Any) -> str:
    match v:
        case bool():
            return "t" if v else "f"
        case float():
            return _float(v)
        case Decimal():
            return f"{v:f}"
        case bytes():
            return f"\\x{v.hex()}"
        case dt.datetime():
            return v.isoformat(sep=" ")
        case dt.date() | dt.time():
            return v.isoformat()
        case dt.timedelta():
            return _interval(0, v.days, v.seconds * 1_000_000 + v.microseconds)
        case pa.MonthDayNano():
            return _interval(v.months, v.days, v.nanoseconds // 1000)
    return str(v)


def _float(v: float) -> str:
    if v != v:
        return "NaN"
    if v in (float("inf"), float("-inf")):
        return "Infinity" if v > 0 else "-Infinity"
    return repr(int(v)) if v.is_integer() and abs(v) < 1e15 else repr(v)


def _interval(months: int, days: int, micros: int) -> str:
    shown: list[str] = []
    for n, unit in ((int(months / 12), "year"), (months - int(months / 12) * 12, "mon"), (days, "day")):
        if n:
            sign = "+" if n > 0 and shown and shown[-1].startswith("-") else ""
            shown.append(f"{sign}{n} {unit}{'' if n == 1 else 's'}")
    if micros or not shown:
        seconds, fraction = divmod(abs(micros), 1_000_000)
        time = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        sign = "-" if micros < 0 else "+" if shown and shown[-1].startswith("-") else ""
        shown.append(f"{sign}{time}{f'.{fraction:06d}'.rstrip('0') if fraction else ''}")
    return " ".join(shown)


def _element(v: Any, t: pa.DataType) -> str:
    text = value_text(v, t)
    if text is None:
        return "NULL"
    nested = pa.types.is_list(t) or pa.types.is_large_list(t)
    quoted = not nested and (text == "" or text.upper() == "NULL" or _QUOTED_IN_ARRAY.search(text) is not None)
    return _quoted(text, '\\"') if quoted else text


def _field(v: Any, t: pa.DataType) -> str:
    text = value_text(v, t)
    if text is None:
        return ""
    return _quoted(text, '""') if text == "" or _QUOTED_IN_STRUCT.search(text) else text


def _quoted(text: str, quote: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', quote)
    return f'"{escaped}"'


def inserts(table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, at_once: int = 500) -> list[str]:
    """INSERT statements of so many rows each. Texts become literals that take the type of their column."""
    values = ["(" + ", ".join(map(_literal, row)) + ")" for row in rows]
    names = ", ".join(columns)
    chunks = [values[i : i + at_once] for i in range(0, len(values), at_once)]
    return [f"INSERT INTO {table} ({names}) VALUES {', '.join(chunk)}" for chunk in chunks]


def _literal(v: Any) -> str:
    if v is None:
        return "NULL"
    if isinstance(v, str):
        return "'" + v.replace("'", "''") + "'"
    return str(v)

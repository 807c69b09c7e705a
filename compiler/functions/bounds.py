"""Limits of what one call of a function makes and how long it takes (rule R18).

All queries of an instance share one interpreter, so a call may neither allocate without limit nor keep the lock of the interpreter for long.
The registry wraps every built-in function in `bounded`, so the limit of a value holds in row kernels, in constants and in the calls that
Arrow and Spark make. Functions whose result can be far larger than their arguments, or that take more than linear time, look at their
arguments first: `check_bytes`, `check_elements`, `check_work`, and how long strings may be (`chars_max`).

A value counts its bytes: a string in UTF-8, and 16 bytes for each element, key and field that is inside another value.
`flowql.runtime.operators.sizes` counts the same in columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.types import Kind, SqlType

VALUE_BYTES_MAX = 16 << 20  # of one value; a topic takes records of 1 MB unless it is told otherwise
PART_BYTES = 16  # each element, key or field of a value, beside the bytes of its strings
ELEMENTS_MAX = VALUE_BYTES_MAX // PART_BYTES
WORK_NS_MAX = 1_000_000_000  # one call, by the estimates that functions of more than linear time make
PART_MAX = 1 << 16  # characters or bytes for one call of the standard library, which keeps the interpreter lock
UTF8_MAX = 4  # bytes of a character
_FEW = VALUE_BYTES_MAX // UTF8_MAX  # characters that cannot be too many
# Types whose values have no fixed size.
SIZED = frozenset({Kind.STRING, Kind.BYTES, Kind.ARRAY, Kind.MAP, Kind.STRUCT})

Size = Callable[[Any], int]


class RowFailure(ValueError):
    """A row that a function fails for. code: of its dead letter."""

    code: str


class ValueTooLarge(RowFailure):
    """A function would make a value above the limit."""

    code = "FQ4072"


class CallTooLong(RowFailure):
    """A call would take too long for its arguments."""

    code = "FQ4073"


def code_of(error: BaseException, otherwise: str) -> str:
    """The code of a dead letter for an expression that failed: that of a limit or a pattern, or `otherwise`."""
    return error.code if isinstance(error, RowFailure) else otherwise


def check_bytes(count: int) -> None:
    """Before a value is made. Raises ValueTooLarge."""
    if count > VALUE_BYTES_MAX:
        too_large(count)


def check_elements(count: int) -> None:
    """Before an array or a map of so many elements is made. Raises ValueTooLarge."""
    if count > ELEMENTS_MAX:
        too_large(count * PART_BYTES)


def check_work(ns: float) -> None:
    """Before a call that is estimated to take so long. Raises CallTooLong."""
    if ns > WORK_NS_MAX:
        raise CallTooLong(
            f"the call would take about {ns / 1e9:,.0f} s for these arguments; at most {WORK_NS_MAX / 1e9:.0f} s is allowed"
        )


def too_large(count: int) -> NoReturn:
    raise ValueTooLarge(
        f"the value would have {count:,} bytes, and at most {VALUE_BYTES_MAX:,} ({VALUE_BYTES_MAX >> 20} MiB) are allowed"
    )


def utf8_bytes(s: str) -> int:
    """The bytes of a string in UTF-8."""
    return len(s) if s.isascii() else sum(len(part.encode("utf-8", "surrogatepass")) for part in parts_of(s))


def parts_of(s: str) -> list[str]:
    """A text in parts of at most PART_MAX characters; one that is not longer as it is."""
    return [s] if len(s) <= PART_MAX else [s[at : at + PART_MAX] for at in range(0, len(s), PART_MAX)]


@cache
def size_of(t: SqlType) -> Size:
    """The bytes of a value of a type; exact where it is near the limit, and never below it for one that is above."""
    if t.kind is Kind.STRING:
        return _text_size
    if t.kind is Kind.BYTES:
        return len
    if t.kind is Kind.ARRAY:
        return lambda items: _parts(items, t.element)
    if t.kind is Kind.MAP:
        return lambda m: _parts(m.keys(), t.args[0]) + _parts(m.values(), t.args[1])
    if t.kind is Kind.STRUCT:
        own, sized = PART_BYTES * len(t.fields), [(n, of) for n, of in t.fields if of.kind in SIZED]
        return lambda fields: own + sum(_of(fields[n], of) for n, of in sized)
    return lambda _value: 0


def _text_size(s: str) -> int:
    """A text that is far too long is not encoded, which would keep the lock of the interpreter: at least its bytes."""
    if len(s) <= _FEW:
        return UTF8_MAX * len(s)
    if len(s) >= VALUE_BYTES_MAX and not s.isascii():
        return len(s) + 1
    return utf8_bytes(s)


def _of(value: Any, t: SqlType) -> int:
    """The exact bytes of a value inside another one."""
    if value is None or t.kind not in SIZED:
        return 0
    return utf8_bytes(value) if t.kind is Kind.STRING else size_of(t)(value)


def _parts(items: Any, t: SqlType) -> int:
    """The bytes of elements; stops counting beyond the limit."""
    total = PART_BYTES * len(items)
    if t.kind in SIZED:
        for v in items:
            if total > VALUE_BYTES_MAX:
                break
            total += _of(v, t)
    return total


def bounded(call: Callable[..., Any], t: SqlType) -> Callable[..., Any]:
    """The same function, which raises ValueTooLarge for a result above the limit. t: of the result."""
    if t.kind not in SIZED:
        return call
    if t.kind in (Kind.STRING, Kind.BYTES):
        return _bounded_text(call, size_of(t))
    size = size_of(t)

    def checked(*args: Any) -> Any:
        value = call(*args)
        if value is not None and (found := size(value)) > VALUE_BYTES_MAX:
            too_large(found)
        return value

    return checked


def _bounded_text(call: Callable[..., Any], size: Size) -> Callable[..., Any]:
    def checked(*args: Any) -> Any:
        value = call(*args)
        if value is not None and len(value) > _FEW and (found := size(value)) > VALUE_BYTES_MAX:
            too_large(found)
        return value

    return checked


# --- strings that functions read by a format, a grammar or a table of characters (rule R18) ---
#
# These functions run in Python or in one call of C that keeps the lock of the interpreter. The limits hold a call to some ten milliseconds.
# `python -m tests.bounds` measures it.

PATTERN_CHARS_MAX = 1_000  # formats of dates and numbers, texts that are read by them, zones and intervals
PARSED_CHARS_MAX = (
    64 << 10
)  # what a cast reads as a number, a date, a boolean or an array; statements of DuckDB take no longer ones
JSON_CHARS_MAX = 512 << 10

_BY_PATTERN = """
CONVERT_TZ DATETOSTRING FORMAT_DATE FORMAT_TIME FORMAT_TIMESTAMP PARSE_DATE PARSE_TIME PARSE_TIMESTAMP STRINGTODATE STRINGTOTIMESTAMP TIMESTAMPTOSTRING
sql_age sql_from_unixtime sql_unix_timestamp sql_date_add sql_date_bin sql_date_part sql_date_subtract sql_date_trunc sql_extract sql_interval sql_interval_taken sql_make_timestamptz
sql_number_to_char sql_timestampdiff sql_timezone sql_to_char sql_to_date sql_to_date_by sql_to_micros sql_to_microstz sql_to_number sql_to_time
sql_to_timestamp sql_to_timestamp_by sql_to_timestamptz
"""
_JSON_AND_URLS = """
EXTRACTJSONFIELD IS_JSON_STRING JSON_ARRAY_CONTAINS JSON_ARRAY_LENGTH JSON_CONCAT JSON_ITEMS JSON_KEYS JSON_RECORDS
URL_DECODE_PARAM URL_ENCODE_PARAM URL_EXTRACT_FRAGMENT URL_EXTRACT_HOST URL_EXTRACT_PARAMETER URL_EXTRACT_PATH URL_EXTRACT_PORT
URL_EXTRACT_PROTOCOL URL_EXTRACT_QUERY
"""
_LIMITS: dict[str, int] = {
    **dict.fromkeys(_BY_PATTERN.split(), PATTERN_CHARS_MAX),
    **dict.fromkeys(_JSON_AND_URLS.split(), JSON_CHARS_MAX),
    **dict.fromkeys(("sql_to_array", "like", "not_like", "sql_ilike", "sql_normalize"), PARSED_CHARS_MAX),
    **dict.fromkeys(("REGEXP_REPLACE", "sql_regexp_replace"), JSON_CHARS_MAX),
}
_LIMITS |= dict.fromkeys(("sql_convert_from", "sql_convert_to"), PATTERN_CHARS_MAX)  # names of encodings
# Where the limit is that of one argument: a replacement is read as a text with references to groups, a pattern of LIKE as its segments.
_PLACES = {"REGEXP_REPLACE": (2,), "sql_regexp_replace": (2,), "like": (1,), "not_like": (1,), "sql_ilike": (1,)}
_PLACES |= dict.fromkeys(("sql_convert_from", "sql_convert_to"), (1,))


def chars_max(name: str, r: Resolution) -> int | None:
    """How many characters each string of a call may have; None: as many as a value."""
    if name in _LIMITS:
        return _LIMITS[name]
    if name.startswith("sql_jsonb") or name == "sql_to_jsonb":
        return JSON_CHARS_MAX
    casts = name == "cast" or name.startswith("sql_to_")
    return PARSED_CHARS_MAX if casts and r.result.kind not in SIZED else None


def limited(call: Callable[..., Any], name: str, r: Resolution) -> Callable[..., Any]:
    """The same function, which raises CallTooLong for strings above its limit."""
    limit = chars_max(name, r)
    places = [i for i, t in enumerate(r.args) if t.kind is Kind.STRING and i in _PLACES.get(name, (i,))]
    if limit is None or not places:
        return call

    def checked(*args: Any) -> Any:
        for i in places:
            if i < len(args) and args[i] is not None and len(args[i]) > limit:
                raise CallTooLong(
                    f"the string has {len(args[i]):,} characters, and this function reads at most {limit:,}"
                )
        return call(*args)

    return checked

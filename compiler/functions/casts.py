"""CAST: between which types it goes, and what it gives (ksqlDB's CastEvaluator).

`caster(source, target)` is the meaning; `can_cast` tells whether there is one. Texts are trimmed before they are
read. Doubles go to integers as in Java (toward zero, clamped), integers to narrower ones by wrapping, and to
DECIMAL half up, failing when the digits do not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from flowql.compiler.functions.json_values import form_caster
from flowql.compiler.functions.numeric import (
    BIGINT_MAX,
    BIGINT_MIN,
    INT_MAX,
    INT_MIN,
    fit_decimal,
    truncate_double,
    wrap32,
    wrap64,
)
from flowql.compiler.functions.registry import Reference, define
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.functions.spark_casts import spark_cast, spark_cast_fails
from flowql.compiler.functions.sql_calendar import DAY_MAX, DAY_MIN, checked_micros, rounded
from flowql.compiler.functions.temporal import DAY_MS, parse_date, parse_micros, parse_time, parse_timestamp
from flowql.compiler.functions.values import text_of
from flowql.compiler.plan.types import STRING, Kind, SqlType

Cast = Callable[[Any], Any]
_INTEGERS = {Kind.INT: (INT_MIN, INT_MAX), Kind.BIGINT: (BIGINT_MIN, BIGINT_MAX)}
_TRUE, _FALSE = frozenset({"true", "t", "yes", "y"}), frozenset({"false", "f", "no", "n"})


class UnsupportedCast(FunctionTypeError):
    """There is no CAST between the two types."""

    def __init__(self, source: SqlType, target: SqlType) -> None:
        super().__init__(f"Cast of {source} to {target} is not supported")


def can_cast(source: SqlType, target: SqlType) -> bool:
    try:
        caster(source, target)
    except UnsupportedCast:
        return False
    return True


def caster(source: SqlType, target: SqlType) -> Cast:
    """The cast of non-null values. Raises UnsupportedCast. The cast raises ValueError or ArithmeticError."""
    if source == target or source.kind is Kind.NULL:
        return _unchanged
    if source.form or target.form:
        cast = form_caster(source, target)
        if cast is None:
            raise UnsupportedCast(source, target)
        return cast
    if target.kind is Kind.STRING and source.kind is not Kind.BYTES:
        return text_of(source)
    if source.kind is Kind.ARRAY and target.kind is Kind.ARRAY:
        return _array(_nullable(caster(source.element, target.element)))
    if source.kind is Kind.MAP and target.kind is Kind.MAP:
        return _map(*(_nullable(caster(s, t)) for s, t in zip(source.args, target.args, strict=True)))
    if source.kind is Kind.STRUCT and target.kind is Kind.STRUCT:
        return _struct(source, target)
    if source.kind is Kind.STRING:
        return _from_text(source, target)
    if source.is_numeric and target.is_numeric:
        return _number(source, target)
    temporal = _TEMPORAL.get((source.kind, target.kind))
    if temporal is None:
        raise UnsupportedCast(source, target)
    return temporal


def _unchanged(v: Any) -> Any:
    return v


def _nullable(cast: Cast) -> Cast:
    return lambda v: None if v is None else cast(v)


def _array(element: Cast) -> Cast:
    return lambda v: [element(x) for x in v]


def _map(key: Cast, value: Cast) -> Cast:
    return lambda v: {key(k): value(x) for k, x in v.items()}


def _struct(source: SqlType, target: SqlType) -> Cast:
    """Fields are matched by name; those the source lacks are NULL, those the target lacks are dropped."""
    fields = [(n, _nullable(caster(s, t)) if (s := source.field(n)) else None) for n, t in target.fields]
    return lambda v: {n: c(v.get(n)) if c else None for n, c in fields}


def parse_boolean(text: str) -> bool:
    """true, t, yes and y in any case are true, everything else is false."""
    return text.strip().lower() in _TRUE


def parse_boolean_exact(text: str) -> bool:
    """As `parse_boolean`, but a text that is neither true nor false raises ValueError."""
    if (word := text.strip().lower()) in _TRUE | _FALSE:
        return word in _TRUE
    raise ValueError(f'invalid input syntax for type BOOLEAN: "{text}"')


def parse_integer(text: str, low: int, high: int) -> int:
    """Java's parseInt and parseLong: an optional sign and decimal digits."""
    digits = text.strip()
    body = digits[1:] if digits[:1] in ("+", "-") else digits
    if not (body.isdigit() and body.isascii()) or not low <= (n := int(digits)) <= high:
        raise ValueError(f"{text!r} is not a whole number between {low} and {high}")
    return n


def parse_double(text: str) -> float:
    """Java's parseDouble (a type suffix f or d is allowed, underscores are not)."""
    body = text.strip()
    if body in ("NaN", "Infinity", "-Infinity", "+Infinity"):
        return float(body)
    if body[-1:] in ("f", "F", "d", "D"):
        body = body[:-1]
    if "_" in body or (not body[-1:].isdigit() and body[-1:] != ".") or not body.isascii():
        raise ValueError(f"{text!r} is not a number")
    try:
        return float(body)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def parse_decimal(text: str) -> Decimal:
    """Raises ValueError for what is not a finite decimal number."""
    try:
        value = Decimal(text.strip())
    except InvalidOperation as e:
        raise ValueError(f"{text!r} is not a number") from e
    if "_" in text or not value.is_finite():
        raise ValueError(f"{text!r} is not a number")
    return value


def _from_text(source: SqlType, target: SqlType) -> Cast:
    if target.kind is Kind.DECIMAL:
        precision, scale = target.precision, target.scale
        return lambda v: fit_decimal(parse_decimal(v), precision, scale)
    if target.kind in _INTEGERS:
        low, high = _INTEGERS[target.kind]
        return lambda v: parse_integer(v, low, high)
    cast = _FROM_TEXT.get(target.kind)
    if cast is None:
        raise UnsupportedCast(source, target)
    return cast


def _number(source: SqlType, target: SqlType) -> Cast:
    if target.kind is Kind.DOUBLE:
        return float
    if target.kind is Kind.DECIMAL:
        precision, scale = target.precision, target.scale
        if source.kind is Kind.DOUBLE:
            return lambda v: fit_decimal(_finite(v), precision, scale)
        return lambda v: fit_decimal(Decimal(v), precision, scale)
    low, high = _INTEGERS[target.kind]
    if source.kind is Kind.DOUBLE:
        return lambda v: truncate_double(v, low, high)
    if source.kind is Kind.DECIMAL:
        return (lambda v: wrap32(int(v))) if target.kind is Kind.INT else (lambda v: wrap64(int(v)))
    return wrap32 if target.kind is Kind.INT else _unchanged


def _finite(v: float) -> Decimal:
    value = Decimal(repr(v))  # the shortest text of the double, as BigDecimal.valueOf
    if not value.is_finite():
        raise ValueError(f"{v} has no decimal value")
    return value


_FROM_TEXT: dict[Kind, Cast] = {
    Kind.BOOLEAN: parse_boolean,
    Kind.DOUBLE: parse_double,
    Kind.DATE: parse_date,
    Kind.TIME: parse_time,
    Kind.TIMESTAMP: parse_timestamp,
    Kind.MICROS: parse_micros,
}


def _day_of(ms: int) -> int:
    """A DATE has 32 bits; a time in milliseconds, 64."""
    day = ms // DAY_MS
    if not -(1 << 31) <= day < 1 << 31:
        raise ValueError(f"the day of a time of {ms} ms is outside the range of DATE")
    return day


_TEMPORAL: dict[tuple[Kind, Kind], Cast] = {
    (Kind.TIMESTAMP, Kind.DATE): _day_of,
    (Kind.TIMESTAMP, Kind.TIME): lambda v: v % DAY_MS,
    (Kind.DATE, Kind.TIMESTAMP): lambda v: v * DAY_MS,
    (Kind.TIMESTAMP, Kind.TIMESTAMP): _unchanged,  # with a time zone or without
    (Kind.MICROS, Kind.MICROS): _unchanged,
    (Kind.TIMESTAMP, Kind.MICROS): lambda v: checked_micros(v * 1000),
    (Kind.DATE, Kind.MICROS): lambda v: checked_micros(v * DAY_MS * 1000),
    (Kind.MICROS, Kind.TIMESTAMP): lambda v: rounded(v, 3) // 1000,
    (Kind.MICROS, Kind.DATE): lambda v: v // (DAY_MS * 1000),
    (Kind.MICROS, Kind.TIME): lambda v: _whole_ms(v) % DAY_MS,
}


def _whole_ms(us: int) -> int:
    if us % 1000:
        raise ValueError("a TIME with parts of a millisecond is not supported: cast to TIMESTAMP(3) first")
    return us // 1000


def _resolve(types: tuple[SqlType, ...]) -> Resolution:
    """The target is not among the arguments: the analyzer sets it as the type of the call."""
    return Resolution(types, types[0])


def _reference(r: Resolution) -> Reference:
    return caster(r.args[0], r.result)


def has_duckdb_cast(source: SqlType, target: SqlType) -> bool:
    """Whether `duckdb_cast` covers the pair exactly, apart from the rows of `duckdb_cast_declines`."""
    s, t = source.kind, target.kind
    if source == target or s is Kind.NULL:
        return True
    if source.form or target.form:
        return target == STRING
    exact = {
        (Kind.INT, Kind.BIGINT),
        (Kind.BIGINT, Kind.INT),
        (Kind.INT, Kind.DOUBLE),
        (Kind.BIGINT, Kind.DOUBLE),
        (Kind.INT, Kind.STRING),
        (Kind.BIGINT, Kind.STRING),
        (Kind.BOOLEAN, Kind.STRING),
        (Kind.INT, Kind.DECIMAL),
        (Kind.BIGINT, Kind.DECIMAL),
        (Kind.DECIMAL, Kind.DECIMAL),
        (Kind.DECIMAL, Kind.STRING),
        (Kind.DOUBLE, Kind.INT),
        (Kind.DOUBLE, Kind.BIGINT),
        (Kind.STRING, Kind.INT),
        (Kind.STRING, Kind.BIGINT),
        (Kind.STRING, Kind.DOUBLE),
        (Kind.STRING, Kind.DECIMAL),
        (Kind.DATE, Kind.TIMESTAMP),
        (Kind.TIMESTAMP, Kind.DATE),
        (Kind.TIMESTAMP, Kind.TIMESTAMP),
        (Kind.MICROS, Kind.MICROS),
        (Kind.MICROS, Kind.DATE),
        (Kind.TIMESTAMP, Kind.MICROS),
        (Kind.DATE, Kind.MICROS),
    }
    return (s, t) in exact and not (t is Kind.STRING and _without_whole(source) and source.precision == 38)


def _without_whole(t: SqlType) -> bool:
    return t.kind is Kind.DECIMAL and t.precision == t.scale


def duckdb_cast(sql: str, source: SqlType, target: SqlType) -> str:
    """DuckDB text of the cast; rows for which `duckdb_cast_declines` holds give NULL or nonsense, never an error."""
    from_double = source.kind is Kind.DOUBLE and target.kind in _INTEGERS
    if target.kind is Kind.STRING and _without_whole(source):  # DuckDB writes no zero before the point of these
        sql = f"CAST({sql} AS DECIMAL({source.precision + 1}, {source.scale}))"
    cast = "CAST" if _always_fits(source, target) else "TRY_CAST"
    return f"{cast}({f'trunc({sql})' if from_double else sql} AS {_DUCK[target.kind](target)})"


def duckdb_cast_declines(sql: str, source: SqlType, target: SqlType) -> str | None:
    """Rows DuckDB must not cast: those that do not fit, and texts other than plain digits."""
    if source == target or source.kind is Kind.NULL:
        return None
    failed = f"({sql} IS NOT NULL AND {duckdb_cast(sql, source, target)} IS NULL)"
    if source.form:
        return None
    if source.kind is Kind.STRING:
        return f"(NOT regexp_full_match({sql}, '{_plain(target)}') OR {failed})"
    if target.kind is Kind.MICROS and source.kind is not Kind.MICROS:  # DuckDB's last day is another one
        return f"({failed} OR TRY_CAST({sql} AS DATE) - DATE '1970-01-01' NOT BETWEEN {DAY_MIN} AND {DAY_MAX})"
    return None if _always_fits(source, target) else failed


def _plain(target: SqlType) -> str:
    """A regular expression of strings that DuckDB casts as FlowQL does. For a DECIMAL they need no rounding."""
    if target.kind in _INTEGERS:
        return "-?[0-9]{1,18}"
    if target.kind is not Kind.DECIMAL:
        return "-?[0-9]{1,15}([.][0-9]{1,15})?"
    whole = f"-?[0-9]{{1,{max(1, target.precision - target.scale)}}}"
    return f"{whole}([.][0-9]{{1,{target.scale}}})?" if target.scale else whole


def _always_fits(source: SqlType, target: SqlType) -> bool:
    if target.kind is Kind.DECIMAL and source.kind in (Kind.INT, Kind.BIGINT, Kind.DECIMAL):
        digits, scale = {Kind.INT: (10, 0), Kind.BIGINT: (19, 0)}.get(source.kind, (source.precision, source.scale))
        return scale <= target.scale and digits - scale <= target.precision - target.scale
    widening = {(Kind.INT, Kind.BIGINT), (Kind.INT, Kind.DOUBLE), (Kind.BIGINT, Kind.DOUBLE)}
    same = source.kind is target.kind and source.kind in (Kind.TIMESTAMP, Kind.MICROS)
    return same or (source.kind, target.kind) in widening or target.kind is Kind.STRING


_DUCK: dict[Kind, Callable[[SqlType], str]] = {
    Kind.BOOLEAN: lambda _t: "BOOLEAN",
    Kind.INT: lambda _t: "INTEGER",
    Kind.BIGINT: lambda _t: "BIGINT",
    Kind.DOUBLE: lambda _t: "DOUBLE",
    Kind.STRING: lambda _t: "VARCHAR",
    Kind.DATE: lambda _t: "DATE",
    Kind.TIMESTAMP: lambda _t: "TIMESTAMP_MS",
    Kind.MICROS: lambda _t: "TIMESTAMP",
    Kind.DECIMAL: lambda t: f"DECIMAL({t.precision}, {t.scale})",
}

define(
    "cast",
    _resolve,
    _reference,
    spark=lambda a, r: spark_cast(a[0], r.args[0], r.result),
    spark_fails=lambda a, r: spark_cast_fails(a[0], r.args[0], r.result),
)

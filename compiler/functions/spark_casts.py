"""CAST in Spark SQL, for the pairs of types where it can be made to mean what `casts.caster` means.

Not here: DOUBLE to STRING and to DECIMAL (Java before 19 does not write the shortest digits), texts to dates, times and
decimals (forms that Java's parsers refuse), containers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flowql.compiler.functions.spark_text import SPACE, millis, null_where, trimmed, wrapped_bigint, wrapped_int
from flowql.compiler.functions.spark_text import text as constant_text
from flowql.compiler.plan.types import STRING, Kind, SqlType, spark_type

_DAYS_MAX = 100_000_000  # within Spark's microsecond timestamps
_DAY_MS = 86_400_000
_WHOLE_DIGITS, _BIGINT_DIGITS = 36, 19  # that `wrapped_bigint` takes; from which on a BIGINT may be too small
_PLAIN_SCALE = 6  # BigDecimal writes smaller digits with an exponent
_DIGITS = rf"^{SPACE}*[+-]?[0-9]+{SPACE}*\z"
_NUMBER = rf"^{SPACE}*[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?[fFdD]?{SPACE}*\z"
_NAMED = rf"^{SPACE}*(NaN|[+-]?Infinity){SPACE}*\z"
# Years 1 to 9999, which dates have a text for.
FIRST_DAY, LAST_DAY = -719162, 2932896
Cast = Callable[[str, SqlType, SqlType], str]


def spark_cast(sql: str, source: SqlType, target: SqlType) -> str:
    """Text of the cast, NULL where it fails; "" where there is none."""
    if source == target:
        return sql
    if source.kind is Kind.NULL:
        return f"CAST(NULL AS {spark_type(target)})"
    if source.form or target.form:
        return sql if target == STRING else ""
    cast = _CASTS.get((source.kind, target.kind))
    return cast(sql, source, target) if cast else ""


def spark_cast_fails(sql: str, source: SqlType, target: SqlType) -> str:
    """TRUE where the reference raises; "" when it never does."""
    if (
        source == target
        or (target == STRING and source.form)
        or (source.kind, target.kind) in _TOTAL
        or source.kind is Kind.NULL
    ):
        return ""
    if target.kind is Kind.DECIMAL and _always_fits(source, target):
        return ""
    return f"({sql} IS NOT NULL AND {spark_cast(sql, source, target)} IS NULL)"


def _plain(sql: str, _source: SqlType, target: SqlType) -> str:
    return f"CAST({sql} AS {spark_type(target)})"


def _tried(sql: str, _source: SqlType, target: SqlType) -> str:
    """NULL where the value does not fit, in ANSI mode as well."""
    return f"TRY_CAST({sql} AS {spark_type(target)})"


def clamped(sql: str, target: SqlType) -> str:
    """The whole part of a DOUBLE, or the nearest number of the type; 0 for NaN."""
    bits = 31 if target.kind is Kind.INT else 63
    mark = "" if target.kind is Kind.INT else "L"
    high = f"WHEN {sql} >= CAST('{2**bits}' AS DOUBLE) THEN {2**bits - 1}{mark}"
    low = f"WHEN {sql} <= CAST('-{2**bits}' AS DOUBLE) THEN -{2**bits}{mark}"
    return f"(CASE WHEN isnan({sql}) THEN 0{mark} {high} {low} ELSE CAST({sql} AS {spark_type(target)}) END)"


def _decimal_cut(sql: str, source: SqlType, target: SqlType) -> str:
    """The low bits of the whole part."""
    if source.precision - source.scale > _WHOLE_DIGITS:
        return ""
    part = f"(CASE WHEN {sql} < 0 THEN ceil({sql}) ELSE floor({sql}) END)" if source.scale else sql
    fits = source.precision - source.scale < _BIGINT_DIGITS
    low = f"CAST({part} AS BIGINT)" if fits else wrapped_bigint(part)
    return wrapped_int(low) if target.kind is Kind.INT else low


def _decimal_text(sql: str, source: SqlType, _target: SqlType) -> str:
    return f"CAST({sql} AS STRING)" if source.scale <= _PLAIN_SCALE else ""


def _integer(sql: str, _source: SqlType, target: SqlType) -> str:
    return f"(CASE WHEN {_matches(sql, _DIGITS)} THEN TRY_CAST({trimmed(sql)} AS {spark_type(target)}) END)"


def _double(sql: str, _source: SqlType, _target: SqlType) -> str:
    digits = f"TRY_CAST(rtrim('fFdD', {trimmed(sql)}) AS DOUBLE)"
    named = f"TRY_CAST(ltrim('+', {trimmed(sql)}) AS DOUBLE)"
    return f"(CASE WHEN {_matches(sql, _NUMBER)} THEN {digits} WHEN {_matches(sql, _NAMED)} THEN {named} END)"


def _boolean(sql: str, _source: SqlType, _target: SqlType) -> str:
    return f"(lower({trimmed(sql)}) IN ('true', 't', 'yes', 'y'))"


def _matches(sql: str, pattern: str) -> str:
    return f"{sql} RLIKE {constant_text(pattern)}"


def date_has_text(days: str) -> str:
    return f"unix_date({days}) BETWEEN {FIRST_DAY} AND {LAST_DAY}"


def instant_has_text(ms: str) -> str:
    return f"{ms} BETWEEN {FIRST_DAY * _DAY_MS}L AND {(LAST_DAY + 1) * _DAY_MS - 1}L"


def _date_text(sql: str, _source: SqlType, _target: SqlType) -> str:
    return f"(CASE WHEN {date_has_text(sql)} THEN CAST({sql} AS STRING) END)"


def _instant_text(sql: str, _source: SqlType, _target: SqlType) -> str:
    written = written_time(sql, ("yyyy", "-", "MM", "-", "dd", "T", "HH", ":", "mm", ":", "ss", ".", "SSS"))
    return f"(CASE WHEN {instant_has_text(millis(sql))} THEN {written} END)"


def written_time(sql: str, pieces: Iterable[str]) -> str:
    """The text of a TIMESTAMP (or DATE, whose time is zero) of years with four digits: letters of java.time, or plain text.

    Spark's `date_format` reads a time without a zone as one of the session's, where some hours do not exist.
    """
    parts = [
        f"lpad(CAST({_FIELDS[p].format(sql, millis(sql))} AS STRING), {len(p)}, '0')"
        if p in _FIELDS
        else constant_text(p)
        for p in pieces
    ]
    return f"concat({', '.join(parts)})"


_FIELDS = {
    "yyyy": "year({0})",
    "MM": "month({0})",
    "dd": "day({0})",
    "HH": "hour({0})",
    "mm": "minute({0})",
    "ss": "second({0})",
    "SSS": "pmod({1}, 1000L)",
}


def _midnight(sql: str, _source: SqlType, _target: SqlType) -> str:
    return null_where(f"abs(CAST(unix_date({sql}) AS BIGINT)) > {_DAYS_MAX}", f"CAST({sql} AS TIMESTAMP_NTZ)")


def _time_of_day(sql: str, _source: SqlType, _target: SqlType) -> str:
    return f"CAST(pmod({millis(sql)}, {_DAY_MS}L) AS INT)"


def _always_fits(source: SqlType, target: SqlType) -> bool:
    digits, scale = {Kind.INT: (10, 0), Kind.BIGINT: (19, 0)}.get(source.kind, (source.precision, source.scale))
    return scale <= target.scale and digits - scale <= target.precision - target.scale


_CASTS: dict[tuple[Kind, Kind], Cast] = {
    **dict.fromkeys(
        [
            (Kind.INT, Kind.BIGINT),
            (Kind.INT, Kind.DOUBLE),
            (Kind.BIGINT, Kind.DOUBLE),
            (Kind.DECIMAL, Kind.DOUBLE),
            (Kind.INT, Kind.STRING),
            (Kind.BIGINT, Kind.STRING),
            (Kind.BOOLEAN, Kind.STRING),
            (Kind.TIMESTAMP, Kind.DATE),
            (Kind.MICROS, Kind.DATE),
        ],
        _plain,
    ),
    **dict.fromkeys([(k, Kind.DECIMAL) for k in (Kind.INT, Kind.BIGINT, Kind.DECIMAL)], _tried),
    **dict.fromkeys(
        [(Kind.DOUBLE, k) for k in (Kind.INT, Kind.BIGINT)], lambda sql, _source, target: clamped(sql, target)
    ),
    **dict.fromkeys([(Kind.DECIMAL, k) for k in (Kind.INT, Kind.BIGINT)], _decimal_cut),
    (Kind.BIGINT, Kind.INT): lambda sql, _source, _target: wrapped_int(sql),
    (Kind.DECIMAL, Kind.STRING): _decimal_text,
    (Kind.STRING, Kind.INT): _integer,
    (Kind.STRING, Kind.BIGINT): _integer,
    (Kind.STRING, Kind.DOUBLE): _double,
    (Kind.STRING, Kind.BOOLEAN): _boolean,
    (Kind.DATE, Kind.STRING): _date_text,
    (Kind.TIMESTAMP, Kind.STRING): _instant_text,
    (Kind.TIMESTAMP, Kind.TIME): _time_of_day,
    (Kind.DATE, Kind.TIMESTAMP): _midnight,
}
_CAN_FAIL = {
    (Kind.INT, Kind.DECIMAL),
    (Kind.BIGINT, Kind.DECIMAL),
    (Kind.DECIMAL, Kind.DECIMAL),
    (Kind.STRING, Kind.INT),
    (Kind.STRING, Kind.BIGINT),
    (Kind.STRING, Kind.DOUBLE),
    (Kind.DATE, Kind.STRING),
    (Kind.TIMESTAMP, Kind.STRING),
}
_TOTAL = frozenset(_CASTS) - _CAN_FAIL

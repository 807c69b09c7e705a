"""Spark lowerings of functions of texts, numbers, bytes, dates and times.

Case mapping is equal for all characters of Unicode 14; for the few that came later Spark's tables are newer than Python's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from flowql.compiler.functions.bounds import VALUE_BYTES_MAX
from flowql.compiler.functions.dates import unit_ms
from flowql.compiler.functions.registry import Lowering, lower_on_spark
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.spark_casts import clamped, date_has_text, instant_has_text, written_time
from flowql.compiler.functions.spark_operators import kept_least
from flowql.compiler.functions.spark_text import (
    INSTANT_MAX,
    from_millis,
    is_plain_text,
    millis,
    null_where,
    text,
    whole,
    wrapped_int,
)
from flowql.compiler.functions.temporal import DAY_MS
from flowql.compiler.plan.types import BIGINT, Kind

_CONTROLS = "".join(map(chr, range(33)))


def _texts(sql: Callable[[Sequence[str]], str]) -> Lowering:
    """For STRING, not for BYTES."""
    return lambda a, r: sql(a) if r.args[0].kind is Kind.STRING else ""


def _same(sql: str) -> Lowering:
    """A template of the arguments, `{0}` the first."""
    return lambda a, _r: sql.format(*a)


def _substring(args: Sequence[str]) -> str:
    s, position = args[0], args[1]
    known = whole(position)
    if known is None or known < 1:
        from_end = f"greatest(char_length({s}) + {position}, 0) + 1"
        position = f"(CASE WHEN {position} < 0 THEN {from_end} WHEN {position} = 0 THEN 1 ELSE {position} END)"
    return f"substring({', '.join([s, position, *args[2:]])})"


def _padded(function: str) -> Lowering:
    def sql(a: Sequence[str]) -> str:
        none = f"{a[1]} < 0 OR {a[2]} = '' OR {_too_long(a)}"
        return null_where(none, f"{function}({', '.join(a)})")

    return _texts(sql)


def _too_long(a: Sequence[str], _r: Resolution | None = None) -> str:
    """Whether padding makes more bytes than a value may have."""
    copies = f"(CAST({a[1]} AS BIGINT) - char_length({a[0]})) DIV nullif(char_length({a[2]}), 0)"
    size = f"octet_length({a[0]}) + {copies} * octet_length({a[2]})"
    large = f"({a[1]} > {VALUE_BYTES_MAX} OR {a[1]} > {VALUE_BYTES_MAX // 4} AND {size} > {VALUE_BYTES_MAX})"
    return f"({a[0]} IS NOT NULL AND {a[2]} <> '' AND {large})"


def _split(args: Sequence[str]) -> str:
    """By a constant delimiter; Spark's is a regular expression."""
    delimiter = args[1]
    if not is_plain_text(delimiter) or delimiter == "''":
        return ""
    return f"split({args[0]}, {text(chr(92) + 'Q')[:-1]}{delimiter[1:-1]}{text(chr(92) + 'E')[1:]}, -1)"


def _replaced(args: Sequence[str]) -> str:
    return f"replace({', '.join(args)})" if args[1].startswith("'") and args[1] != "''" else ""


lower_on_spark("LEN LENGTH", lambda a, r: f"{'char' if r.args[0].kind is Kind.STRING else 'octet'}_length({a[0]})")
lower_on_spark("UCASE UPPER", _same("upper({0})"))
lower_on_spark("LCASE LOWER", _same("lower({0})"))
lower_on_spark("TRIM", lambda a, _r: f"trim(BOTH {text(_CONTROLS)} FROM {a[0]})")
lower_on_spark("CONCAT", _texts(lambda a: f"concat({', '.join(f'coalesce({x}, {chr(39) * 2})' for x in a)})"))
lower_on_spark("CONCAT_WS", _texts(lambda a: f"concat_ws({', '.join(a)})"))
lower_on_spark("SUBSTRING SUBSTR", _texts(_substring))
lower_on_spark("LPAD", _padded("lpad"), _too_long)
lower_on_spark("RPAD", _padded("rpad"), _too_long)
lower_on_spark("REPLACE", _texts(_replaced))
lower_on_spark("INSTR", lambda a, _r: f"instr({a[0]}, {a[1]})" if len(a) == 2 else "")
lower_on_spark("SPLIT", _texts(_split))
lower_on_spark("STARTS_WITH", _same("startswith({0}, {1})"))
lower_on_spark("ENDS_WITH", _same("endswith({0}, {1})"))


def _absolute(args: Sequence[str], r: Resolution) -> str:
    v, kind = args[0], r.result.kind
    return kept_least(v, f"abs({v})", kind) if kind in (Kind.INT, Kind.BIGINT) else f"abs({v})"


lower_on_spark("ABS", _absolute)


def _round(args: Sequence[str], r: Resolution) -> str:
    """To a whole number; halves go towards positive infinity."""
    v, kind = args[0], r.args[0].kind
    if len(args) > 1:
        return ""
    if kind is Kind.DOUBLE:
        up = f"CASE WHEN {v} - CAST(floor({v}) AS DOUBLE) >= 0.5D THEN 1L ELSE 0L END"
        return f"(CASE WHEN abs({v}) < 4503599627370496D THEN floor({v}) + {up} ELSE {clamped(v, BIGINT)} END)"
    if kind is Kind.DECIMAL:
        return f"floor({v} + 0.5)" if r.args[0].precision < 38 and r.args[0].scale > 0 else ""
    return v


def _floor(v: str) -> str:
    """Floor of a double as a double; `rint` keeps infinities, NaN and the sign of zero."""
    return f"(CASE WHEN rint({v}) > {v} THEN rint({v}) - 1D ELSE rint({v}) END)"


def _step(double: Callable[[str], str]) -> Lowering:
    def lowering(args: Sequence[str], r: Resolution) -> str:
        if r.result.kind is Kind.DOUBLE:
            return double(args[0])
        return "" if r.result.kind is Kind.DECIMAL else args[0]

    return lowering


def _truncated(args: Sequence[str], r: Resolution) -> str:
    kind = r.args[0].kind
    if len(args) > 1 or kind is Kind.DECIMAL:
        return ""
    return clamped(args[0], BIGINT) if kind is Kind.DOUBLE else args[0]


lower_on_spark("ROUND", _round)
lower_on_spark("TRUNC", _truncated)
lower_on_spark("FLOOR", _step(_floor))
lower_on_spark("CEIL CEILING", _step(lambda v: f"(-{_floor(f'(-{v})')})"))
lower_on_spark("SIGN", _same("(CASE WHEN isnan(CAST({0} AS DOUBLE)) THEN 0 ELSE CAST(signum({0}) AS INT) END)"))
lower_on_spark("SQRT", _same("sqrt({0})"))
lower_on_spark("PI", _same(f"CAST('{math.pi!r}' AS DOUBLE)"))
# Java multiplies by a rounded quotient: the last digit would differ from the reference.
lower_on_spark("RADIANS", _same(f"({{0}} / 180D * CAST('{math.pi!r}' AS DOUBLE))"))
lower_on_spark("DEGREES", _same(f"({{0}} * 180D / CAST('{math.pi!r}' AS DOUBLE))"))


def _encoding(args: Sequence[str], wanted: str) -> bool:
    return args[1].lower().replace("-", "") == f"'{wanted}'"


lower_on_spark("TO_BYTES", lambda a, _r: f"CAST({a[0]} AS BINARY)" if _encoding(a, "utf8") else "")
lower_on_spark("FROM_BYTES", lambda a, _r: f"hex({a[0]})" if _encoding(a, "hex") else "")


def _instant(ms: str) -> str:
    return f"(CASE WHEN {ms} BETWEEN -{INSTANT_MAX}L AND {INSTANT_MAX}L THEN {from_millis(ms)} END)"


lower_on_spark("UNIX_TIMESTAMP", lambda a, _r: millis(a[0]) if a else "")
lower_on_spark("FROM_UNIXTIME", lambda a, _r: _instant(a[0]))
lower_on_spark("UNIX_DATE", lambda a, _r: f"unix_date({a[0]})" if a else "")
lower_on_spark("FROM_DAYS", _same("date_from_unix_date({0})"))


def _unit(sql: str) -> int | None:
    """Milliseconds of a constant unit."""
    try:
        return unit_ms(sql.strip("'")) if is_plain_text(sql) else None
    except ValueError:
        return None


def _moved(sign: int) -> Lowering:
    """Times move by whole units; dates by the whole days in them, downwards."""

    def lowering(args: Sequence[str], r: Resolution) -> str:
        unit = _unit(args[0])
        if unit is None:
            return ""
        by = f"CAST({args[1]} AS BIGINT) * {sign * unit}L"
        if r.result.kind is Kind.TIMESTAMP:
            return _instant(f"({millis(args[2])} + {by})")
        if r.result.kind is Kind.TIME:
            return f"CAST(pmod({args[2]} + {by}, {DAY_MS}L) AS INT)"
        days = f"(({by} - pmod({by}, {DAY_MS}L)) DIV {DAY_MS}L)"
        return f"date_from_unix_date({wrapped_int(f'(unix_date({args[2]}) + {days})')})"

    return lowering


lower_on_spark("DATEADD TIMEADD TIMESTAMPADD", _moved(1))
lower_on_spark("DATESUB TIMESUB TIMESTAMPSUB", _moved(-1))

# Letters that java.time and Spark write alike, each at its usual length.
_PIECE = re.compile(r"yyyy|MM|dd|HH|mm|ss|SSS|[ \-/:.,_]|\\'[A-Za-z ]+\\'")


def _pattern(args: Sequence[str]) -> list[str]:
    """The pieces of a pattern, as `written_time` takes them; none where Spark cannot write it."""
    if len(args) != 2 or not args[1].startswith("'"):
        return []
    pattern = args[1][1:-1]
    found = _PIECE.findall(pattern)
    return [p.replace("\\'", "") for p in found] if "".join(found) == pattern else []


def _format_timestamp(args: Sequence[str], r: Resolution) -> str:
    pieces = _pattern(args)
    if not pieces:
        return ""
    ms, value = _instant_of(args, r)
    return f"(CASE WHEN {instant_has_text(ms)} THEN {written_time(value, pieces)} END)"


def _instant_of(args: Sequence[str], r: Resolution) -> tuple[str, str]:
    if r.args[0].kind is Kind.TIMESTAMP:
        return millis(args[0]), args[0]
    return args[0], from_millis(args[0])


def _format_date(args: Sequence[str], r: Resolution) -> str:
    pieces = _pattern(args)
    if not pieces:
        return ""
    value = _date_of(args, r)
    midnight = f"CAST({value} AS TIMESTAMP_NTZ)"
    return f"(CASE WHEN {date_has_text(value)} THEN {written_time(midnight, pieces)} END)"


def _date_of(args: Sequence[str], r: Resolution) -> str:
    return args[0] if r.args[0].kind is Kind.DATE else f"date_from_unix_date({args[0]})"


lower_on_spark(
    "FORMAT_TIMESTAMP TIMESTAMPTOSTRING",
    _format_timestamp,
    lambda a, r: f"NOT ({instant_has_text(_instant_of(a, r)[0])})",
)
lower_on_spark("FORMAT_DATE DATETOSTRING", _format_date, lambda a, r: f"NOT ({date_has_text(_date_of(a, r))})")

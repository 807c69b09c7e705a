"""Functions of dates, times of day and timestamps."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from flowql.compiler.functions import java_time
from flowql.compiler.functions.registry import Lowering, define, named, scalar, takes, text
from flowql.compiler.functions.signatures import Resolution, not_accepted
from flowql.compiler.functions.spark_casts import date_has_text, instant_has_text, written_time
from flowql.compiler.functions.spark_text import INSTANT_MAX, from_millis, is_plain_text, millis, wrapped_int
from flowql.compiler.functions.temporal import DAY_MS, datetime_of, zone_of
from flowql.compiler.plan.types import BIGINT, DATE, INT, STRING, TIME, TIMESTAMP, Kind, SqlType

# The unit of DATEADD and its kin stands unquoted in SQL and arrives here as a STRING literal.
UNIT_MS = {
    "MILLISECONDS": 1,
    "SECONDS": 1000,
    "MINUTES": 60_000,
    "HOURS": 3_600_000,
    "DAYS": DAY_MS,
}
INTERVAL_FUNCTIONS = frozenset({"DATEADD", "DATESUB", "TIMEADD", "TIMESUB", "TIMESTAMPADD", "TIMESTAMPSUB"})


def _system_clock() -> int:
    return int(dt.datetime.now(dt.UTC).timestamp() * 1000)


class Clock:
    """The wall clock of UNIX_TIMESTAMP() and UNIX_DATE(); simulations put their own in `now_ms`."""

    now_ms: Callable[[], int] = staticmethod(_system_clock)


@lru_cache(maxsize=64)
def unit_ms(unit: str) -> int:
    """Milliseconds of a unit, singular or plural. Raises ValueError."""
    word = unit.upper()
    ms = UNIT_MS.get(word) or UNIT_MS.get(word + "S")
    if ms is None:
        raise ValueError(f"{unit!r} is not a time unit; use one of {', '.join(UNIT_MS)}")
    return ms


def convert_tz(ms: int, source: str, target: str) -> int:
    """The instant that shows in the source zone what this instant shows in the target zone."""
    there = datetime_of(ms, zone_of(target)).utcoffset() or dt.timedelta()
    here = datetime_of(ms, zone_of(source)).utcoffset() or dt.timedelta()
    return ms + (there - here) // dt.timedelta(milliseconds=1)


_IN_RANGE = 8_000_000_000_000_000  # ms that DuckDB's microsecond timestamps hold safely


def _instant_on_spark(ms: str) -> str:
    return f"(CASE WHEN {ms} BETWEEN -{INSTANT_MAX}L AND {INSTANT_MAX}L THEN {from_millis(ms)} END)"


def _unit(sql: str) -> int | None:
    """Milliseconds of a constant unit."""
    try:
        return unit_ms(sql.strip("'")) if is_plain_text(sql) else None
    except ValueError:
        return None


def _moved_on_spark(sign: int) -> Lowering:
    """Times move by whole units; dates by the whole days in them, downwards."""

    def lowering(args: Sequence[str], r: Resolution) -> str:
        unit = _unit(args[0])
        if unit is None:
            return ""
        by = f"CAST({args[1]} AS BIGINT) * {sign * unit}L"
        if r.result.kind is Kind.TIMESTAMP:
            return _instant_on_spark(f"({millis(args[2])} + {by})")
        if r.result.kind is Kind.TIME:
            return f"CAST(pmod({args[2]} + {by}, {DAY_MS}L) AS INT)"
        days = f"(({by} - pmod({by}, {DAY_MS}L)) DIV {DAY_MS}L)"
        return f"date_from_unix_date({wrapped_int(f'(unix_date({args[2]}) + {days})')})"

    return lowering


def _adder(name: str, t: SqlType, sign: int) -> None:
    """DATEADD and its kin: (unit, number, value)."""

    def resolve(types: tuple[SqlType, ...]) -> Resolution:
        wanted = (Kind.STRING, Kind.INT, t.kind)
        if len(types) != 3 or any(x.kind not in (w, Kind.NULL) for x, w in zip(types, wanted, strict=True)):
            raise not_accepted(name, types, f"it takes {name}(unit, INT, {t})")
        return Resolution((STRING, INT, t), t)

    def moved(unit: str, n: int, value: int) -> int:
        if t.kind is Kind.TIMESTAMP:
            return value + sign * n * unit_ms(unit)
        if t.kind is Kind.TIME:
            return (value + sign * n * unit_ms(unit)) % DAY_MS
        return value + sign * n * unit_ms(unit) // DAY_MS

    define(name, resolve, lambda _r: moved, spark=_moved_on_spark(sign))


_adder("DATEADD", DATE, 1)
_adder("DATESUB", DATE, -1)
_adder("TIMEADD", TIME, 1)
_adder("TIMESUB", TIME, -1)
_adder("TIMESTAMPADD", TIMESTAMP, 1)
_adder("TIMESTAMPSUB", TIMESTAMP, -1)

scalar(
    "UNIX_TIMESTAMP",
    takes(TIMESTAMP, gives=BIGINT, needs=0),
    by=lambda *ts: ts[0] if ts else Clock.now_ms(),
    deterministic=False,
    duckdb=lambda a, _r: f"epoch_ms({a[0]})" if a else "",
    spark=lambda a, _r: millis(a[0]) if a else "",
)
scalar(
    "FROM_UNIXTIME",
    takes(BIGINT, gives=TIMESTAMP),
    by=lambda ms: ms,
    duckdb=text(lambda a: f"CAST(TRY(epoch_ms({a})) AS TIMESTAMP_MS)"),
    declines=lambda a, _r: f"({a[0]} NOT BETWEEN -{_IN_RANGE} AND {_IN_RANGE})",
    spark=text(_instant_on_spark),
)
scalar(
    "UNIX_DATE",
    takes(DATE, gives=INT, needs=0),
    by=lambda *d: d[0] if d else Clock.now_ms() // DAY_MS,
    deterministic=False,
    duckdb=lambda a, _r: f"CAST(({a[0]} - DATE '1970-01-01') AS INTEGER)" if a else "",
    spark=lambda a, _r: f"unix_date({a[0]})" if a else "",
)
scalar(
    "FROM_DAYS",
    takes(INT, gives=DATE),
    by=lambda n: n,
    duckdb=text(lambda a: f"TRY(DATE '1970-01-01' + {a})"),
    declines=lambda a, _r: f"({a[0]} NOT BETWEEN -700000 AND 2900000)",
    spark=named("date_from_unix_date"),
)
scalar("CONVERT_TZ", takes(TIMESTAMP, STRING, STRING, gives=TIMESTAMP), by=convert_tz)


# Letters that java.time and Spark write alike, each at its usual length.
_PIECE = re.compile(r"yyyy|MM|dd|HH|mm|ss|SSS|[ \-/:.,_]|\\'[A-Za-z ]+\\'")


def _pattern(args: Sequence[str]) -> list[str]:
    """The pieces of a pattern, as `written_time` takes them; none where Spark cannot write it."""
    if len(args) != 2 or not args[1].startswith("'"):
        return []
    pattern = args[1][1:-1]
    found = _PIECE.findall(pattern)
    return [p.replace("\\'", "") for p in found] if "".join(found) == pattern else []


def _timestamp_on_spark(args: Sequence[str], r: Resolution) -> str:
    pieces = _pattern(args)
    if not pieces:
        return ""
    ms, value = _instant_of(args, r)
    return f"(CASE WHEN {instant_has_text(ms)} THEN {written_time(value, pieces)} END)"


def _instant_of(args: Sequence[str], r: Resolution) -> tuple[str, str]:
    if r.args[0].kind is Kind.TIMESTAMP:
        return millis(args[0]), args[0]
    return args[0], from_millis(args[0])


def _date_on_spark(args: Sequence[str], r: Resolution) -> str:
    pieces = _pattern(args)
    if not pieces:
        return ""
    value = _date_of(args, r)
    midnight = f"CAST({value} AS TIMESTAMP_NTZ)"
    return f"(CASE WHEN {date_has_text(value)} THEN {written_time(midnight, pieces)} END)"


def _date_of(args: Sequence[str], r: Resolution) -> str:
    return args[0] if r.args[0].kind is Kind.DATE else f"date_from_unix_date({args[0]})"


for _name, _type in (
    ("FORMAT_TIMESTAMP", TIMESTAMP),
    ("TIMESTAMPTOSTRING", BIGINT),
):
    scalar(
        _name,
        takes(_type, STRING, STRING, gives=STRING, needs=2),
        by=java_time.format_timestamp,
        spark=_timestamp_on_spark,
        spark_fails=lambda a, r: f"NOT ({instant_has_text(_instant_of(a, r)[0])})",
    )
for _name, _type in (
    ("PARSE_TIMESTAMP", TIMESTAMP),
    ("STRINGTOTIMESTAMP", BIGINT),
):
    scalar(
        _name,
        takes(STRING, STRING, STRING, gives=_type, needs=2),
        by=java_time.parse_timestamp,
    )
for _name, _type in (("FORMAT_DATE", DATE), ("DATETOSTRING", INT)):
    scalar(
        _name,
        takes(_type, STRING, gives=STRING),
        by=java_time.format_date,
        spark=_date_on_spark,
        spark_fails=lambda a, r: f"NOT ({date_has_text(_date_of(a, r))})",
    )
for _name, _type in (("PARSE_DATE", DATE), ("STRINGTODATE", INT)):
    scalar(_name, takes(STRING, STRING, gives=_type), by=java_time.parse_date)
scalar("FORMAT_TIME", takes(TIME, STRING, gives=STRING), by=java_time.format_time)
scalar("PARSE_TIME", takes(STRING, STRING, gives=TIME), by=java_time.parse_time)

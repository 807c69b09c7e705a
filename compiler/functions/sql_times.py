"""Parts of dates, times, timestamps and intervals in standard SQL, moments made of parts, and the present moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

from flowql.compiler.functions.dates import Clock
from flowql.compiler.functions.java_time import format_timestamp, parse_timestamp
from flowql.compiler.functions.registry import Lowering, Reference, Resolve, standard, takes
from flowql.compiler.functions.signatures import Resolution, not_accepted
from flowql.compiler.functions.sql_calendar import (
    by_unit,
    century,
    checked_day,
    checked_micros,
    checked_timestamp,
    civil,
    day_of,
    iso_week,
    month_days,
    shown_year,
)
from flowql.compiler.functions.sql_intervals import DAY_MICROS, Interval
from flowql.compiler.functions.temporal import DAY_MS
from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    MICROS,
    MICROSTZ,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    Kind,
    SqlType,
    decimal,
)

_ALIASES = {
    "YEARS": "YEAR", "MONTHS": "MONTH", "DAYS": "DAY", "HOURS": "HOUR", "MINUTES": "MINUTE", "SECONDS": "SECOND", "WEEKS": "WEEK",
    "QUARTERS": "QUARTER", "DECADES": "DECADE", "CENTURIES": "CENTURY", "MILLENNIUMS": "MILLENNIUM", "MILLENNIA": "MILLENNIUM",
    "MILLISECOND": "MILLISECONDS", "MICROSECOND": "MICROSECONDS", "MS": "MILLISECONDS", "US": "MICROSECONDS",
}  # fmt: skip
# Parts that have places behind the point, and how many.
_PLACES = {"SECOND": (8, 6), "MILLISECONDS": (8, 3), "EPOCH": (25, 6)}
_WHOLE = decimal(12, 0)
_SAFE_DAY = 600_000  # DuckDB's calendar is tested up to here, in the years 328 to 3612


def part_name(written: str) -> str:
    """A part in upper case and singular, as PostgreSQL knows it."""
    word = written.strip().upper()
    return _ALIASES.get(word, word)


def part_type(written: str) -> SqlType:
    """The type of EXTRACT of a part."""
    return decimal(*_PLACES[part_name(written)]) if part_name(written) in _PLACES else _WHOLE


def _of_day(name: str) -> Callable[[int], int] | None:
    parts: dict[str, Callable[[int], int]] = {
        "MILLENNIUM": lambda day: century(civil(day)[0], 1000),
        "CENTURY": lambda day: century(civil(day)[0], 100),
        "DECADE": lambda day: civil(day)[0] // 10,
        "YEAR": lambda day: shown_year(civil(day)[0]),
        "QUARTER": lambda day: (civil(day)[1] + 2) // 3,
        "MONTH": lambda day: civil(day)[1],
        "DAY": lambda day: civil(day)[2],
        "DOW": lambda day: (day + 4) % 7,
        "ISODOW": lambda day: (day + 3) % 7 + 1,
        "DOY": lambda day: day - day_of(civil(day)[0], 1, 1) + 1,
        "WEEK": lambda day: iso_week(day)[1],
        "ISOYEAR": lambda day: shown_year(iso_week(day)[0]),
    }
    return parts.get(name)


def _of_clock(name: str) -> Callable[[int], Decimal | int] | None:
    """The function that takes a part of a time of day, given in microseconds since midnight."""
    parts: dict[str, Callable[[int], Decimal | int]] = {
        "HOUR": lambda us: us // 3_600_000_000,
        "MINUTE": lambda us: us // 60_000_000 % 60,
        "SECOND": lambda us: Decimal(us % 60_000_000).scaleb(-6),
        "MILLISECONDS": lambda us: Decimal(us % 60_000_000).scaleb(-3),
        "MICROSECONDS": lambda us: us % 60_000_000,
    }
    return parts.get(name)


def _of_interval(name: str) -> Callable[[Interval], Decimal | int] | None:
    def years(months: int) -> int:
        return int(months / 12)

    parts: dict[str, Callable[[Interval], Decimal | int]] = {
        "MILLENNIUM": lambda i: int(years(i[0]) / 1000),
        "CENTURY": lambda i: int(years(i[0]) / 100),
        "DECADE": lambda i: int(years(i[0]) / 10),
        "YEAR": lambda i: years(i[0]),
        "QUARTER": lambda i: (i[0] - years(i[0]) * 12) // 3 + 1,
        "MONTH": lambda i: i[0] - years(i[0]) * 12,
        "DAY": lambda i: i[1],
        "HOUR": lambda i: int(i[2] / 3_600_000_000),
        "MINUTE": lambda i: int(_rest(i[2], 3_600_000_000) / 60_000_000),
        "SECOND": lambda i: Decimal(_rest(i[2], 60_000_000)).scaleb(-6),
        "MILLISECONDS": lambda i: Decimal(_rest(i[2], 60_000_000)).scaleb(-3),
        "MICROSECONDS": lambda i: _rest(i[2], 60_000_000),
        "EPOCH": _interval_epoch,
    }
    return parts.get(name)


def _interval_epoch(i: Interval) -> Decimal:
    """A year has 365.25 days here, a month 30."""
    years = int(i[0] / 12)
    quarters = years * 1461 + ((i[0] - years * 12) * 30 + i[1]) * 4
    return Decimal(quarters * (DAY_MICROS // 4) + i[2]).scaleb(-6)


def _rest(micros: int, unit: int) -> int:
    return micros % unit if micros >= 0 else -(-micros % unit)


@lru_cache(maxsize=256)
def _part(name: str, kind: Kind) -> Callable[[Any], Decimal | int]:
    """The function with which EXTRACT takes a part of values of a kind. Raises ValueError."""
    found: Callable[[Any], Decimal | int] | None = None
    if kind is Kind.INTERVAL:
        found = _of_interval(name)
    elif kind is Kind.TIME:
        found = (lambda us: Decimal(us).scaleb(-6)) if name == "EPOCH" else _of_clock(name)
    elif kind is Kind.DATE:
        found = (lambda day: day * 86_400) if name == "EPOCH" else _of_day(name)
    elif name == "EPOCH":
        found = lambda us: Decimal(us).scaleb(-6)  # noqa: E731
    elif (of_day := _of_day(name)) is not None:
        found = lambda us: of_day(us // DAY_MICROS)  # noqa: E731
    elif (of_clock := _of_clock(name)) is not None:
        found = lambda us: of_clock(us % DAY_MICROS)  # noqa: E731
    if found is None:
        shown = "timestamp" if kind is Kind.MICROS else kind.value.lower()
        raise ValueError(f'unit "{name.lower()}" not supported for type {shown}')
    if kind in (Kind.TIME, Kind.TIMESTAMP):
        of_micros = found
        return lambda ms: of_micros(ms * 1000)
    return found


def check_part(written: str, kind: Kind) -> None:
    """Raises ValueError for a part that values of a kind do not have."""
    _part(part_name(written), kind)


_PARTED = (Kind.TIMESTAMP, Kind.MICROS, Kind.DATE, Kind.TIME, Kind.INTERVAL)


def _part_of(written: str, result: SqlType) -> Resolve:
    def resolve(types: tuple[SqlType, ...]) -> Resolution:
        if (
            len(types) != 2
            or types[0].kind not in (Kind.STRING, Kind.NULL)
            or types[1].kind not in (*_PARTED, Kind.NULL)
        ):
            raise not_accepted(written, types, f"it takes {written}(part, time)")
        return Resolution((STRING, types[1] if types[1].kind in _PARTED else TIMESTAMP), result)

    return resolve  # fmt: skip


def _extract(r: Resolution) -> Reference:
    kind, quantum = r.args[1].kind, Decimal(1).scaleb(-r.result.scale)

    def run(part: str, v: Any) -> Decimal:
        return Decimal(_part(part_name(part), kind)(v)).quantize(quantum)

    return run


# DuckDB's date_part of what has one meaning in both.
_LOWERED = frozenset({"YEAR", "QUARTER", "MONTH", "DAY", "DOW", "ISODOW", "DOY", "WEEK", "ISOYEAR", "HOUR", "MINUTE"})


def _part_sql(args: Sequence[str], r: Resolution) -> str:
    name, kind = _constant(args[0]), r.args[1].kind
    if kind is Kind.TIMESTAMP and name == "EPOCH" and r.result.kind is Kind.DECIMAL:
        return f"(CAST(epoch_ms({args[1]}) AS DECIMAL(22, 0)) * CAST('0.001' AS DECIMAL(3, 3)))"
    if kind is Kind.MICROS and name == "EPOCH" and r.result.kind is Kind.DECIMAL:
        return f"(CAST(epoch_us({args[1]}) AS DECIMAL(22, 0)) * CAST('0.000001' AS DECIMAL(6, 6)))"
    clock = name in ("HOUR", "MINUTE")
    if name not in _LOWERED or kind not in (Kind.TIMESTAMP, Kind.MICROS, Kind.DATE) or (clock and kind is Kind.DATE):
        return ""
    return f"date_part('{name.lower()}', {args[1]})"


def _constant(sql: str) -> str:
    return part_name(sql[1:-1]) if sql.startswith("'") and sql.endswith("'") else ""


def _range_declines(at: int) -> Lowering:
    def lowering(args: Sequence[str], r: Resolution) -> str:
        days = f"CAST({args[at]} AS DATE) - DATE '1970-01-01'"
        return f"(({days}) NOT BETWEEN -{_SAFE_DAY} AND {_SAFE_DAY})"

    return lowering


standard(
    "EXTRACT",
    resolve=_part_of("EXTRACT", decimal(25, 6)),
    by_types=_extract,
    duckdb=_part_sql,
    declines=_range_declines(1),
)
standard(
    "DATE_PART",
    resolve=_part_of("DATE_PART", DOUBLE),
    by_types=lambda r: lambda part, v: float(_part(part_name(part), r.args[1].kind)(v)),
    duckdb=_part_sql,
    declines=_range_declines(1),
)


def _first_of(year: int, month: int = 1) -> int:
    return day_of(year, month, 1) * DAY_MS


def _span_start(year: int, years: int) -> int:
    """The first year of a century or millennium, which begins with a year 1."""
    return (year - 1) // years * years + 1


_TRUNCATED: Mapping[str, Callable[[int], int]] = {
    "MICROSECONDS": lambda ms: ms,
    "MILLISECONDS": lambda ms: ms,
    "SECOND": lambda ms: ms // 1000 * 1000,
    "MINUTE": lambda ms: ms // 60_000 * 60_000,
    "HOUR": lambda ms: ms // 3_600_000 * 3_600_000,
    "DAY": lambda ms: ms // DAY_MS * DAY_MS,
    "WEEK": lambda ms: ((ms // DAY_MS + 3) // 7 * 7 - 3) * DAY_MS,
    "MONTH": lambda ms: _first_of(*civil(ms // DAY_MS)[:2]),
    "QUARTER": lambda ms: (lambda c: _first_of(c[0], (c[1] - 1) // 3 * 3 + 1))(civil(ms // DAY_MS)),
    "YEAR": lambda ms: _first_of(civil(ms // DAY_MS)[0]),
    "DECADE": lambda ms: _first_of(civil(ms // DAY_MS)[0] // 10 * 10),
    "CENTURY": lambda ms: _first_of(_span_start(civil(ms // DAY_MS)[0], 100)),
    "MILLENNIUM": lambda ms: _first_of(_span_start(civil(ms // DAY_MS)[0], 1000)),
}
_TRUNCATED_IN_DUCKDB = frozenset({"SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"})


def truncation(written: str) -> Callable[[int], int]:
    """The beginning of the unit that a timestamp is in. Raises ValueError for what is no unit."""
    found = _TRUNCATED.get(part_name(written))
    if found is None:
        raise ValueError(f'unit "{written.lower()}" not recognized for type timestamp')
    return found


def truncated_micros(written: str, us: int) -> int:
    """As `truncation`, of a moment in microseconds. Raises ValueError."""
    name = part_name(written)
    return us if name == "MICROSECONDS" else truncation(written)(us // 1000) * 1000


def _trunc_sql(args: Sequence[str], _r: Resolution) -> str:
    name = _constant(args[0])
    return f"date_trunc('{name.lower()}', {args[1]})" if name in _TRUNCATED_IN_DUCKDB else ""


standard(
    "DATE_TRUNC",
    takes(STRING, TIMESTAMP, gives=TIMESTAMP),
    takes(STRING, TIMESTAMPTZ, gives=TIMESTAMPTZ),
    takes(STRING, MICROS, gives=MICROS),
    takes(STRING, MICROSTZ, gives=MICROSTZ),
    by_types=by_unit(
        lambda part, ms: checked_timestamp(truncation(part)(ms)),
        lambda part, us: checked_micros(truncated_micros(part, us)),
    ),
    duckdb=_trunc_sql,
    declines=_range_declines(1),
)


def made_date(year: int, month: int, day: int) -> int:
    """Negative years are before Christ. Raises ValueError."""
    of_calendar = year if year > 0 else year + 1
    if year == 0 or not 1 <= month <= 12 or not 1 <= day <= month_days(of_calendar, month):
        raise ValueError(f"date field value out of range: {year}-{month:02d}-{day:02d}")
    return checked_day(day_of(of_calendar, month, day))


def made_time(hour: int, minute: int, second: float) -> int:
    """Milliseconds of the day. Raises ValueError."""
    ms = round(second * 1000) if 0 <= second < 60 else -1
    if not (0 <= hour < 24 and 0 <= minute < 60) or ms < 0:
        raise ValueError(f"time field value out of range: {hour}:{minute:02d}:{second}")
    if abs(second * 1000 - ms) > 1e-6:
        raise ValueError("a part of a millisecond is not supported")
    return (hour * 60 + minute) * 60_000 + ms


def made_timestamp(year: int, month: int, day: int, hour: int, minute: int, second: float) -> int:
    """Raises ValueError."""
    return checked_timestamp(made_date(year, month, day) * DAY_MS + made_time(hour, minute, second))


standard("MAKE_DATE", takes(INT, INT, INT, gives=DATE), by=made_date)
standard("MAKE_TIME", takes(INT, INT, DOUBLE, gives=TIME), by=made_time)
standard(
    "MAKE_TIMESTAMP",
    takes(INT, INT, INT, INT, INT, DOUBLE, gives=TIMESTAMP),
    by=made_timestamp,
)
standard(
    "NOW",
    takes(gives=TIMESTAMPTZ),
    by=lambda: Clock.now_ms(),
    deterministic=False,
    also=("CURRENT_TIMESTAMP", "TRANSACTION_TIMESTAMP", "STATEMENT_TIMESTAMP"),
)
standard("LOCALTIMESTAMP", takes(gives=TIMESTAMP), by=lambda: Clock.now_ms(), deterministic=False)
standard(
    "CURRENT_DATE",
    takes(gives=DATE),
    by=lambda: Clock.now_ms() // DAY_MS,
    deterministic=False,
)


def _overlaps(a: int | None, b: int | None, c: int | None, d: int | None) -> bool | None:
    """Whether times that begin at a and end before b share a moment with those of c and d; as PostgreSQL, where a NULL is an open end."""
    if (a is None and b is None) or (c is None and d is None):
        return None
    start, end = _ordered(a, b)
    other_start, other_end = _ordered(c, d)
    if start == other_start:
        return None if end is None or other_end is None else True
    first_end, later, last_end = (other_end, start, end) if start > other_start else (end, other_start, other_end)
    if first_end is None:
        return None
    return True if later < first_end else None if last_end is None else False


def _ordered(start: int | None, end: int | None) -> tuple[int, int | None]:
    if start is None:
        assert end is not None
        return end, None
    return (end, start) if end is not None and end < start else (start, end)


standard(
    "OVERLAPS",
    *(takes(t, t, t, t, gives=BOOLEAN) for t in (TIMESTAMP, TIMESTAMPTZ, DATE, TIME, MICROS, MICROSTZ)),
    by=_overlaps,
    null_propagating=False,
)


_UNIT_MS = {"MILLISECOND": 1, "SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": DAY_MS, "WEEK": 7 * DAY_MS}
_UNIT_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def _between(unit: str, start: int, end: int, *, per_ms: int = 1) -> int:
    """Whole units from one moment to another, cut towards zero. per_ms: so much do moments count in a millisecond. Raises ValueError."""
    name = part_name(unit).removesuffix("S")
    if name in _UNIT_MS:
        whole = abs(end - start) // (_UNIT_MS[name] * per_ms)
    elif name == "MICROSECOND" and per_ms > 1:
        whole = abs(end - start)
    elif name in _UNIT_MONTHS:
        whole = _months(min(start, end), max(start, end), DAY_MS * per_ms) // _UNIT_MONTHS[name]
    else:
        raise ValueError(f"{unit} is not a unit of TIMESTAMPDIFF")
    return whole if end >= start else -whole


def _months(start: int, end: int, a_day: int) -> int:
    """Months that have passed: those whose day and time of day have come. a_day: the length of a day."""
    (day, of_day), (last_day, of_last_day) = divmod(start, a_day), divmod(end, a_day)
    first, last = civil(day), civil(last_day)
    passed = (last[0] - first[0]) * 12 + last[1] - first[1]
    return passed - ((last[2], of_last_day) < (first[2], of_day))


standard(
    "TIMESTAMPDIFF",
    takes(STRING, TIMESTAMP, TIMESTAMP, gives=BIGINT),
    takes(STRING, TIMESTAMPTZ, TIMESTAMPTZ, gives=BIGINT),
    takes(STRING, MICROS, MICROS, gives=BIGINT),
    takes(STRING, MICROSTZ, MICROSTZ, gives=BIGINT),
    by_types=by_unit(_between, partial(_between, per_ms=1000)),
)


# --- seconds since 1970, as Flink and Spark have them; functions of these names in ksqlDB count milliseconds ---


PATTERN = "yyyy-MM-dd HH:mm:ss"


def _seconds(*moment: int | str) -> int:
    """The seconds of now; of a timestamp, in ms, its whole seconds; of a string by the usual pattern or the given one."""
    match moment:
        case ():
            return Clock.now_ms() // 1000
        case (int() as ms,):
            return ms // 1000
        case (str() as text,):
            return parse_timestamp(text, PATTERN, strict=True) // 1000
        case (str() as text, str() as pattern):
            return parse_timestamp(text, pattern, strict=True) // 1000
    raise AssertionError(moment)


standard(
    "FROM_UNIXTIME",
    takes(BIGINT, STRING, gives=STRING, needs=1),
    by=lambda seconds, pattern=PATTERN: format_timestamp(seconds * 1000, pattern),
)
standard(
    "UNIX_TIMESTAMP",
    takes(TIMESTAMP, gives=BIGINT, needs=0),
    takes(STRING, STRING, gives=BIGINT, needs=1),
    by=_seconds,
    deterministic=False,
)

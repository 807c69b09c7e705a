"""Functions of standard SQL that take a time zone (see `flowql.compiler.functions.sql_zones`)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from flowql.compiler.functions.registry import Reference, define, resolver, standard, takes
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.sql_calendar import on_ms
from flowql.compiler.functions.sql_intervals import Interval, interval_text
from flowql.compiler.functions.sql_text_casts import utc_of
from flowql.compiler.functions.sql_times import made_timestamp, part_name, truncated_micros, truncation
from flowql.compiler.functions.sql_zones import zone_given, zone_named
from flowql.compiler.functions.temporal import datetime_of, millis_of
from flowql.compiler.plan.types import (
    DOUBLE,
    INT,
    INTERVAL,
    MICROS,
    MICROSTZ,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    Kind,
)

_SECOND_MICROS = 1_000_000
_WITHIN_HOURS = frozenset({"MICROSECONDS", "MILLISECONDS", "SECOND", "MINUTE", "HOUR"})
_PAIRS = ((TIMESTAMP, TIMESTAMPTZ), (TIMESTAMPTZ, TIMESTAMP), (MICROS, MICROSTZ), (MICROSTZ, MICROS))


def shown(ms: int, zone: dt.tzinfo) -> int:
    """The local time of a zone at a moment, as a timestamp."""
    return millis_of(datetime_of(ms, zone).replace(tzinfo=dt.UTC))


def shown_in(zone: str, us: int) -> int:
    """The local time of a zone at a moment in microseconds. Raises ValueError."""
    return on_ms(lambda ms: shown(ms, zone_named(zone)))(us)


def moment_in(zone: str, us: int) -> int:
    """The moment, in microseconds, when clocks of a zone show this. Raises ValueError."""
    return on_ms(lambda ms: utc_of(ms, zone_named(zone)))(us)


def _at_zone(r: Resolution) -> Reference:
    to_moment, of_micros = r.result.zoned, r.result.kind is Kind.MICROS

    def by_interval(zone: Interval, value: int) -> int:
        east = _east_s(zone) * (_SECOND_MICROS if of_micros else 1000)
        return value - east if to_moment else value + east

    if r.args[0].kind is Kind.INTERVAL:
        return by_interval
    if of_micros:
        return moment_in if to_moment else shown_in
    if to_moment:
        return lambda zone, ms: utc_of(ms, zone_named(zone))
    return lambda zone, ms: shown(ms, zone_named(zone))


def _east_s(zone: Interval) -> int:
    """Seconds to the east. Raises ValueError."""
    months, days, micros = zone
    if months or days:
        raise ValueError(f'interval time zone "{interval_text(zone)}" must not include months or days')
    return micros // _SECOND_MICROS if micros >= 0 else -(-micros // _SECOND_MICROS)


def _truncated(r: Resolution) -> Callable[[str, int, str], int]:
    def truncated(unit: str, ms: int, name: str) -> int:
        zone, cut = zone_named(name), truncation(unit)
        local = shown(ms, zone)
        if part_name(unit) in _WITHIN_HOURS:  # an hour that clocks show twice stays the one that it is
            return ms - (local - cut(local))
        return utc_of(cut(local), zone)

    def of_micros(unit: str, us: int, name: str) -> int:
        if part_name(unit) == "MICROSECONDS":
            zone_named(name)
            return truncated_micros(unit, us)
        return truncated(unit, us // 1000, name) * 1000

    return of_micros if r.result.kind is Kind.MICROS else truncated


def _moment_of(year: int, month: int, day: int, hour: int, minute: int, second: float, zone: str = "UTC") -> int:
    """Raises ValueError."""
    return utc_of(made_timestamp(year, month, day, hour, minute, second), zone_given(zone))


standard(
    "TIMEZONE",
    *(takes(by, t, gives=to) for by in (STRING, INTERVAL) for t, to in _PAIRS),
    by_types=_at_zone,
)
standard(
    "MAKE_TIMESTAMPTZ",
    takes(INT, INT, INT, INT, INT, DOUBLE, STRING, gives=TIMESTAMPTZ, needs=6),
    by=_moment_of,
)
define(
    "sql_date_trunc_in",
    resolver(
        "DATE_TRUNC",
        takes(STRING, TIMESTAMPTZ, STRING, gives=TIMESTAMPTZ),
        takes(STRING, MICROSTZ, STRING, gives=MICROSTZ),
    ),
    _truncated,
)

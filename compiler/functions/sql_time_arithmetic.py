"""Operators of standard SQL between dates, times, timestamps and intervals: what `sql_add`, `sql_sub`, `sql_mul`, `sql_div` and `sql_neg`
mean for them. Months and years move by the calendar, to the last day of a shorter month.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.sql_calendar import checked_day, checked_micros, checked_timestamp, months_later
from flowql.compiler.functions.sql_intervals import (
    DAY_MICROS,
    Interval,
    between,
    divided,
    interval,
    interval_sql,
    minus,
    negated,
    plus,
    scaled,
    whole_ms,
)
from flowql.compiler.functions.temporal import DAY_MS
from flowql.compiler.plan.types import BIGINT, DATE, INT, INTERVAL, MICROS, TIME, TIMESTAMP, Kind, SqlType

_TEMPORAL = frozenset({Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS, Kind.INTERVAL})
_MOMENTS = (Kind.TIMESTAMP, Kind.MICROS)
_SAFE_MS = 60_000_000_000_000  # to the years 69 and 3871: months added stay within DuckDB's timestamps
_SAFE_MONTHS, _SAFE_DAYS = 12_000, 365_000


@dataclass(frozen=True, slots=True)
class Rule:
    """One pair of kinds. sql: of the two arguments; "" without a lowering. declines: as of a Function."""

    args: tuple[SqlType, ...]
    result: SqlType
    by: Callable[..., Any]
    sql: Callable[..., str] = lambda *_: ""
    declines: Callable[..., str] = lambda *_: ""


def later(ms: int, span: Interval) -> int:
    """A timestamp and an interval. Raises NumericOverflow."""
    months, days, micros = span
    day, rest = divmod(ms, DAY_MS)
    if months:
        day = months_later(day, months)
    return checked_timestamp((day + days) * DAY_MS + rest + whole_ms(micros))


def earlier(ms: int, span: Interval) -> int:
    return later(ms, negated(span))


def later_micros(us: int, span: Interval) -> int:
    """As `later`, of microseconds. Raises NumericOverflow."""
    months, days, micros = span
    day, rest = divmod(us, DAY_MICROS)
    if months:
        day = months_later(day, months)
    return checked_micros((day + days) * DAY_MICROS + rest + micros)


def earlier_micros(us: int, span: Interval) -> int:
    return later_micros(us, negated(span))


def _moved(v: str, span: str, sign: str) -> str:
    return f"TRY({v} {sign} {span})"


def _moved_declines(v: str, span: str) -> str:
    """Where the reference may fail, or DuckDB's range ends."""
    return f"({_far(v, span)} OR date_part('microsecond', {span}) % 1000 <> 0)"


def _far(v: str, span: str) -> str:
    within = f"epoch_ms(CAST({v} AS TIMESTAMP)) BETWEEN -{_SAFE_MS} AND {_SAFE_MS}"
    months = f"date_part('year', {span}) * 12 + date_part('month', {span})"
    short = f"abs({months}) < {_SAFE_MONTHS} AND abs(date_part('day', {span})) < {_SAFE_DAYS} AND abs(date_part('hour', {span})) < {_SAFE_DAYS}"
    return f"(NOT ({within} AND {short}))"


def _difference(a: str, b: str) -> str:
    ms = f"(epoch_ms({a}) - epoch_ms({b}))"
    return interval_sql("0", f"CAST({ms} // {DAY_MS} AS INTEGER)", f"({ms} % {DAY_MS}) * 1000")


def _difference_micros(a: str, b: str) -> str:
    us = f"(epoch_us({a}) - epoch_us({b}))"
    return interval_sql("0", f"CAST({us} // {DAY_MICROS} AS INTEGER)", f"{us} % {DAY_MICROS}")


def _unsafe(*values: str) -> str:
    return "(" + " OR ".join(f"epoch_ms({v}) NOT BETWEEN -{_SAFE_MS} AND {_SAFE_MS}" for v in values) + ")"


def _of_time(ms: int, span: Interval, sign: int) -> int:
    """A time of day passes midnight; whole days and months do not count."""
    return (ms + sign * whole_ms(span[2])) % DAY_MS


def _days(day: str, n: str, sign: str) -> str:
    return f"TRY({day} {sign} CAST({n} AS INTEGER))"


def _days_decline(day: str, n: str) -> str:
    return f"({day} NOT BETWEEN DATE '0100-01-01' AND DATE '9000-01-01' OR {n} NOT BETWEEN -30000 AND 300000)"


def _table() -> dict[tuple[str, Kind, Kind], Rule]:
    found: dict[tuple[str, Kind, Kind], Rule] = {}
    moment = (TIMESTAMP, INTERVAL)
    for op, sign, move in (("add", "+", later), ("sub", "-", earlier)):
        for kind in (Kind.TIMESTAMP, Kind.DATE):
            found[op, kind, Kind.INTERVAL] = Rule(
                moment, TIMESTAMP, move, lambda a, b, s=sign: _moved(a, b, s), _moved_declines
            )
        exact = later_micros if op == "add" else earlier_micros
        found[op, Kind.MICROS, Kind.INTERVAL] = Rule(
            (MICROS, INTERVAL), MICROS, exact, lambda a, b, s=sign: _moved(a, b, s), _far
        )
        direction = 1 if op == "add" else -1
        found[op, Kind.TIME, Kind.INTERVAL] = Rule(
            (TIME, INTERVAL), TIME, lambda v, span, d=direction: _of_time(v, span, d)
        )
        for kind in (Kind.INT, Kind.BIGINT):
            found[op, Kind.DATE, kind] = Rule(
                (DATE, BIGINT if kind is Kind.BIGINT else INT),
                DATE,
                lambda day, n, d=direction: checked_day(day + d * n),
                lambda a, b, s=sign: _days(a, b, s),
                _days_decline,
            )
    found["sub", Kind.DATE, Kind.DATE] = Rule(
        (DATE, DATE), INT, lambda a, b: a - b, lambda a, b: f"CAST({a} - {b} AS INTEGER)"
    )
    for a, b in ((TIMESTAMP, TIMESTAMP), (TIMESTAMP, DATE), (DATE, TIMESTAMP)):
        found["sub", a.kind, b.kind] = Rule(
            (TIMESTAMP, TIMESTAMP), INTERVAL, lambda x, y: between((x - y) * 1000), _difference, _unsafe
        )
    for one, other in ((MICROS, MICROS), (MICROS, TIMESTAMP), (TIMESTAMP, MICROS), (MICROS, DATE), (DATE, MICROS)):
        found["sub", one.kind, other.kind] = Rule(
            (MICROS, MICROS), INTERVAL, lambda a, b: between(a - b), _difference_micros, _unsafe
        )
    found["sub", Kind.TIME, Kind.TIME] = Rule((TIME, TIME), INTERVAL, lambda x, y: interval(0, 0, (x - y) * 1000))
    found["add", Kind.DATE, Kind.TIME] = Rule((DATE, TIME), TIMESTAMP, lambda d, t: checked_timestamp(d * DAY_MS + t))
    found["add", Kind.INTERVAL, Kind.INTERVAL] = Rule((INTERVAL, INTERVAL), INTERVAL, plus)
    found["sub", Kind.INTERVAL, Kind.INTERVAL] = Rule((INTERVAL, INTERVAL), INTERVAL, minus)
    for (op, x, y), rule in list(found.items()):
        if op == "add" and x is not y:  # in the other order as well
            found[op, y, x] = _turned(rule)
    return found


def _turned(rule: Rule) -> Rule:
    a, b = rule.args
    return Rule(
        (b, a),
        rule.result,
        lambda x, y: rule.by(y, x),
        lambda x, y: rule.sql(y, x),
        lambda x, y: rule.declines(y, x),
    )


_RULES: Mapping[tuple[str, Kind, Kind], Rule] = _table()
_MULTIPLIED = {"mul": scaled, "div": divided}


def temporal_types(op: str, types: Sequence[SqlType]) -> Resolution | None:
    """How an operator binds for these types; None when they are not its own: it is no operator of times then, or none at all."""
    rule = _rule(op, types)
    if rule is None:
        return None
    if not any(t.zoned for t in types):
        return Resolution(rule.args, rule.result)
    return Resolution(tuple(map(_moment, rule.args)), _moment(rule.result))


def _moment(t: SqlType) -> SqlType:
    return replace(t, zoned=True) if t.kind in _MOMENTS else t


def is_temporal(types: Sequence[SqlType]) -> bool:
    """Whether an operand is of time."""
    return any(t.kind in _TEMPORAL for t in types)


def temporal_rule(op: str, r: Resolution) -> Rule | None:
    """The rule of a bound operator; None for numbers."""
    return _rule(op, r.args) if is_temporal(r.args) else None


def _rule(op: str, types: Sequence[SqlType]) -> Rule | None:
    if len(types) == 1:
        return Rule((INTERVAL,), INTERVAL, negated) if types[0].kind is Kind.INTERVAL else None
    a, b = types
    if op in _MULTIPLIED and a.kind is Kind.INTERVAL and (b.is_numeric or b.kind is Kind.NULL):
        return Rule((INTERVAL, b if b.is_numeric else INT), INTERVAL, _MULTIPLIED[op])
    if op == "mul" and b.kind is Kind.INTERVAL and (a.is_numeric or a.kind is Kind.NULL):
        return Rule((a if a.is_numeric else INT, INTERVAL), INTERVAL, lambda n, span: scaled(span, n))
    if Kind.NULL in (a.kind, b.kind):  # the other operand as PostgreSQL takes it: of the same kind, or an interval
        other = INTERVAL if op == "add" or Kind.INTERVAL in (a.kind, b.kind) else (b if a.kind is Kind.NULL else a)
        a, b = (other if a.kind is Kind.NULL else a), (other if b.kind is Kind.NULL else b)
    return _RULES.get((op, a.kind, b.kind))

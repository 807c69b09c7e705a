"""Bounds that a join's condition sets for the difference of its two sides' times."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.functions.sql_comparison import PREFIX
from flowql.compiler.plan.changes import EquiJoin
from flowql.compiler.plan.expr import Call, Column, Expr, columns_of, conjuncts
from flowql.compiler.plan.types import Kind

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Bound:
    """In every pair of rows column >= other + least, in ms."""

    column: str
    other: str
    least: int


def bounds_of(spec: EquiJoin, mine: Container[str], others: Container[str]) -> Iterator[Bound]:
    """Lower bounds of times of one side by those of the other one."""
    for a, b in zip(spec.left_keys, spec.right_keys, strict=True):
        for x, y in ((a, b), (b, a)):
            if x in mine and y in others:
                yield Bound(x, y, 0)
    for condition in [] if spec.residual is None else conjuncts(spec.residual):
        for high, low in _ordered(condition):
            if high[0] in mine and low[0] in others:
                yield Bound(high[0], low[0], low[1] - high[1])


_Time = tuple[str, int]  # column, and what is added to it in ms


def time_passed(e: Expr | None) -> str | None:
    """The column of milliseconds since 1970 that a time is, as a TIMESTAMP or a number; None if it is computed."""
    if isinstance(e, Call) and e.name == "FROM_UNIXTIME" and len(e.args) == 1:
        (e,) = e.args
    return e.name if isinstance(e, Column) else None


def compares_times(condition: Expr) -> bool:
    """Whether it bounds a column of times by another one."""
    return any(_ordered(condition))


def _ordered(condition: Expr) -> Iterator[tuple[_Time, _Time]]:
    """(a, b) for a >= b."""
    if not isinstance(condition, Call) or len(condition.args) < 2:
        return
    name = condition.name.removeprefix(PREFIX)
    found = [_time(a) for a in condition.args]
    pairs = {"ge": ((0, 1),), "gt": ((0, 1),), "le": ((1, 0),), "lt": ((1, 0),), "eq": ((0, 1), (1, 0))}.get(name, ())
    for high, low in pairs:
        a, b = found[high], found[low]
        if a is not None and b is not None:
            yield a, b


def _time(e: Expr) -> _Time | None:
    """A time column, with an interval of one length added or taken away. A column of milliseconds, such as ROWTIME, with a number."""
    if isinstance(e, Column):
        return (e.name, 0) if e.type.kind in (Kind.TIMESTAMP, Kind.BIGINT) else None
    if not isinstance(e, Call) or len(e.args) != 2 or e.name not in (PREFIX + "add", PREFIX + "sub"):
        return None
    below, length = _time(e.args[0]), _length_ms(e.args[1])
    if below is None and e.name == PREFIX + "add":
        below, length = _time(e.args[1]), _length_ms(e.args[0])
    if below is None or length is None:
        return None
    return below[0], below[1] + (length if e.name == PREFIX + "add" else -length)


def _length_ms(e: Expr) -> int | None:
    if columns_of(e) or e.type.kind not in (Kind.INTERVAL, Kind.INT, Kind.BIGINT):
        return None
    (value,) = compile_row([e], [])(())
    if value is None or isinstance(value, int):
        return value
    months, days, micros = value
    return None if months or micros % 1000 else days * _DAY_MS + micros // 1000

"""Lists of which standard SQL makes rows: series of numbers and times, and the places in arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from flowql.compiler.functions.bounds import check_elements
from flowql.compiler.functions.registry import Reference, define
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.functions.sql_intervals import Interval, total_micros
from flowql.compiler.functions.sql_micros import common_moment
from flowql.compiler.functions.sql_time_arithmetic import later, later_micros
from flowql.compiler.plan.types import BIGINT, INT, INTERVAL, TIMESTAMP, Kind, SqlType, array, decimal

_MOMENTS = (Kind.TIMESTAMP, Kind.MICROS)
_TIMES = (Kind.DATE, *_MOMENTS)


def _series_types(types: tuple[SqlType, ...]) -> Resolution:
    kinds = {t.kind for t in types} - {Kind.NULL}
    if len(types) == 3 and kinds <= {*_TIMES, Kind.INTERVAL} and types[2].kind in (Kind.INTERVAL, Kind.NULL):
        moment = next((t for t in types[:2] if t.kind is Kind.TIMESTAMP), TIMESTAMP)
        moment = common_moment(types[0], types[1]) or moment
        if types[0].kind is Kind.NULL or types[1].kind is Kind.NULL:
            moment = next((t for t in types[:2] if t.kind in _MOMENTS), TIMESTAMP)
        return Resolution((moment, moment, INTERVAL), array(moment))
    if len(types) not in (2, 3) or not kinds <= {Kind.INT, Kind.BIGINT, Kind.DECIMAL}:
        given = ", ".join(map(str, types))
        raise FunctionTypeError(
            f"generate_series({given}) does not exist",
            "write two whole or decimal numbers and a step, or two times and an INTERVAL",
        )
    one = BIGINT if Kind.BIGINT in kinds else INT
    if Kind.DECIMAL in kinds:
        one = decimal(38, max(t.scale for t in types if t.kind is Kind.DECIMAL))
    return Resolution(tuple(one for _ in types), array(one))


def _series(r: Resolution) -> Reference:
    move = {Kind.TIMESTAMP: later, Kind.MICROS: later_micros}.get(r.args[0].kind)
    return _numbers if move is None else partial(_times, move)


def _numbers(first: int | Decimal, last: int | Decimal, step: int | Decimal = 1) -> list[Any]:
    """From one to another. Raises ValueError for steps of zero."""
    if not step:
        raise ValueError("the step of generate_series must not be zero")
    count = max(int((last - first) // step) + 1, 0) if (last >= first) == (step > 0) or last == first else 0
    return [first + n * step for n in range(_checked(count))]


def _times(move: Callable[[int, Interval], int], first: int, last: int, step: Interval) -> list[int]:
    """Each from the one before, as PostgreSQL does: a month after 31 January is 28 February, and the next one is 28 March."""
    sign = total_micros(step)
    if not sign:
        raise ValueError("the step of generate_series must not be zero")
    found: list[int] = []
    at = first
    while at <= last if sign > 0 else at >= last:
        found.append(at)
        _checked(len(found))
        before, at = at, move(at, step)
        if at == before:
            raise ValueError("the step of generate_series is shorter than a millisecond")
    return found


def _checked(count: int) -> int:
    check_elements(count)
    return count


define("sql_series", _series_types, _series)


def _places(*, kept: bool) -> Callable[[Resolution], Reference]:
    def run(*arrays: Sequence[Any] | None) -> list[int | None]:
        count = max((len(a) for a in arrays if a is not None), default=0)
        return [*range(1, count + 1)] or ([None] if kept else [])

    return lambda _r: run


def _array_types(types: tuple[SqlType, ...]) -> Resolution:
    if not types or any(t.kind is not Kind.ARRAY for t in types):
        raise FunctionTypeError(f"arrays are needed, not ({', '.join(map(str, types))})")
    return Resolution(types, array(BIGINT))


define("sql_places", _array_types, _places(kept=False), null_propagating=False)
define("sql_places_or_null", _array_types, _places(kept=True), null_propagating=False)

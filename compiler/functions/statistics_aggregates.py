"""STDDEV_SAMP, STDDEV_SAMPLE and CORRELATION, by running means (Welford), which can also be undone and merged.

In ksqlDB STDDEV_SAMP gives the sample variance and STDDEV_SAMPLE its square root; both names keep that meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flowql.compiler.functions.aggregates import Add, Init
from flowql.compiler.functions.registry import AggregateFunction, register_aggregate
from flowql.compiler.functions.signatures import Resolution, not_accepted
from flowql.compiler.plan.types import DOUBLE, SqlType

# (count, mean x, mean y, sum of dx², sum of dy², sum of dx·dy); one variable uses x = y.
Moments = tuple[int, float, float, float, float, float]
_EMPTY: Moments = (0, 0.0, 0.0, 0.0, 0.0, 0.0)


def _numbers(name: str, count: int) -> Callable[[tuple[SqlType, ...], Init], Resolution]:
    def resolve(types: tuple[SqlType, ...], _init: Init) -> Resolution:
        if len(types) != count or not all(t.is_numeric for t in types):
            raise not_accepted(name, types, f"{name} takes {'one number' if count == 1 else 'two numbers'}")
        return Resolution((DOUBLE,) * count, DOUBLE)

    return resolve


def _add(acc: Moments, x: float | None, y: float | None) -> Moments:
    if x is None or y is None:
        return acc
    n, mx, my, sx, sy, sxy = acc
    n += 1
    dx, dy = x - mx, y - my
    mx, my = mx + dx / n, my + dy / n
    return n, mx, my, sx + dx * (x - mx), sy + dy * (y - my), sxy + dx * (y - my)


def _undo(acc: Moments, x: float | None, y: float | None) -> Moments:
    if x is None or y is None:
        return acc
    n, mx, my, sx, sy, sxy = acc
    if n <= 1:
        return _EMPTY
    px, py = (n * mx - x) / (n - 1), (n * my - y) / (n - 1)
    dx, dy = x - px, y - py
    return n - 1, px, py, sx - dx * (x - mx), sy - dy * (y - my), sxy - dx * (y - my)


def _merge(a: Moments, b: Moments) -> Moments:
    n = a[0] + b[0]
    if not a[0] or not b[0]:
        return a if a[0] else b
    dx, dy, w = b[1] - a[1], b[2] - a[2], a[0] * b[0] / n
    mx, my = a[1] + dx * b[0] / n, a[2] + dy * b[0] / n
    return n, mx, my, a[3] + b[3] + dx * dx * w, a[4] + b[4] + dy * dy * w, a[5] + b[5] + dx * dy * w


def _variance(acc: Any) -> float:
    return max(acc[3], 0.0) / (acc[0] - 1) if acc[0] > 1 else 0.0


def _correlation(acc: Any) -> float:
    n, _, _, sx, sy, sxy = acc
    return sxy / math.sqrt(sx * sy) if n > 1 and sx > 0 and sy > 0 else math.nan


def _step(f: Callable[[Moments, Any, Any], Moments], count: int) -> Callable[[Resolution, Init], Add]:
    return lambda _r, _i: (lambda acc, x: f(acc, x, x)) if count == 1 else f


def _register(name: str, count: int, result: Callable[[Any], float], summary: str) -> None:
    register_aggregate(
        AggregateFunction(
            name,
            _numbers(name, count),
            initial=lambda _r, _i: _EMPTY,
            add=_step(_add, count),
            undo=_step(_undo, count),
            merge=lambda _r, _i: lambda a, b: _merge(tuple(a), tuple(b)),
            result=lambda _r, _i: result,
            summary=summary,
            example=f"{name}({'x' if count == 1 else 'x, y'})",
        )
    )


_register("STDDEV_SAMP", 1, _variance, "The sample variance, 0.0 below two values (the name is ksqlDB's).")
_register("STDDEV_SAMPLE", 1, lambda acc: math.sqrt(_variance(acc)), "The sample standard deviation.")
_register("CORRELATION", 2, _correlation, "Pearson's correlation of two columns; NaN when undefined.")

"""Tumbling and hopping windows: one row per window that a row falls in, with its bounds in ms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowql.compiler.functions.spark_text import quoted
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.logical import Window
from flowql.compiler.plan.schema import WINDOW_END, WINDOW_START
from flowql.runtime.spark.outline import functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_starts(frame: DataFrame, window: Window) -> DataFrame:
    """One row per window of a row, with its WINDOWSTART; plain arithmetic, as Spark's `window` computes a struct of two timestamps per row.

    Starts are multiples of the advance, before 1970 as well, and no window reaches over 1970 where the plan does not say so
    (`flowql.runtime.operators.windows.WindowedAggregateOperator.starts`).
    """
    F = functions(frame)
    time, size, advance = quoted(ROWTIME), window.size_ms, window.advance_ms or window.size_ms
    if advance == size:
        return frame.withColumn(WINDOW_START, F.expr(_floor(time, size)))
    first, last = f"({time} - {size - advance}L)", _floor(time, advance)
    if not window.over_1970:
        first = f"(CASE WHEN {time} >= 0 THEN greatest(0L, {first}) ELSE {first} END)"
        last = f"(CASE WHEN {time} < 0 THEN least({last}, {-size - -size % advance}L) ELSE {last} END)"
    first = _floor(first, advance)
    # Some rows are in no window, and a sequence that would go down is refused.
    inside = frame if window.over_1970 and advance <= size else frame.where(F.expr(f"{first} <= {last}"))
    starts = f"sequence({first}, {last}, {advance}L)"
    return inside.withColumn(WINDOW_START, F.explode(F.expr(starts)))


def with_cumulated(frame: DataFrame, window: Window) -> DataFrame:
    """One row per cumulating window of a row, with its WINDOWSTART and WINDOWEND: it ends at a multiple of the advance behind the row."""
    time, size, advance = quoted(ROWTIME), window.size_ms, window.advance_ms
    ends = f"sequence({_floor(time, advance)} + {advance}L, {_floor(time, size)} + {size}L, {advance}L)"
    F = functions(frame)
    return frame.withColumn(WINDOW_START, F.expr(_floor(time, size))).withColumn(WINDOW_END, F.explode(F.expr(ends)))


def _floor(time: str, step: int) -> str:
    """The multiple of the step at or before a time; `%` would cut toward 0."""
    return f"({time} - pmod({time}, {step}L))"


def window_end(window: Window) -> str:
    """Spark SQL over WINDOWSTART."""
    return f"{WINDOW_START} + {window.size_ms}L"

"""Tumbling and hopping windows: one row per window that a row falls in, with its bounds in ms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.functions.spark_text import quoted
from compiler.plan.expr import ROWTIME
from compiler.plan.logical import Window
from compiler.plan.schema import WINDOW_START

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def with_starts(frame: DataFrame, window: Window) -> tuple[DataFrame, Column]:
    """One row per window of a row, and its WINDOWSTART; plain arithmetic, as Spark's `window` computes a struct of two timestamps per row.

    Starts are multiples of the advance, from the epoch on (`runtime.operators.windows.WindowedAggregateOperator.starts`).
    """
    from pyspark.sql import functions as F

    time, size, advance = quoted(ROWTIME), window.size_ms, window.advance_ms or window.size_ms
    if advance == size:
        return frame, F.expr(f"{time} - {time} % {size}L").alias(WINDOW_START)
    first = f"greatest(0L, {time} - {size - advance}L)"
    last = f"{time} - {time} % {advance}L"
    if advance > size:  # gaps: no window takes a row between two
        first = f"({time} - {size}L + {advance}L)"
    starts = f"sequence({first} - {first} % {advance}L, {last}, {advance}L)"
    inside = frame if advance < size else frame.where(F.expr(f"{first} - {first} % {advance}L <= {last}"))
    return inside.withColumn(WINDOW_START, F.explode(F.expr(starts))), F.col(WINDOW_START)


def window_end(window: Window) -> str:
    """Spark SQL over WINDOWSTART."""
    return f"{WINDOW_START} + {window.size_ms}L"

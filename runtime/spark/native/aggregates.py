"""Aggregates as Spark's own, where the result depends on neither the order of rows nor on how they are split.

`reason_against` tells why one is not: sums of doubles depend on the order of addition, for example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowql.compiler.functions.aggregate_forms import OnSpark, SparkCall
from flowql.compiler.functions.registry import lookup_aggregate
from flowql.compiler.functions.spark_sql import lower
from flowql.compiler.functions.spark_text import quoted
from flowql.compiler.functions.user import plain_name
from flowql.compiler.plan.logical import AggregateCall
from flowql.compiler.plan.types import Kind, spark_type
from flowql.runtime.spark.native.frames import OFFSET, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import Column


def reason_against(call: AggregateCall, *, bounded: bool, placed: bool) -> str:
    """Why an aggregate is not Spark's own; "" when it is. placed: rows come by offset, from one partition per group."""
    form = form_of(call)
    if form is None:
        return f"{plain_name(call.function)} has no equal in Spark"
    reason = form.reason([a.type for a in call.args])
    return _by_offset(call, bounded=bounded, placed=placed) if form.placed and not reason else reason


def form_of(call: AggregateCall) -> OnSpark | None:
    function = lookup_aggregate(call.function)
    return None if function is None else function.spark


def differs(call: AggregateCall) -> str:
    """The possible difference of a native aggregate; "" for none."""
    if call.function in ("MIN", "MAX") and call.args[0].type.kind is Kind.DOUBLE:
        return f"{call.name}: 0.0 and -0.0 are equal, and the result may show either"
    return ""


def _by_offset(call: AggregateCall, *, bounded: bool, placed: bool) -> str:
    if not bounded:
        return f"{call.function} needs all rows at once"
    if not placed:
        return f"{call.function} goes by the order of arrival, which a shuffle does not keep"
    return "" if not call.init or call.init == (True,) else f"{call.function} of several values, or with NULLs"


# The place of a row in its topic, by which LATEST_BY_OFFSET goes.
PLACE = f"struct({quoted(PARTITION)}, {quoted(OFFSET)})"


def aggregate_columns(
    calls: tuple[AggregateCall, ...], F: Any, *, place: str = PLACE, only: str = "", kept: bool = False
) -> list[Column]:
    """One column per call, of exactly its type. Arguments must be lowered (`choose` sees to it).

    F: `pyspark.sql.functions`, or what `outline.functions` gives. place: Spark SQL by which rows come one after the other. only: a predicate of the rows that count, though all make groups.
    kept: see `SparkCall`.
    """
    return [F.expr(_sql(c, place, only, kept)).alias(c.name) for c in calls]


def _sql(call: AggregateCall, place: str, only: str, kept: bool) -> str:
    form, lowered = form_of(call), [lower(a) for a in call.args]
    args = [x.sql for x in lowered if x is not None]
    assert len(args) == len(call.args), f"an argument of {call.function} has no lowering"
    assert form is not None, f"{call.function} has no form on Spark"
    if only:
        args = [f"CASE WHEN {only} THEN {a} END" for a in args or ["1"]]
    sql = form.sql(SparkCall(args, [a.type for a in call.args], place, kept))
    return f"CAST({sql} AS {spark_type(call.type)})"

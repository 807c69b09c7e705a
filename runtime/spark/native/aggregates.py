"""Aggregates as Spark's own, where the result depends on neither the order of rows nor on how they are split.

`reason_against` tells why one is not: sums of doubles depend on the order of addition, for example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from compiler.functions.spark_sql import lower
from compiler.functions.spark_text import quoted
from compiler.plan.logical import AggregateCall
from compiler.plan.schema import Schema
from compiler.plan.types import Kind, SqlType, spark_type
from runtime.spark.native.frames import OFFSET, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import Column

_INTEGERS = (Kind.INT, Kind.BIGINT)
_ORDERED = frozenset(
    {Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.STRING, Kind.BYTES, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.DOUBLE}
)
_DOUBLE_EXACT = 2**53  # up to here a whole number is a double


def reason_against(call: AggregateCall, *, bounded: bool, placed: bool) -> str:
    """Why an aggregate is not Spark's own; "" when it is. placed: rows come by offset, from one partition per group."""
    types = [a.type for a in call.args]
    if call.function == "COUNT":
        return "" if len(types) <= 1 else "COUNT of several columns"
    if call.function in ("SUM", "AVG"):
        if types[0].kind is Kind.DOUBLE or (call.function == "AVG" and types[0].kind is Kind.DECIMAL):
            return f"{call.function} of DOUBLE depends on the order of addition in its last digits"
        return ""
    if call.function in ("MIN", "MAX"):
        return "" if _ordered(types[0]) else f"{call.function} of {types[0]}"
    if call.function in ("LATEST_BY_OFFSET", "EARLIEST_BY_OFFSET"):
        return _by_offset(call, bounded=bounded, placed=placed)
    return f"{call.function} has no equal in Spark"


def differs(call: AggregateCall) -> str:
    """What a native aggregate may show differently; "" for nothing."""
    if call.function in ("MIN", "MAX") and call.args[0].type.kind is Kind.DOUBLE:
        return f"{call.name}: of 0.0 and -0.0, which are equal, either may be shown"
    if call.function == "SUM" and call.args[0].type.kind is Kind.DECIMAL:
        return f"{call.name}: a sum that overflows on the way but not in the end does not fail"
    return ""


def _ordered(t: SqlType) -> bool:
    if t.kind is Kind.STRUCT:  # Spark too orders field by field, NULL first
        return all(_ordered(f) and f.kind is not Kind.DOUBLE for _, f in t.fields)
    return t.kind in _ORDERED


def _by_offset(call: AggregateCall, *, bounded: bool, placed: bool) -> str:
    if not bounded:
        return f"{call.function} needs all rows at once"
    if not placed:
        return f"{call.function} goes by the order of arrival, which a shuffle does not keep"
    return "" if not call.init or call.init == (True,) else f"{call.function} of several values, or with NULLs"


def aggregate_columns(calls: tuple[AggregateCall, ...], source: Schema) -> list[Column]:
    """One column per call, of exactly its type. Arguments must be lowered (`choose` sees to it)."""
    from pyspark.sql import functions as F

    return [F.expr(_sql(c)).alias(c.name) for c in calls]


def _sql(call: AggregateCall) -> str:
    lowered = [lower(a) for a in call.args]
    args = [x.sql for x in lowered if x is not None]
    assert len(args) == len(call.args), f"an argument of {call.function} has no lowering"
    sql = _SQL[call.function](call, args)
    return f"CAST({sql} AS {spark_type(call.type)})"


def _count(_call: AggregateCall, args: list[str]) -> str:
    return f"count({args[0] if args else '*'})"


def _sum(call: AggregateCall, args: list[str]) -> str:
    """Integers wrap, as adding modulo 2^64 and cutting gives the same; a DECIMAL that overflows fails the query."""
    t = call.args[0].type
    if t.kind is not Kind.DECIMAL:
        return f"coalesce(sum({args[0]}), 0L)"
    fitted = f"CAST(sum({args[0]}) AS {spark_type(t)})"
    overflow = f"raise_error('SUM overflows: it does not fit {t}')"
    return f"CASE WHEN count({args[0]}) = 0 THEN 0 WHEN {fitted} IS NULL THEN {overflow} ELSE {fitted} END"


def _average(_call: AggregateCall, args: list[str]) -> str:
    """The double nearest to sum / count; where the sum is no double, by way of 18 decimal places."""
    total, n = f"sum(CAST({args[0]} AS BIGINT))", f"count({args[0]})"
    near = f"CAST({total} AS DOUBLE) / CAST({n} AS DOUBLE)"
    far = f"CAST(CAST({total} AS DECIMAL(20, 0)) / CAST({n} AS DECIMAL(17, 0)) AS DOUBLE)"
    exact = f"{total} BETWEEN -{_DOUBLE_EXACT}L AND {_DOUBLE_EXACT}L"
    return f"CASE WHEN {n} = 0 THEN 0D WHEN {exact} THEN {near} ELSE {far} END"


def _placed(function: str) -> Callable[[AggregateCall, list[str]], str]:
    at = f"struct({quoted(PARTITION)}, {quoted(OFFSET)})"
    return lambda _call, args: f"{function}({args[0]}, CASE WHEN {args[0]} IS NOT NULL THEN {at} END)"


_SQL: dict[str, Callable[[AggregateCall, list[str]], str]] = {
    "COUNT": _count,
    "SUM": _sum,
    "AVG": _average,
    "MIN": lambda _c, a: f"min({a[0]})",
    "MAX": lambda _c, a: f"max({a[0]})",
    "LATEST_BY_OFFSET": _placed("max_by"),
    "EARLIEST_BY_OFFSET": _placed("min_by"),
}

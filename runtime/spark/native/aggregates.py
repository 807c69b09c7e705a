"""Aggregates as Spark's own, where the result depends on neither the order of rows nor on how they are split.

`reason_against` tells why one is not: sums of doubles depend on the order of addition, for example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flowql.compiler.functions.spark_sql import lower
from flowql.compiler.functions.spark_text import quoted, wrapped_int
from flowql.compiler.functions.user import plain_name
from flowql.compiler.plan.logical import AggregateCall
from flowql.compiler.plan.types import Kind, SqlType, spark_type
from flowql.runtime.spark.native.frames import OFFSET, PARTITION

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
        if types[0].kind is Kind.DECIMAL:
            return (
                "the record with which a SUM of DECIMAL overflows is a dead letter, and Spark does not say which it is"
            )
        return ""
    if call.function in ("sql_sum", "sql_avg"):
        return _of_sql_sum(call.function.removeprefix("sql_").upper(), types[0])
    if call.function in ("MIN", "MAX"):
        return "" if _ordered(types[0]) else f"{call.function} of {types[0]}"
    if call.function in ("LATEST_BY_OFFSET", "EARLIEST_BY_OFFSET"):
        return _by_offset(call, bounded=bounded, placed=placed)
    return f"{plain_name(call.function)} has no equal in Spark"


def _of_sql_sum(name: str, t: SqlType) -> str:
    """Sums of integers in a wider type never overflow."""
    if t.kind is Kind.DOUBLE:
        return f"{name} of DOUBLE is exact, and Spark's depends on the order of addition"
    if t.kind is Kind.DECIMAL:
        return f"the record with which {name} of DECIMAL overflows is a dead letter, and Spark does not say which it is"
    return ""


def differs(call: AggregateCall) -> str:
    """What a native aggregate may show differently; "" for nothing."""
    if call.function in ("MIN", "MAX") and call.args[0].type.kind is Kind.DOUBLE:
        return f"{call.name}: of 0.0 and -0.0, which are equal, either may be shown"
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


# The place of a row in its topic, by which LATEST_BY_OFFSET goes.
PLACE = f"struct({quoted(PARTITION)}, {quoted(OFFSET)})"


def aggregate_columns(calls: tuple[AggregateCall, ...], F: Any, *, place: str = PLACE, only: str = "") -> list[Column]:
    """One column per call, of exactly its type. Arguments must be lowered (`choose` sees to it).

    F: `pyspark.sql.functions`, or what `outline.functions` gives. place: Spark SQL by which rows come one after the other. only: a predicate of the rows that count, though all make groups.
    """
    return [F.expr(_sql(c, place, only)).alias(c.name) for c in calls]


def _sql(call: AggregateCall, place: str, only: str) -> str:
    lowered = [lower(a) for a in call.args]
    args = [x.sql for x in lowered if x is not None]
    assert len(args) == len(call.args), f"an argument of {call.function} has no lowering"
    if only:
        args = [f"CASE WHEN {only} THEN {a} END" for a in args or ["1"]]
    sql = _SQL[call.function](call, args, place)
    return f"CAST({sql} AS {spark_type(call.type)})"


def _count(_call: AggregateCall, args: list[str], _place: str) -> str:
    return f"count({args[0] if args else '*'})"


def _sum(call: AggregateCall, args: list[str], _place: str) -> str:
    """Integers wrap, as adding modulo 2^64 and cutting gives the same."""
    if call.args[0].type.kind is Kind.INT:
        return wrapped_int(f"coalesce(sum({args[0]}), 0L)")
    return f"coalesce({_wrapping_sum(args[0])}, 0L)"


def _wrapping_sum(sql: str) -> str:
    """The low 64 bits of the sum of BIGINTs: ANSI mode ends the job where `sum` overflows. Each half overflows after 2^31 rows."""
    high, low = f"sum(shiftright({sql}, 32))", f"sum(({sql}) & 4294967295L)"
    return f"(shiftleft({high} + shiftrightunsigned({low}, 32), 32) | ({low} & 4294967295L))"


def _sql_sum(call: AggregateCall, args: list[str], _place: str) -> str:
    """NULL of nothing. A sum of BIGINTs is one of DECIMALs."""
    return f"sum({args[0]})" if call.args[0].type.kind is Kind.INT else f"sum(CAST({args[0]} AS DECIMAL(20, 0)))"


def _sql_average(_call: AggregateCall, args: list[str], _place: str) -> str:
    """To 18 places, halves away from zero: the whole part and the rest of a division of integers, as Spark's own rounds earlier."""
    n, total = f"CAST(count({args[0]}) AS DECIMAL(17, 0))", f"sum(CAST({args[0]} AS DECIMAL(20, 0)))"
    whole = f"CAST({total} DIV {n} AS DECIMAL(19, 0))"
    rest = f"CAST({total} - {whole} * {n} AS DECIMAL(17, 0))"
    scaled = f"abs({rest}) * CAST('2000000000000000000' AS DECIMAL(19, 0))"
    places = f"CAST(({scaled} + {n}) DIV ({n} * CAST(2 AS DECIMAL(1, 0))) AS DECIMAL(19, 0))"
    fraction = f"CAST({places} * CAST('0.000000000000000001' AS DECIMAL(18, 18)) AS DECIMAL(19, 18))"
    mean = f"{whole} + CASE WHEN {rest} < 0 THEN -{fraction} ELSE {fraction} END"
    return f"CASE WHEN {n} = 0 THEN NULL ELSE {mean} END"


def _average(call: AggregateCall, args: list[str], _place: str) -> str:
    """The double nearest to sum / count; where the sum is no double, by way of 18 decimal places."""
    n = f"count({args[0]})"
    total = f"sum({args[0]})" if call.args[0].type.kind is Kind.INT else _wrapping_sum(args[0])
    near = f"CAST({total} AS DOUBLE) / CAST({n} AS DOUBLE)"
    far = f"CAST(CAST({total} AS DECIMAL(20, 0)) / CAST({n} AS DECIMAL(17, 0)) AS DOUBLE)"
    exact = f"{total} BETWEEN -{_DOUBLE_EXACT}L AND {_DOUBLE_EXACT}L"
    return f"CASE WHEN {n} = 0 THEN 0D WHEN {exact} THEN {near} ELSE {far} END"


def _placed(function: str) -> Callable[[AggregateCall, list[str], str], str]:
    return lambda _call, args, place: f"{function}({args[0]}, CASE WHEN {args[0]} IS NOT NULL THEN {place} END)"


_SQL: dict[str, Callable[[AggregateCall, list[str], str], str]] = {
    "COUNT": _count,
    "SUM": _sum,
    "sql_sum": _sql_sum,
    "sql_avg": _sql_average,
    "AVG": _average,
    "MIN": lambda _c, a, _p: f"min({a[0]})",
    "MAX": lambda _c, a, _p: f"max({a[0]})",
    "LATEST_BY_OFFSET": _placed("max_by"),
    "EARLIEST_BY_OFFSET": _placed("min_by"),
}

"""Aggregates as Spark's own, where the result depends on neither the order of rows nor on how they are split.

`reason_against` tells why one is not: sums of doubles depend on the order of addition, for example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flowql.compiler.functions.spark_sql import lower
from flowql.compiler.functions.spark_text import quoted, text, wrapped_int
from flowql.compiler.functions.user import plain_name
from flowql.compiler.plan.logical import AggregateCall
from flowql.compiler.plan.types import Kind, SqlType, spark_type
from flowql.runtime.spark.native.frames import OFFSET, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import Column

_ORDERED = frozenset(
    {
        Kind.INT,
        Kind.BIGINT,
        Kind.DECIMAL,
        Kind.STRING,
        Kind.BYTES,
        Kind.DATE,
        Kind.TIME,
        Kind.TIMESTAMP,
        Kind.MICROS,
        Kind.DOUBLE,
    }
)
_DOUBLE_EXACT = 2**53  # up to here a whole number is a double
_BEYOND = "the SUM of a group is beyond what is added exactly here: 2^35 rows, or a sum of 2^91. Group by more columns, or run the query on the runtime"
# Spark SQL of a call over that of its arguments and of the place of a row.
Text = Callable[[AggregateCall, list[str], str], str]


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
    """Sums of integers in a wider type never overflow (`exact_sum` has a bound)."""
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


def aggregate_columns(
    calls: tuple[AggregateCall, ...], F: Any, *, place: str = PLACE, only: str = "", kept: bool = False
) -> list[Column]:
    """One column per call, of exactly its type. Arguments must be lowered (`choose` sees to it).

    F: `pyspark.sql.functions`, or what `outline.functions` gives. place: Spark SQL by which rows come one after the other. only: a predicate of the rows that count, though all make groups.
    kept: by a stream, whose state has no bound of rows and is read by later versions.
    """
    return [F.expr(_sql(c, place, only, _KEPT if kept else _SQL)).alias(c.name) for c in calls]


def _sql(call: AggregateCall, place: str, only: str, texts: Mapping[str, Text]) -> str:
    lowered = [lower(a) for a in call.args]
    args = [x.sql for x in lowered if x is not None]
    assert len(args) == len(call.args), f"an argument of {call.function} has no lowering"
    if only:
        args = [f"CASE WHEN {only} THEN {a} END" for a in args or ["1"]]
    sql = texts[call.function](call, args, place)
    return f"CAST({sql} AS {spark_type(call.type)})"


def _count(_call: AggregateCall, args: list[str], _place: str) -> str:
    return f"count({args[0] if args else '*'})"


def _sum(call: AggregateCall, args: list[str], _place: str) -> str:
    """Integers wrap, as adding modulo 2^64 and cutting gives the same."""
    if call.args[0].type.kind is Kind.INT:
        return wrapped_int(f"coalesce(sum({args[0]}), 0L)")
    return f"coalesce({_wrapping_sum(args[0])}, 0L)"


def _wrapping_sum(sql: str) -> str:
    """The low 64 bits of the sum of BIGINTs: ANSI mode ends the job where `sum` overflows, here after 2^31 rows of a group.

    Elsewhere both halves wrap at 2^64, the lower one without harm: only its upper 32 bits are carried, which wrap as the result does.
    """
    high, low = f"sum(shiftright({sql}, 32))", f"sum(({sql}) & 4294967295L)"
    return f"(shiftleft({high} + shiftrightunsigned({low}, 32), 32) | ({low} & 4294967295L))"


def _sql_sum(total: Callable[[str], str]) -> Text:
    """NULL of nothing."""
    return lambda call, args, _place: f"sum({args[0]})" if call.args[0].type.kind is Kind.INT else total(args[0])


def decimal_sum(sql: str) -> str:
    """The DECIMAL(30, 0) sum of BIGINTs, of any number of them."""
    return f"sum(CAST({sql} AS DECIMAL(20, 0)))"


def exact_sum(sql: str, low_bits: int = 28) -> str:
    """The DECIMAL(30, 0) sum of BIGINTs by two sums of BIGINTs, in half the time of a sum of DECIMALs.

    The lower bits are good for 2^(63 - low_bits) rows of a group, the upper ones until their own sum is beyond a BIGINT; by default for
    2^35 rows and a sum of 2^91. All rows of the group are counted, as most queries count them anyway. The job ends with an error where one of
    them is not good: `try_sum` is NULL then, in ANSI mode or not.
    """
    high, low, n = f"try_sum(shiftright({sql}, {low_bits}))", f"sum(({sql}) & {2**low_bits - 1}L)", "count(*)"
    whole = f"CAST(CAST({high} AS DECIMAL(20, 0)) * {2**low_bits}BD + CAST({low} AS DECIMAL(20, 0)) AS DECIMAL(30, 0))"
    beyond = f"{high} IS NULL OR {n} >= {2 ** (63 - low_bits)}L"
    return f"CASE WHEN {low} IS NULL THEN NULL WHEN {beyond} THEN raise_error({text(_BEYOND)}) ELSE {whole} END"


def _sql_average(total: Callable[[str], str]) -> Text:
    """To 18 places, halves away from zero: the whole part and the rest of a division of integers, as Spark's own rounds earlier."""

    def sql(_call: AggregateCall, args: list[str], _place: str) -> str:
        n, all_ = f"CAST(count({args[0]}) AS DECIMAL(17, 0))", total(args[0])
        whole = f"CAST({all_} DIV {n} AS DECIMAL(19, 0))"
        rest = f"CAST({all_} - {whole} * {n} AS DECIMAL(17, 0))"
        scaled = f"abs({rest}) * CAST('2000000000000000000' AS DECIMAL(19, 0))"
        places = f"CAST(({scaled} + {n}) DIV ({n} * CAST(2 AS DECIMAL(1, 0))) AS DECIMAL(19, 0))"
        fraction = f"CAST({places} * CAST('0.000000000000000001' AS DECIMAL(18, 18)) AS DECIMAL(19, 18))"
        mean = f"{whole} + CASE WHEN {rest} < 0 THEN -{fraction} ELSE {fraction} END"
        return f"CASE WHEN {n} = 0 THEN NULL ELSE {mean} END"

    return sql


def _average(call: AggregateCall, args: list[str], _place: str) -> str:
    """The double nearest to sum / count; where the sum is no double, by way of 18 decimal places."""
    n = f"count({args[0]})"
    total = f"sum({args[0]})" if call.args[0].type.kind is Kind.INT else _wrapping_sum(args[0])
    near = f"CAST({total} AS DOUBLE) / CAST({n} AS DOUBLE)"
    far = f"CAST(CAST({total} AS DECIMAL(20, 0)) / CAST({n} AS DECIMAL(17, 0)) AS DOUBLE)"
    exact = f"{total} BETWEEN -{_DOUBLE_EXACT}L AND {_DOUBLE_EXACT}L"
    return f"CASE WHEN {n} = 0 THEN 0D WHEN {exact} THEN {near} ELSE {far} END"


def _placed(function: str) -> Text:
    return lambda _call, args, place: f"{function}({args[0]}, CASE WHEN {args[0]} IS NOT NULL THEN {place} END)"


_SQL: dict[str, Text] = {
    "COUNT": _count,
    "SUM": _sum,
    "sql_sum": _sql_sum(exact_sum),
    "sql_avg": _sql_average(exact_sum),
    "AVG": _average,
    "MIN": lambda _c, a, _p: f"min({a[0]})",
    "MAX": lambda _c, a, _p: f"max({a[0]})",
    "LATEST_BY_OFFSET": _placed("max_by"),
    "EARLIEST_BY_OFFSET": _placed("min_by"),
}
_KEPT: dict[str, Text] = {**_SQL, "sql_sum": _sql_sum(decimal_sum), "sql_avg": _sql_average(decimal_sum)}

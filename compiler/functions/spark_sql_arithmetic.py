"""Spark lowerings of standard SQL's arithmetic: NULL where the reference raises, and `fails` is TRUE there."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.functions.arithmetic import SYMBOLS
from flowql.compiler.functions.registry import Lowering, lower_on_spark
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.spark_operators import TRIED, exact_decimal, least
from flowql.compiler.functions.spark_text import null_where
from flowql.compiler.functions.sql_arithmetic import RANGES, is_exact
from flowql.compiler.functions.sql_time_arithmetic import is_temporal
from flowql.compiler.plan.types import Kind, spark_type

_INFINITE = "('Infinity', '-Infinity')"


def _value(op: str, args: Sequence[str], r: Resolution) -> str:
    a, b = args
    kind = r.result.kind
    if kind is Kind.DECIMAL:
        if op == "div" or not is_exact(op, r):
            return ""
        return exact_decimal(op, a, b, r)
    if kind is Kind.DOUBLE:
        return f"try_mod({a}, {b})" if op == "mod" else f"({a} {SYMBOLS[op]} {b})"
    if op == "div":
        return f"CAST({a} DIV {b} AS {spark_type(r.result)})"
    return f"{TRIED[op]}({a}, {b})"


def _lowering(op: str) -> Lowering:
    def lowering(args: Sequence[str], r: Resolution) -> str:
        if is_temporal(r.args):
            return ""
        sql, fails = _value(op, args, r), _fails(op)(args, r)
        tried = r.result.kind in RANGES and op != "div"
        return null_where(fails, sql) if sql and fails and not tried else sql

    return lowering


def _fails(op: str) -> Lowering:
    def fails(args: Sequence[str], r: Resolution) -> str:
        if is_temporal(r.args):
            return ""
        a, b = args
        kind = r.result.kind
        zero = f"({a} IS NOT NULL AND {b} = 0)"
        if kind is Kind.DECIMAL:
            return zero if op in ("div", "mod") else ""
        if kind is Kind.DOUBLE:
            return _double_fails(op, a, b)
        if op == "div":
            return f"({zero} OR ({a} = {least(kind)} AND {b} = -1))"
        if op == "mod":
            return zero
        return f"({a} IS NOT NULL AND {b} IS NOT NULL AND {TRIED[op]}({a}, {b}) IS NULL)"

    return fails


def _double_fails(op: str, a: str, b: str) -> str:
    """An infinity or a zero that no operand accounts for; a zero divisor."""
    if op == "mod":
        return f"({a} IS NOT NULL AND {b} = 0D)"
    divisor = f"nullif({b}, 0D)" if op == "div" else b
    v = f"({a} {SYMBOLS[op]} {divisor})"
    finite = f"CAST({a} AS STRING) NOT IN {_INFINITE} AND CAST({b} AS STRING) NOT IN {_INFINITE}"
    found = [f"(CAST({v} AS STRING) IN {_INFINITE} AND {finite})"]
    if op == "mul":
        found.append(f"({v} = 0D AND {a} <> 0D AND {b} <> 0D)")
    if op == "div":
        found.append(f"({v} = 0D AND {a} <> 0D AND CAST({b} AS STRING) NOT IN {_INFINITE})")
        found.append(f"({a} IS NOT NULL AND {b} = 0D)")
    return f"({' OR '.join(found)})"


for _op in SYMBOLS:
    lower_on_spark(f"sql_{_op}", _lowering(_op), _fails(_op))


def _negation_fails(args: Sequence[str], r: Resolution) -> str:
    return f"({args[0]} = {least(r.result.kind)})" if r.result.kind in RANGES else ""


def _negation(args: Sequence[str], r: Resolution) -> str:
    if is_temporal(r.args):
        return ""
    fails = _negation_fails(args, r)
    return null_where(fails, f"-{args[0]}") if fails else f"(-{args[0]})"


lower_on_spark("sql_neg", _negation, _negation_fails)

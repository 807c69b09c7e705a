"""Arithmetic of standard SQL: as PostgreSQL's, a result that is out of its type's range is an error, and nothing wraps.

Integers divide toward zero; a zero divisor is an error, of doubles too. Types widen as everywhere (INT < BIGINT < DECIMAL < DOUBLE). Decimals
have as many digits as exact results need, up to 38; beyond that the scale of a product gives way to whole digits, at most to 20 of them and not
below that of the operands (`result_decimal`). A quotient has 18 places at least.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from flowql.compiler.functions.arithmetic import INTEGER, SYMBOLS, TRIED, exact_decimal
from flowql.compiler.functions.decimal_columns import over_columns
from flowql.compiler.functions.numeric import (
    BIGINT_MAX,
    BIGINT_MIN,
    INT_MAX,
    INT_MIN,
    MAX_PRECISION,
    WIDE,
    NumericOverflow,
    fit_decimal,
)
from flowql.compiler.functions.registry import Lowering, Reference, define
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution, as_decimal, common_numeric
from flowql.compiler.functions.spark_text import least, null_where
from flowql.compiler.functions.sql_time_arithmetic import is_temporal, temporal_rule, temporal_types
from flowql.compiler.functions.sums import NUMERIC_SCALE
from flowql.compiler.plan.types import Kind, SqlType, decimal, duckdb_type, spark_type

_INFINITE = "('Infinity', '-Infinity')"  # of Spark
SQL_ARITHMETIC = {f"sql_{op}": sign for op, sign in SYMBOLS.items()}
WHOLE_DIGITS = 20  # of a product: more than a BIGINT has. Its places are kept, and a result with more whole digits than fit is an error
RANGES = {Kind.INT: (INT_MIN, INT_MAX), Kind.BIGINT: (BIGINT_MIN, BIGINT_MAX)}


def result_decimal(op: str, a: SqlType, b: SqlType) -> SqlType:
    """The DECIMAL of an operator over two exact operands."""
    a, b = as_decimal(a), as_decimal(b)
    whole_a, whole_b, scale = a.precision - a.scale, b.precision - b.scale, max(a.scale, b.scale)
    if op in ("add", "sub"):
        whole = max(whole_a, whole_b) + 1
    elif op == "mul":
        whole, least, scale = whole_a + whole_b + 1, scale, a.scale + b.scale
        scale = max(min(scale, MAX_PRECISION - min(whole, WHOLE_DIGITS)), min(scale, least))
    elif op == "div":
        whole, scale = whole_a + b.scale, max(a.scale, NUMERIC_SCALE)
    else:
        whole = min(whole_a, whole_b)
    return decimal(max(1, min(MAX_PRECISION, whole + scale)), scale)


def _resolver(op: str) -> Callable[[tuple[SqlType, ...]], Resolution]:
    def resolve(types: tuple[SqlType, ...]) -> Resolution:
        if len(types) != 2:  # of MOD, which is written as a function
            raise FunctionTypeError(f"{SYMBOLS[op]} has two operands, not {len(types)}")
        if is_temporal(types) and (found := temporal_types(op, types)) is not None:
            return found
        a, b = types
        a, b = (b if a.kind is Kind.NULL else a), (a if b.kind is Kind.NULL else b)
        common = common_numeric(a, b)
        if common is None:
            hint = (
                "join strings with ||" if op == "add" and Kind.STRING in (a.kind, b.kind) else "cast both to a number"
            )
            raise FunctionTypeError(f"unsupported arithmetic types: {types[0]} {SYMBOLS[op]} {types[1]}", hint)
        if common.kind is Kind.DECIMAL:
            return Resolution((as_decimal(a), as_decimal(b)), result_decimal(op, a, b))
        return Resolution((common, common), common)

    return resolve


def out_of_range(t: str) -> Any:
    """Raises; for generated code."""
    raise NumericOverflow(f"the result is out of the range of {t}")


def _nonzero(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def run(a: Any, b: Any) -> Any:
        if b == 0:
            raise ZeroDivisionError("division by zero")
        return function(a, b)

    return run


_DOUBLE: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _nonzero(operator.truediv),
    "mod": _nonzero(lambda a, b: math.nan if math.isinf(a) else math.fmod(a, b)),
}
_DECIMAL: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "add": WIDE.add,
    "sub": WIDE.subtract,
    "mul": WIDE.multiply,
    "div": _nonzero(WIDE.divide),
    "mod": _nonzero(WIDE.remainder),
}


def _double(op: str) -> Reference:
    """An infinity or a zero that no operand accounts for is an error."""
    exact = _DOUBLE[op]

    def run(a: float, b: float) -> float:
        v = exact(a, b)
        if math.isinf(v) and not (math.isinf(a) or math.isinf(b)):
            out_of_range("DOUBLE")
        if v == 0.0 and op in ("mul", "div") and a != 0.0 and (op == "div" or b != 0.0) and not math.isinf(b):
            out_of_range("DOUBLE")
        return v

    return run


def _reference(op: str) -> Callable[[Resolution], Reference]:
    def reference(r: Resolution) -> Reference:
        kind = r.result.kind
        if (rule := temporal_rule(op, r)) is not None:
            return rule.by
        if kind is Kind.DOUBLE:
            return _double(op)
        if kind is Kind.DECIMAL:
            exact, p, s = _DECIMAL[op], r.result.precision, r.result.scale
            return lambda a, b: fit_decimal(exact(a, b), p, s)
        integer, (low, high) = INTEGER[op], RANGES[kind]
        return lambda a, b: v if low <= (v := integer(a, b)) <= high else out_of_range(kind.value)

    return reference


def _duckdb(op: str) -> Lowering:
    sign = "//" if op == "div" else SYMBOLS[op]

    def lowering(args: Sequence[str], r: Resolution) -> str:
        a, b = args
        if (rule := temporal_rule(op, r)) is not None:
            return rule.sql(a, b)
        if r.result.kind is Kind.DOUBLE:
            return f"({a} {SYMBOLS[op]} {b})"
        if r.result.kind is Kind.DECIMAL:
            if op in ("add", "sub", "mul") and is_exact(op, r):
                return f"CAST({a} {sign} {b} AS {duckdb_type(r.result)})"
            return "" if op == "mod" else f'"{over_columns(op, r)}"({a}, {b})'
        return f"TRY({a} {sign} {b})"

    return lowering


def is_exact(op: str, r: Resolution) -> bool:
    """Whether the sum, difference, product or remainder of two decimals always fits its type."""
    (p1, s1), (p2, s2) = ((t.precision, t.scale) for t in r.args)
    whole, scale = (p1 - s1 + p2 - s2 + 1, s1 + s2) if op == "mul" else (max(p1 - s1, p2 - s2) + 1, max(s1, s2))
    return whole + scale <= MAX_PRECISION


def _declines(op: str) -> Lowering:
    """Rows whose result is an error, which the reference names; and doubles that it has to look at."""
    value = _duckdb(op)

    def lowering(args: Sequence[str], r: Resolution) -> str:
        if (rule := temporal_rule(op, r)) is not None:
            return rule.declines(*args)
        if r.result.kind is Kind.DOUBLE:
            v = value(args, r)
            zero = f" OR {args[1]} = 0" if op in ("div", "mod") else ""
            return f"(NOT isfinite({v}) OR {v} = 0{zero})" if op in ("mul", "div", "mod") else f"(NOT isfinite({v}))"
        if r.result.kind is Kind.DECIMAL:
            return ""
        return f"({value(args, r)} IS NULL AND {args[0]} IS NOT NULL AND {args[1]} IS NOT NULL)"

    return lowering


def _text_on_spark(op: str, args: Sequence[str], r: Resolution) -> str:
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


def _spark(op: str) -> Lowering:
    def lowering(args: Sequence[str], r: Resolution) -> str:
        if is_temporal(r.args):
            return ""
        sql, fails = _text_on_spark(op, args, r), _spark_fails(op)(args, r)
        tried = r.result.kind in RANGES and op != "div"
        return null_where(fails, sql) if sql and fails and not tried else sql

    return lowering


def _spark_fails(op: str) -> Lowering:
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


for _op in ("add", "sub", "mul", "div", "mod"):
    define(
        f"sql_{_op}",
        _resolver(_op),
        _reference(_op),
        duckdb=_duckdb(_op),
        declines=_declines(_op),
        spark=_spark(_op),
        spark_fails=_spark_fails(_op),
    )


def _negated_type(types: tuple[SqlType, ...]) -> Resolution:
    (t,) = types
    if is_temporal(types) and (found := temporal_types("neg", types)) is not None:
        return found
    if not t.is_numeric:
        raise FunctionTypeError(f"cannot negate {t}", "cast it to a number")
    return Resolution(types, t)


def _negate(r: Resolution) -> Reference:
    kind = r.result.kind
    if (rule := temporal_rule("neg", r)) is not None:
        return rule.by
    if kind is Kind.DECIMAL:
        return lambda v: v.copy_negate() if v else v  # the operator would round to 28 digits
    if kind is Kind.DOUBLE:
        return operator.neg
    high = RANGES[kind][1]
    return lambda v: -v if -v <= high else out_of_range(kind.value)


def _negation_sql(args: Sequence[str], r: Resolution) -> str:
    if is_temporal(r.args):
        return ""
    return f"TRY(-{args[0]})" if r.result.kind in RANGES else f"(-{args[0]})"


def _negation_fails(args: Sequence[str], r: Resolution) -> str:
    return f"({args[0]} = {least(r.result.kind)})" if r.result.kind in RANGES else ""


def _negation_on_spark(args: Sequence[str], r: Resolution) -> str:
    if is_temporal(r.args):
        return ""
    fails = _negation_fails(args, r)
    return null_where(fails, f"-{args[0]}") if fails else f"(-{args[0]})"


define(
    "sql_neg",
    _negated_type,
    _negate,
    duckdb=_negation_sql,
    declines=lambda args, r: (
        "" if r.result.kind not in RANGES else f"(TRY(-{args[0]}) IS NULL AND {args[0]} IS NOT NULL)"
    ),
    spark=_negation_on_spark,
    spark_fails=_negation_fails,
)

"""The operators add, sub, mul, div, mod and neg.

Types widen INT < BIGINT < DECIMAL < DOUBLE. Integers wrap as in Java, integer division goes toward zero and fails on
a zero divisor, decimals follow `numeric.result_decimal`, doubles are IEEE (1.0 / 0.0 is infinite). `+` joins texts.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from flowql.compiler.functions.numeric import (
    MAX_PRECISION,
    WIDE,
    divide,
    divide_double,
    fit_decimal,
    remainder,
    remainder_double,
    result_decimal,
    wrap32,
    wrap64,
)
from flowql.compiler.functions.registry import Lowering, Reference, define, scalar, takes
from flowql.compiler.functions.signatures import DEC, FunctionTypeError, Resolution, as_decimal, common_numeric
from flowql.compiler.functions.spark_text import constant, kept_least, whole, wrapped_bigint, wrapped_int
from flowql.compiler.plan.expr import Literal
from flowql.compiler.plan.types import BIGINT, DOUBLE, INT, STRING, Kind, SqlType, duckdb_type, spark_type

SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}
# Spark decides by a setting (ANSI mode) what these do where they fail, so its texts say it: integers wrap, and where the reference raises, the text is NULL.
TRIED = {"add": "try_add", "sub": "try_subtract", "mul": "try_multiply", "div": "try_divide", "mod": "try_mod"}
_NAN = "CAST('NaN' AS DOUBLE)"
_LONG = 400  # characters of operands that are not written twice: a chain of n operators would double n times
_DIVISOR_DIGITS = 18  # a quotient then has too short a period for two roundings to differ from one
INTEGER: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": divide,
    "mod": remainder,
}
_DOUBLE: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": divide_double,
    "mod": remainder_double,
}


def _decimal_remainder(a: Decimal, b: Decimal) -> Decimal:
    if b == 0:
        raise ZeroDivisionError("division by zero")
    return WIDE.remainder(a, b)


def _decimal_quotient(a: Decimal, b: Decimal) -> Decimal:
    if b == 0:
        raise ZeroDivisionError("division by zero")
    return WIDE.divide(a, b)


_DECIMAL: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "add": WIDE.add,
    "sub": WIDE.subtract,
    "mul": WIDE.multiply,
    "div": _decimal_quotient,
    "mod": _decimal_remainder,
}


def _resolver(op: str) -> Callable[[tuple[SqlType, ...]], Resolution]:
    def resolve(types: tuple[SqlType, ...]) -> Resolution:
        a, b = types
        if op == "add" and {a.kind, b.kind} <= {Kind.STRING, Kind.NULL}:
            return Resolution((STRING, STRING), STRING)
        a, b = (b if a.kind is Kind.NULL else a), (a if b.kind is Kind.NULL else b)
        common = common_numeric(a, b)
        if common is None:
            raise FunctionTypeError(
                f"unsupported arithmetic types: {types[0]} {SYMBOLS[op]} {types[1]}", "cast both sides to a number"
            )
        if common.kind is Kind.DECIMAL:
            return Resolution((as_decimal(a), as_decimal(b)), result_decimal(op, a, b))
        return Resolution((common, common), common)

    return resolve


def _reference(op: str) -> Callable[[Resolution], Reference]:
    def reference(r: Resolution) -> Reference:
        kind = r.result.kind
        if kind is Kind.STRING:
            return operator.add
        if kind is Kind.DOUBLE:
            return _DOUBLE[op]
        if kind is Kind.DECIMAL:
            exact, p, s = _DECIMAL[op], r.result.precision, r.result.scale
            return lambda a, b: fit_decimal(exact(a, b), p, s)
        integer, wrap = INTEGER[op], wrap32 if kind is Kind.INT else wrap64
        return lambda a, b: wrap(integer(a, b))

    return reference


def _duckdb(op: str) -> Lowering:
    symbol = "//" if op == "div" else SYMBOLS[op]

    def lowering(args: Sequence[str], r: Resolution) -> str:
        a, b = args
        if r.result.kind is Kind.DECIMAL:
            return _decimal_sql(op, a, b, r)
        if r.result.kind is Kind.STRING:
            return f"({a} || {b})"
        if r.result.kind is Kind.DOUBLE:
            return f"({a} {SYMBOLS[op]} {b})"
        return f"TRY({a} {symbol} {b})"

    return lowering


def _decimal_sql(op: str, a: str, b: str, r: Resolution) -> str:
    """Exact in DuckDB when no result type was cut to 38 digits; quotients and remainders stay with the reference."""
    (p1, s1), (p2, s2) = ((t.precision, t.scale) for t in r.args)
    digits = p1 + p2 + 1 if op == "mul" else max(p1 - s1, p2 - s2) + max(s1, s2) + 1
    if op in ("div", "mod") or digits > MAX_PRECISION:
        return ""
    return f"CAST({a} {SYMBOLS[op]} {b} AS {duckdb_type(r.result)})"


def _declines(op: str) -> Lowering:
    """Integer rows that overflow or divide by zero: DuckDB's TRY makes them NULL."""
    value = _duckdb(op)

    def lowering(args: Sequence[str], r: Resolution) -> str:
        if r.result.kind not in (Kind.INT, Kind.BIGINT):
            return ""
        return f"({value(args, r)} IS NULL AND {args[0]} IS NOT NULL AND {args[1]} IS NOT NULL)"

    return lowering


def _spark(op: str) -> Lowering:
    symbol = SYMBOLS[op]

    def lowering(args: Sequence[str], r: Resolution) -> str:
        a, b = args
        kind = r.result.kind
        if kind is Kind.STRING:
            return f"concat({a}, {b})"
        if kind is Kind.DECIMAL:
            return exact_decimal(op, a, b, r)
        if kind is Kind.DOUBLE:
            return _double_quotient(op, a, b) if op in ("div", "mod") else f"({a} {symbol} {b})"
        if op == "mod":
            return f"({a} % {b})" if whole(b) else f"try_mod({a}, {b})"
        if op == "div":
            return _integer_quotient(a, b, kind)
        return _integer(op, a, b, kind)

    return lowering


def _integer(op: str, a: str, b: str, kind: Kind) -> str:
    """add, sub, mul. The sum of two INTs is a BIGINT; that of two BIGINTs is tried, and only where there is none exact and cut."""
    if kind is Kind.INT:
        return wrapped_int(f"CAST({a} AS BIGINT) {SYMBOLS[op]} CAST({b} AS BIGINT)")
    exact_one = wrapped_bigint(f"(CAST({a} AS DECIMAL(19, 0)) {SYMBOLS[op]} CAST({b} AS DECIMAL(19, 0)))")
    if len(a) + len(b) > _LONG:
        return exact_one
    return f"coalesce({TRIED[op]}({a}, {b}), {exact_one})"


def _integer_quotient(a: str, b: str, kind: Kind) -> str:
    """The least number has no positive counterpart: divided by -1 it stays."""
    known = whole(b)
    quotient = f"CAST({a} AS BIGINT) DIV {b}"
    if known is None or known == -1:
        lowest = f"{a} = {constant(Literal(BIGINT, -(2**63)))} AND {b} = -1" if kind is Kind.BIGINT else "FALSE"
        quotient = f"CASE WHEN {b} = 0 THEN NULL WHEN {lowest} THEN {a} ELSE {quotient} END"
    elif known == 0:
        quotient = "CAST(NULL AS BIGINT)"
    return wrapped_int(quotient) if kind is Kind.INT else f"({quotient})"


def _double_quotient(op: str, a: str, b: str) -> str:
    """IEEE where Spark gives NULL: a zero divisor."""
    if op == "mod":
        return f"(CASE WHEN {b} = 0D AND {a} IS NOT NULL THEN {_NAN} ELSE {a} % {b} END)"
    positive = f"(({a} > 0D) = (CAST({b} AS STRING) <> '-0.0'))"
    infinite = f"CASE WHEN {positive} THEN CAST('Infinity' AS DOUBLE) ELSE CAST('-Infinity' AS DOUBLE) END"
    nothing = f"CASE WHEN isnan({a}) OR {a} = 0D THEN {_NAN} ELSE {infinite} END"
    return f"(CASE WHEN {b} = 0D AND {a} IS NOT NULL THEN {nothing} ELSE {a} / {b} END)"


def exact_decimal(op: str, a: str, b: str, r: Resolution) -> str:
    """Exact where Spark cuts no intermediate type to 38 digits: its rules are the same (both come from Hive)."""
    (p1, s1), (p2, s2) = ((t.precision, t.scale) for t in r.args)
    if op == "div":
        scale = max(6, s1 + p2 + 1)
        digits = p1 - s1 + s2 + scale
        if p2 > _DIVISOR_DIGITS:
            return ""
    elif op == "mod":
        digits = max(p1 - s1, p2 - s2) + max(s1, s2)
    else:
        digits = p1 + p2 + 1 if op == "mul" else max(p1 - s1, p2 - s2) + max(s1, s2) + 1
    if digits > MAX_PRECISION:
        return ""
    made = f"{TRIED[op]}({a}, {b})" if op in ("div", "mod") else f"{a} {SYMBOLS[op]} {b}"
    return f"TRY_CAST({made} AS {spark_type(r.result)})"


def _zero_divisor(args: Sequence[str], r: Resolution) -> str:
    if r.result.kind is Kind.DOUBLE:
        return ""
    return f"({args[0]} IS NOT NULL AND coalesce({args[1]} = 0, FALSE))"


for _op in ("add", "sub", "mul", "div", "mod"):
    define(
        _op,
        _resolver(_op),
        _reference(_op),
        duckdb=_duckdb(_op),
        declines=_declines(_op),
        spark=_spark(_op),
        spark_fails=_zero_divisor if _op in ("div", "mod") else None,
    )


def _negated_on_spark(args: Sequence[str], r: Resolution) -> str:
    v, kind = args[0], r.result.kind
    return kept_least(v, f"-{v}", kind) if kind in (Kind.INT, Kind.BIGINT) else f"(-{v})"


def _negate(r: Resolution) -> Reference:
    kinds: dict[Kind, Callable[[Any], Any]] = {
        Kind.INT: lambda v: wrap32(-v),
        Kind.BIGINT: lambda v: wrap64(-v),
        Kind.DOUBLE: operator.neg,
        Kind.DECIMAL: lambda v: v.copy_negate() if v else v,  # the operator would round to 28 digits
    }
    return kinds[r.result.kind]


scalar(
    "neg",
    takes(INT, gives=INT),
    takes(BIGINT, gives=BIGINT),
    takes(DEC, gives=DEC),
    takes(DOUBLE, gives=DOUBLE),
    by_types=_negate,
    spark=_negated_on_spark,
    duckdb=lambda a, r: f"(-{a[0]})" if r.result.kind is Kind.DOUBLE else f"TRY(-{a[0]})",
    declines=lambda a, r: "" if r.result.kind is Kind.DOUBLE else f"(TRY(-{a[0]}) IS NULL AND {a[0]} IS NOT NULL)",
)

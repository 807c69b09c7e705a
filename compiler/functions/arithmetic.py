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
from flowql.compiler.functions.registry import Function, Lowering, Reference, register, scalar, takes
from flowql.compiler.functions.signatures import DEC, FunctionTypeError, Resolution, as_decimal, common_numeric
from flowql.compiler.plan.types import BIGINT, DOUBLE, INT, STRING, Kind, SqlType, duckdb_type

SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}
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


_EXAMPLES = {"add": "3", "sub": "-1", "mul": "2", "div": "0", "mod": "1"}
for _op, _result in _EXAMPLES.items():
    register(
        Function(
            _op,
            _resolver(_op),
            _reference(_op),
            duckdb=_duckdb(_op),
            declines=_declines(_op),
            summary=f"The operator {SYMBOLS[_op]}.",
            example=f"{_op}(1, 2) -> {_result}",
        )
    )


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
    summary="The unary operator -.",
    example="neg(5) -> -5",
    duckdb=lambda a, r: f"(-{a[0]})" if r.result.kind is Kind.DOUBLE else f"TRY(-{a[0]})",
    declines=lambda a, r: "" if r.result.kind is Kind.DOUBLE else f"(TRY(-{a[0]}) IS NULL AND {a[0]} IS NOT NULL)",
)

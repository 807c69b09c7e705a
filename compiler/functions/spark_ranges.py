"""Arithmetic of standard SQL that cannot fail, as the types and constants below it say: its text needs no test for rows that do.

`CAST(price AS DOUBLE) * 0.908` of a BIGINT neither overflows nor comes out as 0: a whole number is at most 2^63, and at least 1 where it is not 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flowql.compiler.functions.arithmetic import SYMBOLS
from flowql.compiler.plan.expr import Call, Expr, Literal
from flowql.compiler.plan.types import Kind, SqlType, spark_type

_DOUBLE_LEAST = 5e-324  # a sum is exact near 0, so that it is 0 or at least this
_BITS = {Kind.INT: 31, Kind.BIGINT: 63}


@dataclass(frozen=True, slots=True)
class _Range:
    """Bounds of the absolute value of a DOUBLE that is not 0: positive and finite."""

    least: float
    greatest: float


def without_failure(e: Call, texts: Sequence[str]) -> str:
    """The text of a call of `sql_add` and the like over the texts of its operands, if no row fails it; else "".

    >>> from flowql.compiler.plan.expr import Column
    >>> from flowql.compiler.plan.types import BIGINT
    >>> without_failure(Call(BIGINT, "sql_div", (Column(BIGINT, "at"), Literal(BIGINT, 10))), ["at", "10L"])
    'CAST(at DIV 10L AS BIGINT)'
    """
    op = e.name.removeprefix("sql_")
    if op == e.name or op not in SYMBOLS or len(texts) != 2:
        return ""
    if e.type.kind is Kind.DOUBLE:
        return f"({texts[0]} {SYMBOLS[op]} {texts[1]})" if _range(e) is not None else ""
    divisor = e.args[1]
    whole = op == "div" and e.type.kind in _BITS and all(a.type.kind in _BITS for a in e.args)
    if whole and isinstance(divisor, Literal) and divisor.value not in (None, 0, -1):
        return f"CAST({texts[0]} DIV {texts[1]} AS {spark_type(e.type)})"
    return ""


def _range(e: Expr) -> _Range | None:
    """The range of a DOUBLE expression; None if it is not known, or if the call itself may fail."""
    if e.type.kind is not Kind.DOUBLE:
        return None
    if isinstance(e, Literal):
        v = abs(e.value) if isinstance(e.value, float) else 0.0
        return _checked(v, v)
    if not isinstance(e, Call):
        return None
    if e.name == "cast":
        return _of_number(e.args[0].type)
    if e.name == "sql_neg":
        return _range(e.args[0])
    if e.name not in ("sql_add", "sql_sub", "sql_mul", "sql_div"):
        return None
    a, b = map(_range, e.args)
    if a is None or b is None:
        return None
    if e.name == "sql_mul":
        return _checked(a.least * b.least, a.greatest * b.greatest)
    if e.name == "sql_div":
        return _checked(a.least / b.greatest, a.greatest / b.least) if isinstance(e.args[1], Literal) else None
    return _checked(_DOUBLE_LEAST, a.greatest + b.greatest)


def _of_number(t: SqlType) -> _Range | None:
    """The range of the values of an exact type as DOUBLEs."""
    if t.kind in _BITS:
        return _Range(1.0, 2.0 ** _BITS[t.kind])
    return _Range(10.0**-t.scale, 10.0 ** (t.precision - t.scale)) if t.kind is Kind.DECIMAL else None


def _checked(least: float, greatest: float) -> _Range | None:
    return _Range(least, greatest) if least > 0 and math.isfinite(greatest) else None

"""Arithmetic of decimals over columns whose exact results may not fit 38 digits: Arrow computes with 76 digits, then rounds once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowql.compiler.functions.registry import ArrowCall, arrow_call, register_columns
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.types import INT, SqlType, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

_DIGITS = 76
_DIVISOR_DIGITS = 30
_FACTOR_DIGITS = 37


def over_columns(op: str, r: Resolution) -> str:
    """The name by which DuckDB calls `add`, `sub`, `mul` or `div` for these types. The function fails for columns with a row whose result it cannot give."""
    a, b = r.args
    name = f"DECIMAL_{op.upper()}@{a.precision}_{a.scale}_{b.precision}_{b.scale}_{r.result.scale}"
    if arrow_call(name) is None:
        register_columns(name, ArrowCall((a, b), r.result, lambda columns: _computed(op, columns, a, b, r.result)))
    return name


def compared(a: SqlType, b: SqlType) -> str:
    """The name by which DuckDB calls the sign of a - b, an INT, for decimals of these types."""
    name = f"DECIMAL_SIGN@{a.precision}_{a.scale}_{b.precision}_{b.scale}"
    if arrow_call(name) is None:
        register_columns(name, ArrowCall((a, b), INT, lambda columns: _sign(columns, a, b)))
    return name


def _sign(columns: Sequence[pa.Array], a: SqlType, b: SqlType) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    left, right = (c.cast(_common(a, b)) for c in columns)
    greater, less = (pc.cast(test, pa.int32()) for test in (pc.greater(left, right), pc.less(left, right)))
    return pc.subtract(greater, less)


def _common(a: SqlType, b: SqlType) -> pa.DataType:
    """A type that holds the values of both."""
    import pyarrow as pa

    scale = max(a.scale, b.scale)
    return pa.decimal256(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)


def _computed(op: str, columns: Sequence[pa.Array], a: SqlType, b: SqlType, result: SqlType) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    left, right = columns
    if op == "mul":
        wide = [c.cast(pa.decimal256(min(t.precision, _FACTOR_DIGITS), t.scale)) for c, t in ((left, a), (right, b))]
        made = pc.multiply(*wide)
    elif op == "div":
        # Arrow cuts the quotient behind a.scale + digits of the divisor + 1 places, which are more than are kept: so one rounding is left.
        places = max(a.scale, result.scale - _DIVISOR_DIGITS)
        digits = _DIGITS - b.scale - _DIVISOR_DIGITS - 2
        made = pc.divide(left.cast(pa.decimal256(digits, places)), right.cast(pa.decimal256(_DIVISOR_DIGITS, b.scale)))
    else:
        made = (pc.add if op == "add" else pc.subtract)(left.cast(_common(a, b)), right.cast(_common(a, b)))
    rounded = pc.round(made, ndigits=result.scale, round_mode="half_towards_infinity")
    return rounded.cast(arrow_type(result))

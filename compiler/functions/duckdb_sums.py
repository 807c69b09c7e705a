"""Aggregates over rows that are all there whose sums DuckDB computes as whole numbers, and a function over columns finishes once for each group."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowql.compiler.functions.aggregate_forms import Linear
from flowql.compiler.functions.lazy_arrow import pa
from flowql.compiler.functions.registry import ArrowCall, register_columns
from flowql.compiler.plan.types import BIGINT, Kind, SqlType, arrow_type, decimal

DECLINED = "flowql: not computed here"  # the error of a row that DuckDB is not to compute
SUM_DIGITS = decimal(38, 0)


def whole_sql(arg: str, t: SqlType) -> str:
    """A number of exact type without its point."""
    return (
        f"CAST({arg} * 1{'0' * t.scale} AS HUGEINT)"
        if t.kind is Kind.DECIMAL and t.scale
        else f"CAST({arg} AS HUGEINT)"
    )


def digits(sum_: str) -> str:
    return f"CAST({sum_} AS DECIMAL(38, 0))"


def finisher(
    function: str, found: Linear | None, t: SqlType, result: SqlType, accumulator: Callable[..., object], sums: int = 1
) -> str:
    """The name of the function of a group's number of values, their sum and, of some, the sum of their squares."""
    name = f"{function}@{t} {result}".upper().replace(" ", "_").replace("(", "_").replace(")", "_").replace(",", "")
    assert found is not None

    def call(columns: Sequence[pa.Array]) -> pa.Array:
        made = []
        for n, *values in zip(*(c.to_pylist() for c in columns), strict=True):
            made.append(found.result(accumulator(n, *map(int, values)) if n else found.zero))
        return pa.array(made, arrow_type(result))

    register_columns(name, ArrowCall((BIGINT, *[SUM_DIGITS] * sums), result, call))
    return name

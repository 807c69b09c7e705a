"""Pieces of DuckDB's SQL: string constants, sums as whole numbers, and functions whose meaning differs beyond ASCII."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

from flowql.compiler.functions.aggregate_forms import Linear
from flowql.compiler.functions.lazy_arrow import pa
from flowql.compiler.functions.registry import ArrowCall, Lowering, Reference, register_columns
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.types import BIGINT, STRING, Kind, SqlType, arrow_type, decimal


def quoted_text(value: str) -> str:
    """A string constant. value: without NUL."""
    return "'" + value.replace("'", "''") + "'"


def constant_text(sql: str) -> str | None:
    """The value of a string constant, or None. sql: an argument as a lowering gets it."""
    inner = sql[1:-1]
    if len(sql) < 2 or not sql.startswith("'") or not sql.endswith("'") or "'" in inner.replace("''", ""):
        return None
    return inner.replace("''", "'")


# --- Aggregates over rows that are all there whose sums DuckDB computes as whole numbers, and a function over columns finishes once for each group ---

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


# --- DuckDB forms of functions of one text whose meaning for characters beyond ASCII is another one there: it maps the case of one character to one character, ---
# and keeps characters together that people see as one.

_BYTES_MAX = 1 << 20  # of a text beyond ASCII; a longer one is declined


class Lowered(TypedDict):
    """The fields of `Function` used here."""

    duckdb: Lowering
    declines: Lowering


def beyond_ascii(name: str, by: Reference) -> Lowered:
    """DuckDB's function `name` for texts of ASCII characters, and `by`, row by row, for others."""
    over_rows = f"{name.upper()}@TEXT"

    def column(columns: Sequence[pa.Array]) -> pa.Array:
        short = (v if v is not None and len(v) <= _BYTES_MAX else None for v in columns[0].to_pylist())
        return pa.array([None if v is None else by(v) for v in short], pa.string())

    register_columns(over_rows, ArrowCall((STRING,), STRING, column))

    def duckdb(args: Sequence[str], _r: Resolution) -> str:
        (a,) = args
        return f'(CASE WHEN strlen({a}) = length({a}) THEN {name}({a}) ELSE "{over_rows}"({a}) END)'

    def declines(args: Sequence[str], _r: Resolution) -> str:
        (a,) = args
        return f"(strlen({a}) > {_BYTES_MAX} AND strlen({a}) <> length({a}))"

    return {"duckdb": duckdb, "declines": declines}

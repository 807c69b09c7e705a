"""DuckDB forms of functions of one text whose meaning for characters beyond ASCII is another one there: it maps the case of one character to one character,
and keeps characters together that people see as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from flowql.compiler.functions.lazy_arrow import pa
from flowql.compiler.functions.registry import ArrowCall, Lowering, Reference, register_columns
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.types import STRING

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

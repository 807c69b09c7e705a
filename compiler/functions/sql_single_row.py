"""The value of a sub-query that has one row by its data: with several rows it fails, as in PostgreSQL."""

from __future__ import annotations

from typing import Any

from flowql.compiler.functions.registry import scalar, takes
from flowql.compiler.functions.signatures import T
from flowql.compiler.plan.types import BIGINT

SINGLE_ROW = "sql_single_row"
_SEVERAL = "more than one row returned by a subquery used as an expression"


def _single(value: Any, rows: int | None) -> Any:
    if rows is not None and rows > 1:
        raise ValueError(_SEVERAL)
    return value


scalar(
    SINGLE_ROW,
    takes(T, BIGINT, gives=T),
    by=_single,
    null_propagating=False,
    duckdb=lambda args, _r: args[0],
    declines=lambda args, _r: f"(COALESCE({args[1]}, 0) > 1)",
)

"""Table functions: one row in, a list of values out, one output row each. NULL gives no row."""

from __future__ import annotations

from itertools import product
from typing import Any

from flowql.compiler.functions.bounds import check_elements
from flowql.compiler.functions.registry import scalar, takes
from flowql.compiler.functions.signatures import ArrayOf, T


def cube(columns: list[Any]) -> list[list[Any]]:
    """Every combination of keeping and blanking the columns; a NULL column has only one form."""
    kept = len(columns) - columns.count(None)
    check_elements((len(columns) + 1) << min(kept, 64))
    forms = [[None] if v is None else [None, v] for v in columns]
    return [list(row) for row in product(*forms)]


scalar("EXPLODE", takes(ArrayOf(T), gives=T), by=list, table=True)
scalar("CUBE_EXPLODE", takes(ArrayOf(T), gives=ArrayOf(T)), by=cube, table=True)

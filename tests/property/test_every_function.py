"""Every scalar function gives the same in the vector path as in the row path, lowered to DuckDB or not, and fails for the same rows.

On Spark: `tests/runtime/spark/test_native_functions.py`, with the same calls.
"""

from __future__ import annotations

import numpy as np
import pytest

from flowql.compiler.functions.duckdb_sql import lower
from flowql.compiler.plan.explain import expr_text
from flowql.compiler.plan.expr import Column, Expr, walk
from flowql.compiler.plan.logical import NamedExpr, Project
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import Batch, from_rows, to_arrow
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.projections import ProjectionChain
from tests.property.function_calls import SCHEMA, alike, everything, named, names, rows_of

pytestmark = pytest.mark.turns("long")

ROWS, SEED = 150, 20130101


def through(expr: Expr, batch: Batch, *, vector: bool) -> tuple[list[object], list[tuple[int, str]]]:
    """The values of an expression, and the rows it fails for with the reasons."""
    made = Schema((Field("X", expr.type),))
    run = MicroBatchContext(NO_STATE, vector=vector)
    out = ProjectionChain(
        [Operator("x", Project((NamedExpr("X", expr),)), ("",), made, "append")], SCHEMA, "append"
    ).process([batch], run)
    assert out is not None
    return [row[0] for row in out.rows()], sorted((d.seq, d.message) for d in run.dead_letters)


def arguments(expr: Expr, row: tuple[object, ...]) -> dict[str, object]:
    """The values of the columns that an expression reads."""
    given = dict(zip((f.name for f in SCHEMA), row, strict=True))
    return {x.name: given[x.name] for x in walk(expr) if isinstance(x, Column)}


def test_every_function_is_the_same_by_row_and_by_column() -> None:
    rows, exprs = rows_of(ROWS, SEED), list(everything(3))
    assert named(exprs) >= set(names())
    batch = from_rows(SCHEMA, rows, np.zeros(ROWS, np.int64), np.zeros(ROWS, np.int8), range(ROWS))
    wrong, lowered = [], 0
    for expr in exprs:
        expected, reasons = through(expr, batch, vector=False)
        to_arrow(expected, expr.type)  # a value that no batch can hold would stop its query for good
        values, letters = through(expr, batch, vector=True)
        lowered += lower(expr) is not None
        different = [
            f"{e!r}, by column {v!r}, of {arguments(expr, row)}"
            for e, v, row in zip(expected, values, rows, strict=True)
            if not alike(e, v)
        ]
        wrong += [f"{expr_text(expr)}: {d}" for d in different[:1]] + (
            [f"{expr_text(expr)}: {letters[:2]}, not {reasons[:2]}"] if letters != reasons else []
        )
    print(f"{len(exprs)} calls, {lowered} of them lowered, over {ROWS} rows of seed {SEED}")
    assert not wrong, f"{len(wrong)} differences, such as\n" + "\n".join(wrong[:20])
    assert lowered > 100

"""Expressions over one row, as the operators here call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowql.compiler.functions.bounds import code_of
from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.plan.expr import ROWTIME, Column, Expr, Literal
from flowql.compiler.plan.schema import Schema
from flowql.runtime.batch import Row
from flowql.runtime.functions.failures import described
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.projections import EXPRESSION_FAILED

# (row, rowtime, seq, run) -> value. An error of a function gives null and a dead letter under `seq`.
RowExpr = Callable[[Row, int, int, MicroBatchContext], Any]


def compile_expr(e: Expr, schema: Schema) -> RowExpr:
    """The reference meaning of `e` over rows of `schema`; columns and literals cost one call."""
    if isinstance(e, Literal):
        value = e.value
        return lambda row, rowtime, seq, run: value
    if isinstance(e, Column) and e.name in schema.names:
        i = schema.names.index(e.name)
        return lambda row, rowtime, seq, run: row[i]
    if isinstance(e, Column) and e.name == ROWTIME:
        return lambda row, rowtime, seq, run: rowtime
    errors: list[Exception] = []
    evaluate = compile_row([e], (*schema.names, ROWTIME), on_error=lambda _, error: errors.append(error))

    def call(row: Row, rowtime: int, seq: int, run: MicroBatchContext) -> Any:
        value = evaluate((*row, rowtime))[0]
        if errors:
            error = errors.pop()
            errors.clear()
            run.fail_row(seq, code_of(error, EXPRESSION_FAILED), described(error))
        return value

    return call

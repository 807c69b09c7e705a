"""Three-valued logic of standard SQL: what a database says, by the references, the row kernel and the DuckDB kernel.

On Spark: `tests/runtime/spark/test_standard_expressions.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from flowql.compiler.functions.casts import caster
from flowql.compiler.functions.duckdb_sql import lower
from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.functions.registry import lookup
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.expr import Call, Column, Expr, Literal
from flowql.compiler.plan.logical import Filter, NamedExpr, Project
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import BOOLEAN
from flowql.runtime.batch import Batch, from_rows
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.projections import ProjectionChain
from tests.property.standard_expressions import COLUMNS, answers, bound, called, rows, texts

SCHEMA = Schema(tuple(Field(n, t) for n, t in COLUMNS.items()))


def by_reference(e: Expr, row: Sequence[Any]) -> Any:
    """The value of an expression by its references alone, without generated code."""
    if isinstance(e, Column):
        return row[list(COLUMNS).index(e.name)]
    if isinstance(e, Literal):
        return e.value
    assert isinstance(e, Call)
    if e.name == "cast":
        value = by_reference(e.args[0], row)
        return None if value is None else caster(e.args[0].type, e.type)(value)
    function = lookup(e.name)
    assert function is not None
    reference = function.reference(Resolution(tuple(a.type for a in e.args), e.type))
    if function.lazy:
        return reference(*((lambda a=a: by_reference(a, row)) for a in e.args))
    args = [by_reference(a, row) for a in e.args]
    return None if function.null_propagating and None in args else reference(*args)


def batch() -> Batch:
    n = len(rows())
    return from_rows(SCHEMA, rows(), np.zeros(n, np.int64), np.zeros(n, np.int8), range(n))


def through(spec: Filter | Project, made: Schema, *, vector: bool) -> Batch | None:
    run = MicroBatchContext(NO_STATE, vector=vector)
    out = ProjectionChain([Operator("x", spec, ("",), made, "append")], SCHEMA, "append").process([batch()], run)
    assert not run.dead_letters
    return out


def differences(found: Sequence[Sequence[Any]]) -> list[str]:
    wrong = []
    for text, wanted, values in zip(texts(), answers(), found, strict=True):
        wrong += [f"{text} of {r}: {v}, not {w}" for r, w, v in zip(rows(), wanted, values, strict=True) if v != w]
    return wrong


def test_the_references_say_what_a_database_says() -> None:
    assert not differences([[by_reference(e, r) for r in rows()] for e in bound()])


def test_the_row_kernel_says_what_a_database_says() -> None:
    kernel = compile_row(bound(), list(COLUMNS))
    assert not differences(list(zip(*map(kernel, rows()), strict=True)))


@pytest.mark.parametrize("vector", [True, False])
def test_an_operator_says_what_a_database_says(vector: bool) -> None:
    made = Schema(tuple(Field(f"x{i}", e.type) for i, e in enumerate(bound())))
    out = through(Project(tuple(NamedExpr(f"x{i}", e) for i, e in enumerate(bound()))), made, vector=vector)
    assert out is not None
    assert not differences(list(zip(*out.rows(), strict=True)))


@pytest.mark.parametrize("vector", [True, False])
def test_a_filter_drops_what_is_unknown(vector: bool) -> None:
    for text, e, wanted in zip(texts(), bound(), answers(), strict=True):
        if e.type == BOOLEAN:
            out = through(Filter(e), SCHEMA, vector=vector)
            kept = [] if out is None else out.seq.tolist()
            assert kept == [i for i, w in enumerate(wanted) if w is True], text


def test_each_operator_is_there_and_lowered() -> None:
    assert called(bound()) >= {f"sql_{n}" for n in ("eq", "ne", "lt", "le", "gt", "ge", "in", "concat")}
    not_lowered = [t for t, e in zip(texts(), bound(), strict=True) if lower(e) is None]
    assert not_lowered == []
    assert None in {w for wanted in answers() for w in wanted}

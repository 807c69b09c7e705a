"""Expressions of one node as Spark columns: by their lowering, the rest together as one Arrow UDF of the reference.

Values that fail are NULL, as everywhere; `Computed.letters` gives the messages of such rows in a second pass over them alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowql.compiler.functions.spark_sql import SparkSql, lower, lower_predicate
from flowql.compiler.functions.spark_text import quoted, text
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.logical import NamedExpr
from flowql.compiler.plan.schema import Schema
from flowql.runtime.operators.projections import EXPRESSION_FAILED
from flowql.runtime.spark.native.udf import ERRORS, reference_udf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REFERENCE, FAILED = "__reference", "__failed"
LETTERS_DDL = "code STRING, messages ARRAY<STRING>, rowtime BIGINT"  # one for each row, whatever is wrong with it


@dataclass(frozen=True, slots=True)
class Computed:
    """Spark SQL over `frame`, which holds the inputs (and what the UDF gave). letters: rows of LETTERS_DDL, or None.

    Texts, as each column object is a call to Java more, and a query over little data is mostly its planning.
    """

    frame: DataFrame
    columns: tuple[str, ...]
    letters: DataFrame | None


def compute(frame: DataFrame, schema: Schema, exprs: Sequence[NamedExpr], *, predicate: bool = False) -> Computed:
    """Each expression over the rows of `frame` (of `schema`), in order. predicate: FALSE may stand for NULL and back."""
    lowered = [(lower_predicate if predicate else lower)(e.expr) for e in exprs]
    rest = [e for e, s in zip(exprs, lowered, strict=True) if s is None]
    # A stage of its own: an argument must not be computed once more by whoever reads the struct.
    made = frame.withColumn(REFERENCE, reference_udf(schema, rest)) if rest else frame
    place = {id(e): i for i, e in enumerate(rest)}
    columns = [s.sql if s is not None else f"{REFERENCE}.v{place[id(e)]}" for e, s in zip(exprs, lowered, strict=True)]
    return Computed(made, tuple(columns), _letters(made, schema, exprs, lowered, rest))


def _letters(
    made: DataFrame,
    schema: Schema,
    exprs: Sequence[NamedExpr],
    lowered: Sequence[SparkSql | None],
    rest: Sequence[NamedExpr],
) -> DataFrame | None:
    """Rows at which an expression failed: those the lowerings point at, computed again by the reference for its words, and those of the UDF."""
    failing = [(e, s.fails) for e, s in zip(exprs, lowered, strict=True) if s is not None and s.fails is not None]
    if not failing and not rest:
        return None
    errors = [f"{REFERENCE}.{ERRORS}"] if rest else []
    wrong = made.where(" OR ".join([*(f"({fails})" for _, fails in failing), *(f"size({e}) > 0" for e in errors)]))
    if failing:
        errors.append(f"{FAILED}.{ERRORS}")
        wrong = wrong.withColumn(FAILED, reference_udf(schema, [e for e, _ in failing]))
    code, messages = f"{text(EXPRESSION_FAILED)} AS code", f"concat({', '.join(errors)}) AS messages"
    return wrong.selectExpr(code, messages, f"{quoted(ROWTIME)} AS rowtime")

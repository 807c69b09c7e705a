"""The reference as an Arrow UDF: the runtime's own kernels for projections, on columns that Spark sends.

One UDF computes all expressions of a node that have no lowering; it gives a struct of their values and of the messages of those
that failed. The closure carries plain data; kernels are compiled once per Python worker.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from flowql.compiler.functions.registry import lookup
from flowql.compiler.functions.spark_text import quoted
from flowql.compiler.plan.codec import from_data, to_data
from flowql.compiler.plan.expr import ROWTIME, Call, columns_of, walk
from flowql.compiler.plan.logical import NamedExpr, Project
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import spark_type
from flowql.runtime.batch import Batch
from flowql.runtime.functions.metrics import counts_since
from flowql.runtime.functions.shipping import register_shipped, shipped
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.projections import ProjectionChain
from flowql.runtime.spark.function_counts import counter
from flowql.runtime.spark.native.frames import from_spark, spark_arrow, to_spark

if TYPE_CHECKING:
    from pyspark.sql import Column

ERRORS = "errors"


def reference_udf(schema: Schema, exprs: Sequence[NamedExpr]) -> Column:
    """A column of STRUCT<v0, v1, ..., errors ARRAY<STRING>>: the expressions over a row of `schema` and its row time."""
    from pyspark.sql import functions as F

    read = columns_of(*(e.expr for e in exprs))
    given = Schema(tuple(Field(f.name, f.type) for f in schema if f.name in read))
    functions = shipped({x.name for e in exprs for x in walk(e.expr) if isinstance(x, Call)})
    text = json.dumps([to_data(given), [[e.name, to_data(e.expr)] for e in exprs], functions])
    fields = [f"v{i}: {spark_type(e.expr.type)}" for i, e in enumerate(exprs)]
    made = f"STRUCT<{', '.join([*fields, f'{ERRORS}: ARRAY<STRING>'])}>"

    calls, modules = counter() if functions else None, {module for module, *_ in functions}

    def reference(*columns: pa.Array) -> pa.Array:
        made = _kernel(text).run(columns)
        if calls is not None:
            calls.add(counts_since(modules))
        return made

    udf = F.arrow_udf(reference, made)
    if not all(map(_deterministic, exprs)):
        udf = udf.asNondeterministic()
    called: Column = udf(*(F.col(quoted(n)) for n in (*given.names, ROWTIME)))
    return called


def _deterministic(e: NamedExpr) -> bool:
    calls = (lookup(x.name) for x in walk(e.expr) if isinstance(x, Call))
    return all(f is None or f.deterministic for f in calls)


@lru_cache(maxsize=256)
def _kernel(text: str) -> _Kernel:
    given, exprs, functions = json.loads(text)
    register_shipped(functions)
    return _Kernel(from_data(given), [NamedExpr(f"{i}:{n}", from_data(e)) for i, (n, e) in enumerate(exprs)])


class _Kernel:
    """A projection chain over batches of rows; used by one thread of a worker at a time."""

    def __init__(self, given: Schema, exprs: Sequence[NamedExpr]) -> None:
        self._given, self._exprs = given, exprs
        self._types = [e.expr.type for e in exprs]
        made = Schema(tuple(Field(e.name, e.expr.type) for e in exprs))
        self._chain = ProjectionChain(
            [Operator("spark", Project(tuple(exprs)), ("",), made, "append")], given, "append"
        )

    def run(self, columns: Sequence[pa.Array]) -> pa.Array:
        *values, times = columns
        n = len(times)
        arrays = [from_spark(c, f.type) for c, f in zip(values, self._given, strict=True)]
        # A row time of its own keeps a batch of no columns from having no length.
        arrow = pa.RecordBatch.from_arrays(arrays, names=list(self._given.names)) if arrays else _empty(n)
        times = times.fill_null(0) if times.null_count else times
        batch = Batch(
            self._given,
            arrow=arrow,
            rowtime=times.cast(pa.int64()).to_numpy(zero_copy_only=False),
            op=np.zeros(n, np.int8),
            seq=np.arange(n),
        )
        run = MicroBatchContext(NO_STATE)
        out = self._chain.process([batch], run) if n else None
        made = [] if out is None else list(out.arrow().columns)
        if out is None:
            made = [pa.nulls(0, spark_arrow(t)) for t in self._types]
        results = [to_spark(c, t) for c, t in zip(made, self._types, strict=True)]
        errors: list[list[str]] = [[] for _ in range(n)]
        for letter in run.dead_letters:
            errors[letter.seq].append(letter.message.partition(":")[2].removeprefix(": "))
        names = [*(f"v{i}" for i in range(len(results))), ERRORS]
        return pa.StructArray.from_arrays([*results, pa.array(errors, pa.list_(pa.string()))], names=names)


def _empty(n: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * n, pa.struct([])))

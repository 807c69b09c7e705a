"""The windowed join of two streams, over all of their rows."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from compiler.plan.expr import ROWTIME
from compiler.plan.logical import Join
from compiler.plan.schema import Schema
from runtime.spark.native.expressions import column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_LEFT, _RIGHT = "l__", "r__"


def stream_stream(
    spec: Join, left: DataFrame, left_schema: Schema, right: DataFrame, right_schema: Schema, schema: Schema
) -> DataFrame:
    """Pairs of one key with right.time within [left.time - before, left.time + after]; their time is the later one.

    Rows without a key are dropped. A pair counts whichever came first: without late rows both sides are still remembered. Rows of an
    outer side that meet nothing come once, with NULLs and their own time.
    """
    from pyspark.sql import functions as F

    lefts = _prefixed(_keyed(left, left_schema), left_schema, _LEFT)
    rights = _prefixed(_keyed(right, right_schema), right_schema, _RIGHT)
    pairs = list(zip(left_schema.key, right_schema.key, strict=True))
    keys = [(column(_LEFT + a.name), column(_RIGHT + b.name)) for a, b in pairs]
    here, there = column(_LEFT + ROWTIME), column(_RIGHT + ROWTIME)
    within = (there >= here - F.lit(spec.before_ms)) & (there <= here + F.lit(spec.after_ms))
    joined = lefts.join(rights, _same_key(keys) & within, spec.kind)
    made = [_output(f.name, left_schema, right_schema, schema) for f in schema]
    return joined.select(*made, F.greatest(here, there).alias(ROWTIME))


def _prefixed(frame: DataFrame, schema: Schema, prefix: str) -> DataFrame:
    return frame.select(*(column(n).alias(prefix + n) for n in (*schema.names, ROWTIME)))


def _keyed(frame: DataFrame, schema: Schema) -> DataFrame:
    """Rows with a key: an outer join would keep the others."""
    present = reduce(lambda a, b: a | b, (column(f.name).isNotNull() for f in schema.key))
    return frame.where(present)


def _same_key(keys: list[tuple[Column, Column]]) -> Column:
    """Of several parts some may be NULL, but not all."""
    if len(keys) == 1:
        return keys[0][0] == keys[0][1]
    equal = reduce(lambda a, b: a & b, (left.eqNullSafe(right) for left, right in keys))
    return equal & reduce(lambda a, b: a | b, (left.isNotNull() for left, _ in keys))


def _output(name: str, left: Schema, right: Schema, schema: Schema) -> Column:
    """A column of the output by name, left before right; its key columns are the parts of the join key in order."""
    from pyspark.sql import functions as F

    keys = [f.name for f in schema.key]
    if name in keys:
        i = keys.index(name)
        return F.coalesce(column(_LEFT + left.key[i].name), column(_RIGHT + right.key[i].name)).alias(name)
    return column((_LEFT if name in left.names else _RIGHT) + name).alias(name)

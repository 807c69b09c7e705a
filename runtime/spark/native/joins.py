"""The windowed inner join of two streams, over all of their rows."""

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

    Rows without a key are dropped. A pair counts whichever came first: without late rows both sides are still remembered.
    """
    from pyspark.sql import functions as F

    lefts, rights = _prefixed(left, left_schema, _LEFT), _prefixed(right, right_schema, _RIGHT)
    pairs = list(zip(left_schema.key, right_schema.key, strict=True))
    keys = [(column(_LEFT + a.name), column(_RIGHT + b.name)) for a, b in pairs]
    here, there = column(_LEFT + ROWTIME), column(_RIGHT + ROWTIME)
    within = (there >= here - F.lit(spec.before_ms)) & (there <= here + F.lit(spec.after_ms))
    joined = lefts.join(rights, _same_key(keys) & within, "inner")
    made = [_output(f.name, i, left_schema, schema) for i, f in enumerate(schema)]
    return joined.select(*made, F.greatest(here, there).alias(ROWTIME))


def _prefixed(frame: DataFrame, schema: Schema, prefix: str) -> DataFrame:
    return frame.select(*(column(n).alias(prefix + n) for n in (*schema.names, ROWTIME)))


def _same_key(keys: list[tuple[Column, Column]]) -> Column:
    """Of several parts some may be NULL, but not all."""
    if len(keys) == 1:
        return keys[0][0] == keys[0][1]
    equal = reduce(lambda a, b: a & b, (left.eqNullSafe(right) for left, right in keys))
    return equal & reduce(lambda a, b: a | b, (left.isNotNull() for left, _ in keys))


def _output(name: str, _place: int, left: Schema, schema: Schema) -> Column:
    """A column of the output by name, left before right; its key columns are the parts of the join key in order."""
    keys = [f.name for f in schema.key]
    if name in keys:
        return column(_LEFT + left.key[keys.index(name)].name).alias(name)
    return column((_LEFT if name in left.names else _RIGHT) + name).alias(name)

"""The windowed join of two streams, over all of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowql.compiler.functions.spark_text import quoted
from flowql.compiler.plan.event_times import EARLIEST_MS
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.logical import Join, Node, Scan, walk_nodes
from flowql.compiler.plan.schema import Schema
from flowql.runtime.spark.frames.relation import any_present
from flowql.runtime.spark.outline import functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LEFT, _RIGHT = "l__", "r__"
_HERE, _THERE = "l__at", "r__at"


def kept_for_good(node: Node) -> bool:
    """Whether a join of two streams gives every pair of one key: it is WITHIN more than the times of its rows can be apart."""
    spec = node.spec
    if not isinstance(spec, Join) or spec.shape != "stream-stream" or spec.kind != "inner":
        return False
    times = [n.spec.times for n in walk_nodes(node) if isinstance(n.spec, Scan)]
    # Those of records, which begin earlier than those of columns.
    range_ms = max(t.latest_ms for t in times) - min(t.first_ms(of_column=False) for t in times)
    return min(spec.before_ms, spec.after_ms) >= range_ms


def pairs_of(
    spec: Join,
    left: DataFrame,
    left_schema: Schema,
    right: DataFrame,
    right_schema: Schema,
    schema: Schema,
    *,
    delay_ms: int | None = None,
    carried: Sequence[str] = (),
    unbounded: bool = False,
) -> DataFrame:
    """Pairs of one key with right.time within [left.time - before, left.time + after]; their time is the later one.

    Rows without a key are dropped: no NULL fulfils the condition of an inner join, and an outer one would keep them. A pair counts whichever
    came first: without late rows both sides are still remembered. Rows of an outer side that meet nothing come once, with NULLs and their own time.

    delay_ms: of streaming frames: how far Spark's watermark is behind the times of each; rows that it has passed are forgotten.
    carried: further columns of both sides, of which a pair has those of its later row.
    unbounded: no two rows are too far apart (`kept_for_good`), so their times are not compared.
    """
    if spec.kind != "inner":
        left, right = left.where(any_present(left_schema.key)), right.where(any_present(right_schema.key))
    lefts, rights = _prefixed(left, left_schema, _LEFT, carried), _prefixed(right, right_schema, _RIGHT, carried)
    keys = [
        (quoted(_LEFT + a.name), quoted(_RIGHT + b.name))
        for a, b in zip(left_schema.key, right_schema.key, strict=True)
    ]
    here, there = quoted(_LEFT + ROWTIME), quoted(_RIGHT + ROWTIME)
    within = f"{there} >= {here} - {spec.before_ms}L AND {there} <= {here} + {spec.after_ms}L"
    if delay_ms is not None:
        lefts, rights = _marked(lefts, here, _HERE, delay_ms), _marked(rights, there, _THERE, delay_ms)
        before, after = (f"INTERVAL {ms} MILLISECONDS" for ms in (spec.before_ms, spec.after_ms))
        within += f" AND {_THERE} >= {_HERE} - {before} AND {_THERE} <= {_HERE} + {after}"
    condition = _same_key(keys) if unbounded else f"{_same_key(keys)} AND {within}"
    joined = lefts.join(rights, functions(left).expr(condition), spec.kind)
    made = [f"{_output(f.name, left_schema, right_schema, schema)} AS {quoted(f.name)}" for f in schema]
    later = (
        f"CASE WHEN {there} >= {here} THEN {quoted(_RIGHT + n)} ELSE {quoted(_LEFT + n)} END AS {quoted(n)}"
        for n in carried
    )
    return joined.selectExpr(*made, f"greatest({here}, {there}) AS {quoted(ROWTIME)}", *later)


def _marked(frame: DataFrame, time: str, name: str, delay_ms: int) -> DataFrame:
    """With a watermark. Spark's begins at 1970, so times are moved behind it."""
    timed = frame.withColumn(name, functions(frame).expr(f"timestamp_millis({time} + {-EARLIEST_MS}L)"))
    return timed.withWatermark(name, f"{delay_ms} milliseconds")


def _prefixed(frame: DataFrame, schema: Schema, prefix: str, carried: Sequence[str]) -> DataFrame:
    columns = [f"{quoted(n)} AS {quoted(prefix + n)}" for n in (*schema.names, ROWTIME, *carried)]
    return frame.selectExpr(*columns)


def _same_key(keys: list[tuple[str, str]]) -> str:
    """The condition that keys are equal. Some parts of a key may be NULL, but not all."""
    if len(keys) == 1:
        return f"{keys[0][0]} = {keys[0][1]}"
    some = " OR ".join(f"{left} IS NOT NULL" for left, _ in keys)
    return " AND ".join([*(f"{left} <=> {right}" for left, right in keys), f"({some})"])


def _output(name: str, left: Schema, right: Schema, schema: Schema) -> str:
    """Spark SQL of a column of the output, left before right; its key columns are the parts of the join key in order."""
    keys = [f.name for f in schema.key]
    if name in keys:
        i = keys.index(name)
        return f"coalesce({quoted(_LEFT + left.key[i].name)}, {quoted(_RIGHT + right.key[i].name)})"
    return quoted((_LEFT if name in left.names else _RIGHT) + name)

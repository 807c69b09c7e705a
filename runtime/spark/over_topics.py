"""Queries over topics in Spark's own operators, by the lowering of `frames`: streams, and batches that aggregate one stream.

`frames.streams` explains why the results of streams are those of the runtime. In a batch over a topic no row is late where it is native, and
latest means latest by offset. `outline_streaming` and `outline_bounded` decide without Spark which queries have such a form. Imports pyspark only inside functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from flowql.compiler.functions.spark_text import quoted
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.logical import Aggregate, Join, Node, Scan, walk_nodes
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.spark.frames.nodes import HANDLERS, Handler, Nodes, aggregate
from flowql.runtime.spark.frames.pairs import kept_for_good
from flowql.runtime.spark.frames.relation import Relation, key_of, names
from flowql.runtime.spark.frames.streams import SPARK_HANDLERS, STREAM_HANDLERS
from flowql.runtime.spark.native.aggregates import PLACE
from flowql.runtime.spark.native.frames import BESIDE, NO_VALUE, OFFSET, Beside
from flowql.runtime.spark.outline import OUTLINE
from flowql.runtime.spark.shapes import Emitting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from flowql.runtime.spark.native.topics import Reading

Semantics = Literal["flowql", "spark"]
Read = Callable[["Reading"], "DataFrame"]
_HANDLERS: Mapping[Semantics, Mapping[type[Any], Handler]] = {"flowql": STREAM_HANDLERS, "spark": SPARK_HANDLERS}
# Handlers of a batch: where it is native, the aggregates depend on no order, or on that of the offsets of one partition.
_BATCH_HANDLERS: Mapping[type[Any], Handler] = {**HANDLERS, Aggregate: partial(aggregate, place=PLACE)}


def native_streaming(
    plan: Plan,
    query: QueryPlan,
    read: Read,
    partitions: Mapping[str, int],
    letters: str,
    semantics: Semantics = "flowql",
) -> Emitting:
    """EMITTED rows of each micro-batch: of a stream all, of a table the last of each key that changed.

    To be started in `output_mode`. read: a frame of a topic, as `native.topics.rows_of` gives it: streaming, but of a table all its
    records when a micro-batch runs. letters: where dead letters of decoding wait for the commit (`log_letters`).
    """
    return _lowered(plan, query, read, partitions, letters, _beside(query), _HANDLERS[semantics])


def native_bounded(plan: Plan, query: QueryPlan, read: Read, partitions: Mapping[str, int], letters: str) -> Emitting:
    """EMITTED rows of a batch over all records of a topic: the final rows of a table. `choose.is_native` must hold for it."""
    return _lowered(plan, query, read, partitions, letters, "places", _BATCH_HANDLERS)


def _lowered(
    plan: Plan,
    query: QueryPlan,
    read: Read,
    partitions: Mapping[str, int],
    letters: str,
    beside: Beside,
    handlers: Mapping[type[Any], Handler],
) -> Emitting:
    from flowql.runtime.spark.native.topics import Reading, encode  # decoders, which `choose` does without

    def scanned(_nodes: Nodes, node: Node, _inputs: list[Relation]) -> Relation:
        assert isinstance(node.spec, Scan)
        source = plan.source(node.spec.source)
        assert source is not None, f"the plan has no source {node.spec.source}"
        if node.spec.kind == "table":
            frame = read(Reading(source, node.schema, query.id, "", plan.schemas, "table"))
            return _now(frame, node.schema)
        frame = read(Reading(source, node.schema, query.id, letters, plan.schemas, beside))
        return Relation(frame, "rows", carried=BESIDE[beside])

    nodes = Nodes.of(query, {}, handlers={**handlers, Scan: scanned})
    return encode(query, nodes.relation(query.logical).frame, partitions)


def _now(records: DataFrame, schema: Schema) -> Relation:
    """The rows of a table: the last of each key by offset, where it has a value. A key is in one partition."""
    from pyspark.sql import functions as F

    key = [quoted(f.name) for f in key_of(schema)]
    last = f"max_by(struct({', '.join([*names(schema), quoted(ROWTIME), quoted(NO_VALUE)])}), {quoted(OFFSET)})"
    rows = records.groupBy(*key).agg(F.expr(last).alias("__last")).where(f"NOT __last.{quoted(NO_VALUE)}")
    columns = (*names(schema), quoted(ROWTIME))
    return Relation(rows.selectExpr(*(f"__last.{n} AS {n}" for n in columns)), "state")


def output_mode(query: QueryPlan) -> str:
    """The output mode of a native stream: windows that are given once are appended."""
    return "append" if _gives_finals(query) else "update"


def _gives_finals(query: QueryPlan) -> bool:
    return any(isinstance(n.spec, Aggregate) and n.spec.emit_final for n in walk_nodes(query.logical))


def keeps_no_state(query: QueryPlan) -> bool:
    """Whether the result of each row depends on that row alone."""
    return not any(isinstance(n.spec, Aggregate | Join) for n in walk_nodes(query.logical))


def _beside(query: QueryPlan) -> Beside:
    if keeps_no_state(query):
        return "whole"
    return "headers" if any(kept_for_good(n) for n in walk_nodes(query.logical)) else "nothing"


def outline_streaming(query: QueryPlan, semantics: Semantics = "flowql") -> None:
    """Raises SparkUnsupported where `native_streaming` has no form for a node. Needs no Spark."""
    _outline(query, _beside(query), _HANDLERS[semantics])


def outline_bounded(query: QueryPlan) -> None:
    """The same of `native_bounded`."""
    _outline(query, "places", _BATCH_HANDLERS)


def _outline(query: QueryPlan, beside: Beside, handlers: Mapping[type[Any], Handler]) -> None:
    def scanned(_nodes: Nodes, node: Node, _inputs: list[Relation]) -> Relation:
        if isinstance(node.spec, Scan) and node.spec.kind == "table":
            return Relation(OUTLINE, "state")
        return Relation(OUTLINE, "rows", carried=BESIDE[beside])

    Nodes.of(query, {}, handlers={**handlers, Scan: scanned}).relation(query.logical)

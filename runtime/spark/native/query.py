"""A whole query as Spark's own operators: a batch that aggregates one stream over its topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flowql.compiler.plan.logical import Scan, Sink, walk_nodes
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.spark.native.nodes import Lowering
from flowql.runtime.spark.native.topics import decode, encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def lower_query(query: QueryPlan, tables: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of a query over frames by source name: columns by name, then the row time. `choose.is_native` must hold for it."""
    # One sub-topology: no repartition, so that a group's rows come from one partition, in its order.
    return Lowering(tables, placed=len(query.subtopologies) == 1).frame(query.logical)


def native_bounded(
    _spark: SparkSession, plan: Plan, query: QueryPlan, sources: DataFrame, partitions: Mapping[str, int]
) -> DataFrame:
    """EMITTED rows of a query over PACKED rows, as `stage.exact.exact_bounded` gives them: the final rows of a table, dead letters too."""
    return encoded(query, lower_query(query, _decoded(plan, query, sources)), partitions)


def _decoded(plan: Plan, query: QueryPlan, sources: DataFrame) -> dict[str, DataFrame]:
    """Frames of the topics that the query reads, by source name."""
    tables: dict[str, DataFrame] = {}
    for node in walk_nodes(query.logical):
        if isinstance(node.spec, Scan) and node.spec.source not in tables:
            source = plan.source(node.spec.source)
            assert source is not None, f"the plan has no source {node.spec.source}"
            tables[source.name] = decode(sources, source, node.schema, query.id, schemas=plan.schemas)
    return tables


def encoded(query: QueryPlan, rows: DataFrame, partitions: Mapping[str, int]) -> DataFrame:
    sink = query.logical.spec
    assert isinstance(sink, Sink)
    return encode(rows, sink, query.logical.schema, partitions[sink.topic], query.id)

"""A whole query as Spark's own operators: an aggregation of one stream over its topic."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
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
    return _encoded(query, lower_query(query, _decoded(plan, query, sources, None)), partitions)


def native_streaming(
    _spark: SparkSession,
    plan: Plan,
    query: QueryPlan,
    sources: DataFrame,
    partitions: Mapping[str, int],
    letters: Path,
) -> DataFrame:
    """EMITTED rows of each micro-batch over a stream of PACKED rows: of a table the last of each key that changed.

    To be started in output mode update. letters: the folder where dead letters of decoding wait for the commit (`log_letters`).
    """
    return _encoded(query, lower_query(query, _decoded(plan, query, sources, letters)), partitions)


def _decoded(plan: Plan, query: QueryPlan, sources: DataFrame, letters: Path | None) -> dict[str, DataFrame]:
    """Frames of the topics that the query reads, by source name."""
    tables: dict[str, DataFrame] = {}
    for node in walk_nodes(query.logical):
        if isinstance(node.spec, Scan) and node.spec.source not in tables:
            source = plan.source(node.spec.source)
            assert source is not None, f"the plan has no source {node.spec.source}"
            tables[source.name] = decode(sources, source, node.schema, query.id, letters=letters, schemas=plan.schemas)
    return tables


def _encoded(query: QueryPlan, rows: DataFrame, partitions: Mapping[str, int]) -> DataFrame:
    sink = query.logical.spec
    assert isinstance(sink, Sink)
    return encode(rows, sink, query.logical.schema, partitions[sink.topic], query.id)

"""A whole query as Spark's own operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Literal

from compiler.plan.logical import Scan, Sink, walk_nodes
from compiler.plan.schema import Schema
from compiler.plan.topology import Plan, QueryPlan
from runtime.spark.native.nodes import Lowering
from runtime.spark.native.topics import decode, encode, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Mode = Literal["bounded", "streaming"]


@dataclass(frozen=True, slots=True)
class NativeQuery:
    """What a native query gives.

    rows: a frame of `schema` (columns by name, then the row time). In a bounded run over a table: its final rows.
    letters: code, message, rowtime of rows whose expressions failed; a job of its own over the same sources. None: nothing can.
    """

    rows: DataFrame
    schema: Schema
    letters: DataFrame | None


def lower_query(query: QueryPlan, tables: Mapping[str, DataFrame]) -> NativeQuery:
    """The query over frames by source name. `choose.is_native` must hold for it."""
    # One sub-topology: no repartition, so that a group's rows come from one partition, in its order.
    lowering = Lowering(tables, placed=len(query.subtopologies) == 1)
    rows = lowering.frame(query.logical)
    found = lowering.letters
    letters = reduce(lambda a, b: a.unionAll(b), found) if found else None
    return NativeQuery(rows, query.logical.schema, letters)


def native_query(
    _spark: SparkSession, _plan: Plan, query: QueryPlan, tables: Mapping[str, DataFrame], _mode: Mode = "bounded"
) -> DataFrame:
    """The rows of `lower_query`, for who needs no dead letters."""
    return lower_query(query, tables).rows


def native_bounded(
    _spark: SparkSession,
    plan: Plan,
    query: QueryPlan,
    sources: DataFrame | None,
    partitions: Mapping[str, int],
    *,
    frames: Mapping[str, DataFrame] | None = None,
) -> DataFrame:
    """EMITTED rows of a query, as `stage.exact.exact_bounded` gives them: the final rows of a table, all rows of a stream.

    sources: PACKED rows of the topics read; frames: by source name, of those that are files. Dead letters are among the rows.
    """
    tables = dict(frames or {})
    nodes = list(walk_nodes(query.logical))
    for node in nodes:
        if isinstance(node.spec, Scan) and node.spec.source not in tables:
            source = plan.source(node.spec.source)
            assert source is not None, f"the plan has no source {node.spec.source}"
            assert sources is not None, f"no rows are given for {node.spec.topic}"
            tables[source.name] = decode(sources, source, node.schema, query.id)
    native = lower_query(query, tables)
    sink = nodes[-1]
    assert isinstance(sink.spec, Sink)
    emitted = encode(native.rows, sink.spec, sink.schema, partitions[sink.spec.topic], query.id)
    return emitted if native.letters is None else emitted.unionAll(told(native.letters, query.id))

"""Streams over topics in Spark's own operators. `frames.streams` lowers the nodes and explains why the results are those of the runtime.

`outline_streaming` decides without Spark which queries have such a form. Imports pyspark only inside functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flowql.compiler.plan.logical import Aggregate, Join, Node, Scan, walk_nodes
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.spark.frames.nodes import Nodes
from flowql.runtime.spark.frames.relation import Relation
from flowql.runtime.spark.frames.streams import STREAM_HANDLERS
from flowql.runtime.spark.native.frames import HEADERS, NO_VALUE, PARTITION
from flowql.runtime.spark.outline import OUTLINE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from flowql.runtime.spark.native.topics import Reading

CARRIED = (PARTITION, HEADERS, NO_VALUE)


def native_streaming(
    plan: Plan,
    query: QueryPlan,
    read: Callable[[Reading], DataFrame],
    partitions: Mapping[str, int],
    letters: Path,
) -> DataFrame:
    """EMITTED rows of each micro-batch: of a stream all, of a table the last of each key that changed.

    To be started in output mode update. read: a streaming frame of a topic, as `native.topics.rows_of` gives it. letters: the folder where
    dead letters of decoding wait for the commit (`log_letters`).
    """
    from flowql.runtime.spark.native.query import encoded  # imports PySpark
    from flowql.runtime.spark.native.topics import Reading

    whole = keeps_no_state(query)

    def scanned(_nodes: Nodes, node: Node, _inputs: list[Relation]) -> Relation:
        assert isinstance(node.spec, Scan)
        source = plan.source(node.spec.source)
        assert source is not None, f"the plan has no source {node.spec.source}"
        frame = read(Reading(source, node.schema, query.id, letters, plan.schemas, whole))
        return Relation(frame, "rows", carried=CARRIED if whole else ())

    nodes = Nodes.of(query, {}, handlers={**STREAM_HANDLERS, Scan: scanned})
    return encoded(query, nodes.relation(query.logical).frame, partitions)


def keeps_no_state(query: QueryPlan) -> bool:
    """Whether the result of each row depends on that row alone."""
    return not any(isinstance(n.spec, Aggregate | Join) for n in walk_nodes(query.logical))


def outline_streaming(query: QueryPlan) -> None:
    """Raises SparkUnsupported where `native_streaming` has no form for a node. Needs no Spark."""
    carried = CARRIED if keeps_no_state(query) else ()

    def scanned(_nodes: Nodes, _node: Node, _inputs: list[Relation]) -> Relation:
        return Relation(OUTLINE, "rows", carried=carried)

    Nodes.of(query, {}, handlers={**STREAM_HANDLERS, Scan: scanned}).relation(query.logical)

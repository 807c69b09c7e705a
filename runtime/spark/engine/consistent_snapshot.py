"""Whether queries have read the same of the topics they share. No pyspark.

Each query commits its batches alone, so results of two are at one place of their input at some moments only. Who asks about both
may wait for one of these; else the answer says where each is. Nobody is held up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.spark.engine.deployed import Deployed
from flowql.runtime.spark.engine.order import topics_followed
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.spark.log_offsets import partition_offsets

SHOWN = 2  # partitions that a reason names


def apart(site: Site, deployed: Deployed, queries: Collection[str]) -> str:
    """Where queries (ids) are not at one place in the topics they share; empty if they are."""
    positions: dict[TopicPartition, dict[str, int]] = {}
    for query in (q for q in deployed.plan.queries if q.id in queries):
        read = partition_offsets(site.positions(query, deployed.records.get(query.id)))
        for topic in topics_followed(query, deployed.records.get(query.id)):
            for partition in range(site.partitions().get(topic, 0)):
                tp = TopicPartition(topic, partition)
                positions.setdefault(tp, {})[query.id] = read.get(tp, site.log.admin().begin_offset(tp))
    differing = [(tp, at) for tp, at in sorted(positions.items()) if len(set(at.values())) > 1]
    said = [_said(tp, at) for tp, at in differing[:SHOWN]]
    more = [f"and {len(differing) - SHOWN} more partitions"] if len(differing) > SHOWN else []
    return "; ".join([*said, *more])


def _said(tp: TopicPartition, at: Mapping[str, int]) -> str:
    return f"of {tp} " + ", ".join(f"{query} has read up to offset {offset}" for query, offset in sorted(at.items()))

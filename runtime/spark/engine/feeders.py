"""Files that stand for topics, as queries of their own: each reads the files of a topic and writes the topic. No pyspark.

So they have checkpoints, batches, an order, restarts and a status like any query, and those that read the topic need not know.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace

from compiler.plan.codec import to_data
from compiler.plan.logical import Node, Sink
from compiler.plan.topology import Plan, QueryPlan, SourceDef
from runtime.log.base import Admin
from runtime.spark.engine.order import outside_topics, topics_written
from runtime.spark.errors import SparkUnsupported
from runtime.spark.settings import TopicFiles

_PREFIX = "FILES_"


def with_feeders(plan: Plan, files: Mapping[str, TopicFiles]) -> Plan:
    """The plan with a query for each topic that is read and has files."""
    if not files:
        return plan
    read = outside_topics(plan)
    made = [_feeder(s, files[s.topic]) for s in plan.sources if s.topic in files and s.topic in read]
    return replace(plan, queries=(*{q.id: q for q in made}.values(), *plan.queries))


def is_feeder(query: QueryPlan) -> bool:
    return query.id.startswith(_PREFIX) and not query.subtopologies


def ensure_fed_topics(plan: Plan, files: Mapping[str, TopicFiles], admin: Admin) -> None:
    """The topics of files that are read; one that nobody made has as many partitions as its source declares, else one."""
    known, read = admin.topics(), outside_topics(plan)
    for source in plan.sources:
        if source.topic in files and source.topic in read and source.topic not in known:
            admin.create_topic(source.topic, source.partitions or 1)


def refuse_streams_to_files(plan: Plan, files: Mapping[str, TopicFiles]) -> None:
    """Results go into files when a batch is through. Raises SparkUnsupported for a stream that would have to."""
    for query in plan.queries:
        for topic in topics_written(query):
            if topic in files and not is_feeder(query):
                reason = f"the results of a stream are in its topic {topic}, and not in files"
                raise SparkUnsupported(
                    "Sink", reason, "run with --bounded, or take the topic out of `files`", query=query.id
                )


def _feeder(source: SourceDef, files: TopicFiles) -> QueryPlan:
    sink = Sink(
        source.name,
        source.topic,
        source.kind,
        source.key_format,
        source.value_format,
        source.timestamp,
        source.partitions,
    )
    said = json.dumps([to_data(source), asdict(files)], sort_keys=True, default=str)
    return QueryPlan(
        id=f"{_PREFIX}{source.topic}",
        sink=source.name,
        sql=f"{files.format} files in {files.path}",
        definition=hashlib.sha256(said.encode()).hexdigest(),
        logical=Node(sink, (), source.schema),
        subtopologies=(),
    )

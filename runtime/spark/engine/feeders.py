"""Files that stand for topics, as queries of their own: each reads the files of a topic and writes the topic. No pyspark.

So they have checkpoints, batches, an order, restarts and a status like any query, and those that read the topic need not know.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace

from flowql.compiler.plan.codec import to_data
from flowql.compiler.plan.logical import Node, Sink
from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef
from flowql.runtime.log.base import Admin
from flowql.runtime.spark.engine.order import outside_topics, topics_read
from flowql.runtime.spark.errors import FilesUnfit
from flowql.runtime.spark.settings import TopicFiles

_PREFIX = "FILES_"


def with_feeders(plan: Plan, files: Mapping[str, TopicFiles], direct: Collection[str] = ()) -> Plan:
    """The plan with a query for each topic that has files and is read. direct: ids of queries that read their files themselves."""
    if not files:
        return plan
    fed = outside_topics(plan) & files.keys() & {t for q in plan.queries if q.id not in direct for t in topics_read(q)}
    made = [_feeder(s, files[s.topic]) for s in plan.sources if s.topic in fed]
    return replace(plan, queries=(*{q.id: q for q in made}.values(), *plan.queries))


def refuse_unfit(plan: Plan, files: Mapping[str, TopicFiles]) -> None:
    """Raises FilesUnfit for what files say about a table that a topic cannot follow. plan: with its feeders.

    Records of a topic follow each other as they were read, and those of JSON and CSV are made where Spark SQL knows no columns.
    """
    for topic in [t for q in plan.queries if is_feeder(q) and (t := topic_fed_by(q.id)) is not None]:
        read, whole = files[topic], "compute batches over complete history:  flowql run --bounded"
        if read.sequence_by:
            title = f"the files in {read.place} have `sequence_by`, and topic {topic} takes their rows in the order in which they are read"
            raise FilesUnfit(title, help=f"leave it out if that order is right; else {whole}")
        if read.delete_when is not None and read.format in ("json", "csv"):
            title = f"the {read.format} files in {read.place} have `delete_when`, which topic {topic} cannot follow: their rows have no columns in Spark"
            raise FilesUnfit(title, help=f"write Parquet or Delta; or {whole}")


def is_feeder(query: QueryPlan) -> bool:
    return query.id.startswith(_PREFIX) and not query.subtopologies


def topic_fed_by(query: str) -> str | None:
    """The topic of the feeder with this id; None for the id of another query."""
    return query.removeprefix(_PREFIX) if query.startswith(_PREFIX) else None


def ensure_fed_topics(plan: Plan, files: Mapping[str, TopicFiles], admin: Admin) -> None:
    """The topics of files that are read; one that nobody made has as many partitions as its source declares, else one."""
    known, read = admin.topics(), outside_topics(plan)
    for source in plan.sources:
        if source.topic in files and source.topic in read and source.topic not in known:
            admin.create_topic(source.topic, source.partitions or 1)


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
    always, where_given = ("format", "path", "options"), ("table", "delete_when")
    read = {n: v for n, v in asdict(files).items() if n in always or (n in where_given and v)}
    said = json.dumps([to_data(source), read], sort_keys=True, default=str)
    return QueryPlan(
        id=f"{_PREFIX}{source.topic}",
        sink=source.name,
        sql=f"{files.format} files in {files.place}",
        definition=hashlib.sha256(said.encode()).hexdigest(),
        logical=Node(sink, (), source.schema),
        subtopologies=(),
    )

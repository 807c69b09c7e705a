"""Which files Spark reads as a source's rows without Python: Parquet whose columns are the source's. No pyspark.

Not with times inside containers, whose microseconds are cut in Python, nor with a row time that is a text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from compiler.plan.logical import Scan, Sink, walk_nodes
from compiler.plan.topology import Plan, QueryPlan, SourceDef
from compiler.plan.types import Kind, SqlType
from runtime.spark.settings import TopicFiles

_TIMES = (Kind.BIGINT, Kind.TIMESTAMP)


def can_stay(source: SourceDef) -> bool:
    """Whether `files_columns.frame_of` is for this source."""
    if source.timestamp is not None:
        field = source.schema.get(source.timestamp.column)
        if field is None or field.type.kind not in _TIMES:
            return False
    return not any(_has_inner_time(f.type) for f in source.schema)


def typed_sources(plan: Plan, files: Mapping[str, TopicFiles]) -> dict[str, SourceDef]:
    """The sources whose files are read like this, by name. Files of a topic that a query writes are for its results."""
    written = {n.spec.topic for q in plan.queries for n in walk_nodes(q.logical) if isinstance(n.spec, Sink)}
    parquet = {topic for topic, f in files.items() if f.format == "parquet"} - written
    return {s.name: s for s in plan.sources if s.topic in parquet and can_stay(s)}


def read_directly(plan: Plan, query: QueryPlan, files: Mapping[str, TopicFiles]) -> dict[str, SourceDef]:
    """Of the sources a query reads those with such files, by name."""
    typed = typed_sources(plan, files)
    return {s: typed[s] for s in _scanned(query) if s in typed}


def topics_to_feed(plan: Plan, files: Mapping[str, TopicFiles], native: Collection[str]) -> dict[str, TopicFiles]:
    """The files that must go into their topics: all but those that only queries of `native` (ids) read, each directly."""
    typed = typed_sources(plan, files)
    through = {s for q in plan.queries for s in _scanned(q) if q.id not in native or s not in typed}
    spared = {s.topic for s in typed.values()} - {s.topic for s in plan.sources if s.name in through}
    return {topic: f for topic, f in files.items() if topic not in spared}


def _scanned(query: QueryPlan) -> set[str]:
    return {n.spec.source for n in walk_nodes(query.logical) if isinstance(n.spec, Scan)}


def _has_inner_time(t: SqlType) -> bool:
    inner = (*t.args, *(f for _, f in t.fields))
    return any(i.kind is Kind.TIMESTAMP or _has_inner_time(i) for i in inner)

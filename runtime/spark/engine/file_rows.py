"""Rows of files whose topic is empty, because batches read the files as they are: what an interactive query about such a source reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from flowql.compiler.functions.spark_text import quoted
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.spark.history import outside_files
from flowql.runtime.spark.settings import TopicFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Gives the rows of a source: its columns and the row time (`ROWTIME` of expressions), of these columns (folded names; None: all) at least.
ReadRows = Callable[[frozenset[str] | None], Iterator[pa.RecordBatch]]


def rows_by_source(site: Site, plan: Plan, session: Callable[[], SparkSession]) -> dict[str, ReadRows]:
    """By name, how to read the sources of files into whose topics no stream has read them. session: asked for when rows are read."""
    sources = {s.name: s for s in plan.sources}
    found = outside_files(plan, site.settings).items()
    return {n: partial(_rows, session, sources[n], files) for n, files in found if _is_empty(site, sources[n].topic)}


def _is_empty(site: Site, topic: str) -> bool:
    info = site.log.admin().topics().get(topic)
    tps = [TopicPartition(topic, p) for p in range(info.partitions)] if info is not None else []
    return all(site.log.admin().begin_offset(tp) == end for tp, end in site.log.admin().end_offsets(tps).items())


def _rows(
    session: Callable[[], SparkSession], source: SourceDef, files: TopicFiles, columns: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    """All rows of a stream, or the last row of each key of a table, as a batch sees them; row time 0 for a table without a time."""
    from flowql.runtime.spark.files import source_frame
    from flowql.runtime.spark.frames.relation import TableRows, shown_time, state_of
    from flowql.runtime.spark.frames.source import relation_of
    from flowql.runtime.spark.native.frames import from_spark

    frame = source_frame(session(), source, files)
    relation = relation_of(source, frame, TableRows(files.sequence_by, files.delete_when))
    if source.kind == "table":
        relation = state_of(relation, source.schema)
    asked = [f for f in source.schema if columns is None or f.name.casefold() in columns]
    for batch in relation.frame.selectExpr(*(quoted(f.name) for f in asked), shown_time()).toArrow().to_batches():
        arrays = [from_spark(batch.column(i), f.type) for i, f in enumerate(asked)]
        yield pa.RecordBatch.from_arrays([*arrays, batch.column(len(asked))], [*(f.name for f in asked), ROWTIME])

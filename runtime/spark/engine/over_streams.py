"""A plan as Structured Streaming queries over frames and files on a session of the caller, without a log: `start_streams`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.spark.engine.order import topics_read, topics_written
from flowql.runtime.spark.errors import CheckpointOfOtherQuery, FrameUnfit
from flowql.runtime.spark.files import source_frame
from flowql.runtime.spark.files_sink import stream_to_files
from flowql.runtime.spark.frames.relation import TableRows
from flowql.runtime.spark.frames.streams import lower_streams
from flowql.runtime.spark.history import outside_files, refuse_overwriting
from flowql.runtime.spark.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    Into: TypeAlias = Mapping[str, Callable[[DataFrame, int], None]]
    Stream: TypeAlias = StreamingQuery


def start_streams(
    spark: SparkSession,
    plan: Plan,
    settings: SparkSettings,
    sources: Mapping[str, DataFrame],
    tables: Mapping[str, TableRows],
    into: Into,
    checkpoint: str,
    trigger: Mapping[str, Any],
) -> dict[str, StreamingQuery]:
    """Starts a query for each result that has a place to go to, and gives them by the names of the results.

    into: by name, what is called with the rows of each micro-batch and its number; a batch that failed comes again under its number.
    Other results go to the files that `settings` names for their topics, if they are streams: exactly once. checkpoint: a folder for
    one of each query. trigger: of `DataStreamWriter.trigger`. Nothing is started where a part is refused: SparkUnsupported, FrameUnfit, and
    CheckpointOfOtherQuery for a checkpoint of queries that have been changed since.
    """
    refuse_overwriting(plan, settings)
    files, given, rows = outside_files(plan, settings), dict(sources), dict(tables)
    for source in plan.sources:
        if source.name in files and source.name not in given:
            found = files[source.name]
            given[source.name] = source_frame(spark, source, found, streaming=source.kind == "stream")
            rows.setdefault(source.name, TableRows(found.sequence_by, found.delete_when))
    results = lower_streams(plan, given, tables=rows, late_rows=settings.late_rows)
    unknown = [name for name in into if name not in results]
    if unknown:
        raise FrameUnfit(f"the plan has no result {unknown[0]}", help=f"it makes {', '.join(results)}")
    writers = {}
    for name, result in results.items():
        sink = plan.source(name)
        assert sink is not None, f"the plan has no source {name}"
        to_files = settings.files.get(sink.topic)
        if name in into:
            writers[name] = result.frame.writeStream.foreachBatch(into[name]).outputMode(result.mode)
        elif to_files is not None:
            if result.mode == "update":
                title = f"{name} is a table, whose rows change in each micro-batch, and files only grow"
                raise FrameUnfit(
                    title, help=f"write its changes by `into={{'{name}': function}}`, with MERGE for example"
                )
            writers[name] = stream_to_files(result.frame, sink, to_files)
    if not writers:
        raise FrameUnfit("no result has a place to go to", help="name files for its topic, or pass `into`")
    for name in writers:
        _check_queries(spark, plan, name, _folder(checkpoint, name))
    started: dict[str, StreamingQuery] = {}
    try:
        for name, writer in writers.items():
            made = writer.option("checkpointLocation", _folder(checkpoint, name)).queryName(name)
            started[name] = (made.trigger(**trigger) if trigger else made).start()
    except BaseException:
        for query in started.values():
            query.stop()
        raise
    return started


def _folder(checkpoint: str, name: str) -> str:
    return f"{checkpoint.rstrip('/')}/{quote(name, safe='')}"


def _check_queries(spark: SparkSession, plan: Plan, name: str, folder: str) -> None:
    """Raises where a checkpoint is that of other queries: Spark compares little, and would go on with their state.

    Which they were is in a folder beside it, written before the first start; through Spark, which knows the file system.
    """
    from pyspark.errors import AnalysisException

    place, said = f"{folder}.queries", sorted(f"{q.id} {q.definition}" for q in _upstream(plan, name))
    try:
        before = sorted(r["value"] for r in spark.read.text(place).collect())
    except AnalysisException:  # there is none yet
        rows = spark.createDataFrame([(x,) for x in said], "value STRING")
        rows.coalesce(1).write.mode("overwrite").text(place)
        return
    if before != said:
        old, new = (dict(x.split(" ", 1) for x in side) for side in (before, said))
        changed = ", ".join(sorted(q for q in old.keys() | new.keys() if old.get(q) != new.get(q)))
        title = f"the checkpoint of {name} was made by other queries: {changed} has changed since"
        way = f"start with another folder for checkpoints, or remove {folder} and {place}, and what {name} has written"
        raise CheckpointOfOtherQuery(title, help=way)


def _upstream(plan: Plan, name: str) -> list[QueryPlan]:
    """The queries that give a result, directly or through others."""
    found = {q.id: q for q in plan.queries if q.sink == name}
    while True:
        read = {t for q in found.values() for t in topics_read(q)}
        more = {q.id: q for q in plan.queries if q.id not in found and read & set(topics_written(q))}
        if not more:
            return list(found.values())
        found |= more

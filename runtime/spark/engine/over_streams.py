"""A plan as Structured Streaming queries over frames and files on a session of the caller, without a log: `start_streams`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef
from flowql.runtime.spark.engine.order import topics_read
from flowql.runtime.spark.errors import CheckpointOfOtherQuery, FilesUnfit, FrameUnfit
from flowql.runtime.spark.files import source_frame
from flowql.runtime.spark.files_sink import stream_to_files, write_epoch
from flowql.runtime.spark.frames.relation import TableRows
from flowql.runtime.spark.frames.streams import StreamResult, lower_streams
from flowql.runtime.spark.history import outside_files, refuse_unfit_files, topics_written, written_paths
from flowql.runtime.spark.lake import Epoch, has_rows, results_gone
from flowql.runtime.spark.settings import SparkSettings, TopicFiles
from flowql.runtime.spark.storage import reach, told_of_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    Into: TypeAlias = Mapping[str, Callable[[DataFrame, int], None]]
    Stream: TypeAlias = StreamingQuery


_READS, _WRITES = (
    "reads:",
    "writes:",
)  # how lines about files begin in what is remembered of a checkpoint; other lines are about queries


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
    Other results go to the files that `settings` names for their topics, exactly once: streams to files and Delta, tables to Delta. checkpoint: a folder for
    one of each query. trigger: of `DataStreamWriter.trigger`. Nothing is started where a part is refused: SparkUnsupported, FrameUnfit, and
    CheckpointOfOtherQuery for a checkpoint of queries that have been changed since.
    """
    refuse_unfit_files(plan, settings)
    reach(spark, checkpoint, *written_paths(plan, settings))
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
            writers[name] = _to_files(spark, result, sink, to_files, _folder(checkpoint, name))
    if not writers:
        raise FrameUnfit("no result has a place to go to", help="name files for its topic, or pass `into`")
    from_files = {n: f for n, f in files.items() if n not in sources}
    for name in writers:
        into_files = None if name in into else settings.files[_topic(plan, name)]
        _check_queries(spark, plan, name, _folder(checkpoint, name), from_files, into_files)
    started: dict[str, StreamingQuery] = {}
    try:
        for name, writer in writers.items():
            made = writer.option("checkpointLocation", _folder(checkpoint, name)).queryName(name)
            with told_of_storage():
                started[name] = (made.trigger(**trigger) if trigger else made).start()
    except BaseException:
        for query in started.values():
            query.stop()
        raise
    return started


def _to_files(
    spark: SparkSession, result: StreamResult, sink: SourceDef, files: TopicFiles, folder: str
) -> DataStreamWriter:
    """The writer of a result into the files or the Delta table of its topic. folder: its checkpoint."""
    name = sink.name
    if files.format == "table":
        title = f"results of {name} as a stream: the table {files.table} would have rows twice after a crash"
        raise FrameUnfit(title, help="make it a Delta table, and write  format: delta")
    if files.format != "delta" and result.mode == "update":
        title = f"{name} is a table, whose rows change in each micro-batch, and files only grow"
        way = f"write it to Delta, or its changes by `into={{'{name}': function}}`"
        raise FrameUnfit(title, help=way)
    if _known(spark, f"{folder}/metadata") is None:
        _refuse_left(spark, result, sink, files)
    elif files.format != "delta":
        _refuse_gone(spark, files, folder)
    if files.format != "delta":
        return stream_to_files(result.frame, sink, files)

    def write(rows: DataFrame, number: int) -> None:
        made = _known(rows.sparkSession, f"{folder}/metadata")
        assert made, f"{folder} has no identity"
        epoch = Epoch(json.loads(made[0])["id"], number)
        if result.mode == "append":
            write_epoch(rows, sink, files, epoch, anew=False)
            return
        # Delta reads nothing of an epoch that it already holds, and Spark then fails to commit its state: compute all rows first.
        kept = rows.persist()
        try:
            kept.count()
            write_epoch(kept, sink, files, epoch, anew=False)
        finally:
            kept.unpersist()

    return result.frame.writeStream.foreachBatch(write).outputMode(result.mode)


def _refuse_left(spark: SparkSession, result: StreamResult, sink: SourceDef, files: TopicFiles) -> None:
    """Raises if the first start of a checkpoint finds output of another one: rows of a table, which this query would never update or delete, or a
    list of micro-batches in the folder, whose numbers Spark's file sink would skip.
    """
    if files.format == "delta":
        left = result.mode == "update" and has_rows(spark, files)
    else:
        left = _known(spark, f"{files.path.rstrip('/')}/_spark_metadata") is not None
    if left:
        title = f"{files.place} has results of {sink.name} that were written with another checkpoint"
        raise FilesUnfit(title, help="continue with that checkpoint, remove the results, or write to another place")


def _refuse_gone(spark: SparkSession, files: TopicFiles, folder: str) -> None:
    """Raises if the files of earlier micro-batches are gone, with Spark's list of them: later ones alone would be taken for all results."""
    done = _known(spark, f"{folder}/commits")
    if done and _known(spark, f"{files.path.rstrip('/')}/_spark_metadata") is None:
        raise results_gone(files.path)


def _known(spark: SparkSession, path: str) -> list[str] | None:
    """The lines of a text file or folder, read by Spark because it knows the file system; None if it does not exist."""
    from pyspark.errors import AnalysisException

    try:
        with told_of_storage(path):
            return [str(r["value"]) for r in spark.read.text(path).collect()]
    except AnalysisException:
        return None


def _folder(checkpoint: str, name: str) -> str:
    return f"{checkpoint.rstrip('/')}/{quote(name, safe='')}"


def _topic(plan: Plan, name: str) -> str:
    source = plan.source(name)
    assert source is not None, f"the plan has no source {name}"
    return source.topic


def _check_queries(
    spark: SparkSession,
    plan: Plan,
    name: str,
    folder: str,
    from_files: Mapping[str, TopicFiles],
    into_files: TopicFiles | None,
) -> None:
    """Raises where a checkpoint is that of other queries, or of other files: Spark compares little, and would go on with their state.

    Which they were is in a folder beside it, written before the first start; through Spark, which knows the file system.
    """
    place, upstream = f"{folder}.queries", _upstream(plan, name)
    queries = [f"{q.id} {q.definition}" for q in upstream]
    said = sorted([*queries, *_places(plan, name, upstream, from_files, into_files)])
    before = _known(spark, place)
    if before is None:
        rows = spark.createDataFrame([(x,) for x in said], "value STRING")
        with told_of_storage(place):
            rows.coalesce(1).write.mode("overwrite").text(place)
        return
    old, new = (dict(x.split(" ", 1) for x in side) for side in (before, said))
    moved = sorted(k for k in old.keys() & new.keys() if k.startswith((_READS, _WRITES)) and old[k] != new[k])
    if moved:
        told = "; ".join(f"{k.removeprefix(_READS).removeprefix(_WRITES)} was {old[k]} and is {new[k]}" for k in moved)
        title = f"the checkpoint of {name} was made with other files: {told}"
        way = f"name the files as before, or start with another folder for checkpoints: {name} is then recomputed, and must be written to an empty place"
        raise CheckpointOfOtherQuery(title, help=way)
    old, new = ({k: v for k, v in x.items() if not k.startswith((_READS, _WRITES))} for x in (old, new))
    if old != new:
        changed = ", ".join(sorted(q for q in old.keys() | new.keys() if old.get(q) != new.get(q)))
        title = f"the checkpoint of {name} was made by other queries: {changed} has changed since"
        way = f"start with another folder for checkpoints, or remove {folder} and {place}, and what {name} has written"
        raise CheckpointOfOtherQuery(title, help=way)


def _places(
    plan: Plan,
    name: str,
    upstream: list[QueryPlan],
    from_files: Mapping[str, TopicFiles],
    into_files: TopicFiles | None,
) -> list[str]:
    """The files that a result is computed from, and those that it is written to. (Of frames it is not known where they come from.)"""
    topics = {t for q in upstream for t in topics_read(q)}
    found = [f"{_READS}{n} {_address(f)}" for n, f in from_files.items() if _topic(plan, n) in topics]
    return found if into_files is None else [*found, f"{_WRITES}{name} {_address(into_files)}"]


def _address(files: TopicFiles) -> str:
    return f"{files.format} {files.place.removeprefix('file://').removeprefix('file:')}"


def _upstream(plan: Plan, name: str) -> list[QueryPlan]:
    """The queries that give a result, directly or through others."""
    found = {q.id: q for q in plan.queries if q.sink == name}
    while True:
        read = {t for q in found.values() for t in topics_read(q)}
        more = {q.id: q for q in plan.queries if q.id not in found and read & set(topics_written(q))}
        if not more:
            return list(found.values())
        found |= more

"""Results into files and tables: a topic's records as rows of Parquet, JSON lines, CSV or Delta, bounded and streaming.

`rows_of_topic` makes the rows, `final_rows` the state of a table from them, `write_files` and `write_epoch_files` write. The columns
are those of the source, WINDOWSTART and WINDOWEND behind a windowed key, and ROWTIME, in ms. JSON and CSV are written as `files` reads
them (times in ms, bytes in base64).
A stream only adds to files: of a table it writes every change, with ROWDELETED, each epoch into a folder of its own, `epoch=N`. In Delta a
table is its rows now, or the last change of each key in an epoch, with EPOCH and ROWDELETED.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from flowql.compiler.functions.spark_text import micros, millis, quoted
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.schema import WINDOW_FIELDS, Field, Schema
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import BIGINT, BOOLEAN, Kind, spark_type
from flowql.runtime.batch import DELETE
from flowql.runtime.errors import LogError
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.spark.active import active
from flowql.runtime.spark.errors import FilesUnfit
from flowql.runtime.spark.files_decode import json_texts, topic_rows
from flowql.runtime.spark.lake import (
    DELETED,
    EPOCH,
    Epoch,
    append_rows,
    is_table,
    merge_rows,
    replace_rows,
    results_gone,
)
from flowql.runtime.spark.log_append import split
from flowql.runtime.spark.log_sink import Results
from flowql.runtime.spark.native.frames import frame_ddl, from_spark, to_spark
from flowql.runtime.spark.settings import TopicFiles
from flowql.runtime.spark.shapes import SINK, Emit, from_ipc
from flowql.runtime.spark.storage import hadoop, told_of_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

TIME = "ROWTIME"
_SOURCE, _SEQ, _OFFSET, _DELETED = "__source", "__seq", "__offset", "__deleted"
_ORDER = (_SOURCE, _SEQ, _OFFSET)  # of the rows of a key
_NESTED = (Kind.ARRAY, Kind.MAP, Kind.STRUCT)


def rows_of_topic(packed: DataFrame, source: SourceDef) -> DataFrame:
    """A frame of the records in PACKED rows, with what `final_rows` needs. Records that cannot be read are left out."""
    return packed.mapInArrow(partial(_of_packed, source), _rows_ddl(source))


def _rows_of_results(results: Results, source: SourceDef) -> DataFrame:
    """The same of results that tasks read where they are staged."""
    made = results.rows()
    return made.rows.mapInArrow(partial(_of_emitted, source, made.emit), _rows_ddl(source))


def _rows_ddl(source: SourceDef) -> str:
    order = f"`{_SOURCE}` INT, `{_SEQ}` BIGINT, `{_OFFSET}` BIGINT"
    return f"{frame_ddl(whole_schema(source))}, {order}, `{_DELETED}` BOOLEAN"


def final_rows(rows: DataFrame, source: SourceDef) -> DataFrame:
    """The last row of each key of a table that has not been deleted. Bounded rows only: a key's records are in one partition."""
    return _last_rows(rows, source).where(~F.col(_DELETED))


def _last_rows(rows: DataFrame, source: SourceDef) -> DataFrame:
    last = rows.groupBy(*map(quoted, keys_of(source))).agg(F.max_by(F.struct("*"), F.struct(*_ORDER)).alias("last"))
    return last.select("last.*")


def keys_of(source: SourceDef) -> list[str]:
    """The columns that tell rows of a table apart: the key, and the bounds of its window."""
    return [f.name for f in whole_schema(source) if f.role in ("key", "window")]


def topic_frame(rows: DataFrame, source: SourceDef, *, deleted: bool = False) -> DataFrame:
    """The columns that are written of `rows_of_topic`: those of the source by name, ROWTIME, perhaps ROWDELETED."""
    schema = whole_schema(source)
    columns = [quoted(n) for n in schema.names]
    for name, of, wanted in ((TIME, ROWTIME, True), (DELETED, _DELETED, deleted)):
        if wanted and schema.get(name) is None:
            columns.append(f"{quoted(of)} AS {name}")
    return (rows if deleted else rows.where(f"NOT {_DELETED}")).selectExpr(*columns)


def write_files(frame: DataFrame, source: SourceDef, files: TopicFiles) -> None:
    """Write bounded rows of the columns of a source (`topic_frame`, or what `frames.lower` gives), in place of what is in the folder."""
    shown = _shown(_partitionable(frame, source, files), source, files)
    if is_table(files):
        replace_rows(shown, files)
        return
    # Whatever the caller's session says: a folder of a value that no row has any more goes, too.
    writer = _parted(shown, files).write.option("partitionOverwriteMode", "static")
    writer = writer.format(_spark_format(files)).options(**_options(files))
    if files.partition_by:
        writer = writer.partitionBy(*files.partition_by)
    with told_of_storage(files.path):
        writer.mode("overwrite").save(files.path)


def stream_to_files(frame: DataFrame, source: SourceDef, files: TopicFiles) -> DataStreamWriter:
    """The writer of a streaming frame of the same columns, to be given a checkpoint and started."""
    shown = _parted(_shown(_partitionable(frame, source, files), source, files), files)
    writer = shown.writeStream.outputMode("append").format(_spark_format(files)).options(**_options(files))
    if files.path:
        writer = writer.option("path", files.path)
    return writer.partitionBy(*files.partition_by) if files.partition_by else writer


def _parted(frame: DataFrame, files: TopicFiles) -> DataFrame:
    return frame.repartition(files.repartition) if files.repartition else frame


def _partitionable(frame: DataFrame, source: SourceDef, files: TopicFiles) -> DataFrame:
    unknown = [c for c in files.partition_by if c not in frame.columns]
    if unknown:
        title = f"results of topic {source.topic} have no column {unknown[0]} to partition files in {files.path} by"
        raise FilesUnfit(title, help=f"they have {', '.join(frame.columns)}; names are told apart by case")
    return frame


def write_epoch_files(
    spark: SparkSession, results: Results, source: SourceDef, files: TopicFiles, epoch: Epoch
) -> None:
    """Writes the records of one epoch of a stream atomically, from tasks. Repeating an epoch changes nothing.

    results: of the epoch, for any topic. Epoch 0 replaces all existing rows. In files an epoch that has records is a folder `epoch=N`.
    """
    is_empty = not any(p.kind == SINK and p.topic == source.topic for p in results.pieces)
    rows = None if is_empty else _rows_of_results(results, source)
    if is_table(files):
        _write_epoch_table(spark, rows, source, files, epoch)
    else:
        with told_of_storage(files.path):
            _write_epoch_folder(spark, rows, source, files, epoch.number)


def _write_epoch_table(
    spark: SparkSession, rows: DataFrame | None, source: SourceDef, files: TopicFiles, epoch: Epoch
) -> None:
    if files.format != "delta":
        title = (
            f"results of topic {source.topic} as a stream: the table {files.table} would have rows twice after a crash"
        )
        raise FilesUnfit(title, help="make it a Delta table, and write  format: delta")
    if rows is None:
        if epoch.number:
            return
        with active(spark):
            rows = spark.createDataFrame([], _rows_ddl(source))
    if source.kind == "table":
        rows = _last_rows(rows, source)
        rows = rows.where(~F.col(_DELETED)) if epoch.number == 0 else rows
    frame = topic_frame(rows, source, deleted=source.kind == "table")
    write_epoch(_partitionable(frame, source, files), source, files, epoch)


def write_epoch(frame: DataFrame, source: SourceDef, files: TopicFiles, epoch: Epoch, *, anew: bool = True) -> None:
    """Writes the rows of one epoch of a stream into Delta exactly once. anew: epoch 0 replaces all existing rows.

    frame: of a table the rows that have changed, one per key, and ROWDELETED if some may be gone (none in epoch 0, where `anew`).
    """
    is_state = source.kind == "table" and files.write == "state"
    if source.kind == "table" and not is_state:
        deleted = quoted(DELETED) if DELETED in frame.columns else "FALSE"
        others = [quoted(n) for n in frame.columns if n != DELETED]
        frame = frame.selectExpr(*others, f"{deleted} AS {DELETED}", f"{epoch.number}L AS {EPOCH}")
    if epoch.number == 0 and anew:
        replace_rows(frame.drop(DELETED) if is_state else frame, files, epoch)
    elif is_state:
        merge_rows(frame, files, keys_of(source), epoch)
    else:
        append_rows(frame, files, epoch)


def _write_epoch_folder(
    spark: SparkSession, rows: DataFrame | None, source: SourceDef, files: TopicFiles, epoch: int
) -> None:
    folder = f"{files.path.rstrip('/')}/"
    file_system, at = hadoop(spark, folder)
    if epoch == 0:
        file_system.delete(at, True)
        file_system.mkdirs(at)
    elif rows is not None and not file_system.exists(at):
        raise results_gone(files.path, epoch)
    if rows is None:
        return
    is_table = source.kind == "table"
    if is_table:  # changes of a key stay in their order, in one file
        rows = rows.repartition(_SOURCE).sortWithinPartitions(*_ORDER)
    unready, ready = f"{folder}_epoch={epoch}", f"{folder}epoch={epoch}"  # readers leave out names that begin so
    frame = _shown(topic_frame(rows, source, deleted=is_table), source, replace(files, partition_by=()))
    frame.write.format(_spark_format(files)).options(**_options(files)).mode("overwrite").save(unready)
    _delete(spark, ready)
    _rename(spark, unready, ready)


def _delete(spark: SparkSession, path: str) -> None:
    file_system, at = hadoop(spark, path)
    file_system.delete(at, True)


def _rename(spark: SparkSession, path: str, to: str) -> None:
    file_system, at = hadoop(spark, path)
    if not file_system.rename(at, hadoop(spark, to)[1]):
        raise LogError(f"{path} could not be renamed to {to}")


def _spark_format(files: TopicFiles) -> str:
    return "text" if files.format == "json" else files.format  # documents are made here


def _options(files: TopicFiles) -> dict[str, str]:
    return {**({"header": "true"} if files.format == "csv" else {}), **files.options}


def whole_schema(source: SourceDef) -> Schema:
    """The columns of a source's rows, with the bounds of a windowed key behind it."""
    schema = source.schema
    if schema.window is None or any(f.role == "window" for f in schema):
        return schema
    last = max((i for i, f in enumerate(schema) if f.role == "key"), default=-1) + 1
    return Schema((*schema.fields[:last], *WINDOW_FIELDS, *schema.fields[last:]), schema.window)


def _shown(frame: DataFrame, source: SourceDef, files: TopicFiles) -> DataFrame:
    """The written columns: those of the frame; for JSON one text, and the columns that become folders."""
    known = {f.name: f for f in whole_schema(source)} | {TIME: Field(TIME, BIGINT), DELETED: Field(DELETED, BOOLEAN)}
    schema = Schema(tuple(replace(known[n], role="value") for n in frame.columns))
    if files.format == "json":
        folders = [n for n in schema.names if n in files.partition_by]
        ddl = ", ".join(["value STRING", *(f"{quoted(n)} {spark_type(known[n].type)}" for n in folders)])
        return frame.mapInArrow(partial(_to_json, schema, folders), ddl)
    return frame.select(*(_csv_column(source, files, f) for f in schema)) if files.format == "csv" else frame


def _csv_column(source: SourceDef, files: TopicFiles, f: Field) -> Any:
    if f.type.kind in _NESTED:
        title = f"topic {source.topic} cannot be written to CSV files in {files.path}: column {f.name} is {f.type}"
        raise FilesUnfit(title, help="write Parquet or JSON, or select the parts of the column")
    column = F.col(quoted(f.name))
    if f.type.kind is Kind.TIMESTAMP:
        return F.expr(millis(quoted(f.name))).alias(f.name)
    if f.type.kind is Kind.MICROS:
        return F.expr(micros(quoted(f.name))).alias(f.name)
    if f.type.kind is Kind.DATE:
        return F.unix_date(column).alias(f.name)
    return F.base64(column).alias(f.name) if f.type.kind is Kind.BYTES else column


# -- in workers


def _of_packed(source: SourceDef, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        places = zip(*(batch.column(c).to_pylist() for c in ("topic", "partition", "next_offset")), strict=True)
        for (topic, partition, next_offset), payload in zip(places, batch.column("ipc"), strict=True):
            records = from_ipc(payload.as_buffer())
            raw = RawBatch(TopicPartition(topic, partition), records, next_offset, records.nbytes)
            yield _frame(source, raw, 0, 0)


def _of_emitted(source: SourceDef, emit: Emit | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches if emit is None else emit(batches):
        wanted = pc.and_(pc.equal(batch.column("kind"), SINK), pc.equal(batch.column("topic"), source.topic))
        for piece in split([batch.filter(wanted)])[0]:
            n = piece.records.num_rows
            offsets = pa.array(np.arange(n, dtype=np.int64))
            records = pa.RecordBatch.from_arrays([offsets, *piece.records.columns], schema=RECORD_SCHEMA)
            raw = RawBatch(TopicPartition(piece.topic, piece.partition), records, n, records.nbytes)
            yield _frame(source, raw, piece.source, piece.seq)


def _frame(source: SourceDef, raw: RawBatch, task: int, seq: int) -> pa.RecordBatch:
    """The rows of records that are one after the other. task and seq: the order of such records among others."""
    rows = topic_rows(source, whole_schema(source), raw)
    arrow = rows.arrow()
    schema = whole_schema(source)
    columns = [to_spark(arrow.column(i), f.type) for i, f in enumerate(schema)]
    offsets = raw.records.column("offset").take(pa.array(rows.seq))
    n = len(offsets)
    order = [pa.repeat(pa.scalar(task, pa.int32()), n), pa.repeat(pa.scalar(seq, pa.int64()), n), offsets]
    arrays = [*columns, pa.array(rows.rowtime), *order, pa.array(rows.op == DELETE)]
    return pa.RecordBatch.from_arrays(arrays, names=[*schema.names, ROWTIME, *_ORDER, _DELETED])


def _to_json(schema: Schema, folders: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    written = [i for i, n in enumerate(schema.names) if n not in folders]
    told = Schema(tuple(schema.fields[i] for i in written))
    for batch in batches:
        columns = [from_spark(batch.column(i), told.fields[n].type) for n, i in enumerate(written)]
        texts = [json_texts(told, columns), *(batch.column(schema.names.index(n)) for n in folders)]
        yield pa.RecordBatch.from_arrays(texts, names=["value", *folders])

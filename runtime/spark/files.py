"""Files in the place of a topic: Parquet, JSON lines and CSV as rows of a source, bounded and streaming.

Two forms: `typed_files` gives a frame (`native.frames`: the columns by name, then the row time) of Parquet files, without Python;
`emitted_files` gives of all kinds EMITTED rows, which `log_sink` appends to the topic, keyed and partitioned as the runtime does, so that
every query of either engine reads them as any topic. In a stream Spark's checkpoint knows which files were read.

Columns are found by their name, else by their name in upper case. JSON and CSV fields have the meaning they have in a JSON
record of the topic (times in ms). A row's time is the source's timestamp column, else when its file was last changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, StructType

from compiler.functions.spark_text import quoted
from compiler.plan.schema import WINDOW_END, WINDOW_START
from compiler.plan.topology import SourceDef
from compiler.plan.types import Kind, SqlType, spark_type
from runtime.spark.errors import FilesUnfit
from runtime.spark.files_columns import FileRows, frame_of
from runtime.spark.files_decode import Decoded, Emitter, csv_lines, decoder_of
from runtime.spark.native.frames import from_spark
from runtime.spark.settings import TopicFiles
from runtime.spark.shapes import EMITTED_DDL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LINE, _TIME = "__line", "__time"
_CSV_DEFAULTS = {"header": "true"}
_WHOLE = ("tinyint", "smallint", "int", "bigint")
# Kind -> Spark types of a Parquet column that hold such values without loss.
_FITTING: Mapping[Kind, tuple[str, ...]] = {
    Kind.BOOLEAN: ("boolean",),
    Kind.INT: _WHOLE[:3],
    Kind.BIGINT: (*_WHOLE, "timestamp", "timestamp_ntz"),
    Kind.DOUBLE: ("float", "double", *_WHOLE[:3]),
    Kind.STRING: ("string",),
    Kind.BYTES: ("binary",),
    Kind.DATE: ("date",),
    Kind.TIME: ("int",),
    Kind.TIMESTAMP: ("timestamp", "timestamp_ntz", "bigint"),
}


def typed_files(spark: SparkSession, source: SourceDef, files: TopicFiles) -> FileRows:
    """The rows of files that are `files_typed`, all there are now. FilesUnfit if the files do not fit the source."""
    timed = source.timestamp is None  # what Spark knows of a file costs something in each of its rows
    return frame_of(source, _rows(spark, source, files, streaming=False, files_per_batch=0, timed=timed), _TIME)


def emitted_files(
    spark: SparkSession,
    source: SourceDef,
    files: TopicFiles,
    partitions: int,
    *,
    query: str,
    streaming: bool = False,
    files_per_batch: int = 0,
) -> DataFrame:
    """The rows of the files as records for the source's topic, which has `partitions`; bad ones as dead letters of `query`."""
    rows = _rows(spark, source, files, streaming=streaming, files_per_batch=files_per_batch)
    return rows.mapInArrow(partial(_to_emitted, source, files.format, partitions, query), EMITTED_DDL)


# -- in the driver: files as columns


def _rows(
    spark: SparkSession,
    source: SourceDef,
    files: TopicFiles,
    *,
    streaming: bool,
    files_per_batch: int,
    timed: bool = True,
) -> DataFrame:
    """JSON: lines. CSV: texts. Parquet: columns of the source's types. timed: with the file's time; of Parquet it may be left out."""
    if unread := [f.name for f in source.schema if f.role not in ("key", "value")]:
        raise _unfit(source, files, f"column {unread[0]} is no part of a row in a file", "read the topic itself")
    options = {**(_CSV_DEFAULTS if files.format == "csv" else {}), **files.options}
    if files.format == "json" and options.get("multiLine", "").lower() == "true":
        raise _unfit(source, files, "JSON files have one document per line here", "convert them to JSON lines")
    reader = spark.readStream if streaming else spark.read
    if streaming and files_per_batch:
        options["maxFilesPerTrigger"] = str(files_per_batch)
    time = F.unix_millis(F.col("_metadata.file_modification_time")).alias(_TIME)
    if files.format == "json":
        lines = reader.format("text").options(**options).load(files.path)
        return lines.select(F.col("value").cast("binary").alias(_LINE), time).where(
            F.length(F.trim(F.col(_LINE).cast("string"))) > 0
        )
    there = _there(spark, source, files, options)
    found = there.schema
    frame = reader.schema(found).format(files.format).options(**options).load(files.path) if streaming else there
    names = _matched(source, files, found, positional=options.get("header", "").lower() == "false")
    if files.format == "csv":
        return frame.select(*(F.col(quoted(column)).alias(declared) for declared, column in names.items()), time)
    columns = {f.name: _fitted(source, files, f.name, f.type, names[f.name], found) for f in source.schema}
    if not timed and all(text == quoted(name) for name, text in columns.items()) and not _reserved(found):
        return frame  # as they are: a step less for Spark to plan
    return frame.select(*(F.expr(text).alias(name) for name, text in columns.items()), *([time] if timed else []))


def _reserved(found: StructType) -> bool:
    """Some column has a name that frames have a meaning for."""
    return any(name.startswith("__") or name in (WINDOW_START, WINDOW_END) for name in found.fieldNames())


def _there(spark: SparkSession, source: SourceDef, files: TopicFiles, options: Mapping[str, str]) -> DataFrame:
    """The files that are there now; a stream needs to know their columns before it starts, too."""
    from pyspark.errors import AnalysisException

    try:
        return spark.read.format(files.format).options(**options).load(files.path)
    except AnalysisException as e:
        reason = (str(e).splitlines() or ["they cannot be read"])[0]
        raise _unfit(
            source, files, reason, "put at least one file there before the start: its columns are needed"
        ) from e


def _matched(source: SourceDef, files: TopicFiles, found: StructType, *, positional: bool) -> dict[str, str]:
    """Declared column -> column of the files."""
    columns = found.fieldNames()
    if positional:
        if len(columns) != len(source.schema.fields):
            count = f"they have {len(columns)} columns, {len(source.schema.fields)} are declared"
            raise _unfit(source, files, count, "declare all of them, or give the files a header")
        return dict(zip(source.schema.names, columns, strict=True))
    upper = {c.upper(): c for c in columns}
    names: dict[str, str] = {}
    for f in source.schema:
        column = f.name if f.name in columns else upper.get(f.name.upper())
        if column is None:
            raise _unfit(
                source, files, f"they have no column {f.name}, only {', '.join(columns)}", "declare what is there"
            )
        names[f.name] = column
    return names


def _fitted(source: SourceDef, files: TopicFiles, name: str, t: SqlType, column: str, found: StructType) -> str:
    """A column of the files as the declared type, in Spark's SQL."""
    given = found[column].dataType
    if not _fits(given, t):
        raise _unfit(
            source, files, f"column {name} is {t}, theirs is {given.simpleString()}", "declare the type they have"
        )
    value = quoted(column)
    kind, wanted = given.simpleString(), spark_type(t)
    if kind in ("timestamp", "timestamp_ntz") and t.kind is Kind.BIGINT:
        value = f"unix_millis(CAST({value} AS TIMESTAMP))"
    elif kind == "bigint" and t.kind is Kind.TIMESTAMP:
        value = f"timestamp_millis({value})"
    elif kind == wanted.lower():
        return value
    return f"CAST({value} AS {wanted})"


def _fits(given: DataType, t: SqlType) -> bool:
    """Whether a Parquet column can be read as `t` without loss; inside containers only as it is."""
    if t.kind is Kind.DECIMAL:
        if not isinstance(given, DecimalType):
            return given.simpleString() in _WHOLE[:3] and t.precision - t.scale >= 10
        return given.scale <= t.scale and given.precision - given.scale <= t.precision - t.scale
    if t.kind in _FITTING:
        return given.simpleString() in _FITTING[t.kind]
    from pyspark.sql.types import _parse_datatype_string

    return bool(given.simpleString() == _parse_datatype_string(spark_type(t)).simpleString())


def _unfit(source: SourceDef, files: TopicFiles, reason: str, help: str) -> FilesUnfit:
    return FilesUnfit(
        f"the {files.format} files in {files.path} cannot stand for topic {source.topic}: {reason}", help=help
    )


# -- in workers: columns as rows of the source


def _decoded(source: SourceDef, file_format: str, batches: Iterator[pa.RecordBatch]) -> Iterator[Decoded]:
    decoder = decoder_of(source)
    booleans = frozenset(f.name for f in source.schema if f.type.kind is Kind.BOOLEAN)
    for batch in batches:
        times = batch.column(_TIME)
        if file_format == "json":
            yield decoder.lines(batch.column(_LINE).cast(pa.binary()), times)
        elif file_format == "csv":
            yield decoder.lines(csv_lines(batch, source.schema.names, booleans), times)
        else:
            columns = [from_spark(batch.column(i), f.type) for i, f in enumerate(source.schema)]
            yield decoder.columns(columns, times)


def _to_emitted(
    source: SourceDef, file_format: str, partitions: int, query: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    emitter = Emitter(source, partitions, query, 0 if context is None else context.partitionId())
    for decoded in _decoded(source, file_format, batches):
        yield emitter.emit(decoded)

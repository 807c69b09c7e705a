"""Files in the place of a topic: Parquet, JSON lines, CSV, Delta and catalogue tables as rows of a source, bounded and streaming.

Two forms: `source_frame` gives a frame for `flowql.runtime.spark.frames`, of Parquet files without Python; `file_rows` gives EMITTED rows,
which `log_sink` appends to the topic, keyed and partitioned as the runtime does, so that every query of either engine reads them as any
topic. In a stream Spark's checkpoint knows which files were read.

Columns are found by their name, else by their name in upper case; folders such as `day=2024-01-01` are columns. JSON and CSV fields have the meaning they have in a JSON
record of the topic (times in ms). A row's time is the source's timestamp column, else the column ROWTIME of the files, else, of a stream,
when its file was last changed; a table without a time counts from the beginning.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, StringType, StructField, StructType

from flowql.compiler.functions.spark_text import from_micros, from_millis, millis, quoted, text
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import Kind, SqlType, spark_type
from flowql.runtime.batch import DELETE
from flowql.runtime.events import WARNING, say
from flowql.runtime.operators.decode import BAD_TIME
from flowql.runtime.spark.errors import FilesUnfit
from flowql.runtime.spark.files_decode import (
    BAD_ROW,
    Decoded,
    Emitter,
    csv_lines,
    decoder_of,
    folders_of,
    json_lines,
    without,
)
from flowql.runtime.spark.frames.source import CODE, FILE, MESSAGE, ROW, TIME_COLUMN
from flowql.runtime.spark.lake import is_table, read_table
from flowql.runtime.spark.native.frames import frame_ddl, from_spark, to_spark
from flowql.runtime.spark.settings import TopicFiles
from flowql.runtime.spark.shapes import Emitting
from flowql.runtime.spark.storage import reach, storage_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LINE, _TIME, _BROKEN, _GONE = "__line", "__time", "__broken", "__gone"
_UNNAMED = re.compile(r"_c[0-9]+")  # how Spark calls a column without a name in a header
_UNTIMED = "timestamp column ROWTIME cannot be used: it is NULL, or no whole number"
# Rows of all files, whichever of them Spark asks for its columns: those that lack a column have NULL there.
_DEFAULTS = {"csv": {"header": "true"}, "parquet": {"mergeSchema": "true"}}
# Options of streams. Spark leaves out files that were last changed seven days before the newest one, as copies with the times of their originals are.
_STREAMING = {"maxFileAge": "36500d"}
_CHANGED = "unix_millis(_metadata.file_modification_time)"
# How Spark says that files have columns of one name and several types.
_UNLIKE = re.compile(r"\[CANNOT_MERGE_\w+\] [^.\n]*")
_TEXTS = ("json", "csv")  # whose rows are decoded in Python
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TIMES = (Kind.BIGINT, Kind.TIMESTAMP)
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
    Kind.MICROS: ("timestamp", "timestamp_ntz"),
}


def source_frame(
    spark: SparkSession, source: SourceDef, files: TopicFiles, *, streaming: bool = False, located: bool = False
) -> DataFrame:
    """All rows there are in files now, for `frames.source.prepared`, or those that come. FilesUnfit if they do not fit the source.

    located: adds the file of each row and its number in the file. Spark reads both even if no column of the query needs them; rows that are
    decoded in Python always have both.
    Of the rows of a table in Parquet files or a catalogue, the columns that are not declared stand beside the others, under their own names.
    """
    if files.format in _TEXTS or not _is_typed(source):
        rows = _rows(spark, source, files, streaming=streaming, files_per_batch=0)
        ddl = f"{frame_ddl(source.schema)}, {CODE} STRING, {MESSAGE} STRING, {FILE} STRING, {ROW} BIGINT"
        return rows.mapInArrow(partial(_to_frame, source, files), ddl)
    _check_roles(source, files)
    _tell_unread(files)
    there = _there(spark, source, files, _options(files))
    found = there.schema
    if streaming:
        there = _coming(spark, files, found, _options(files))
    names = _matched(source, files, found, positional=False)
    columns = [f"{_fitted(source, files, f, names[f.name], found)} AS {quoted(f.name)}" for f in source.schema]
    if time := _row_time(source, files, there, found, names):
        columns.append(f"{time} AS {quoted(ROWTIME)}")
    place = _located(files, there) if located else []
    undeclared = _undeclared(source, names, found) if source.kind == "table" else []
    return there.selectExpr(*columns, *undeclared, *place)


def file_rows(
    spark: SparkSession,
    source: SourceDef,
    files: TopicFiles,
    partitions: int,
    *,
    query: str,
    streaming: bool = False,
    files_per_batch: int = 0,
) -> Emitting:
    """The rows of the files as records for the source's topic, which has `partitions`; bad ones as dead letters of `query`.

    Rows for which `delete_when` holds are records without a value. Of JSON and CSV that is refused (`feeders.refuse_unfit`).
    """
    rows = _rows(spark, source, files, streaming=streaming, files_per_batch=files_per_batch)
    return Emitting(rows, partial(_to_emitted, source, files, partitions, query))


# -- in the driver: files as columns


def _is_typed(source: SourceDef) -> bool:
    """Whether Parquet files need no Python: not with a time that is a text, nor times in containers, whose microseconds are cut there."""
    if source.timestamp is not None:
        field = source.schema.get(source.timestamp.column)
        if field is None or field.type.kind not in _TIMES:
            return False
    return not any(_has_inner_time(f.type) for f in source.schema)


def _has_inner_time(t: SqlType) -> bool:
    inner = (*t.args, *(f for _, f in t.fields))
    return any(i.kind is Kind.TIMESTAMP or _has_inner_time(i) for i in inner)


def _options(files: TopicFiles) -> dict[str, str]:
    return {**_DEFAULTS.get(files.format, {}), **files.options}


def _rows(
    spark: SparkSession, source: SourceDef, files: TopicFiles, *, streaming: bool, files_per_batch: int
) -> DataFrame:
    """JSON: lines. CSV: texts. Parquet: columns of the source's types. Behind them the time that rows have without a column of the
    source (NULL for none), their file, and of Parquet their number in it, and whether they remove their key.
    """
    options = _options(files)
    if files.format == "json" and options.get("multiLine", "").lower() == "true":
        raise _unfit(source, files, "JSON files have one document per line here", "convert them to JSON lines")
    _check_roles(source, files)
    _tell_unread(files)
    reader = spark.readStream if streaming else spark.read
    if streaming:
        options = _STREAMING | options
    if streaming and files_per_batch:
        options["maxFilesPerTrigger"] = str(files_per_batch)
    otherwise = "CAST(NULL AS BIGINT)" if source.kind == "table" else _CHANGED
    if files.format == "json":
        lines = reader.format("text").options(**options).load(_path(files, streaming=streaming))
        own = f"coalesce(get_json_object(value, '$.{TIME_COLUMN}'), get_json_object(value, '$.{TIME_COLUMN.lower()}'))"
        time = f"CASE WHEN {own} IS NULL THEN {otherwise} ELSE try_cast({own} AS BIGINT) END"
        time = otherwise if source.timestamp is not None else time
        return lines.where("length(trim(value)) > 0").selectExpr(
            f"CAST(value AS BINARY) AS {_LINE}", f"{time} AS {_TIME}", _file()
        )
    there = _there(spark, source, files, options)
    found = there.schema
    names = _matched(source, files, found, positional=options.get("header", "").lower() == "false")
    if streaming and files.format != "csv":
        there = _coming(spark, files, found, options)
    own = _own_time(source, found)
    if not own and source.kind == "stream":
        otherwise = _changed(source, files, there) if source.timestamp is None else "CAST(NULL AS BIGINT)"
    time = f"{own or otherwise} AS {_TIME}"
    if files.format == "csv":
        schema, checked = _checked_csv(found, options)
        frame = reader.schema(schema).format("csv").options(**checked).load(_path(files, streaming=streaming))
        texts = [f"{quoted(column)} AS {quoted(declared)}" for declared, column in names.items()]
        return frame.selectExpr(*texts, time, _file(), _BROKEN)
    columns = [f"{_fitted(source, files, f, names[f.name], found)} AS {quoted(f.name)}" for f in source.schema]
    made = there.selectExpr(*columns, time, *_located(files, there), *_undeclared(source, names, found))
    if files.delete_when is None or source.kind != "table":
        return made.select(*map(quoted, [*source.schema.names, _TIME, FILE, ROW]))
    gone = made.withColumn(_GONE, F.coalesce(F.expr(files.delete_when), F.lit(False)))
    return gone.select(*map(quoted, [*source.schema.names, _TIME, FILE, ROW, _GONE]))


def _row_time(
    source: SourceDef, files: TopicFiles, there: DataFrame, found: StructType, names: Mapping[str, str]
) -> str:
    """Spark SQL of the time of typed rows in ms; "" for those of a table that have none."""
    if source.timestamp is None:
        return _own_time(source, found) or (_changed(source, files, there) if source.kind == "stream" else "")
    column = names[source.timestamp.column]
    in_ms = _in_millis(quoted(column), kind := found[column].dataType.simpleString())
    return f"CAST({in_ms} AS BIGINT)" if kind in _WHOLE[:3] else in_ms


def _undeclared(source: SourceDef, names: Mapping[str, str], found: StructType) -> list[str]:
    """The columns of typed files that the source does not declare, under their own names, which conditions may name."""
    taken = {n.upper() for n in (*source.schema.names, *names.values(), TIME_COLUMN)}
    return [quoted(n) for n in found.fieldNames() if n.upper() not in taken and not n.startswith("__")]


def _coming(spark: SparkSession, files: TopicFiles, found: StructType, options: Mapping[str, str]) -> DataFrame:
    """The rows of a stream of Parquet files or of a table."""
    if is_table(files):
        return read_table(spark, files, options, streaming=True)
    reader = spark.readStream.schema(found).format(files.format).options(**(_STREAMING | dict(options)))
    return reader.load(_path(files, streaming=True))


def _path(files: TopicFiles, *, streaming: bool) -> str:
    """Where Spark reads. Of a stream it takes every path for a folder, unless that is a pattern: a file becomes one that fits it alone."""
    local = urlparse(files.path)
    if not streaming or local.scheme not in ("", "file") or not Path(local.path).is_file():
        return files.path
    return f"{files.path[:-1]}[{files.path[-1]}]"


def _changed(source: SourceDef, files: TopicFiles, there: DataFrame) -> str:
    """The time of rows without one of their own: when their file was last changed. Views have no files, and Delta's streams tell of none."""
    if not is_table(files) or _has_files(there):
        return _CHANGED
    raise _unfit(source, files, "its rows have no time", "name a column of them as TIMESTAMP, or call one ROWTIME")


def _has_files(there: DataFrame) -> bool:
    from pyspark.errors import AnalysisException

    try:
        return bool(there.selectExpr("_metadata.file_path").schema.fields)  # asked for by Connect only with its schema
    except AnalysisException:
        return False


def _located(files: TopicFiles, there: DataFrame) -> list[str]:
    """Spark SQL of FILE and ROW. Of tables rows are not numbered, and of some there are no files."""
    if files.format == "parquet":
        return [_file(), f"_metadata.row_index + 1 AS {ROW}"]
    file = _file() if _has_files(there) else f"{text(files.place)} AS {FILE}"
    return [file, f"CAST(NULL AS BIGINT) AS {ROW}"]


def _check_roles(source: SourceDef, files: TopicFiles) -> None:
    if unread := [f.name for f in source.schema if f.role not in ("key", "value")]:
        raise _unfit(source, files, f"column {unread[0]} is not part of a row in a file", "read the topic itself")


def _tell_unread(files: TopicFiles) -> None:
    """Warns of folders that Spark passes over without a word: it looks into those of partitions alone."""
    local = urlparse(files.path)
    if is_table(files) or local.scheme not in ("", "file") or "recursiveFileLookup" in files.options:
        return
    try:
        folders = sorted(e.name for e in os.scandir(local.path) if e.is_dir())
    except OSError:  # no folder, or a pattern
        return
    unread = [n for n in folders if "=" not in n and not n.startswith(("_", "."))]
    if unread:
        _say_unread(files.path, unread[0], len(unread))


@cache
def _say_unread(path: str, name: str, count: int) -> None:
    """Once in a process."""
    named = f"{path}/{name}" if count == 1 else f"{path}/{name} and {count - 1} more folders there"
    text = f"files in {named} are not read: Spark looks into folders named column=value. "
    say(WARNING, "files.unread", text + "To read all folders:  options: {recursiveFileLookup: 'true'}", folders=count)


def _file() -> str:
    """Spark SQL of where a row is. The parts of a file that is read in several are numbered each from 1."""
    start = "_metadata.file_block_start"
    path = "_metadata.file_path"
    return f"CASE WHEN {start} = 0 THEN {path} ELSE concat({path}, ' behind byte ', {start}) END AS {FILE}"


def _checked_csv(found: StructType, options: Mapping[str, str]) -> tuple[StructType, dict[str, str]]:
    """The columns of CSV files with one for rows of another number of fields, and options by which the headers of all files are compared.

    Without them Spark takes the names of one file for all, and reads a file with other columns in their places.
    """
    unnamed = [n for n in found.fieldNames() if _UNNAMED.fullmatch(n)]
    compared = {"enforceSchema": "false"} if options["header"].lower() == "true" and len(unnamed) < 2 else {}
    columns = [StructField("" if n in unnamed and compared else n, found[n].dataType) for n in found.fieldNames()]
    told = {"columnNameOfCorruptRecord": _BROKEN, "columnPruning": "false"}
    return StructType([*columns, StructField(_BROKEN, StringType())]), {**compared, **told, **options}


def _own_time(source: SourceDef, found: StructType) -> str:
    """Spark SQL of the column ROWTIME of files, in ms; "" if the files have no such column or the source names another one."""
    if source.timestamp is not None:
        return ""
    column = next((n for n in found.fieldNames() if n.upper() == TIME_COLUMN), None)
    if column is None:
        return ""
    kind = found[column].dataType.simpleString()
    value = quoted(column)
    return _in_millis(value, kind) if kind in ("timestamp", "timestamp_ntz") else f"try_cast({value} AS BIGINT)"


def _there(spark: SparkSession, source: SourceDef, files: TopicFiles, options: Mapping[str, str]) -> DataFrame:
    """The files that are there now; a stream needs to know their columns before it starts, too."""
    from pyspark.errors import AnalysisException

    if is_table(files):
        return read_table(spark, files, options)
    reach(spark, files.path)
    try:
        return spark.read.format(files.format).options(**options).load(files.path)
    except Exception as e:  # PySpark has a class of its own for some of Spark's
        reason = (str(e).splitlines() or ["they cannot be read"])[0]
        if unlike := _UNLIKE.search(str(e)):
            told = f"a column has other types in some of them than in others: {unlike[0]}"
            raise _unfit(source, files, told, "write all files with one type of each column") from e
        if not isinstance(e, AnalysisException):
            if (failed := storage_failure(e, files.path)) is not None:
                raise failed from e
            raise
        raise _unfit(
            source, files, reason, "put at least one file there before the start: its columns are needed"
        ) from e


def _matched(source: SourceDef, files: TopicFiles, found: StructType, *, positional: bool) -> dict[str, str]:
    """Declared column -> column of the files."""
    columns = found.fieldNames()
    if positional:
        folders = {c.upper(): c for c in columns if not _UNNAMED.fullmatch(c)}
        declared = [n for n in source.schema.names if n.upper() not in folders]
        places = [c for c in columns if _UNNAMED.fullmatch(c)]
        if len(places) != len(declared):
            count = f"they have {len(places)} columns, {len(declared)} are declared"
            raise _unfit(source, files, count, "declare all of them, or give the files a header")
        by_place = dict(zip(declared, places, strict=True))
        return {n: by_place.get(n) or folders[n.upper()] for n in source.schema.names}
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


def _fitted(source: SourceDef, files: TopicFiles, field: Field, column: str, found: StructType) -> str:
    """A column of the files as the declared type, in Spark's SQL."""
    name, t = field.name, field.type
    given = found[column].dataType
    if not _fits(given, t):
        raise _unfit(
            source, files, f"column {name} is {t}, theirs is {given.simpleString()}", "declare the type they have"
        )
    value = quoted(column)
    kind, wanted = given.simpleString(), spark_type(t)
    if t.kind is Kind.TIMESTAMP:  # whatever the time zone of the session
        return value if kind == "timestamp_ntz" else from_millis(_in_millis(value, kind))
    if t.kind is Kind.MICROS:
        return value if kind == "timestamp_ntz" else from_micros(f"unix_micros({value})")
    if kind in ("timestamp", "timestamp_ntz"):
        return _in_millis(value, kind)
    return value if kind == wanted.lower() else f"CAST({value} AS {wanted})"


def _in_millis(value: str, kind: str) -> str:
    """Spark SQL of a BIGINT or a timestamp of either kind in ms since 1970; one without a zone is UTC."""
    return {"timestamp": f"unix_millis({value})", "timestamp_ntz": millis(value)}.get(kind, value)


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
        f"the {files.format} files in {files.place} cannot be used for topic {source.topic}: {reason}", help=help
    )


# -- in workers: columns as rows of the source


class RowNumbers:
    """Numbers rows within their files, from 1, as they come by: rows of one file are together."""

    def __init__(self) -> None:
        self._file: str | None = None
        self._next = 1

    def of(self, files: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
        codes = files.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        cuts = (np.flatnonzero(np.diff(codes)) + 1).tolist()
        found = np.empty(len(files), np.int64)
        for low, high in zip([0, *cuts], [*cuts, len(files)], strict=True):
            if low < high and (file := files[low].as_py()) != self._file:
                self._file, self._next = file, 1
            found[low:high] = np.arange(self._next, self._next + high - low)
            self._next += high - low
        return found


def _decoded(
    source: SourceDef, files: TopicFiles, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, pa.Array, Decoded]]:
    """Each batch with the numbers of its rows in their files."""
    decoder, numbers = decoder_of(source), RowNumbers()
    booleans = frozenset(f.name for f in source.schema if f.type.kind is Kind.BOOLEAN)
    for batch in batches:
        times = batch.column(_TIME).fill_null(0)
        if files.format not in _TEXTS:
            columns = [from_spark(batch.column(i), f.type) for i, f in enumerate(source.schema)]
            yield batch, batch.column(ROW), decoder.columns(columns, times)
            continue
        rows, folders = pa.array(numbers.of(batch.column(FILE))), folders_of(source, files, batch.column(FILE))
        if files.format == "json":
            yield (
                batch,
                rows,
                decoder.lines(json_lines(batch.column(_LINE).cast(pa.binary()), folders, booleans), times),
            )
            continue
        named = {name: folders.column(name) for name in folders.columns}
        found = decoder.lines(csv_lines(batch, source.schema.names, booleans, named), times)
        broken = batch.column(_BROKEN).is_valid().to_numpy(zero_copy_only=False)
        yield (
            batch,
            rows,
            without(found, broken, BAD_ROW, "it has more or fewer fields than the others, or an open quote"),
        )


def _to_emitted(
    source: SourceDef, files: TopicFiles, partitions: int, query: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    emitter = Emitter(source, partitions, query, 0 if context is None else context.partitionId())
    timed = source.kind == "stream" and source.timestamp is None
    for batch, numbers, found in _decoded(source, files, batches):
        untimed = batch.column(_TIME).is_null().to_numpy(zero_copy_only=False)
        decoded = without(found, untimed, BAD_TIME, _UNTIMED) if timed else found
        if _GONE in batch.schema.names:
            gone = batch.column(_GONE).to_numpy(zero_copy_only=False)[decoded.rows.seq]
            decoded = replace(decoded, rows=decoded.rows.with_op(np.where(gone, DELETE, decoded.rows.op)))
        places = batch.column(FILE)
        letters = [
            replace(x, message=f"{places[x.seq].as_py()}, row {numbers[x.seq].as_py() or '?'}: {x.message}")
            for x in decoded.letters
        ]
        yield emitter.emit(replace(decoded, letters=letters))


def _to_frame(source: SourceDef, files: TopicFiles, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    names = [*source.schema.names, ROWTIME, CODE, MESSAGE, FILE, ROW]
    for batch, numbers, decoded in _decoded(source, files, batches):
        rows, letters = decoded.rows, decoded.letters
        arrow, good, bad = rows.arrow(), len(rows), len(letters)
        at = pa.array([*rows.seq.tolist(), *(x.seq for x in letters)], pa.int64())
        columns = [to_spark(arrow.column(i), f.type) for i, f in enumerate(source.schema)]
        timed = source.timestamp is not None
        columns.append(pa.array(rows.rowtime) if timed else batch.column(_TIME).take(pa.array(rows.seq)))
        columns = [pa.concat_arrays([c, pa.nulls(bad, c.type)]) for c in columns] if bad else columns
        codes = pa.array([*[None] * good, *(x.code for x in letters)], pa.string())
        messages = pa.array([*[None] * good, *(x.message for x in letters)], pa.string())
        found = [*columns, codes, messages, batch.column(FILE).take(at), numbers.take(at)]
        yield pa.RecordBatch.from_arrays(found, names=names)

"""Delta and catalogue tables that stand for a topic: reading them, and writing results into them, each epoch exactly once.

Delta stores the writer's name and an epoch number with each version (`txnAppId`, `txnVersion`) and skips a write whose number it already
holds, so repeating an epoch after a crash changes nothing. MERGE accepts the two only as settings of the session. They are set on the session of
the micro-batch, which is a copy of the caller's, and removed after the MERGE.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowql.compiler.functions.spark_text import quoted
from flowql.runtime.spark.errors import ConnectorMissing, FilesUnfit
from flowql.runtime.spark.outline import functions
from flowql.runtime.spark.settings import TopicFiles
from flowql.runtime.spark.storage import reach, storage_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

DELETED, EPOCH = "ROWDELETED", "EPOCH"
_SETTINGS = "spark.databricks.delta.write."
_NO_OPTIONS: Mapping[str, str] = {}
# The packages to add to the Spark that runs the queries. Versions: `tests/delta_jars.py` has those that the tests run with.
_HELP = (
    "Spark needs Delta's jars and its two settings:  conf: {spark.jars.packages: 'io.delta:delta-spark_4.2_2.13:4.4.0', "
    "spark.sql.extensions: io.delta.sql.DeltaSparkSessionExtension, "
    "spark.sql.catalog.spark_catalog: org.apache.spark.sql.delta.catalog.DeltaCatalog}"
)


@dataclass(frozen=True, slots=True)
class Epoch:
    """One write. writer: names a checkpoint of a query. number: a writer writes each number once."""

    writer: str
    number: int


def is_table(files: TopicFiles) -> bool:
    """Whether the columns come from table metadata and not from the files: Delta, and tables of a catalogue."""
    return files.format in ("delta", "table")


def read_table(
    spark: SparkSession, files: TopicFiles, options: Mapping[str, str] = _NO_OPTIONS, *, streaming: bool = False
) -> DataFrame:
    """The current rows of a table; with `streaming` also those that are added later. Raises ConnectorMissing without Delta's jars."""
    reach(spark, files.path)
    reader = (spark.readStream if streaming else spark.read).options(**options)
    with _told(files):
        return reader.table(files.table) if files.table else reader.format(files.format).load(files.path)


def replace_rows(frame: DataFrame, files: TopicFiles, epoch: Epoch | None = None) -> None:
    """Replaces all rows of a table by bounded rows, in Delta as one version. Creates a missing table."""
    spark, options = frame.sparkSession, {"partitionOverwriteMode": "static"} | dict(files.options) | _once(epoch)
    with _told(files):
        if files.format == "table" and spark.catalog.tableExists(files.table):
            _as_it_is(frame, files).write.options(**options).insertInto(files.table, overwrite=True)
            return
        delta = {"overwriteSchema": "true"} if files.format == "delta" else {}
        _saved(_laid(frame, files).mode("overwrite").options(**(delta | options)), files)


def append_rows(frame: DataFrame, files: TopicFiles, epoch: Epoch) -> None:
    """Adds bounded rows to a Delta table, unless the table holds this epoch. Creates a missing table in epoch 0."""
    _exists_for(frame.sparkSession, files, epoch)
    with _told(files):
        _saved(_laid(frame, files).mode("append").options(**files.options, **_once(epoch)), files)


def merge_rows(frame: DataFrame, files: TopicFiles, keys: Sequence[str], epoch: Epoch) -> None:
    """Updates, inserts and deletes rows of a Delta table by key, unless the table holds this epoch. Creates a missing table in epoch 0.

    frame: at most one row per key. Where its column ROWDELETED, if it has one, is true, the row of that key is deleted.
    """
    exists = _exists_for(frame.sparkSession, files, epoch)
    with _told(files):
        columns = [n for n in frame.columns if n != DELETED]
        if not exists:
            nothing = frame.select(*map(quoted, columns)).limit(0)
            _saved(_laid(nothing, files).mode("append").options(**files.options), files)
        # Names that no table has, so that none is ambiguous.
        given = {n: f"__given{i}" for i, n in enumerate(frame.columns)}
        rows = frame.selectExpr(*(f"{quoted(n)} AS {g}" for n, g in given.items()))
        expr = functions(rows).expr
        same = expr(" AND ".join(f"{quoted(k)} <=> {given[k]}" for k in keys))
        values: dict[str, Any] = {quoted(n): expr(given[n]) for n in columns}
        with _settings(frame.sparkSession, epoch):
            merging = rows.mergeInto(address(files), same)
            if DELETED in given:
                gone = given[DELETED]
                merging = merging.whenMatched(expr(gone)).delete().whenMatched().update(values)
                merging.whenNotMatched(expr(f"NOT {gone}")).insert(values).merge()
            else:
                merging.whenMatched().update(values).whenNotMatched().insert(values).merge()


def has_rows(spark: SparkSession, files: TopicFiles) -> bool:
    """Whether the table exists and has rows."""
    return _exists(spark, files) and bool(read_table(spark, files).limit(1).count())


def address(files: TopicFiles) -> str:
    """The table in Spark's SQL."""
    return files.table or f"delta.{quoted(files.path)}"


def _exists(spark: SparkSession, files: TopicFiles) -> bool:
    try:
        read_table(spark, files)
    except FilesUnfit:
        return False
    return True


def _exists_for(spark: SparkSession, files: TopicFiles, epoch: Epoch) -> bool:
    """Whether the table exists. Raises FilesUnfit if it does not and earlier epochs have written it."""
    found = _exists(spark, files)
    if not found and epoch.number:
        raise results_gone(address(files), epoch.number)
    return found


def results_gone(place: str, epoch: int | None = None) -> FilesUnfit:
    """Results of a stream would be where no earlier epoch has written: without its rows they would be taken for the whole."""
    before = "earlier micro-batches" if epoch is None else f"the micro-batches before {epoch}"
    title = f"{place} does not exist, and {before} have written their results there"
    way = "put it back, or recompute all results: --rebuild with flowql run or flowql deploy, another checkpoint with flowql.spark.start"
    return FilesUnfit(title, help=way)


def _laid(frame: DataFrame, files: TopicFiles) -> DataFrameWriter:
    laid = frame.repartition(files.repartition) if files.repartition else frame
    writer = laid.write if files.format == "table" else laid.write.format(files.format)
    return writer.partitionBy(*files.partition_by) if files.partition_by else writer


def _saved(writer: DataFrameWriter, files: TopicFiles) -> None:
    if files.table:
        writer.saveAsTable(files.table)
    else:
        writer.save(files.path)


def _as_it_is(frame: DataFrame, files: TopicFiles) -> DataFrame:
    """The columns in the order of an existing table, because `insertInto` assigns them by position. Raises FilesUnfit if they differ."""
    there = {f.name: f.dataType.simpleString() for f in frame.sparkSession.table(files.table).schema}
    given = {f.name: f.dataType.simpleString() for f in frame.schema}
    if given != there:
        title = f"the table {files.table} has the columns {_listed(there)}, and the result has {_listed(given)}"
        raise FilesUnfit(title, help="drop the table, which is made again with the columns of the result")
    return frame.select(*map(quoted, there))


def _listed(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{n} {t}" for n, t in columns.items())


def _once(epoch: Epoch | None) -> dict[str, str]:
    return {} if epoch is None else {"txnAppId": epoch.writer, "txnVersion": str(epoch.number)}


@contextmanager
def _settings(spark: SparkSession, epoch: Epoch) -> Iterator[None]:
    names = {f"{_SETTINGS}{name}": value for name, value in _once(epoch).items()}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in names:
            spark.conf.unset(name)


@contextmanager
def _told(files: TopicFiles) -> Iterator[None]:
    """Turns errors of analysis into errors of the target. Others pass through unchanged, since a retry may succeed."""
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as e:
        said = (str(e).splitlines() or ["they cannot be read"])[0]
        if "DATA_SOURCE_NOT_FOUND" in said or "DELTA_CONFIGURE_SPARK_SESSION" in said:
            raise ConnectorMissing(f"this Spark does not know Delta, which {address(files)} is of", help=_HELP) from e
        raise FilesUnfit(
            f"{address(files)} cannot be used as {files.format}: {said}", help="see `files` of the target"
        ) from e
    except Exception as e:
        if (failed := storage_failure(e, files.path)) is not None:
            raise failed from e
        raise

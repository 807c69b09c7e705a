"""EMITTED rows into the log from Spark: workers stage files, the driver appends them in one transaction.

Small micro-batches of streams go without files, from the driver's memory (`results_of`): no Python process has to be started for them.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from flowql.runtime.log.base import Log
from flowql.runtime.spark.active import active
from flowql.runtime.spark.folders import HadoopPath
from flowql.runtime.spark.function_counts import taken
from flowql.runtime.spark.key_places import PlacesOfKeys
from flowql.runtime.spark.log_address import Address, shared_log
from flowql.runtime.spark.log_append import Appended, EmittedRecords, Target, append, split
from flowql.runtime.spark.log_offsets import Offsets, partition_offsets
from flowql.runtime.spark.log_staging import Staged, Staging, pieces_of, stage, staging_of, sweep
from flowql.runtime.spark.shapes import EMITTED, EMITTED_DDL, Emit, Emitting, to_ipc
from flowql.runtime.spark.storage import told_of_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARQUET = ".parquet"
_ROWS_AT_ONCE = 4  # a row of EMITTED holds many records


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where the epochs of a query go.

    address: of the log; staging: where results of workers wait; replaces: records below these offsets go with the epoch; records_in and ties: to
    count with the epoch, where rows bring no notes; functions: those whose calls are counted with it.
    """

    address: Address
    staging: Staging
    target: Target
    replaces: Offsets = field(default_factory=dict)
    records_in: int = 0
    ties: int = 0
    functions: frozenset[str] = frozenset()


def write_epoch(
    emitted: DataFrame,
    options: SinkOptions,
    epoch: int,
    log: Log | None = None,
    *,
    emit: Emit | None = None,
    letters: Callable[[], Sequence[EmittedRecords]] = tuple,
) -> Appended:
    """Commit a batch DataFrame of EMITTED rows as one epoch; a repeated epoch changes nothing. log: where it is open already.
    emit: makes EMITTED rows of those of the frame, in the process that stages them. letters: dead letters that workers have put beside the rows.

    Workers stage, and this process commits: a Python data source would start some processes to do no more than that.
    """
    with results_of(emitted, options.staging, options.target.query, staged=True, emit=emit) as found:
        own = {"records_in": options.records_in, "ties": options.ties, **taken(options.functions)}
        replaces = partition_offsets(options.replaces)
        log = log or shared_log(options.address)
        PlacesOfKeys(options.target.query).check(found.notes)
        pieces, notes = [*found.pieces, *letters()], [own, *found.notes]
        return append(log, options.target, epoch, pieces, notes, replaces=replaces)


@dataclass(frozen=True, slots=True)
class Results:
    """The content of EMITTED rows, valid until they are swept. pieces and notes: in this process. rows: makes the rows by which tasks read the pieces."""

    pieces: Sequence[EmittedRecords]
    notes: Sequence[Mapping[str, Any]]
    rows: Callable[[], Emitting]


@contextmanager
def results_of(
    emitted: DataFrame, staging: Staging, query: str, *, staged: bool, emit: Emit | None = None
) -> Iterator[Results]:
    """The results of a batch or a micro-batch, computed once, good until the block ends.

    staged: workers write them to files that are mapped here, so that no memory grows with their number. emit: as of `write_epoch`.
    """
    made, spark = Emitting(emitted, emit), emitted.sparkSession
    if not staged:
        table = made.emitted.select(*EMITTED.names).toArrow()
        yield Results(*split(table.to_batches()), lambda: Emitting(_frame_of(spark, table)))
        return
    with ExitStack() as stack:
        stack.callback(sweep, staging.folder, query)
        if (at := staging.at_of(query)) is None:
            yield _in_folder(made, staging.folder, query)
        else:
            there = at / os.urandom(8).hex()
            stack.callback(there.remove)
            yield _at_address(made.emitted.select(*EMITTED.names), there, staging.folder, query)


def _in_folder(made: Emitting, folder: Path, query: str) -> Results:
    """Workers write to a folder that is mapped here, and by the tasks that read it again."""
    rows = made.rows.select(*EMITTED.names) if made.emit is None else made.rows
    told = rows.mapInArrow(partial(_staged, folder, query, made.emit), "staged BINARY").toArrow()
    pieces, notes = _gathered([pickle.loads(x.as_py()) for x in told.column("staged")])
    return Results(pieces, notes, lambda: Emitting(_frame_of(rows.sparkSession, told), _staged_rows))


def _at_address(rows: DataFrame, there: HadoopPath, folder: Path, query: str) -> Results:
    """Workers write to an address, which is copied file by file to where it can be mapped. Tasks that read it again read it there."""
    with told_of_storage(str(there)):
        rows.write.parquet(str(there))
    files = [file for file in there.iterdir() if file.name.endswith(_PARQUET)]
    pieces, notes = _gathered([_fetch(file, folder, query) for file in files])
    reader = rows.sparkSession.read.schema(EMITTED_DDL)
    return Results(pieces, notes, lambda: Emitting(reader.parquet(str(there))))


def _gathered(staged: Sequence[Staged]) -> tuple[list[EmittedRecords], list[Mapping[str, Any]]]:
    return list(pieces_of(staged)), [note for s in staged for note in s.notes]


def _frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    with active(spark):
        return spark.createDataFrame(table)


def _fetch(file: HadoopPath, folder: Path, query: str) -> Staged:
    copy = staging_of(folder, query) / file.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        file.copy_to(copy)
        with pq.ParquetFile(copy) as rows:
            return stage(folder, query, rows.iter_batches(_ROWS_AT_ONCE, columns=EMITTED.names))
    finally:
        copy.unlink(missing_ok=True)


# -- in workers


def _staged(
    directory: Path, query: str, emit: Emit | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of one task as a file, and where that is as one row."""
    emitted = batches if emit is None else emit(batches)
    yield pa.RecordBatch.from_pydict({"staged": [pickle.dumps(stage(directory, query, emitted))]})


def _staged_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The inverse of `_staged`, without notes."""
    for batch in batches:
        for p in pieces_of(pickle.loads(x.as_py()) for x in batch.column("staged")):
            row = (p.kind, p.topic, p.partition, p.source, p.seq, to_ipc(p.records))
            yield pa.RecordBatch.from_pylist([dict(zip(EMITTED.names, row, strict=True))], EMITTED)

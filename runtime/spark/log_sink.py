"""EMITTED rows into the log from Spark: workers stage files, the driver appends them in one transaction.

Small micro-batches of streams go without files, from the driver's memory (`gathered`): no Python process has to be started for them.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from flowql.runtime.log.base import Log
from flowql.runtime.spark.folders import HadoopPath
from flowql.runtime.spark.function_counts import taken
from flowql.runtime.spark.log_address import Address, shared_log
from flowql.runtime.spark.log_append import Appended, EmittedRecords, Target, append, split
from flowql.runtime.spark.log_offsets import Offsets, partition_offsets
from flowql.runtime.spark.log_staging import Staged, Staging, pieces_of, stage, staging_of, sweep
from flowql.runtime.spark.shapes import EMITTED, EMITTED_DDL, Emit
from flowql.runtime.spark.storage import told_of_storage

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
    staged = _stage_all(emitted, options.staging, options.target.query, emit)
    try:
        return commit_staged(log or shared_log(options.address), options, epoch, staged, letters())
    finally:
        sweep(options.staging.folder, options.target.query, staged)


@contextmanager
def gathered(
    emitted: DataFrame, staging: Staging, query: str, *, staged: bool, emit: Emit | None = None
) -> Iterator[tuple[list[EmittedRecords], list[Mapping[str, Any]]]]:
    """The pieces and notes of a micro-batch's EMITTED rows, good until the block ends.

    staged: workers write them to files that are mapped here, so that no memory grows with their number. emit: as of `write_epoch`.
    """
    if not staged:
        emitted = emitted if emit is None else emitted.mapInArrow(emit, EMITTED_DDL)
        yield split(emitted.select(*EMITTED.names).toArrow().to_batches())
        return
    found = _stage_all(emitted, staging, query, emit)
    try:
        yield list(pieces_of(found)), [note for s in found for note in s.notes]
    finally:
        sweep(staging.folder, query, found)


def _stage_all(emitted: DataFrame, staging: Staging, query: str, emit: Emit | None) -> list[Staged]:
    if (there := staging.at_of(query)) is not None:
        rows = emitted if emit is None else emitted.mapInArrow(emit, EMITTED_DDL)
        return _fetched(rows.select(*EMITTED.names), there / os.urandom(8).hex(), staging.folder, query)
    stage_all = partial(_staged, staging.folder, query, emit)
    made = emitted.select(*EMITTED.names) if emit is None else emitted
    rows = made.mapInArrow(stage_all, "staged BINARY").collect()
    return [pickle.loads(bytes(row.staged)) for row in rows]


def _fetched(emitted: DataFrame, there: HadoopPath, folder: Path, query: str) -> list[Staged]:
    """Workers write to an address, which is copied file by file to where it can be mapped."""
    try:
        with told_of_storage(str(there)):
            emitted.write.parquet(str(there))
        return [_fetch(file, folder, query) for file in there.iterdir() if file.name.endswith(_PARQUET)]
    finally:
        there.remove()


def _fetch(file: HadoopPath, folder: Path, query: str) -> Staged:
    copy = staging_of(folder, query) / file.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        file.copy_to(copy)
        with pq.ParquetFile(copy) as rows:
            return stage(folder, query, rows.iter_batches(_ROWS_AT_ONCE, columns=EMITTED.names))
    finally:
        copy.unlink(missing_ok=True)


def commit_staged(
    log: Log, options: SinkOptions, epoch: int, staged: Sequence[Staged], letters: Sequence[EmittedRecords] = ()
) -> Appended:
    own = {"records_in": options.records_in, "ties": options.ties, **taken(options.functions)}
    notes = [own, *(note for s in staged for note in s.notes)]
    replaces = partition_offsets(options.replaces)
    return append(log, options.target, epoch, [*pieces_of(staged), *letters], notes, replaces=replaces)


def _staged(
    directory: Path, query: str, emit: Emit | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a worker: the rows of one task as a file, and where that is as one row."""
    emitted = batches if emit is None else emit(batches)
    yield pa.RecordBatch.from_pydict({"staged": [pickle.dumps(stage(directory, query, emitted))]})

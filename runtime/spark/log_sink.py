"""EMITTED rows of a batch into the log from Spark: workers stage files, the driver appends them in one transaction.

The micro-batches of streams are committed by `engine.work`, from the driver's memory: their rows are few, and nothing has to be staged.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from flowql.runtime.log.base import Log
from flowql.runtime.spark.log_address import Address, shared_log
from flowql.runtime.spark.log_append import Appended, Target, append
from flowql.runtime.spark.log_offsets import Offsets, partition_offsets
from flowql.runtime.spark.log_staging import Staged, pieces_of, stage, sweep
from flowql.runtime.spark.shapes import EMITTED


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where the epochs of a query go.

    address: of the log; staging: folder for staged files; replaces: records below these offsets go with the epoch; records_in and ties: to
    count with the epoch, where rows bring no notes.
    """

    address: Address
    staging: Path
    target: Target
    replaces: Offsets = field(default_factory=dict)
    records_in: int = 0
    ties: int = 0


def write_epoch(emitted: DataFrame, options: SinkOptions, epoch: int, log: Log | None = None) -> Appended:
    """Commit a batch DataFrame of EMITTED rows as one epoch; a repeated epoch changes nothing. log: where it is open already.

    Workers stage, and this process commits: a Python data source would start some processes to do no more than that.
    """
    stage_all = partial(_staged, options.staging, options.target.query)
    rows = emitted.select(*EMITTED.names).mapInArrow(stage_all, "staged BINARY").collect()
    staged: list[Staged] = [pickle.loads(bytes(row.staged)) for row in rows]
    try:
        return commit_staged(log or shared_log(options.address), options, epoch, staged)
    finally:
        sweep(options.staging, options.target.query, staged)


def commit_staged(log: Log, options: SinkOptions, epoch: int, staged: Sequence[Staged]) -> Appended:
    notes = [{"records_in": options.records_in, "ties": options.ties}, *(note for s in staged for note in s.notes)]
    replaces = partition_offsets(options.replaces)
    return append(log, options.target, epoch, list(pieces_of(staged)), notes, replaces=replaces)


def _staged(directory: Path, query: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a worker: the rows of one task as a file, and where that is as one row."""
    yield pa.RecordBatch.from_pydict({"staged": [pickle.dumps(stage(directory, query, batches))]})

"""EMITTED rows into the log from Spark: workers stage files, the driver's commit appends them in one transaction.

Options: where the log is (`log_address`), `staging` (folder for staged files), `query`, `run` (identity of the checkpoint), `application_id`
(whose dead letters), `replaces` (JSON as in `log_offsets`: records below these go with the epoch), `records_in` and `ties` (to count with
the epoch, where rows bring no notes). The epoch is Spark's batch id.

`write_epoch` is for batches. Streams of the engine collect their rows in `foreachBatch` (`log_append.append_emitted`), which is cheaper
for few rows: nothing is staged.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.streaming.readwriter import DataStreamWriter

from flowql.runtime.errors import LogError
from flowql.runtime.log.base import Log
from flowql.runtime.spark.log_address import Address, address_of_texts, shared_log, texts_of
from flowql.runtime.spark.log_append import Appended, Target, append
from flowql.runtime.spark.log_offsets import Offsets, partition_offsets
from flowql.runtime.spark.log_staging import Staged, pieces_of, stage, sweep
from flowql.runtime.spark.shapes import EMITTED

NAME = "flowql_log"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where the epochs of a query go; see the module."""

    address: Address
    staging: Path
    target: Target
    replaces: Offsets = field(default_factory=dict)
    records_in: int = 0
    ties: int = 0

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        address = address_of_texts(options)
        for needed, given in (("path", address), *((n, options.get(n)) for n in ("staging", "query"))):
            if not given:
                raise LogError(f"{NAME} needs the option {needed} for writing")
        assert address is not None
        target = Target(options["query"], options.get("run", ""), options.get("application_id", "flowql"))
        replaces = json.loads(options.get("replaces") or "{}")
        return cls(
            address,
            Path(options["staging"]),
            target,
            replaces,
            int(options.get("records_in", 0)),
            int(options.get("ties", 0)),
        )

    def texts(self) -> dict[str, str]:
        """The inverse of `of`."""
        t = self.target
        return {
            **texts_of(self.address),
            "staging": str(self.staging),
            "query": t.query,
            "run": t.run,
            "application_id": t.application_id,
            "replaces": json.dumps(self.replaces),
            "records_in": str(self.records_in),
            "ties": str(self.ties),
        }


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


def stream_epochs(emitted: DataFrame, options: SinkOptions) -> DataStreamWriter:
    """The stream writer for EMITTED rows; the caller adds checkpoint, trigger and name, and starts it."""
    return emitted.select(EMITTED.names).writeStream.format(NAME).outputMode("append").options(**options.texts())


class StagedMessage(WriterCommitMessage):
    """What a task tells the commit."""

    def __init__(self, staged: Staged) -> None:
        self.staged = staged


class LogStreamWriter(DataSourceStreamArrowWriter):
    """One epoch per micro-batch."""

    def __init__(self, options: Mapping[str, str], schema: Any, *, overwrite: bool) -> None:
        if overwrite:
            raise LogError(f"{NAME} only appends: a log is never overwritten")
        if schema.fieldNames() != EMITTED.names:
            raise LogError(f"{NAME} takes columns {', '.join(EMITTED.names)}, not {', '.join(schema.fieldNames())}")
        self._options = SinkOptions.of(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        return StagedMessage(stage(self._options.staging, self._options.target.query, iterator))

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        o, staged = self._options, [m.staged for m in messages if m is not None]
        commit_staged(shared_log(o.address), o, batchId, staged)
        sweep(o.staging, o.target.query, staged)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        del batchId
        for message in messages:
            if message is not None and message.staged.path is not None:
                Path(message.staged.path).unlink(missing_ok=True)

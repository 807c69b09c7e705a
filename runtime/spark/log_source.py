"""A log as a Spark data source: `flowql_log`, batch and streaming.

Options for reading: where the log is (`log_address`), `topics` (comma list), `starting` and `ending`
(as in `log_offsets`; -2 earliest, -1 latest; ending only in batch), `chunk_rows` (records per packed row or Arrow batch),
`layout` (of `stage.layout`: ENVELOPE rows of that query, its free sub-topologies run where the records are read), `reading` (of `native.topics.Reading`: rows
with the columns of a stream), `max_rows_per_batch` (streaming; 0: all that the log holds), `growing` (true: a batch read goes up to
the end of the log at the time at which its tasks run; Spark plans a batch that a stream is joined with once), `stop_at` (like `ending`; where a stream that ends
stops; topics that it does not name end where they do when the stream starts), `aligned` (true: with `max_rows_per_batch` all partitions are read up to one time); all but the topics as JSON. Readers take no lock:
every Python worker maps the files of an embedded log itself, or has a consumer of its own that reads what is committed on Kafka, and
only Arrow batches pass to Java.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from flowql.runtime.errors import LogError
from flowql.runtime.log.base import EARLIEST, LATEST, RawBatch
from flowql.runtime.spark.active import active
from flowql.runtime.spark.log_address import Address, address_of_texts, shared_log, texts_of
from flowql.runtime.spark.log_offsets import (
    LogRange,
    Offsets,
    aligned,
    bounds,
    capped,
    check_positions,
    limited,
    ranges,
    read_range,
    resolve,
    topic_list,
    up_to_now,
)
from flowql.runtime.spark.shapes import ENVELOPE_DDL, PACKED_DDL, to_ipc

NAME = "flowql_log"
CHUNK_ROWS_DEFAULT = 16_384  # near the largest run of a task, so that a packed row is decoded at once


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read; see the module."""

    address: Address
    topics: tuple[str, ...]
    starting: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    ending: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    chunk_rows: int = CHUNK_ROWS_DEFAULT
    max_rows_per_batch: int = 0
    layout: str = ""
    reading: str = ""
    growing: bool = False
    stop_at: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    aligned: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """From Spark's options, which are texts."""
        address = address_of_texts(options)
        for needed, given in (("path", address), ("topics", options.get("topics"))):
            if not given:
                raise LogError(f"{NAME} needs the option {needed}")
        assert address is not None
        others = {f.name: json.loads(options[f.name]) for f in fields(cls)[2:] if f.name in options}
        return cls(address, tuple(topic_list(options["topics"])), **others)

    def texts(self) -> dict[str, str]:
        """The inverse of `of`."""
        others = {f.name: json.dumps(getattr(self, f.name)) for f in fields(self)[2:]}
        return {**texts_of(self.address), "topics": ",".join(self.topics), **others}


def register(spark: SparkSession) -> None:
    """Make `flowql_log` known to a session; again is no harm."""
    with active(spark):
        spark.dataSource.register(FlowqlLog)


def read_log(spark: SparkSession, options: ReadOptions) -> DataFrame:
    """A batch DataFrame over exactly the offsets [starting, ending)."""
    return spark.read.format(NAME).options(**options.texts()).load()


def stream_log(spark: SparkSession, options: ReadOptions) -> DataFrame:
    """A streaming DataFrame; a new query starts at `starting`, else at the begin of the log."""
    return spark.readStream.format(NAME).options(**options.texts()).load()


class FlowqlLog(DataSource):
    """The data source; Spark makes it in the driver's planner and in workers."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        options = ReadOptions.of(self.options)
        if options.layout:
            return ENVELOPE_DDL
        if options.reading:
            from flowql.runtime.spark.native.topics import ddl_of  # decoders, which other reads do without

            return ddl_of(options.reading)
        return PACKED_DDL

    def reader(self, schema: Any) -> DataSourceReader:
        return LogBatchReader(ReadOptions.of(self.options), to_arrow_schema(schema, timezone="UTC"))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return LogStreamReader(ReadOptions.of(self.options), to_arrow_schema(schema, timezone="UTC"))


class _RangePartition(InputPartition):
    """The range that one Spark task reads."""

    def __init__(self, wanted: LogRange) -> None:
        super().__init__(wanted)


def _read(options: ReadOptions, schema: pa.Schema, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    log, wanted = shared_log(options.address), partition.value
    if wanted is not None and wanted.end == LATEST:
        wanted = up_to_now(log, wanted)
    # Spark gives None if there is nothing to read.
    records = iter(()) if wanted is None else read_range(log, wanted, options.chunk_rows)
    if options.layout:
        from flowql.runtime.spark.stage.program import (
            begun,  # all operators, which the processes that plan a read do without
        )

        for batch in begun(options.layout, records):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        return
    if options.reading:
        from flowql.runtime.spark.native.topics import rows_of

        for columns in rows_of(options.reading, records, options.address):
            cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(cast, schema=schema)
        return
    for raw in records:
        yield _packed(raw, schema)


def _packed(raw: RawBatch, schema: pa.Schema) -> pa.RecordBatch:
    row = (raw.tp.topic, raw.tp.partition, raw.first_offset, raw.next_offset, to_ipc(raw.records))
    return pa.RecordBatch.from_arrays([pa.array([v], f.type) for v, f in zip(row, schema, strict=True)], schema=schema)


class LogBatchReader(DataSourceReader):
    """Exact ranges. Positions that are not given are taken when Spark plans the read."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> Sequence[InputPartition]:
        o = self._options
        log = shared_log(o.address)
        start = resolve(log, o.topics, o.starting, EARLIEST)
        if o.growing:
            return [
                _RangePartition(LogRange(t, int(p), first, LATEST))
                for t, at in start.items()
                for p, first in at.items()
            ]
        end = resolve(log, o.topics, o.ending, LATEST)
        for topic, at in start.items():
            for p, first in at.items():
                if end[topic][p] < first:
                    raise LogError(f"{topic}-{p}: the range ends at {end[topic][p]}, before its start {first}")
        return [_RangePartition(r) for r in ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Positions are Spark's: it keeps them in the checkpoint, and asks for the same range again after a crash."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._stop_at: Offsets | None = None  # what was there when an availableNow query started

    def initialOffset(self) -> Offsets:
        return resolve(shared_log(self._options.address), self._options.topics, self._options.starting, EARLIEST)

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.max_rows_per_batch
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        now = bounds(shared_log(self._options.address), self._options.topics)[1]
        self._stop_at = capped(now, self._options.stop_at)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        end = check_positions(shared_log(self._options.address), self._options.topics, start)
        if self._stop_at is not None:
            # A restarted query may be ahead: the checkpoint's last batch can end after what `prepare` saw only if the
            # log was made anew, which the check above refuses.
            end = {t: {p: max(at[p], stop) for p, stop in self._stop_at[t].items()} for t, at in start.items()}
        if not isinstance(limit, ReadMaxRows):
            return end
        if self._options.aligned:
            return aligned(shared_log(self._options.address), start, end, limit.max_rows)
        return limited(start, end, limit.max_rows)

    def reportLatestOffset(self) -> Offsets:
        return bounds(shared_log(self._options.address), self._options.topics)[1]

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        check_positions(shared_log(self._options.address), self._options.topics, start)
        return [_RangePartition(r) for r in ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)

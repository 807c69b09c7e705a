"""Rows of Python or Arrow, written to the topic of a declared stream or table. Entry point: `TopicWriter`."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.plan.logical import Sink
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.compiler.plan.types import SqlType, arrow_type
from flowql.compiler.schemas.ref import DEBEZIUM
from flowql.errors import CommandError
from flowql.runtime.app.written_keys import WrittenKeys, WrittenRequest, key_record, topic_name
from flowql.runtime.batch import DELETE, INSERT, Batch, Ints
from flowql.runtime.errors import Fenced, RuntimeFailure
from flowql.runtime.log.base import Log, Producer, TopicPartition
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.encode import Encoder
from flowql.runtime.output.partitioner import split
from flowql.topics.codecs import KeyWriter, refuse_unwritable
from flowql.topics.python_values import NotOfType, check_column, column_of
from flowql.topics.records import partitions_of

BATCH_ROWS = 50_000
_TRIES = 20  # of a request; each failed try means that another instance has opened the producer
NOT_A_ROW, UNKNOWN, KEY_REUSED = "FQ5011", "FQ5103", "FQ5316"
_NAMELESS_INDEX = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True, slots=True)
class Once:
    """An idempotency key. key: a digest of the key and what it is for. digest: of the body."""

    key: bytes
    digest: str


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of a write. rows: the number of written rows. ends: offsets after these rows, by partition."""

    rows: int
    ends: Mapping[TopicPartition, int]


class TopicWriter:
    """Writes rows to topics of one log, each call as one transaction. Any thread; transactions come one after the other."""

    def __init__(self, open_log: Callable[[], Log], transactional_id: str, application_id: str = "") -> None:
        """open_log: called with the first row. application_id: of the topic with idempotency keys."""
        self._open_log, self._transactional_id, self._application_id = open_log, transactional_id, application_id
        self._lock = threading.Lock()  # guards the five below
        self._log: Log | None = None
        self._producer: Producer | None = None
        self._keyed: Producer | None = None  # of rows with an idempotency key
        self._sent = 0
        self._keys: WrittenKeys | None = None

    def produce(
        self, name: str, plan: Plan, rows: Any, timestamp: str | None, partitions: int, once: Once | None = None
    ) -> Written:
        """Writes rows, which are then durable. The topic is created if missing. name: of a stream or table of the plan, whatever its case.

        partitions: of a topic that is created and does not declare them. once: writes nothing if it has been written. Raises CommandError, and writes nothing, if a row cannot be written.
        """
        source = source_named(name, plan)
        records = [r for r in RowWriter(source).records(rows, timestamp) if r.num_rows]
        with self._lock:
            if self._log is None:
                self._log = self._open_log()
            wanted = partitions_of(source.topic, plan, self._log, partitions)
            count = self._log.admin().create_topic(source.topic, wanted).partitions
            if once is not None:
                return self._write_once(self._log, source.topic, count, records, once)
            if self._producer is None:
                self._producer = self._log.producer(self._transactional_id)
            try:
                ends = self._write(self._producer, source.topic, count, records)
            except BaseException:  # a producer whose transaction failed may be of no more use
                failed, self._producer = self._producer, None
                with suppress(RuntimeFailure):
                    failed.close()
                raise
        return Written(sum(r.num_rows for r in records), ends)

    def _write_once(
        self, log: Log, topic: str, partitions: int, records: Sequence[pa.RecordBatch], once: Once
    ) -> Written:
        """The rows that the request has written, now or before. If several instances get it at the same time, one writes.

        They share a transactional id. A new producer ends the transaction of the one before it, so all written keys are visible to it. The older
        producer is fenced, and its instance tries again.
        """
        rows = sum(r.num_rows for r in records)
        for tries_left in reversed(range(_TRIES)):
            if self._keyed is None:
                self._keyed = log.producer(topic_name(self._application_id))
            try:
                now_ms = time.time_ns() // 1_000_000
                if (written := self._written(log, once, now_ms)) is not None:
                    tps = [TopicPartition(topic, p) for p in range(partitions)]
                    return Written(written, log.admin().end_offsets(tps))
                assert self._keys is not None
                record = key_record(once.key, WrittenRequest(once.digest, rows), now_ms)
                ends = self._write(self._keyed, topic, partitions, records, (self._keys.tp, record))
                return Written(rows, {tp: end for tp, end in ends.items() if tp.topic == topic})
            except CommandError:
                raise
            except BaseException as error:
                failed, self._keyed = self._keyed, None
                with suppress(RuntimeFailure):
                    failed.close()
                if not isinstance(error, Fenced) or not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _written(self, log: Log, once: Once, now_ms: int) -> int | None:
        """The rows of a request of that key; None if there was none. CommandError if it had another body."""
        if self._keys is None:
            self._keys = WrittenKeys(log, self._application_id)
        found = self._keys.find(once.key, now_ms)
        if found is not None and found.digest != once.digest:
            title = "this idempotency key was used for a request with another body"
            raise CommandError(title, code=KEY_REUSED, help="use a new key for each request")
        return None if found is None else found.rows

    def _write(
        self,
        producer: Producer,
        topic: str,
        partitions: int,
        records: Sequence[pa.RecordBatch],
        beside: tuple[TopicPartition, pa.RecordBatch] | None = None,
    ) -> Mapping[TopicPartition, int]:
        """Returns `Producer.ends` of the transaction. beside: records for another topic, in the same transaction."""
        producer.begin()
        try:
            producer.expect_partitions(topic, partitions)
            for batch in records:
                self._sent += 1  # records without a key: a batch goes to one partition, the next to another
                for partition, part in split(batch, partitions, self._sent % partitions):
                    producer.send(TopicPartition(topic, partition), part)
            if beside is not None:
                producer.send(*beside)
        except BaseException:
            producer.abort()
            raise
        producer.commit()
        return producer.ends

    def close(self) -> None:
        with self._lock:
            for producer in (self._producer, self._keyed):
                if producer is not None:
                    producer.close()
            if self._log is not None:
                self._log.close()
            self._producer = self._keyed = self._log = self._keys = None


def source_named(name: str, plan: Plan) -> SourceDef:
    """Whatever the case of the name. CommandError if there is none."""
    sources = {s.name: s for s in plan.sources}
    found = sources.get(name) or next((s for n, s in sources.items() if n.casefold() == name.casefold()), None)
    if found is None:
        hint = did_you_mean(name, sources) or f"there are {listing(sources)}"
        raise CommandError(f"there is no stream or table {name}", code=UNKNOWN, help=hint)
    return found


class RowWriter:
    """Makes records of rows for one source. Columns are found whatever their case; those that are missing are NULL.

    Raises CommandError for a local table and for windowed keys.
    """

    def __init__(self, source: SourceDef) -> None:
        refuse_unwritable(source)
        if source.value_format.name == DEBEZIUM:
            title = f"rows of {source.name} are written by Debezium"
            raise CommandError(title, code="FQ5010", help="change them at their source")
        KeyWriter(source)  # refuses windowed keys
        self.source = source
        self.schema = Schema(tuple(f for f in source.schema if f.role in ("key", "value")))
        sink = Sink(source.name, source.topic, source.kind, source.key_format, source.value_format, source.timestamp)
        self._encoder = Encoder(sink, self.schema)

    def records(self, rows: Any, timestamp: str | None = None) -> Iterable[pa.RecordBatch]:
        """rows: dicts, or an Arrow table, a pandas or polars frame, or whatever else has Arrow's PyCapsule interface. timestamp: the column with
        the event time, by default that of the source, or now.

        In a table a row without values, only its key given, deletes the row. Raises CommandError for a row that cannot be written.
        """
        data = self.table(rows)
        found = {name.casefold(): name for name in data.column_names}
        self._refuse_unknown(data.column_names, timestamp)
        times = self._times(data, found, timestamp)
        columns = [self._column(data, found.get(f.name.casefold()), f) for f in self.schema]
        if self.source.kind == "table":
            self._refuse_no_key(columns)
        table = pa.table(columns, names=[str(i) for i in range(len(columns))])
        for start in range(0, data.num_rows, BATCH_ROWS):
            part = table.slice(start, BATCH_ROWS).combine_chunks()
            yield self._encoded(part, times[start : start + BATCH_ROWS])

    def table(self, rows: Any) -> pa.Table:
        """Rows in any form as Arrow, their columns as given. CommandError for a value that is not of its column's type."""
        return _table(rows, {f.name.casefold(): f.type for f in self.schema})

    def _encoded(self, part: pa.Table, times: Ints) -> pa.RecordBatch:
        arrays = [c.chunk(0) for c in part.columns]
        fields = [pa.field(f.name, arrow_type(f.type)) for f in self.schema]
        arrow = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        n = len(times)
        op = np.where(self._has_no_value(arrow), DELETE, INSERT).astype(np.int8)
        batch = Batch(self.schema, rowtime=times, op=op, seq=np.arange(n, dtype=np.int64), arrow=arrow)
        run = MicroBatchContext(NO_STATE)
        made = self._encoder.encode(batch, run)
        if run.dead_letters:
            why = run.dead_letters[0].message
            raise CommandError(f"a row of {self.source.name} cannot be written: {why}", code=NOT_A_ROW)
        return made

    def _has_no_value(self, arrow: pa.RecordBatch) -> Any:
        missing = np.full(arrow.num_rows, self.source.kind == "table")
        for i, f in enumerate(self.schema):
            if f.role == "value":
                missing &= pc.is_null(arrow.column(i)).to_numpy(zero_copy_only=False)
        return missing

    def _refuse_no_key(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> None:
        keys = [f.name for f, c in zip(self.schema, columns, strict=True) if f.role == "key" and c.null_count]
        if keys and len(keys) == sum(f.role == "key" for f in self.schema):
            title = f"a row of the table {self.source.name} has no key: {keys[0]} is NULL"
            raise CommandError(title, code=NOT_A_ROW, help="a table has a row for each key")

    def _refuse_unknown(self, names: Sequence[str], timestamp: str | None) -> None:
        known = {f.name.casefold() for f in self.schema} | ({timestamp.casefold()} if timestamp else set())
        seen: dict[str, str] = {}
        for name in names:
            if (other := seen.setdefault(name.casefold(), name)) != name or list(names).count(name) > 1:
                title = f"the rows have the columns {other} and {name}, which are one column of {self.source.name}"
                raise CommandError(title, code=NOT_A_ROW, help="leave one of them out")
            if name.casefold() not in known:
                title = f"{self.source.name} has no column {name}"
                hint = did_you_mean(name, self.schema.names) or f"its columns are {', '.join(self.schema.names)}"
                raise CommandError(title, code=NOT_A_ROW, help=hint)

    def _column(self, data: pa.Table, name: str | None, field: Field) -> pa.ChunkedArray | pa.Array:
        wanted = arrow_type(field.type)
        if name is None:
            return pa.nulls(data.num_rows, wanted)
        try:
            check_column(data.column(name), field.type)
            return _plain(data.column(name)).cast(wanted)
        except NotOfType as error:
            title = f"column {field.name} of {self.source.name} is {field.type}: {error}"
            raise CommandError(title, code=NOT_A_ROW, help=error.help) from error
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            title = f"column {field.name} of {self.source.name} is {field.type}: {str(error).splitlines()[0]}"
            raise CommandError(title, code=NOT_A_ROW) from error

    def _times(self, data: pa.Table, found: Mapping[str, str], timestamp: str | None) -> Ints:
        if timestamp is None:
            return np.full(data.num_rows, time.time_ns() // 1_000_000, np.int64)
        name = found.get(timestamp.casefold())
        if name is None:
            raise CommandError(f"the rows have no column {timestamp}", code=NOT_A_ROW)
        column = data.column(name)
        if column.null_count:
            raise CommandError(f"the event time {timestamp} of a row is missing", code=NOT_A_ROW)
        if pa.types.is_boolean(column.type) or not (
            pa.types.is_temporal(column.type) or pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        ):
            title = f"{timestamp} is not an event time (a timestamp, or milliseconds since 1970): it is {column.type}"
            raise CommandError(title, code=NOT_A_ROW)
        try:
            if pa.types.is_timestamp(column.type):  # a cast would cut off toward 1970
                column = pc.floor_temporal(column, unit="millisecond")
            if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
                column = column.cast(pa.timestamp("ms"))
            return np.asarray(column.cast(pa.int64()).to_numpy(), np.int64)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            title = f"{timestamp} is not an event time (a timestamp, or milliseconds since 1970): {error}"
            raise CommandError(title, code=NOT_A_ROW) from error


def _table(rows: Any, types: Mapping[str, SqlType]) -> pa.Table:
    """types: of known columns, by their names in lower case. TypeError for what is neither rows nor a frame."""
    if isinstance(rows, pa.Table):
        return rows
    if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        return _imported(rows)
    if not isinstance(rows, Iterable):
        raise TypeError(f"rows are dicts or a frame, not {type(rows).__name__}")
    found = [rows] if isinstance(rows, Mapping) else list(rows)
    for row in found:
        if not isinstance(row, Mapping):
            raise TypeError(f"a row is a dict, not {type(row).__name__}")
    names = list(dict.fromkeys(name for row in found for name in row))
    if odd := [name for name in names if not isinstance(name, str)]:
        raise TypeError(f"names of columns are strings, not {type(odd[0]).__name__}")
    return pa.table([_array(n, [row.get(n) for row in found], types.get(n.casefold())) for n in names], names=names)


def _imported(frame: Any) -> pa.Table:
    """A frame of any library. An index of pandas is a column if it has a name."""
    try:
        table = pa.table(frame)
    except (pa.ArrowException, ValueError) as error:
        why = " ".join(str(part).splitlines()[0] for part in error.args if str(part)) or type(error).__name__
        title = f"{type(frame).__name__} is not a table of Arrow: {why}"
        raise CommandError(title, code=NOT_A_ROW) from error
    return table.drop_columns([name for name in table.column_names if _NAMELESS_INDEX.fullmatch(name)])


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Categories of polars as texts of the form that Arrow can take out of a dictionary."""
    if pa.types.is_dictionary(column.type) and pa.types.is_string_view(column.type.value_type):
        return column.cast(pa.dictionary(column.type.index_type, pa.string()))
    return column


def _array(name: str, values: list[Any], wanted: SqlType | None) -> pa.Array:
    try:
        return column_of(values, wanted)
    except NotOfType as error:
        title = f"a value of column {name} does not fit {wanted or 'the types of its other values'}: {error}"
        raise CommandError(title, code=NOT_A_ROW, help=error.help) from error

"""The end of a topic, as rows: what a stream or table gets from a moment on. Needs the log and no engine."""

from __future__ import annotations

from collections.abc import Iterator

from flowql.compiler.plan.schema import WINDOW_END, WINDOW_FIELDS, WINDOW_START, Schema
from flowql.compiler.plan.topology import SourceDef, scan_of
from flowql.query.change import Change
from flowql.query.relations import READ_BYTES, READ_RECORDS
from flowql.runtime.batch import DELETE, Batch
from flowql.runtime.errors import OffsetOutOfRange
from flowql.runtime.log.base import EARLIEST, Log, RawBatch, Reader, TopicPartition
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.decode import Decoder


class Tail:
    """Reads a result's topic from `start` on. One thread."""

    def __init__(self, source: SourceDef, log: Log, start: int = EARLIEST) -> None:
        self.declare(source)
        self._log = log
        self._begin(start)

    def _begin(self, start: int) -> None:
        partitions = self._log.admin().topics()[self.source.topic].partitions
        self._readers = [self._log.reader(TopicPartition(self.source.topic, p), start) for p in range(partitions)]

    def declare(self, source: SourceDef) -> None:
        """From here on its records are read as this says; same topic."""
        self.source, self.schema = source, with_bounds(source.schema)
        self._decoder = Decoder(scan_of(source), self.schema)

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns that tell rows apart: the key and the bounds of its window."""
        return tuple(f.name for f in self.schema if f.role in ("key", "window"))

    def poll(self) -> Iterator[tuple[Reader, list[Change]]]:
        """The available changes, batch by batch, each with its reader. It starts from the beginning if the number of partitions has changed."""
        count = self._log.admin().partition_counts([self.source.topic]).get(self.source.topic, len(self._readers))
        if count != len(self._readers):
            self._begin(EARLIEST)
        for reader in self._readers:
            while (raw := _read(reader)) is not None:
                yield reader, list(self._rows(self._decoder.decode(raw, MicroBatchContext(NO_STATE))))

    def _rows(self, batch: Batch) -> Iterator[Change]:
        table = self.source.kind == "table"
        columns = [batch.column(n) for n in self.schema.names]
        for i, (op, time) in enumerate(zip(batch.op.tolist(), batch.rowtime.tolist(), strict=True)):
            gone = table and op == DELETE
            row = {n: c[i] for n, c in zip(self.schema.names, columns, strict=True) if not gone or n in self.keys}
            yield Change("delete" if gone else "put" if table else "insert", time, row)


def with_bounds(schema: Schema) -> Schema:
    """A windowed table is described without the bounds, as they are in its keys; here they are columns after the key."""
    if schema.window is None:
        return schema
    rest = [f for f in schema if f.role != "key" and f.name not in (WINDOW_START, WINDOW_END)]
    return Schema((*schema.key, *WINDOW_FIELDS, *rest), schema.window)


def _read(reader: Reader) -> RawBatch | None:
    try:
        return reader.read(READ_RECORDS, READ_BYTES)
    except OffsetOutOfRange:  # what was next is gone: others have taken its place, or its time was over
        reader.seek(EARLIEST)
        return reader.read(READ_RECORDS, READ_BYTES)

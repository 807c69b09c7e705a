"""The rows of a local table, from its topic: the last record of each key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import pyarrow as pa

from flowql.compiler.plan.topology import SourceDef, scan_of
from flowql.compiler.plan.types import Kind
from flowql.runtime.batch import DELETE, Row
from flowql.runtime.errors import LogUnavailable, StatementFailed
from flowql.runtime.log.base import Log, RawBatch, TopicPartition
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.decode import Decoder
from flowql.runtime.operators.keys import picker
from flowql.runtime.output.partitioner import partitions_of
from flowql.runtime.state.values import encode_value

_RECORDS, _BYTES = 50_000, 16 << 20
Key = bytes  # the values of the key columns, so that equal keys have equal bytes
Rows = dict[Key, Row]  # values in the order of the schema


@dataclass(frozen=True, slots=True)
class ReadChanges:
    """Rows by key as records say, the last one of each; None: it is deleted. end: the next offset to read. gap: whether offsets are missing.
    last: digest of the last record.
    """

    changes: dict[Key, Row | None]
    end: int
    gap: bool
    last: str


def digest_of_last(records: pa.RecordBatch) -> str:
    """Tells the last record apart from others that a log could have at its offset."""
    last = [records.column(name)[-1].as_py() for name in ("timestamp", "key", "value")]
    return blake2b(repr(last).encode(), digest_size=16).hexdigest()


class KeyOf:
    """The key of a row given as values in the order of the schema."""

    def __init__(self, source: SourceDef) -> None:
        names = source.schema.names
        self._pick = picker([names.index(f.name) for f in source.schema.key])
        self._doubles = [names.index(f.name) for f in source.schema.key if f.type.kind is Kind.DOUBLE]

    def as_stored(self, row: Row) -> Row:
        """The row with one spelling of equal keys: zero has no sign."""
        if not any(row[i] == 0 for i in self._doubles):
            return row
        return tuple(0.0 if i in self._doubles and v == 0 else v for i, v in enumerate(row))

    def __call__(self, row: Row) -> Key:
        return encode_value(self._pick(row))


class RowReader:
    """Reads the rows of a table from its topic. One thread at a time."""

    def __init__(self, source: SourceDef) -> None:
        self._source, self._key_of = source, KeyOf(source)
        self._decoder = Decoder(scan_of(source), source.schema)

    def changes(self, log: Log, tp: TopicPartition, offset: int, end: int, partitions: int) -> Iterator[ReadChanges]:
        """What the records of a partition from an offset to `end` or a little beyond say. partitions: their number in the topic.

        Raises StatementFailed for a record that cannot be decoded, or lies in another partition than that of its key.
        """
        reader = log.reader(tp, offset)
        try:
            while reader.position < end and (raw := reader.read(_RECORDS, _BYTES)) is not None:
                gap = raw.first_offset != offset or raw.last_offset - raw.first_offset + 1 != raw.rows
                offset = reader.position
                yield ReadChanges(self._decoded(raw, partitions), offset, gap, digest_of_last(raw.records))
            if reader.position < end:  # what is missing would pass for rows that are not there
                raise LogUnavailable(f"{tp}: records {reader.position} to {end - 1} cannot be read now")
        finally:
            reader.close()

    def _decoded(self, raw: RawBatch, partitions: int) -> dict[Key, Row | None]:
        source = self._source
        if (partitions_of(raw.records.column("key"), partitions, 0) != raw.tp.partition).any():
            raise StatementFailed(
                f"records of {source.name} are not in the partitions of their keys: the topic {source.topic} has another number "
                "of partitions than when they were written; copy the rows into a new table"
            )
        run = MicroBatchContext(NO_STATE)
        batch = self._decoder.decode(raw, run)
        if run.dead_letters:
            letter = run.dead_letters[0]
            raise StatementFailed(
                f"the topic {source.topic} of {source.name} holds a record that is no row of it: {letter.message}"
            )
        ops, key_of = batch.op.tolist(), self._key_of
        return {key_of(row): None if op == DELETE else row for row, op in zip(batch.rows(), ops, strict=True)}

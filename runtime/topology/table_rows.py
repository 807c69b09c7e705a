"""The rows of a table of one's own, from its topic: the last record of each key, up to the committed end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import SourceDef, scan_of
from flowql.compiler.plan.types import Kind
from flowql.runtime.batch import DELETE, Row
from flowql.runtime.errors import LogUnavailable, StatementFailed
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.decode import Decoder
from flowql.runtime.operators.keys import picker
from flowql.runtime.output.partitioner import partitions_of
from flowql.runtime.state.values import encode_value

_RECORDS, _BYTES = 50_000, 16 << 20
Key = bytes  # the values of the key columns, so that equal keys have equal bytes
Rows = dict[Key, Row]  # values in the order of the schema


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


def present_rows(log: Log, source: SourceDef, ends: Mapping[TopicPartition, int], *, keys_alone: bool = False) -> Rows:
    """All rows at these ends. Reads the whole topic. Raises StatementFailed for a record that cannot be decoded.

    keys_alone: rows have their key columns and nothing else.
    """
    declared = Schema(source.schema.key) if keys_alone else source.schema
    decoder = Decoder(scan_of(source), declared)
    key_of = KeyOf(replace(source, schema=declared))
    rows: Rows = {}
    for tp, end in sorted(ends.items()):
        for found, ops in _decoded(log, tp, end, decoder, source, len(ends)):
            for row, op in zip(found, ops, strict=True):
                if op == DELETE:
                    rows.pop(key_of(row), None)
                else:
                    rows[key_of(row)] = row
    return rows


def _decoded(
    log: Log, tp: TopicPartition, end: int, decoder: Decoder, source: SourceDef, partitions: int
) -> Iterator[tuple[Sequence[Row], Sequence[int]]]:
    reader = log.reader(tp, log.admin().begin_offset(tp))
    try:
        while reader.position < end and (raw := reader.read(_RECORDS, _BYTES)) is not None:
            if (partitions_of(raw.records.column("key"), partitions, 0) != tp.partition).any():
                raise StatementFailed(
                    f"records of {source.name} are not in the partitions of their keys: the topic {source.topic} has another number "
                    "of partitions than when they were written; copy the rows into a new table"
                )
            run = MicroBatchContext(NO_STATE)
            batch = decoder.decode(raw, run)
            if run.dead_letters:
                letter = run.dead_letters[0]
                raise StatementFailed(
                    f"the topic {source.topic} of {source.name} holds a record that is no row of it: {letter.message}"
                )
            yield batch.rows(), batch.op.tolist()
        if reader.position < end:  # what is missing would pass for rows that are not there
            raise LogUnavailable(f"{tp}: records {reader.position} to {end - 1} cannot be read now")
    finally:
        reader.close()

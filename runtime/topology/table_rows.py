"""The rows of a local table, from its topic: the last record of each key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import SourceDef, scan_of
from flowql.compiler.plan.types import Kind
from flowql.runtime.batch import DELETE, Batch, Row
from flowql.runtime.errors import LogUnavailable, StatementFailed
from flowql.runtime.log.base import HEADERS_TYPE, RECORD_SCHEMA, Log, RawBatch, TopicPartition
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.decode import Decoder
from flowql.runtime.operators.encode import KeyEncoder
from flowql.runtime.operators.keys import picker
from flowql.runtime.output.partitioner import partitions_of
from flowql.runtime.serde.codec import row_decoder
from flowql.runtime.state.values import encode_value

_RECORDS, _BYTES = 50_000, 16 << 20
Key = bytes  # the values of the key columns, so that equal keys have equal bytes
Rows = dict[Key, Row]  # values in the order of the schema
Kept = Row | bytes  # as a store keeps a row: its values, or the JSON text of key and value that `RowReader.row` decodes


@dataclass(frozen=True, slots=True)
class ReadChanges:
    """The last row of each key in some records, as a store keeps it; None: it is deleted.

    end: the next offset to read. gap: whether offsets are missing. last: digest of the last record.
    """

    changes: dict[Key, Kept | None]
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
        self._documents = _Documents(source) if _is_json(source) else None

    def changes(self, log: Log, tp: TopicPartition, offset: int, end: int, partitions: int) -> Iterator[ReadChanges]:
        """The changes in a partition's records from an offset to `end` or a little beyond. partitions: their number in the topic.

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

    def _decoded(self, raw: RawBatch, partitions: int) -> dict[Key, Kept | None]:
        source = self._source
        if (partitions_of(raw.records.column("key"), partitions, 0) != raw.tp.partition).any():
            raise StatementFailed(
                f"records of {source.name} are not in the partitions of their keys: the topic {source.topic} has another number "
                "of partitions than when they were written; copy the rows into a new table"
            )
        found = None if self._documents is None else self._documents.decode(raw)
        if found is not None:
            return found
        run = MicroBatchContext(NO_STATE)
        batch = self._decoder.decode(raw, run)
        if run.dead_letters:
            letter = run.dead_letters[0]
            raise StatementFailed(
                f"the topic {source.topic} of {source.name} holds a record that is not a row of it: {letter.message}"
            )
        ops, key_of = batch.op.tolist(), self._key_of
        return {key_of(row): None if op == DELETE else row for row, op in zip(batch.rows(), ops, strict=True)}

    def row(self, kept: Kept) -> Row:
        """The values of a row that is kept."""
        if not isinstance(kept, bytes):
            return kept
        assert self._documents is not None
        return self._documents.row(kept)

    def rows(self, kept: Sequence[Kept]) -> list[Row]:
        """The same for many, by columns."""
        texts = [k for k in kept if isinstance(k, bytes)]
        if len(texts) < DOCUMENT_ROWS_MIN:
            return list(map(self.row, kept))
        assert self._documents is not None
        decoded = iter(self._documents.rows(texts))
        return [next(decoded) if isinstance(k, bytes) else k for k in kept]


DOCUMENT_ROWS_MIN = 512  # fewer records are decoded one by one
_KEY = "__key"  # the member that a key of one column becomes; columns of users do not begin with two underscores


def _is_json(source: SourceDef) -> bool:
    return source.key_format.name == source.value_format.name == "JSON" and source.value_format.wrap


class _Documents:
    """Decodes key and value of records as one JSON object each, by columns, since no vector decoder reads JSON keys. One thread at a time."""

    def __init__(self, source: SourceDef) -> None:
        self._single = len(source.schema.key) == 1
        names = [_KEY if self._single and f.role == "key" else f.name for f in source.schema]
        fields = [Field(n, f.type) for n, f in zip(names, source.schema, strict=True)]
        self._keys = Schema(tuple(f for f, s in zip(fields, source.schema, strict=True) if s.role == "key"))
        self._encoder = KeyEncoder(Schema(source.schema.key), source.key_format)
        document = Schema(tuple(fields))
        self._decoder = Decoder(scan_of(replace(source, kind="stream", schema=document, timestamp=None)), document)
        self._row = row_decoder(fields, source.value_format, fields, is_key=False)

    def decode(self, raw: RawBatch) -> dict[Key, Kept | None] | None:
        """Rows by key; None for a batch that only the decoder of records can judge."""
        keys, values = raw.records.column("key"), raw.records.column("value")
        if raw.rows < DOCUMENT_ROWS_MIN or keys.null_count or not self._encoder.has_vector:
            return None
        try:
            texts = self._texts(keys.cast(pa.string()), values.cast(pa.string()).fill_null("{}"))
        except pa.ArrowInvalid:  # this is not UTF-8
            return None
        if texts is None or (batch := self._decoded(texts)) is None:
            return None
        given = batch.select(self._keys)
        if not self._encoder.columns(given.arrow().columns, raw.rows).equals(keys):
            return None  # spelled otherwise: members may be missing, or be repeated in the value
        kept: list[Kept | None] = texts.to_pylist()
        for i in np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)).tolist():
            kept[i] = None
        return dict(zip(map(encode_value, given.rows()), kept, strict=True))

    def row(self, text: bytes) -> Row:
        found = self._row.decode(text)
        assert found is not None, "it was decoded before"
        return found

    def rows(self, texts: Sequence[bytes]) -> list[Row]:
        batch = self._decoded(pa.array(texts, pa.binary()))
        assert batch is not None, "they were decoded before"
        return batch.rows()

    def _decoded(self, texts: pa.BinaryArray) -> Batch | None:
        n = len(texts)
        columns = [pa.array(np.arange(n)), pa.array(np.zeros(n, np.int64)), pa.nulls(n, pa.binary()), texts]
        records = pa.RecordBatch.from_arrays([*columns, pa.nulls(n, HEADERS_TYPE)], schema=RECORD_SCHEMA)
        run = MicroBatchContext(NO_STATE)
        batch = self._decoder.decode(RawBatch(TopicPartition(self._decoder.scan.topic, 0), records, n, 0), run)
        return None if run.dead_letters or len(batch) != n else batch

    def _texts(self, keys: pa.StringArray, values: pa.StringArray) -> pa.BinaryArray | None:
        """One object per record. The members of the key come last, because the last of equal members counts."""
        braces = pc.and_(pc.starts_with(values, "{"), pc.ends_with(values, "}"))
        if not self._single:
            braces = pc.and_(braces, pc.starts_with(keys, "{"))
        if not pc.all(braces).as_py():
            return None
        between = pc.if_else(pc.equal(values, "{}"), "", ",")
        first = pc.utf8_slice_codeunits(values, 0, -1)
        if self._single:
            joined = pc.binary_join_element_wise(first, between, f'"{_KEY}":', keys, "}", "")
        else:
            joined = pc.binary_join_element_wise(first, between, pc.utf8_slice_codeunits(keys, 1), "")
        return joined.view(pa.binary())

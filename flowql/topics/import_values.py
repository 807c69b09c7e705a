"""Keys and values of imported records in the bytes their source declares, and which records it cannot read.

Values are judged by the decoder that queries read the source with: what it would make a dead letter is a bad record here. Texts that
stand for values of other types (ISO times, spellings of NULL) are turned into these first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.topology import SourceDef, scan_of
from flowql.runtime.batch import Batch
from flowql.runtime.errors import BadRecord
from flowql.runtime.log.base import HEADERS_TYPE, RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.decode import Decoder
from flowql.topics.codecs import KeyWriter, ValueWriter
from flowql.topics.import_job import FileFormat
from flowql.topics.json_times import JsonTimes
from flowql.topics.typed_texts import FORMS

Reasons = dict[int, str]
SAMPLE_ROWS = 16  # if none of them is bad, times are numbers already, as far as one can tell
SLICE_ROWS = 8_192  # what the decoder looks at stays in the processor's cache


def encoded_keys(documents: pa.Array, keys: KeyWriter) -> tuple[pa.Array, Reasons]:
    """Each distinct key is encoded once. A bad one is null, with the reason."""
    column = documents.dictionary_encode()
    encoded: list[bytes | None] = []
    why: dict[int, str] = {}  # by number of the distinct key
    for i, document in enumerate(column.dictionary.to_pylist()):
        try:
            encoded.append(keys.encode(document.encode()))
        except BadRecord as e:
            encoded.append(None)
            why[i] = f"the key {document}: {e}"
    bad: Reasons = {}
    if why:
        numbers = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        bad = {int(row): why[int(numbers[row])] for row in np.flatnonzero(np.isin(numbers, list(why)))}
    return pa.array(encoded, pa.binary()).take(column.indices), bad


class Values:
    """Encodes JSON documents as the values of a source."""

    def __init__(self, source: SourceDef | None, form: FileFormat) -> None:
        self._writer = ValueWriter(source)
        self._fields: Sequence[Field] = source.schema.value if source is not None else ()
        self._is_text = self._writer.as_is and form == "jsonl"  # else times are numbers by now
        self._times = JsonTimes(self._fields)
        self._decoder = Decoder(scan_of(source), source.schema) if source is not None else None

    def encode(self, documents: pa.Array) -> tuple[pa.Array, Reasons]:
        """Values of the source's format; null for those that its columns cannot be read from, and why."""
        if self._writer.as_is:
            return documents, {}
        encoded: list[bytes | None] = []
        bad: Reasons = {}
        for row, document in enumerate(documents.to_pylist()):
            try:
                encoded.append(self._writer.encode(self._writer.retyped(document)))
            except BadRecord as e:
                encoded.append(None)
                bad[row] = self._why(str(e))
        return pa.array(encoded, pa.binary()), bad

    def judge(self, times: pa.Array, keys: pa.Array, values: pa.Array) -> tuple[pa.Array, Reasons]:
        """The values as they can be read, and why some cannot."""
        if self._decoder is None:
            return values, {}
        parts: list[pa.Array] = []
        bad: Reasons = {}
        for start in range(0, len(values), SLICE_ROWS):
            part, found = self._judge(*(c.slice(start, SLICE_ROWS) for c in (times, keys, values)))
            parts.append(part)
            bad |= {start + row: why for row, why in found.items()}
        return pa.concat_arrays(parts) if parts else values, bad

    def _judge(self, times: pa.Array, keys: pa.Array, values: pa.Array) -> tuple[pa.Array, Reasons]:
        if self._is_text and self._decode(*(c.slice(0, SAMPLE_ROWS) for c in (times, keys, values)))[1]:
            values = self._times.replace(values)
        bad = self._decode(times, keys, values)[1]
        if not bad or not self._writer.as_is:
            return values, bad
        rows = np.array(sorted(bad))
        chosen = pa.array(rows)
        again = pa.array([self._writer.retyped(d) for d in values.take(chosen).to_pylist()], pa.binary())
        still = self._decode(times.take(chosen), keys.take(chosen), again)[1]
        mask = np.zeros(len(values), bool)
        mask[rows] = True
        return pc.replace_with_mask(values, pa.array(mask), again), {int(rows[i]): why for i, why in still.items()}

    def rows(self, times: pa.Array, keys: pa.Array, values: pa.Array) -> Batch | None:
        """The rows that queries read of good records; None without a source."""
        return self._decode(times, keys, values)[0] if self._decoder is not None else None

    def _decode(self, times: pa.Array, keys: pa.Array, values: pa.Array) -> tuple[Batch, Reasons]:
        assert self._decoder is not None
        n = len(values)
        columns = [pa.array(np.arange(n)), times, keys, values, pa.nulls(n, HEADERS_TYPE)]
        records = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
        run = MicroBatchContext(NO_STATE)
        batch = self._decoder.decode(RawBatch(TopicPartition(self._decoder.scan.topic, 0), records, n, 0), run)
        return batch, {d.seq: self._why(d.message) for d in reversed(run.dead_letters)}

    def _why(self, message: str) -> str:
        """With how the column named in it is written."""
        name, colon, _ = message.partition(": ")
        kind = next((f.type.kind for f in self._fields if f.name == name), None)
        return f"{message} ({FORMS[kind]})" if colon and kind in FORMS else message

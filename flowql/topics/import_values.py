"""Keys and values of imported records in the bytes their source declares, and which records it cannot read.

Values are judged by the decoder that queries read the source with: what it would make a dead letter is a bad record here. Texts that
stand for values of other types (ISO times, spellings of NULL) are turned into these first.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.topology import SourceDef, scan_of
from flowql.compiler.plan.types import STRING, Kind
from flowql.runtime.batch import Batch
from flowql.runtime.errors import BadRecord
from flowql.runtime.log.base import HEADERS_TYPE, RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.decode import Decoder
from flowql.runtime.operators.json_scan import JsonScan, Located
from flowql.topics.codecs import KeyWriter, ValueWriter
from flowql.topics.import_job import FileFormat
from flowql.topics.typed_texts import FORMS, json_sql

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


# ISO dates and times in flat JSON lines, replaced by the numbers that the JSON format reads; the rest of a line stays as it is.
#
# Lines of one shape are done together (`flowql.runtime.operators.json_scan`). Lines that have none are left to `typed_texts.retyped_document`.

_TIMES = (Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS)
ROWS_MIN = 256  # fewer are done one by one


class JsonTimes:
    """Replaces texts of the columns that are dates or times. `database`: of this object alone, in UTC."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = [f for f in fields if f.type.kind in _TIMES]
        self._scan = JsonScan([f.name for f in self._fields], [STRING] * len(self._fields))
        self._database: duckdb.DuckDBPyConnection | None = None

    def replace(self, values: pa.Array) -> pa.Array:
        """The lines with numbers in place of the texts that are times."""
        if not self._fields or len(values) < ROWS_MIN:
            return values
        for rows, columns, located in self._scan.by_shape(values):
            texts = [
                (place, column, field)
                for place, column, field in zip(located.places, columns, self._fields, strict=True)
                if place is not None and located.shape.texts[place]
            ]
            if texts and len(rows):
                replaced = self._replaced(located, sorted(texts, key=lambda t: t[0]))
                mask = np.zeros(len(values), bool)
                mask[rows] = True
                values = pc.replace_with_mask(values, pa.array(mask), replaced)
        return values

    def _replaced(self, located: Located, texts: Sequence[tuple[int, pa.Array, Field]]) -> pa.Array:
        """Lines of one shape: what is between the texts as it stands, and numbers (or the texts again) between."""
        last = len(located.shape.literals) - 1
        numbers = [0, *(b for place, _, _ in texts for b in (2 * place + 1, 2 * place + 2)), 2 * last + 1]
        borders = located.borders(numbers)
        borders[:, 1:-1:2] -= 1  # with the quote before the text
        borders[:, 2:-1:2] += 1  # and the one behind it
        width = borders.shape[1]
        offsets = np.append(borders, borders[-1, -1]).astype(np.int32)
        pieces = pa.Array.from_buffers(pa.binary(), borders.size, [None, pa.py_buffer(offsets), located.buffer])
        parts: list[pa.Array] = []
        for i, (_, column, field) in enumerate(texts):
            parts += [_every(pieces, 2 * i, width, len(borders)), self._numbers(column, field)]
        parts.append(_every(pieces, width - 2, width, len(borders)))
        return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))

    def _numbers(self, column: pa.Array, field: Field) -> pa.Array:
        if self._database is None:
            self._database = duckdb.connect(config={"threads": "1"})
            self._database.execute("SET TimeZone = 'UTC'")
        self._database.register("texts", pa.table({"c": column}))
        sql = f"SELECT encode(coalesce({json_sql('c', field.type)}, 'null')) AS n FROM texts"
        return self._database.sql(sql).to_arrow_table().column("n").combine_chunks().cast(pa.binary())


def _every(pieces: pa.Array, first: int, step: int, rows: int) -> pa.Array:
    return pieces.take(pa.array(np.arange(first, first + step * rows, step)))

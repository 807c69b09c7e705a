"""The bytes of one batch of records as numpy sees them: where each record lies, and eight bytes from any place as one number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowql.runtime.operators.json_scalars import Bools, Spans, Words, text_column

PAD = 32  # bytes before the data, so that reading whole words that end there stays inside


class RecordBytes:
    """`values`: non-null binary values with 32-bit offsets. Record i lies in [starts[i], ends[i]) of `text`.

    bytes: the text as numbers; words: eight bytes from any place, little-endian, as one. The text goes on after the last record
    for longer than any record is, so that one may look in each for what another has.
    """

    def __init__(self, values: pa.Array) -> None:
        self.rows = len(values)
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + self.rows + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        self.data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[first:last]
        bounds = offsets.astype(np.int64) + (PAD - first)
        self.starts, self.ends = bounds[:-1], bounds[1:]
        longest = int((self.ends - self.starts).max()) if self.rows else 0
        self.text = b"".join((bytes(PAD), self.data.data, bytes(PAD + longest)))
        self.bytes = np.frombuffer(self.text, np.uint8)
        self.buffer = pa.py_buffer(self.text)
        self.words: Words = np.ndarray(len(self.bytes) - 7, np.dtype("<u8"), self.bytes, 0, (1,))
        self._odd: npt.NDArray[np.int64] | None = None

    def texts(self, span: Spans) -> pa.Array:
        """The bytes of each span as a STRING column; they need not be text."""
        return text_column(self.words, self.buffer, span)

    def are_texts(self, span: Spans) -> Bools:
        """Which spans are UTF-8; all of those that are not ASCII are judged together."""
        good = self._ascii(span)
        rows = np.flatnonzero(~good)
        if len(rows):
            some = self.texts(Spans(span.start[rows], span.end[rows]))
            try:
                as_bytes(some).cast(pa.string())
                good[rows] = True
            except pa.ArrowInvalid:
                pass
        return good

    def _ascii(self, span: Spans) -> Bools:
        if self._odd is None:
            self._odd = np.zeros(len(self.bytes) + 1, np.int64)
            np.cumsum(self.bytes >= 0x80, out=self._odd[1:])
        found: Bools = self._odd[span.end] == self._odd[span.start]
        return found


def as_bytes(texts: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), len(texts), texts.buffers(), offset=texts.offset)


def nullable(column: pa.Array, present: Bools) -> pa.Array:
    """The column, null in the rows that are not present."""
    if present.all():
        return column
    return pc.if_else(pa.array(present), column, pa.scalar(None, column.type))

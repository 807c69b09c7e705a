"""Values inside JSON records, by column: numbers by arithmetic on eight digits at a time, texts as views.

Every function takes the places of one value per row and says for which rows its result is exactly what
`flowql.runtime.serde.json` gives; the others are declined.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.functions.numeric import INT_MAX, INT_MIN
from flowql.compiler.functions.temporal import DAY_MS
from flowql.compiler.plan.types import Kind, SqlType, arrow_type
from flowql.runtime.batch import Ints

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


Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

_DIGITS_MAX = 18  # more could overflow 64 bits
# JSON numbers that are surely finite doubles: the reference's parser refuses others, even in fields that are not read.
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?$"
_MINUS, _ZERO, _BYTE = np.uint64(45), np.uint64(48), np.uint64(0xFF)
_ZEROS = np.uint64(0x3030303030303030)
_HIGH = np.uint64(0xF0F0F0F0F0F0F0F0)
_SIX = np.uint64(0x0606060606060606)  # '9' + 6 is the last with the high bits of a digit
# _KEEP[k] keeps the k bytes that come last in memory; _HEAD[k] the k that come first.
_KEEP = np.array([0] + [(2**64 - 1) ^ ((1 << 8 * (8 - k)) - 1) for k in range(1, 9)], np.uint64)
_HEAD = np.array([(1 << 8 * k) - 1 for k in range(9)], np.uint64)
_NULL, _TRUE, _FALS = (int.from_bytes(t, "little") for t in (b"null", b"true", b"fals"))
_LOW32 = np.uint64(0xFFFFFFFF)
_WORD = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Spans:
    """Places of one value per row: [start, end) in the scanned bytes."""

    start: Ints
    end: Ints


@dataclass(frozen=True, slots=True)
class Scalars:
    """Unquoted values: their places, and what stands there. All arrays have one shape, of any number of dimensions.

    head: the first eight bytes of each, and what follows where it is shorter; low: the last eight, and what precedes; high: the
    eight before those.
    """

    words: Words
    start: Ints
    end: Ints
    head: Words
    low: Words
    high: Words

    @classmethod
    def read(cls, words: Words, span: Spans) -> Scalars:
        """One value per row."""
        return cls(words, span.start, span.end, words[span.start], words[span.end - 8], words[span.end - 16])

    def __getitem__(self, i: int) -> Scalars:
        parts = (self.start, self.end, self.head, self.low, self.high)
        return Scalars(self.words, *(a[i] for a in parts))


@dataclass(frozen=True, slots=True)
class Whole:
    """Values as whole numbers, and which are ones of up to 18 digits."""

    value: Ints
    good: Bools

    def __getitem__(self, i: int) -> Whole:
        return Whole(self.value[i], self.good[i])


def integers(values: Scalars) -> Whole:
    first = values.head & _BYTE
    negative = first == _MINUS
    signed = bool(negative.any())
    length = values.end - values.start
    if signed:
        length -= negative
        first = np.where(negative, (values.head >> np.uint64(8)) & _BYTE, first)
    good = (length > 0) & (length <= _DIGITS_MAX)
    good &= (first != _ZERO) | (length == 1)
    longest = int(length.max()) if length.size else 0
    np.clip(length, 1, _DIGITS_MAX, out=length)
    value, digits = _eight(values.low, np.minimum(length, 8))
    good &= digits
    if longest > 8:
        more, digits = _eight(values.high, np.clip(length - 8, 0, 8))
        value += more * 10**8
        good &= digits
    if longest > 16:
        more, digits = _eight(values.words[values.end - 24], np.clip(length - 16, 0, 8))
        value += more * 10**16
        good &= digits
    return Whole(np.where(negative, -value, value) if signed else value, good)


def _eight(x: Words, count: Ints) -> tuple[Ints, Bools]:
    """The numbers in the last `count` of eight bytes each; False where one of them is no digit."""
    keep = _KEEP[count]
    x = x & keep
    np.invert(keep, out=keep)
    keep &= _ZEROS
    x |= keep
    digits = ((x + _SIX) & x & _HIGH) == _ZEROS
    x -= _ZEROS
    x = x * np.uint64(10) + (x >> np.uint64(8))
    low = x & np.uint64(0x000000FF000000FF)
    x >>= np.uint64(16)
    x &= np.uint64(0x000000FF000000FF)
    low *= np.uint64(0x000F424000000064)
    x *= np.uint64(0x0000271000000001)
    low += x
    low >>= np.uint64(32)
    return low.view(np.int64), digits


def is_null(values: Scalars) -> Bools:
    return (values.end - values.start == 4) & ((values.head & _LOW32) == np.uint64(_NULL))


def _booleans(values: Scalars) -> tuple[Bools, Bools]:
    """(value, is a boolean)"""
    length = values.end - values.start
    true = (length == 4) & ((values.head & _LOW32) == np.uint64(_TRUE))
    false = (length == 5) & ((values.head & np.uint64(0xFFFFFFFFFF)) == np.uint64(_FALS | ord("e") << 32))
    return true, true | false


def is_scalar(values: Scalars, whole: Whole) -> Bools:
    """Whether a value of a field that is not read is valid JSON."""
    if whole.good.all():
        return whole.good
    good = whole.good | is_null(values) | _booleans(values)[1]
    rest = np.flatnonzero(~good)
    if len(rest):
        texts = _texts(values.words, Spans(values.start[rest], values.end[rest]))
        good[rest] = pc.match_substring_regex(texts, _NUMBER).to_numpy(zero_copy_only=False)
    return good


def column(values: Scalars, whole: Whole, t: SqlType) -> tuple[pa.Array, Bools]:
    """Values of one per row as a column of `t`, and the rows it is true for. whole: what `integers` says of them."""
    n = len(values.start)
    if t.kind is Kind.STRING:  # the text of a number is the reference's business
        return pa.nulls(n, pa.string()), is_null(values)
    if t.kind is Kind.BOOLEAN:
        return _nullable(values, *_booleans(values), pa.bool_())
    if t.kind is Kind.DECIMAL:
        return _decimals(values, t)
    if t.kind is Kind.DOUBLE:
        return _doubles(values, whole)
    number, good = whole.value, whole.good
    if t.kind in (Kind.INT, Kind.DATE):
        good = good & (number >= INT_MIN) & (number <= INT_MAX)
    elif t.kind is Kind.TIME:
        good = good & (number >= 0) & (number < DAY_MS)
    storage = dict.fromkeys((Kind.BIGINT, Kind.TIMESTAMP, Kind.MICROS), np.int64).get(t.kind, np.int32)
    array, good = _nullable(values, number if storage is np.int64 else number.astype(np.int32), good, None)
    return array if t.kind in (Kind.INT, Kind.BIGINT) else array.view(arrow_type(t)), good


def _nullable(
    values: Scalars, read: npt.NDArray[np.generic], good: Bools, t: pa.DataType | None
) -> tuple[pa.Array, Bools]:
    """The read values as an array in which rows with `null` are null and good."""
    if good.all():
        return pa.array(read, t), good
    return pa.array(read, t, mask=~good), good | is_null(values)


def _doubles(values: Scalars, whole: Whole) -> tuple[pa.Array, Bools]:
    value, good = whole.value.astype(np.float64), whole.good
    rest = np.flatnonzero(~good)
    if len(rest):
        texts = _texts(values.words, Spans(values.start[rest], values.end[rest]))
        number = pc.match_substring_regex(texts, _NUMBER)
        parsed = pc.if_else(number, texts, "0").cast(pa.float64()).to_numpy(zero_copy_only=False)
        value[rest] = parsed
        good = good.copy()
        good[rest] = number.to_numpy(zero_copy_only=False)
    return _nullable(values, value, good, None)


def _decimals(values: Scalars, t: SqlType) -> tuple[pa.Array, Bools]:
    """Decimals whose text has no more digits than the type, so that no rounding is needed."""
    texts = _texts(values.words, Spans(values.start, values.end))
    left = t.precision - t.scale
    before = f"(0|[1-9][0-9]{{0,{left - 1}}})" if left else "0"
    after = rf"(\.[0-9]{{1,{t.scale}}})?" if t.scale else ""
    fits = pc.match_substring_regex(texts, f"^-?{before}{after}$")
    good = fits.to_numpy(zero_copy_only=False)
    array = pc.if_else(fits, texts, "0").cast(arrow_type(t))
    null = is_null(values)
    return pc.if_else(pa.array(null), pa.scalar(None, arrow_type(t)), array), good | null


def _texts(words: Words, span: Spans) -> pa.Array:
    """Short texts as an Arrow string column; those longer than 40 bytes come out as empty."""
    length = span.end - span.start
    short = np.where((length > 0) & (length <= 40), length, 0)
    width = max(8, -(-int(short.max() if len(short) else 0) // 8) * 8)
    grid = np.empty((len(length), width // 8), np.uint64)
    for k in range(width // 8):
        grid[:, k] = words[np.minimum(span.start + 8 * k, len(words) - 1)]
    flat = grid.view(np.uint8).reshape(len(length), width)
    data = flat[np.arange(width) < short[:, None]]
    offsets = np.zeros(len(length) + 1, np.int32)
    np.cumsum(short, out=offsets[1:])
    return pa.StringArray.from_buffers(len(length), pa.py_buffer(offsets), pa.py_buffer(data))


def text_column(words: Words, buffer: pa.Buffer, span: Spans) -> pa.Array:
    """The texts at the places."""
    last = len(words) - 1
    return text_views(words[span.start], words[np.minimum(span.start + 8, last)], buffer, span, views=False)


def text_views(head: Words, after: Words, buffer: pa.Buffer, span: Spans, *, views: bool) -> pa.Array:
    """Texts as string_view (16 bytes each: length, then the text itself if at most 12 bytes, else its first four and its place).

    head, after: the first eight bytes from each start, and the eight after those.
    """
    n = len(span.start)
    length = np.maximum(span.end - span.start, 0)
    layout = np.empty((n, 2), np.uint64)
    first = head & _HEAD[np.minimum(length, 8)]
    layout[:, 0] = length.astype(np.uint64) | (first << _WORD)
    place = span.start.astype(np.uint64) << _WORD
    short = length <= 12
    if short.any():
        tail = ((head >> _WORD) | (after << _WORD)) & _HEAD[np.clip(length - 4, 0, 8)]
        layout[:, 1] = np.where(short, tail, place)
    else:
        layout[:, 1] = place
    array = pa.Array.from_buffers(pa.string_view(), n, [None, pa.py_buffer(layout), buffer])
    return array if views else array.cast(pa.string())


def plain(column: pa.Array) -> pa.Array:
    """The column with views copied together: Arrow has few functions over views."""
    return column.cast(pa.string()) if column.type == pa.string_view() else column


def take(column: pa.Array, indices: pa.Array) -> pa.Array:
    return plain(column).take(indices)

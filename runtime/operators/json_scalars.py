"""Values inside JSON records, by column: numbers by arithmetic on eight digits at a time, texts as views.

Every function takes the places of one value per row and says for which rows its result is exactly what
`runtime.serde.json` gives; the others are declined.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from compiler.functions.numeric import INT_MAX, INT_MIN
from compiler.functions.temporal import DAY_MS
from compiler.plan.types import Kind, SqlType, arrow_type
from runtime.batch import Ints

Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

_DIGITS_MAX = 18  # more could overflow 64 bits
# JSON numbers that are surely finite doubles: the reference's parser refuses others, even where nobody reads them.
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?$"
_MINUS, _ZERO = 45, 48
_ZEROS = np.uint64(0x3030303030303030)
_HIGH = np.uint64(0xF0F0F0F0F0F0F0F0)
# _KEEP[k] keeps the k bytes that come last in memory; _HEAD[k] the k that come first.
_KEEP = np.array([0] + [(2**64 - 1) ^ ((1 << 8 * (8 - k)) - 1) for k in range(1, 9)], np.uint64)
_HEAD = np.array([(1 << 8 * k) - 1 for k in range(9)], np.uint64)
_NULL, _TRUE, _FALS = (int.from_bytes(t, "little") for t in (b"null", b"true", b"fals"))
_LOW32 = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Spans:
    """Places of one value per row: [start, end) in the scanned bytes."""

    start: Ints
    end: Ints


def integers(words: Words, span: Spans) -> tuple[Ints, Bools]:
    """Whole numbers of up to 18 digits, and which rows have one."""
    first = (words[span.start] & np.uint64(0xFF)).astype(np.int64)
    negative = first == _MINUS
    if negative.any():
        start = span.start + negative
        first = (words[start] & np.uint64(0xFF)).astype(np.int64)
    else:
        start = span.start
    length = span.end - start
    good = (length > 0) & (length <= _DIGITS_MAX)
    good &= (first != _ZERO) | (length == 1)
    length = np.clip(length, 1, _DIGITS_MAX)
    value, digits = _eight(words, span.end - 8, np.minimum(length, 8))
    good &= digits
    longest = int(length.max()) if len(length) else 0
    scale = 100_000_000
    for done in range(8, longest, 8):
        more, digits = _eight(words, span.end - (done + 8), np.clip(length - done, 0, 8))
        value += more * scale
        good &= digits
        scale *= 100_000_000
    if negative.any():
        value = np.where(negative, -value, value)
    return value, good


def _eight(words: Words, at: Ints, count: Ints) -> tuple[Ints, Bools]:
    """The number in the last `count` of the eight bytes from `at`; False where one of them is no digit."""
    keep = _KEEP[count]
    x = words[at]
    x &= keep
    x |= _ZEROS & ~keep
    digits = ((x & _HIGH) == _ZEROS) & (((x + np.uint64(0x0606060606060606)) & _HIGH) == _ZEROS)
    x -= _ZEROS
    x = x * np.uint64(10) + (x >> np.uint64(8))
    low = x & np.uint64(0x000000FF000000FF)
    high = (x >> np.uint64(16)) & np.uint64(0x000000FF000000FF)
    low *= np.uint64(0x000F424000000064)
    high *= np.uint64(0x0000271000000001)
    low += high
    low >>= np.uint64(32)
    return low.view(np.int64), digits


def is_null(words: Words, span: Spans) -> Bools:
    return (span.end - span.start == 4) & ((words[span.start] & _LOW32) == np.uint64(_NULL))


def _booleans(words: Words, span: Spans) -> tuple[Bools, Bools]:
    """(value, is a boolean)"""
    length = span.end - span.start
    head = words[span.start]
    true = (length == 4) & ((head & _LOW32) == np.uint64(_TRUE))
    false = (length == 5) & ((head & np.uint64(0xFFFFFFFFFF)) == np.uint64(_FALS | ord("e") << 32))
    return true, true | false


def is_scalar(words: Words, span: Spans) -> Bools:
    """Whether a value that nobody reads is valid JSON."""
    _, good = integers(words, span)
    if good.all():
        return good
    good |= is_null(words, span) | _booleans(words, span)[1]
    return _by_text(words, span, good, _NUMBER)


def _by_text(words: Words, span: Spans, good: Bools, pattern: str) -> Bools:
    """`good`, or the text matches."""
    rest = np.flatnonzero(~good)
    if len(rest):
        texts = _texts(words, Spans(span.start[rest], span.end[rest]))
        good[rest] = pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
    return good


def column(words: Words, buffer: pa.Buffer, span: Spans, t: SqlType) -> tuple[pa.Array, Bools]:
    """Unquoted values as a column of `t`, and the rows it is true for."""
    n = len(span.start)
    if t.kind is Kind.STRING:  # the text of a number is the reference's business
        return pa.nulls(n, pa.string()), is_null(words, span)
    if t.kind is Kind.BOOLEAN:
        value, good = _booleans(words, span)
        return _nullable(words, span, value, good, pa.bool_())
    if t.kind is Kind.DECIMAL:
        return _decimals(words, span, t)
    if t.kind is Kind.DOUBLE:
        return _doubles(words, span)
    whole, good = integers(words, span)
    if t.kind in (Kind.INT, Kind.DATE):
        good &= (whole >= INT_MIN) & (whole <= INT_MAX)
    elif t.kind is Kind.TIME:
        good &= (whole >= 0) & (whole < DAY_MS)
    storage = {Kind.BIGINT: np.int64, Kind.TIMESTAMP: np.int64}.get(t.kind, np.int32)
    array, good = _nullable(words, span, whole if storage is np.int64 else whole.astype(np.int32), good, None)
    return array if t.kind in (Kind.INT, Kind.BIGINT) else array.view(arrow_type(t)), good


def _nullable(
    words: Words, span: Spans, value: npt.NDArray[np.generic], good: Bools, t: pa.DataType | None
) -> tuple[pa.Array, Bools]:
    """The values as an array in which rows with `null` are null and good."""
    if good.all():
        return pa.array(value, t), good
    null = is_null(words, span)
    return pa.array(value, t, mask=~good), good | null


def _doubles(words: Words, span: Spans) -> tuple[pa.Array, Bools]:
    whole, good = integers(words, span)
    value = whole.astype(np.float64)
    rest = np.flatnonzero(~good)
    if len(rest):
        texts = _texts(words, Spans(span.start[rest], span.end[rest]))
        number = pc.match_substring_regex(texts, _NUMBER)
        parsed = pc.if_else(number, texts, "0").cast(pa.float64()).to_numpy(zero_copy_only=False)
        value[rest] = parsed
        good[rest] = number.to_numpy(zero_copy_only=False)
    return _nullable(words, span, value, good, None)


def _decimals(words: Words, span: Spans, t: SqlType) -> tuple[pa.Array, Bools]:
    """Decimals whose text has no more digits than the type, so that no rounding is needed."""
    texts = _texts(words, span)
    left = t.precision - t.scale
    before = f"(0|[1-9][0-9]{{0,{left - 1}}})" if left else "0"
    after = rf"(\.[0-9]{{1,{t.scale}}})?" if t.scale else ""
    fits = pc.match_substring_regex(texts, f"^-?{before}{after}$")
    good = fits.to_numpy(zero_copy_only=False)
    array = pc.if_else(fits, texts, "0").cast(arrow_type(t))
    null = is_null(words, span)
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


def text_column(words: Words, buffer: pa.Buffer, span: Spans, *, views: bool) -> pa.Array:
    """Texts as string_view (16 bytes each: length, then the text itself if at most 12 bytes, else head and place)."""
    n = len(span.start)
    length = np.maximum(span.end - span.start, 0)
    layout = np.empty((n, 2), np.uint64)
    head = words[span.start]
    short = length <= 12
    kept = np.minimum(length, 8)
    head = head & _HEAD[kept]
    layout[:, 0] = length.astype(np.uint64) | (head << np.uint64(32))
    place = span.start.astype(np.uint64) << np.uint64(32)
    if short.any():
        tail = words[np.minimum(span.start + 4, len(words) - 1)] & _HEAD[np.clip(length - 4, 0, 8)]
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

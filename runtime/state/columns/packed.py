"""Many encoded keys in one array: what a batch looks up, and what an index keeps.

A key's bytes (`flowql.runtime.state.keys`) stand in 64-bit words, the first byte in the highest place, the last word filled with zeros. So words are
compared and hashed by whole columns, and their order is that of the bytes. Encoded keys are never the beginning of another one, so a
filled word is not taken for a longer key; the lengths are compared all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowql.compiler.plan.types import Kind, SqlType, arrow_type
from flowql.runtime.batch import TEMPORAL, Ints
from flowql.runtime.state.keys import KeyCodec

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
_MASK = (1 << 64) - 1
_ODD_INT, _MIX_INT = 0x9E3779B97F4A7C15, 0xFF51AFD7ED558CCD
_ODD, _MIX = np.uint64(_ODD_INT), np.uint64(_MIX_INT)
_HALF, _TOP, _BYTE = np.uint64(32), np.uint64(56), np.uint64(8)
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class PackedKeys:
    """words[starts[i]:] begin with key i, which has lengths[i] bytes. Not changed once made."""

    starts: Ints
    lengths: Ints
    words: Words

    def __len__(self) -> int:
        return len(self.lengths)

    def at(self, i: int) -> bytes:
        """The bytes of one key."""
        start, length = int(self.starts[i]), int(self.lengths[i])
        return self.words[start : start + ((length + 7) >> 3)].astype(">u8").tobytes()[:length]

    def take(self, at: Ints) -> PackedKeys:
        """Keys at these places, over the same words."""
        return PackedKeys(self.starts[at], self.lengths[at], self.words)

    def between(self, start: int, end: int) -> PackedKeys:
        """Keys start, start + 1, ... before end, over the same arrays."""
        return PackedKeys(self.starts[start:end], self.lengths[start:end], self.words)

    def part(self, begin: int, end: int) -> PackedKeys:
        """As `between`, of keys that lie one behind the other: with no words of others."""
        if begin >= end:
            return PackedKeys(self.starts[:0], self.lengths[:0], self.words[:0])
        first, last = int(self.starts[begin]), int(self.starts[end - 1])
        words = self.words[first : last + ((int(self.lengths[end - 1]) + 7) >> 3)]
        return PackedKeys(self.starts[begin:end] - first, self.lengths[begin:end], words)

    def compact(self) -> PackedKeys:
        """The same keys, one behind the other, with no words of others."""
        counts = word_counts(self.lengths)
        return PackedKeys(ends_of(counts)[:-1], self.lengths, self.words[spread(self.starts, counts)])

    def columns(self) -> list[Words]:
        """Word 0 of each key, word 1, and so on; 0 behind the last one."""
        counts = word_counts(self.lengths)
        most, least = (int(counts.max()), int(counts.min())) if len(counts) else (0, 0)
        found = [self.words[self.starts + j] for j in range(least)]
        for j in range(least, most):
            column = np.zeros(len(counts), np.uint64)
            has = np.flatnonzero(counts > j)
            column[has] = self.words[self.starts[has] + j]
            found.append(column)
        return found

    def hashes(self) -> Words:
        """64 bits of which each depends on all bytes: keys that follow each other differ in few."""
        h = self.lengths.astype(np.uint64) * _ODD
        counts = word_counts(self.lengths)
        most, least = (int(counts.max()), int(counts.min())) if len(counts) else (0, 0)
        for j in range(least):
            h = _mixed(h, self.words[self.starts + j])
        for j in range(least, most):  # a key's hash does not depend on how long others are
            has = np.flatnonzero(counts > j)
            h[has] = _mixed(h[has], self.words[self.starts[has] + j])
        return h

    def order(self) -> Ints:
        """Places of the keys in the order of their bytes."""
        columns = self.columns()
        if len(columns) == 2 and self.lengths.max() <= 9 and np.ptp(columns[0] >> _TOP) == 0:  # one number or time
            columns = [(columns[0] << _BYTE) | (columns[1] >> _TOP)]
        if len(columns) == 1:
            return np.argsort(columns[0], kind="stable")
        return np.lexsort(columns[::-1]) if columns else np.arange(len(self))

    def numbered(self) -> tuple[Ints, Ints]:
        """A number from 0 for each key, the same for keys that are alike, in the order of their bytes; and for each number a place of its key."""
        order = self.order()
        ordered = self.take(order)
        other = ~same(ordered.between(0, len(self) - 1), ordered.between(1, len(self)))
        numbers = np.empty(len(self), np.int64)
        numbers[order] = np.cumsum(np.append(0, other))
        return numbers, order[np.flatnonzero(np.append(True, other))]

    def last_of_each(self) -> Ints:
        """Places of different keys in the order of their bytes, of each that where it comes last."""
        order = self.order()
        ordered = self.take(order)
        following = same(ordered.between(0, len(self) - 1), ordered.between(1, len(self)))
        return order[np.append(~following, True)] if len(self) else order

    def last_times(self) -> Ints:
        """The times in the last 8 bytes of keys that have them (`flowql.runtime.state.keys.decode_time`)."""
        last = self.starts + word_counts(self.lengths) - 1
        rest = (self.lengths & 7).astype(np.uint64) * np.uint64(8)  # bits of the key in its last word, 0 for all
        inner = (np.uint64(64) - rest) & np.uint64(63)
        before = self.words[np.maximum(last - 1, 0)]
        whole = self.words[last]
        time = np.where(rest == 0, whole, (before << rest) | (whole >> inner))
        return (time ^ _SIGN).view(np.int64)

    def to_bytes(self) -> list[bytes]:
        packed = self.compact()
        data = packed.words.astype(">u8").tobytes()
        starts = packed.starts * 8
        return [data[a:b] for a, b in zip(starts.tolist(), (starts + packed.lengths).tolist(), strict=True)]


def _mixed(h: Words, word: Words) -> Words:
    h = h ^ word
    h ^= h >> _HALF
    h *= _MIX
    h ^= h >> _HALF
    h *= _ODD
    h ^= h >> _HALF
    return h


def hash_of(key: bytes) -> int:
    """The same as `PackedKeys.hashes` of one encoded key: for few keys, each call of NumPy costs more than the hash."""
    h = len(key) * _ODD_INT & _MASK
    for at in range(0, len(key), 8):
        h ^= int.from_bytes(key[at : at + 8].ljust(8, b"\0"), "big")
        h ^= h >> 32
        h = h * _MIX_INT & _MASK
        h ^= h >> 32
        h = h * _ODD_INT & _MASK
        h ^= h >> 32
    return h


def same(a: PackedKeys, b: PackedKeys) -> Flags:
    """Whether key i of one is key i of the other."""
    equal = a.lengths == b.lengths
    counts = word_counts(np.minimum(a.lengths, b.lengths))
    most, least = (int(counts.max()), int(counts.min())) if len(counts) else (0, 0)
    for j in range(least):
        equal &= a.words[a.starts + j] == b.words[b.starts + j]
    for j in range(least, most):
        at = np.flatnonzero(counts > j)
        equal[at] &= a.words[a.starts[at] + j] == b.words[b.starts[at] + j]
    return equal


def joined(parts: Sequence[PackedKeys]) -> PackedKeys:
    """Keys of several, one after the other."""
    if len(parts) == 1:
        return parts[0]
    begins = ends_of(np.array([len(p.words) for p in parts], np.int64))[:-1].tolist()
    starts = [p.starts + begin for p, begin in zip(parts, begins, strict=True)]
    lengths = np.concatenate([p.lengths for p in parts])
    return PackedKeys(np.concatenate(starts), lengths, np.concatenate([p.words for p in parts]))


def pack(keys: Sequence[bytes]) -> PackedKeys:
    """Encoded keys given one by one."""
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    return pack_bytes(np.frombuffer(b"".join(keys), np.uint8), lengths)


def pack_bytes(data: Bytes, lengths: Ints) -> PackedKeys:
    """Encoded keys that lie one behind the other."""
    counts = word_counts(lengths)
    ends = ends_of(counts)
    filled = np.zeros(int(ends[-1]) * 8, np.uint8)
    filled[spread(ends[:-1] * 8, lengths)] = data
    return PackedKeys(ends[:-1], lengths, filled.view(">u8").astype(np.uint64))


def pack_rows(rows: Bytes) -> PackedKeys:
    """Encoded keys of the same length: an array of n rows with a byte per column."""
    n, length = rows.shape
    width = -(-length // 8)
    filled = np.zeros((n, width * 8), np.uint8)
    filled[:, :length] = rows
    starts = np.arange(n, dtype=np.int64) * width
    return PackedKeys(starts, np.full(n, length, np.int64), filled.reshape(-1).view(">u8").astype(np.uint64))


def word_counts(lengths: Ints) -> Ints:
    return (lengths + 7) >> 3


def ends_of(counts: Ints) -> Ints:
    """0, then where each of these many things ends, if they lie one behind the other."""
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends


def spread(starts: Ints, counts: Ints) -> Ints:
    """start, start + 1, ... for each start, as many as its count says."""
    if not len(starts):
        return np.zeros(0, np.int64)
    first = int(counts[0])
    if (counts == first).all():
        return (starts[:, None] + np.arange(first)).reshape(-1)
    ends = ends_of(counts)
    return np.arange(ends[-1]) + np.repeat(starts - ends[:-1], counts)


NO_SLOT = -1
_PLACES_MIN, _SLOTS_MIN, _WORDS_MIN = 1 << 10, 1 << 9, 1 << 10


class KeyIndex:
    """A hash table with open addressing, at most half full: each round of a search takes all keys that are not found yet one place further.

    Slots 0, 1, ... in the order in which keys were added. For one thread; others may read keys of slots that they know.
    """

    __slots__ = ("_hashes", "_lengths", "_starts", "_table", "_used", "_words", "count")

    def __init__(self) -> None:
        self.count = 0
        self._table = np.full(_PLACES_MIN, NO_SLOT, np.int32)
        self._hashes = np.empty(_SLOTS_MIN, np.uint64)
        self._starts, self._lengths = np.empty(_SLOTS_MIN, np.int64), np.empty(_SLOTS_MIN, np.int64)
        self._words, self._used = np.empty(_WORDS_MIN, np.uint64), 0

    def find(self, keys: PackedKeys, hashes: Words) -> Ints:
        """The slot of each key, NO_SLOT for one that is not here."""
        found = np.full(len(keys), NO_SLOT, np.int64)
        table = (
            self._table
        )  # the task's thread may exchange it for a larger one while the committing thread looks something up
        mask = len(table) - 1
        at = np.arange(len(keys))
        places = (hashes & np.uint64(mask)).astype(np.int64)
        while len(at):
            slots = table[places].astype(np.int64)
            taken = slots != NO_SLOT
            if not taken.all():
                at, places, slots = at[taken], places[taken], slots[taken]
            equal = self._hashes[slots] == hashes[at]
            candidates = np.flatnonzero(equal)
            if len(candidates):
                these = at[candidates]
                equal[candidates] = same(self.keys(slots[candidates]), keys.take(these))
                found[at[equal]] = slots[equal]
            other = ~equal
            at, places = at[other], (places[other] + 1) & mask
        return found

    def add(self, keys: PackedKeys, hashes: Words) -> Ints:
        """New slots for keys that are not here, no two alike."""
        n, first = len(keys), self.count
        counts = word_counts(keys.lengths)
        self._reserve(first + n, self._used + int(counts.sum()))
        slots = np.arange(first, first + n)
        packed = keys.compact()
        self._starts[first : first + n] = packed.starts + self._used
        self._lengths[first : first + n] = packed.lengths
        self._hashes[first : first + n] = hashes
        self._words[self._used : self._used + len(packed.words)] = packed.words
        self._used += len(packed.words)
        self.count = first + n
        _place(self._table, slots, hashes)
        return slots

    def keys(self, slots: Ints) -> PackedKeys:
        return PackedKeys(self._starts[slots], self._lengths[slots], self._words)

    @property
    def capacity(self) -> int:
        """Slots there is room for."""
        return len(self._hashes)

    def _reserve(self, slots: int, words: int) -> None:
        if words > len(self._words):
            self._words = grown(self._words, words, self._used)
        if slots > len(self._hashes):
            self._hashes = grown(self._hashes, slots, self.count)
            self._starts, self._lengths = (
                grown(self._starts, slots, self.count),
                grown(self._lengths, slots, self.count),
            )
        if slots * 2 > len(self._table):
            places = len(self._table)
            while slots * 2 > places:
                places *= 2
            table = np.full(places, NO_SLOT, np.int32)
            _place(table, np.arange(self.count), self._hashes[: self.count])
            self._table = table


def grown(array: npt.NDArray[Any], least: int, used: int) -> npt.NDArray[Any]:
    """A longer array with the same beginning; the rest is not set. The old one stays as it is, for those who read it."""
    longer = np.empty(max(least, 2 * len(array)), array.dtype)
    longer[:used] = array[:used]
    return longer


def _place(table: npt.NDArray[np.int32], slots: Ints, hashes: Words) -> None:
    """Write slots into free places. Where several want the same one, the last has it and the others go on."""
    mask = len(table) - 1
    places = (hashes & np.uint64(mask)).astype(np.int64)
    slots = slots.astype(np.int32)
    while len(slots):
        free = table[places] == NO_SLOT
        table[places[free]] = slots[free]
        lost = table[places] != slots
        slots, places = slots[lost], (places[lost] + 1) & mask


_VALUE = 1  # the tag of a part that is not NULL
_INTEGER_BYTES = 9
_ESCAPED = 0xFF  # follows a 0 that is inside of a text
_INTEGERS = frozenset({Kind.INT, Kind.BIGINT, *TEMPORAL})


def packed_keys(codec: KeyCodec, columns: Sequence[pa.Array]) -> PackedKeys:
    """The keys whose parts stand in columns: integers (also for dates and times), texts, and what else Arrow gives as reference values."""
    parts = [_part(c) for c in columns]
    if any(p is None for p in parts):
        return pack(codec.encode_many(list(zip(*(c.to_pylist() for c in columns), strict=True))))
    known = [p for p in parts if p is not None]
    if all(data.ndim == 2 for data, _ in known):
        return pack_rows(np.concatenate([data for data, _ in known], axis=1))
    lengths = np.sum([n for _, n in known], axis=0)
    ends = ends_of(word_counts(lengths))
    filled = np.zeros(int(ends[-1]) * 8, np.uint8)
    at = ends[:-1] * 8
    for data, n in known:
        filled[spread(at, n)] = data.reshape(-1)
        at = at + n
    return PackedKeys(ends[:-1], lengths, filled.view(">u8").astype(np.uint64))


def key_columns(types: Sequence[SqlType], keys: PackedKeys) -> list[pa.Array] | None:
    """The columns of keys with parts of these types, as Arrow has them; None where a part has an inner 0, or is neither integer, time nor text."""
    packed = keys.compact()
    data = np.append(packed.words.astype(">u8").view(np.uint8), np.zeros(_INTEGER_BYTES, np.uint8))
    at, found = packed.starts * 8, list[pa.Array]()
    for t in types:
        null = data[at] != _VALUE  # one byte
        if t.kind in _INTEGERS:
            bits = data[spread(at + 1, np.full(len(at), 8))].view(">u8").astype(np.uint64)
            numbers = pa.array(np.where(null, 0, (bits ^ _SIGN).view(np.int64)), mask=null)
            found.append(numbers.cast(TEMPORAL.get(t.kind, arrow_type(t))).cast(arrow_type(t)))
            at = at + np.where(null, 1, _INTEGER_BYTES)
        elif t.kind in (Kind.STRING, Kind.BYTES):
            zeros = np.flatnonzero(data == 0)
            end = np.where(null, at, zeros[np.searchsorted(zeros, at + 1)])
            if ((data[end + 1] == _ESCAPED) & ~null).any():
                return None
            found.append(_text_column(t, data, np.where(null, at, at + 1), end, null))
            at = end + 1
        else:
            return None
    return found if all(_is_valid(c) for c in found) else None


def _text_column(t: SqlType, data: Bytes, start: Ints, end: Ints, null: Flags) -> pa.Array:
    offsets = ends_of(end - start).astype(np.int32)
    inner = data[spread(start, end - start)]
    known = pa.array(~null).buffers()[1] if null.any() else None
    return pa.Array.from_buffers(arrow_type(t), len(start), [known, pa.py_buffer(offsets), pa.py_buffer(inner)])


def _is_valid(column: pa.Array) -> bool:
    """Texts of rows may have lone surrogates, those of Arrow may not."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _part(column: pa.Array) -> tuple[Bytes, Ints] | None:
    """A part of all keys: its bytes, as rows where all are as long, and their lengths. None for columns with NULLs, and other types."""
    n = len(column)
    if column.null_count:
        return None
    if pa.types.is_signed_integer(column.type):
        numbers = column.to_numpy().astype(np.int64).view(np.uint64) ^ _SIGN
        rows = np.empty((n, _INTEGER_BYTES), np.uint8)
        rows[:, 0] = _VALUE
        rows[:, 1:] = numbers.astype(">u8").view(np.uint8).reshape(n, 8)
        return rows, np.full(n, _INTEGER_BYTES, np.int64)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return _texts(column)
    return None


def _texts(column: pa.Array) -> tuple[Bytes, Ints] | None:
    """None for texts with an inner 0, which is written as two bytes."""
    n = len(column)
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + n + 1].astype(np.int64)
    inner = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    if not inner.all():
        return None
    lengths = np.diff(bounds)
    ends = ends_of(lengths + 2)
    made = np.zeros(int(ends[-1]), np.uint8)
    made[ends[:-1]] = _VALUE
    made[spread(ends[:-1] + 1, lengths)] = inner
    return made, lengths + 2

"""Many encoded keys in one array: what a batch looks up, and what an index keeps.

A key's bytes (`flowql.runtime.state.keys`) stand in 64-bit words, the first byte in the highest place, the last word filled with zeros. So words are
compared and hashed by whole columns, and their order is that of the bytes. Encoded keys are never the beginning of another one, so a
filled word is not taken for a longer key; the lengths are compared all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flowql.runtime.batch import Ints

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

"""Kafka's key hash, so that data keeps its partitions when it moves between the embedded log and Kafka.

murmur2 with Kafka's seed, as `org.apache.kafka.common.utils.Utils.murmur2`; a partition is `toPositive(hash) % n`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
# Rows hashed at once: the working columns stay in the cache. Keys above the length go through the scalar function,
# because the vector loop makes one step per four bytes of the longest key.
_CHUNK_ROWS = 16_384
_VECTOR_KEY_BYTES_MAX = 256


def murmur2(data: bytes) -> int:
    """The hash as Java's signed 32-bit int.

    >>> murmur2(b"foobar")
    -790332482
    """
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length & 3:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def partition_for(key: bytes, n: int) -> int:
    """The partition of a key among n."""
    return (murmur2(key) & 0x7FFFFFFF) % n


def partitions(keys: pa.BinaryArray, n: int, nulls: npt.NDArray[Any] | None = None) -> Ints:
    """The partition of each key among n, as `partition_for`.

    nulls: the partition of each row (one entry per row) to use where the key is null; None: partition 0.
    """
    out = np.empty(len(keys), np.int64)
    if n == 1:
        out[:] = 0
    else:
        _, offsets_buffer, data_buffer = keys.buffers()
        offsets = (
            np.frombuffer(offsets_buffer, np.int32, len(keys) + 1, keys.offset * 4) if len(keys) else np.zeros(1, int)
        )
        data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
        for row in range(0, len(keys), _CHUNK_ROWS):
            chunk = offsets[row : row + _CHUNK_ROWS + 1]
            hashes = _hash_chunk(data, chunk[:-1].astype(np.int64), np.diff(chunk).astype(np.int64))
            out[row : row + len(hashes)] = (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(n)
    if keys.null_count:
        missing = keys.is_null().to_numpy(zero_copy_only=False)
        out[missing] = 0 if nulls is None else np.asarray(nulls)[missing]
    return out


def _hash_chunk(data: npt.NDArray[np.uint8], starts: Ints, lengths: Ints) -> Words:
    longest = int(lengths.max())
    if longest == int(lengths.min()):
        return (
            _hash_sorted(data, starts, lengths, longest)
            if longest <= _VECTOR_KEY_BYTES_MAX
            else _scalar(data, starts, lengths)
        )
    order = np.argsort(-lengths, kind="stable")
    out = np.empty(len(lengths), np.uint32)
    lengths_sorted = -lengths[order]
    long_rows = int(np.searchsorted(lengths_sorted, -_VECTOR_KEY_BYTES_MAX))
    huge, rest = order[:long_rows], order[long_rows:]
    if long_rows:
        out[huge] = _scalar(data, starts[huge], lengths[huge])
    if len(rest):
        out[rest] = _hash_sorted(data, starts[rest], lengths[rest], int(lengths[rest[0]]))
    return out


def _scalar(data: npt.NDArray[np.uint8], starts: Ints, lengths: Ints) -> Words:
    pairs = zip(starts.tolist(), lengths.tolist(), strict=True)
    return np.array([murmur2(data[a : a + n].tobytes()) & _MASK for a, n in pairs], np.uint32)


def _hash_sorted(data: npt.NDArray[np.uint8], starts: Ints, lengths: Ints, longest: int) -> Words:
    """Keys ordered by falling length: word w is hashed for the prefix of keys that have it."""
    m = np.uint32(_M)
    h = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    if longest >= 4:
        words = np.ndarray((len(data) - 3,), np.dtype("<u4"), data, strides=(1,))  # every unaligned word
        equal = longest == int(lengths[-1])
        words_per_key = None if equal else -(lengths >> 2)
        for w in range(longest >> 2):
            rows = len(h) if words_per_key is None else int(np.searchsorted(words_per_key, -w, side="left"))
            if equal and int(starts[-1]) - int(starts[0]) == (len(starts) - 1) * longest:
                first = int(starts[0]) + 4 * w  # keys lie one after the other: a strided view, no gather
                k = words[first : first + (rows - 1) * longest + 1 : longest] * m
            else:
                k = words[starts[:rows] + 4 * w] * m
            k ^= k >> np.uint32(24)
            k *= m
            head = h[:rows]
            head *= m
            head ^= k
    if longest & 3 or longest != int(lengths[-1]):
        _hash_tails(data, starts, lengths, h)
    h ^= h >> np.uint32(13)
    h *= m
    h ^= h >> np.uint32(15)
    return h


def _hash_tails(data: npt.NDArray[np.uint8], starts: Ints, lengths: Ints, h: Words) -> None:
    tail = lengths & 3
    ends = starts + (lengths & ~3)
    for byte in (2, 1, 0):
        rows = np.flatnonzero(tail > byte)
        h[rows] ^= data[ends[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
    rows = np.flatnonzero(tail)
    h[rows] *= np.uint32(_M)

"""Blocks: rows in order of their keys, as one value of the physical store.

count(4) key ends(4 each) value ends(4 each) keys values, little-endian. A value of no bytes says that the row is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from flowql.runtime.batch import Ints
from flowql.runtime.state.columns.packed import ends_of, pack_bytes
from flowql.runtime.state.runs.flat import FlatRows, binary, key_bytes, value_bytes

BLOCK_BYTES = 8_192  # a block has this many bytes, or one row


def encode_blocks(rows: FlatRows) -> tuple[list[bytes], list[bytes]]:
    """The first key of each block, and the blocks."""
    keys, key_ends = key_bytes(rows.keys), ends_of(rows.keys.lengths)
    values, value_ends = value_bytes(rows.values)
    bounds = _bounds(key_ends + value_ends + 8 * np.arange(len(rows) + 1))
    fences, blocks = [], []
    all_keys, all_values = keys.tobytes(), values.tobytes()
    ends_k, ends_v = key_ends.astype("<u4"), value_ends.astype("<u4")
    for a, b in pairwise(bounds):
        first, end = int(key_ends[a]), int(key_ends[b])
        fences.append(all_keys[first : int(key_ends[a + 1])])
        head = (b - a).to_bytes(4, "little")
        of_keys, of_values = ends_k[a + 1 : b + 1] - ends_k[a], ends_v[a + 1 : b + 1] - ends_v[a]
        inner = all_keys[first:end], all_values[int(value_ends[a]) : int(value_ends[b])]
        blocks.append(b"".join((head, of_keys.tobytes(), of_values.tobytes(), *inner)))
    return fences, blocks


def decode_blocks(blocks: Sequence[bytes]) -> FlatRows:
    """The rows of some blocks that follow each other; at least one block."""
    keys, values, key_lengths, value_lengths = [], [], [], []
    for block in blocks:
        n = int.from_bytes(block[:4], "little")
        ends = np.frombuffer(block, "<u4", 2 * n, 4).reshape(2, n)
        split = 4 + 8 * n
        middle = split + int(ends[0, -1])
        keys.append(block[split:middle])
        values.append(block[middle:])
        lengths = np.diff(ends.astype(np.int64), prepend=0)
        key_lengths.append(lengths[0])
        value_lengths.append(lengths[1])
    sizes = np.concatenate(value_lengths)
    packed = pack_bytes(np.frombuffer(b"".join(keys), np.uint8), np.concatenate(key_lengths))
    return FlatRows(packed, binary(np.frombuffer(b"".join(values), np.uint8), sizes, sizes == 0))


def find_in_block(block: bytes, key: bytes) -> bytes | None:
    """The value of a row; None if it is not here, empty if it is deleted."""
    n = int.from_bytes(block[:4], "little")
    ends = memoryview(block)[4 : 4 + 8 * n].cast("I")
    keys = 4 + 8 * n
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if block[keys + (ends[middle - 1] if middle else 0) : keys + ends[middle]] < key:
            low = middle + 1
        else:
            high = middle
    if low == n or block[keys + (ends[low - 1] if low else 0) : keys + ends[low]] != key:
        return None
    values = keys + ends[n - 1]
    return block[values + (ends[n + low - 1] if low else 0) : values + ends[n + low]]


def _bounds(ends: Ints) -> list[int]:
    """0, and where each block ends. ends: bytes up to each row, after a first 0."""
    number = ends[1:] // BLOCK_BYTES
    cuts = np.flatnonzero(np.diff(number)) + 1
    return [0, *cuts.tolist(), len(number)]

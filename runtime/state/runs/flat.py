"""Rows as two columns of bytes, so that no row of a run is a Python object of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowql.runtime.batch import Ints
from flowql.runtime.state.columns.packed import Bytes, PackedKeys, ends_of, joined, pack, spread


@dataclass(frozen=True, slots=True)
class FlatRows:
    """keys: of rows; values: binary, NULL where a row is deleted. Both have one entry per row."""

    keys: PackedKeys
    values: pa.Array

    def __len__(self) -> int:
        return len(self.values)

    @staticmethod
    def of(keys: Sequence[bytes], values: Sequence[bytes | None]) -> FlatRows:
        return FlatRows(pack(keys), pa.array(values, pa.binary()))

    def take(self, at: Ints) -> FlatRows:
        return FlatRows(self.keys.take(at), self.values.take(pa.array(at)))

    def part(self, begin: int, end: int) -> FlatRows:
        """The rows from one place to before another one, of rows whose keys lie one behind the other."""
        return FlatRows(self.keys.part(begin, end), self.values.slice(begin, end - begin))

    def without_deleted(self) -> FlatRows:
        if not self.values.null_count:
            return self
        return self.take(np.flatnonzero(self.values.is_valid().to_numpy(zero_copy_only=False)))

    def lists(self) -> tuple[list[bytes], list[bytes | None]]:
        return self.keys.to_bytes(), self.values.to_pylist()

    def sizes(self) -> Ints:
        """Bytes of key and value of each row."""
        lengths = pc.fill_null(pc.binary_length(self.values), 0).to_numpy().astype(np.int64)
        total: Ints = self.keys.lengths + lengths
        return total


def newest(parts: Sequence[FlatRows]) -> FlatRows:
    """The rows of several, older ones first, in order of their keys. Where several have a key, the last of them counts."""
    rows = parts[0] if len(parts) == 1 else _concatenated(parts)
    at = rows.keys.last_of_each()
    return rows.take(at)


def _concatenated(parts: Sequence[FlatRows]) -> FlatRows:
    return FlatRows(joined([p.keys for p in parts]), pa.concat_arrays([p.values for p in parts]))


def key_bytes(keys: PackedKeys) -> Bytes:
    """The bytes of keys, one behind the other."""
    packed = keys.compact()
    filled = packed.words.astype(">u8").view(np.uint8)
    return filled[spread(packed.starts * 8, packed.lengths)]


def binary(data: Bytes, lengths: Ints, deleted: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """An array of values that lie one behind the other."""
    offsets = ends_of(lengths).astype(np.int32)
    valid = None
    if deleted is not None and deleted.any():
        valid = pa.py_buffer(np.packbits(~deleted, bitorder="little"))
    return pa.Array.from_buffers(
        pa.binary(), len(lengths), [valid, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    )


def value_bytes(values: pa.Array) -> tuple[Bytes, Ints]:
    """The bytes of values, one behind the other, and where each ends, after a first 0."""
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    inner = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    ends: Ints = bounds - bounds[0]
    return inner, ends

"""One run: its parts in the physical store, and what of it is kept in memory.

id(4) partition(2) ff 'f'               the floor: rows of runs with lower keys are gone (`FLOOR`)
id(4) partition(2) ff 'h' run(10)       head: number of rows, bytes, last key
id(4) partition(2) ff 'i' run(10)       the first key of each block
id(4) partition(2) ff 'l' run(10)       filter: which keys may be there
id(4) partition(2) ff 'r' run(10)       where blocks are that are not here, see `flowql.runtime.state.runs.objects`
id(4) partition(2) ff 'z' run(10) n(4)  block

A block is count(4) key ends(4 each) value ends(4 each) keys values, little-endian, with the rows in order of their keys. A value of no bytes
says that the row is deleted.

A run's name has the sequence of the newest commit in it, and how often it was merged, so names rise with their age. Keys of rows
begin with less than ff.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowql.runtime.batch import Ints
from flowql.runtime.errors import StateError
from flowql.runtime.state.columns.packed import Bytes, PackedKeys, Words, ends_of, joined, pack, pack_bytes, spread
from flowql.runtime.state.physical import ByteRange, PhysicalReader
from flowql.runtime.state.runs.objects import RemoteBlocks, RunPlace, Tail, place_from_record


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
    rows = joined_rows(parts)
    at = rows.keys.last_of_each()
    return rows.take(at)


def joined_rows(parts: Sequence[FlatRows]) -> FlatRows:
    """The rows of several, one after the other."""
    parts = [p for p in parts if len(p)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
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


PREFIX_BYTES = 6
AREA = b"\xff"  # where a prefix has its runs
_FLOOR, _HEAD, _FENCES, _FILTER, _PLACE, _BLOCK = b"\xfff", b"\xffh", b"\xffi", b"\xffl", b"\xffr", b"\xffz"
_NAME = PREFIX_BYTES + 2
_BITS, _PROBES = 10, 4  # of a filter, per key: 1.2 % of absent keys are looked for
_OBJECT_BYTES = 48  # of Python's bytes in a list
_LOW_INT = (1 << 32) - 1
_LOW, _HALF, _SEVEN, _THREE = np.uint64(_LOW_INT), np.uint64(32), np.uint64(7), np.uint64(3)

_encode = msgspec.msgpack.Encoder().encode


class Head(NamedTuple):
    """The head of a run, read when runs are listed. size: bytes of keys and values; last: the last key; checksum: crc32 of all blocks, 0 where it is not known."""

    rows: int
    size: int
    last: bytes
    checksum: int = 0


_decode_head = msgspec.msgpack.Decoder(Head).decode
_decode_fences = msgspec.msgpack.Decoder(list[bytes]).decode


class RunGone(StateError):
    """A part of a run is not there any more: another run has taken its place, or it is lost."""

    def __init__(self) -> None:
        super().__init__("a part of the state is missing: start again")


@dataclass(slots=True)
class Run:
    """A run of one prefix. fences and filter are read when they are first needed."""

    prefix: bytes
    name: bytes
    head: Head
    _fences: list[bytes] | None = field(default=None, repr=False)
    _filter: bytes | None = field(default=None, repr=False)
    _remote: RemoteBlocks | None = field(default=None, repr=False)

    def fences(self, reader: PhysicalReader) -> list[bytes]:
        """The first key of each block. RunGone."""
        if self._fences is None:
            self._fences = _decode_fences(_part(reader, self.prefix + _FENCES + self.name))
        return self._fences

    def may_have(self, reader: PhysicalReader, hashes: Words) -> npt.NDArray[np.bool_]:
        """Whether each of these keys can be in it. RunGone."""
        bits = np.frombuffer(self._bits(reader), np.uint8)
        found = np.ones(len(hashes), np.bool_)
        for places in _places(hashes, len(bits) * 8):
            found &= (bits[places >> _THREE] >> (places & _SEVEN).astype(np.uint8)) & 1 == 1
        return found

    def may_have_one(self, reader: PhysicalReader, hashed: int) -> bool:
        """Whether the key with this hash can be in it. RunGone."""
        bits = self._bits(reader)
        place, step, size = hashed & _LOW_INT, hashed >> 32 | 1, len(bits) * 8
        for _ in range(_PROBES):
            at = place % size
            if not bits[at >> 3] >> (at & 7) & 1:
                return False
            place += step
        return True

    @property
    def tables_bytes(self) -> int:
        """Memory of fences and filter, as far as they were read."""
        fences = self._fences or []
        return len(self._filter or b"") + sum(len(f) + _OBJECT_BYTES for f in fences)

    def _bits(self, reader: PhysicalReader) -> bytes:
        if self._filter is None:
            self._filter = _part(reader, self.prefix + _FILTER + self.name)
        return self._filter

    def blocks(self, reader: PhysicalReader, numbers: Sequence[int]) -> list[bytes]:
        """Some blocks, whose numbers rise. RunGone, BlocksAway."""
        found = reader.multi_get([block_key(self.prefix, self.name, n) for n in numbers])
        if None in found:
            remote = self.remote(reader)
            if remote is None:
                raise RunGone
            away = remote.fetch([n for n, block in zip(numbers, found, strict=True) if block is None])
            found = [away[n] if block is None else block for n, block in zip(numbers, found, strict=True)]
        return found  # type: ignore[return-value]

    def is_away(self, reader: PhysicalReader) -> bool:
        """Whether not all blocks are here."""
        return reader.get(self.place_key) is not None

    def remote(self, reader: PhysicalReader) -> RemoteBlocks | None:
        """Blocks that are not here; None if all are here, or the run is gone."""
        if self._remote is None:
            place = reader.get(self.place_key)
            if place is not None:
                self._remote = RemoteBlocks(place_from_record(place))
        return self._remote

    @property
    def head_key(self) -> bytes:
        """The row without which it is no run."""
        return self.prefix + _HEAD + self.name

    @property
    def place_key(self) -> bytes:
        """The row that says where blocks are that are not here."""
        return self.prefix + _PLACE + self.name

    def tables(self) -> list[bytes]:
        """The rows of fences and filter, and `place_key`."""
        return [self.prefix + kind + self.name for kind in (_FENCES, _FILTER, _PLACE)]

    def encoded(self, reader: PhysicalReader) -> tuple[bytes, bytes, bytes]:
        """The rows of head, fences and filter. RunGone."""
        return _part(reader, self.head_key), _part(reader, self.tables()[0]), _part(reader, self.tables()[1])

    def area(self) -> ByteRange:
        """All blocks that are here."""
        return block_range(self.prefix, self.name)

    def block_key(self, number: int) -> bytes:
        return block_key(self.prefix, self.name, number)


def block_key(prefix: bytes, name: bytes, number: int) -> bytes:
    return prefix + _BLOCK + name + number.to_bytes(4, "big")


def block_range(prefix: bytes, name: bytes) -> ByteRange:
    return block_key(prefix, name, 0), block_key(prefix, name, (1 << 32) - 1) + b"\0"


def blocks_area(prefix: bytes) -> ByteRange:
    return prefix + _BLOCK, prefix + _BLOCK + AREA * 11


def floor_key(prefix: bytes) -> bytes:
    return prefix + _FLOOR


def run_name(sequence: int, merges: int = 0) -> bytes:
    return sequence.to_bytes(8, "big") + merges.to_bytes(2, "big")


def sequence_of(name: bytes) -> int:
    """The number in a run's name."""
    return int.from_bytes(name[:8], "big")


def name_of_block(key: bytes) -> bytes:
    return key[_NAME : _NAME + 10]


def merged_name(name: bytes) -> bytes:
    """The name of a run that takes the place of this one and of older ones."""
    return run_name(sequence_of(name), int.from_bytes(name[8:], "big") + 1)


def run_rows(prefix: bytes, name: bytes, tail: Tail, place: RunPlace) -> dict[bytes, bytes]:
    """The rows of a run whose blocks are in an object; the last of them makes it a run."""
    return {
        prefix + _PLACE + name: place.record(),
        prefix + _FILTER + name: tail.filter,
        prefix + _FENCES + name: tail.fences,
        prefix + _HEAD + name: tail.head,
    }


def read_places(reader: PhysicalReader, prefix: bytes) -> list[bytes]:
    """The names of runs of which not all blocks are here."""
    return [key[_NAME:] for key, _ in reader.scan(prefix + _PLACE, prefix + _BLOCK)]


def read_floor(reader: PhysicalReader, prefix: bytes) -> bytes:
    return reader.get(floor_key(prefix)) or b""


def read_runs(reader: PhysicalReader, prefix: bytes) -> list[Run]:
    """The runs of a prefix, newest first."""
    low = prefix + _HEAD
    found = [Run(prefix, key[_NAME:], _decode_head(value)) for key, value in reader.scan(low, prefix + _FENCES)]
    return found[::-1]


class RunBuilder:
    """Makes a run of rows that come in order of their keys, some at a time. rows: how many there were, at most `rows_max`."""

    def __init__(self, prefix: bytes, name: bytes, rows_max: int) -> None:
        self._prefix, self._name = prefix, name
        self._fences: list[bytes] = []
        self._filter = np.zeros(-(-max(1, rows_max) * _BITS // 64) * 64, np.bool_)
        self._size = self.rows = self._checksum = 0
        self._last = b""

    def add(self, rows: FlatRows) -> dict[bytes, bytes]:
        """The blocks of some rows, at least one, as rows of the physical store."""
        fences, blocks = encode_blocks(rows)
        assert all(a <= b for a, b in pairwise([self._last, *fences])), "rows of a run are in order of their keys"
        begin = len(self._fences)
        self._fences += fences
        for places in _places(rows.keys.hashes(), len(self._filter)):
            self._filter[places] = True
        self.rows, self._size = self.rows + len(rows), self._size + int(rows.sizes().sum())
        self._last = rows.keys.at(len(rows) - 1)
        for block in blocks:
            self._checksum = crc32(block, self._checksum)
        return {block_key(self._prefix, self._name, begin + n): block for n, block in enumerate(blocks)}

    def heads(self) -> dict[bytes, bytes]:
        """The rows that make these blocks a run, when they are there."""
        return {
            self._prefix + _FILTER + self._name: np.packbits(self._filter, bitorder="little").tobytes(),
            self._prefix + _FENCES + self._name: _encode(self._fences),
            self._prefix + _HEAD + self._name: _encode(Head(self.rows, self._size, self._last, self._checksum)),
        }


def keys_between(keys: PackedKeys, low: bytes, high: bytes | None) -> tuple[int, int]:
    """The places, in keys that rise, of the first one from `low` on and of the first one from `high` on."""
    return _first_from(keys, low), len(keys) if high is None else _first_from(keys, high)


def _first_from(keys: PackedKeys, bound: bytes) -> int:
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys.at(middle) < bound:
            low = middle + 1
        else:
            high = middle
    return low


def _places(hashes: Words, bits: int) -> list[Words]:
    first, step = hashes & _LOW, (hashes >> _HALF) | np.uint64(1)
    return [(first + np.uint64(j) * step) % np.uint64(bits) for j in range(_PROBES)]


def _part(reader: PhysicalReader, key: bytes) -> bytes:
    found = reader.get(key)
    if found is None:
        raise RunGone
    return found

"""Where things are in the physical store.

0000 0000 'm'                      marker: sequence of the last commit applied
0000 0000 'n'                      the next store id (ids are never used again)
0000 0000 'c' name                 catalog: a logical store
0000 0000 't' task id              a task: its partition, stores and metadata
0000 0000 'r' task id              the same of a task whose rows are still being restored from its changelogs
0000 0000 'b' id(4) partition(2)   lower bound in time of a window or join store: older rows are gone
0000 0000 'p' id(4) partition(2)   how far the changelog partition is applied (`flowql.runtime.state.positions`)
id(4) partition(2) key             a row; ids from 1
id(4) partition(2) segment(4) key  a row of a window or join store: whole segments are dropped by one range delete
id(4) partition(2) ff              rows in runs (`flowql.runtime.state.runs.run`)
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flowql.compiler.plan.codec import from_data, to_data
from flowql.compiler.plan.topology import StoreSpec
from flowql.compiler.plan.types import BIGINT
from flowql.runtime.batch import Ints
from flowql.runtime.errors import StateError
from flowql.runtime.state.keys import KeyCodec, decode_time, decode_times, key_codec
from flowql.runtime.state.physical import ByteRange
from flowql.runtime.state.rows import Key
from flowql.runtime.state.values import decode_metadata, decode_value, encode_value

_SYSTEM = b"\0\0\0\0"
MARKER = _SYSTEM + b"m"
NEXT_ID = _SYSTEM + b"n"
CATALOG = _SYSTEM + b"c"
TASKS = _SYSTEM + b"t"
RESTORES = _SYSTEM + b"r"
RUN = _SYSTEM + b"s"  # the start of an instance that has last opened it
APPLICATION = _SYSTEM + b"a"  # the id of the application that it belongs to
_BOUNDS = _SYSTEM + b"b"
_POSITIONS = _SYSTEM + b"p"

SEGMENT_MS_MIN = 60_000
SEGMENT_MS_UNBOUNDED = 86_400_000  # for stores that are never told a retention
_SEGMENT_SIGN = 1 << 31
_SEGMENT_MAX = _SEGMENT_SIGN - 1 - (1 << 24)  # no segment begins with ff, behind which a store has its runs
_PLACED_ONE_BY_ONE = 32
BEGINNING_MS = -(1 << 63)  # the bound of a store from which nothing has expired
_PREFIX = struct.Struct(">IH")
_U64 = struct.Struct(">Q")


def successor(prefix: bytes) -> bytes:
    """The least bytes above everything that starts with `prefix`."""
    stripped = prefix.rstrip(b"\xff")
    assert stripped, "no prefix of ours is all ones"
    return stripped[:-1] + bytes([stripped[-1] + 1])


def is_segmented(spec: StoreSpec) -> bool:
    return spec.kind in ("window", "join")


def segment_length(spec: StoreSpec) -> int | None:
    """How much time one segment holds; chosen when a store is created and kept with it."""
    if not is_segmented(spec):
        return None
    if spec.retention_ms is None:
        return SEGMENT_MS_UNBOUNDED
    return max(SEGMENT_MS_MIN, -(-spec.retention_ms // (3 * SEGMENT_MS_MIN)) * SEGMENT_MS_MIN)


def store_key_codec(spec: StoreSpec) -> KeyCodec:
    """The codec of the keys an operator uses.

    table: all columns of `spec.key`. window and join: those without window bounds, then one time in ms. session: those
    without window bounds (the live sessions of a key are one value).
    """
    if spec.kind == "table":
        return key_codec(tuple(f.type for f in spec.key.fields))
    types = tuple(f.type for f in spec.key.fields if f.role != "window")
    return key_codec((*types, BIGINT) if is_segmented(spec) else types)


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """A logical store in the catalog."""

    id: int
    spec: StoreSpec
    segment_ms: int | None
    partitions: tuple[int, ...] = ()
    codec: KeyCodec = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "codec", store_key_codec(self.spec))

    def prefix(self, partition: int) -> bytes:
        return _PREFIX.pack(self.id, partition)

    def bound_key(self, partition: int) -> bytes:
        return _BOUNDS + self.prefix(partition)

    def position_key(self, partition: int) -> bytes:
        return _POSITIONS + self.prefix(partition)

    def partition_range(self, partition: int) -> ByteRange:
        prefix = self.prefix(partition)
        return prefix, successor(prefix)

    def segment(self, time_ms: int) -> bytes:
        """The segment of a time, as in physical keys. Far times share the outermost ones; order is kept."""
        assert self.segment_ms is not None
        number = max(-_SEGMENT_SIGN, min(_SEGMENT_MAX, time_ms // self.segment_ms))
        return (number + _SEGMENT_SIGN).to_bytes(4, "big")

    def segments(self, times_ms: Ints) -> Ints:
        """The numbers of the segments of times, as `segment` writes them."""
        assert self.segment_ms is not None
        found: Ints = np.clip(times_ms // self.segment_ms, -_SEGMENT_SIGN, _SEGMENT_MAX) + _SEGMENT_SIGN
        return found

    def encode_rows(self, keys: Iterable[Key], partition: int) -> list[bytes]:
        """Physical keys of whole keys."""
        return self.place(self.codec.encode_many(keys), partition)

    def place(self, encoded: Sequence[bytes], partition: int) -> list[bytes]:
        """Physical keys of encoded keys."""
        prefix = self.prefix(partition)
        if self.segment_ms is None:
            return [prefix + e for e in encoded]
        if len(encoded) < _PLACED_ONE_BY_ONE:
            return [prefix + self.segment(decode_time(e)) + e for e in encoded]
        segments = self.segments(decode_times(encoded)).astype(">u4").tobytes()
        return [prefix + segments[4 * i : 4 * i + 4] + e for i, e in enumerate(encoded)]

    def expired_range(self, partition: int, bound_ms: int) -> ByteRange:
        """All segments that lie wholly below a bound."""
        prefix = self.prefix(partition)
        return prefix, prefix + self.segment(bound_ms)

    def record(self) -> bytes:
        return encode_value((self.id, self.segment_ms, self.partitions, json.dumps(to_data(self.spec))))


def entry_from_record(data: bytes) -> StoreEntry:
    store_id, segment_ms, partitions, spec = decode_value(data)
    try:
        return StoreEntry(store_id, from_data(json.loads(spec)), segment_ms, tuple(partitions))
    except (ValueError, TypeError) as error:
        raise StateError(f"a store's definition cannot be read, was it written by a newer FlowQL? ({error})") from error


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """The stored record of a task, beside its rows."""

    partition: int
    stores: tuple[str, ...]
    metadata: bytes

    def record(self) -> bytes:
        return encode_value((self.partition, self.stores, self.metadata))

    def read(self) -> dict[str, Any]:
        return decode_metadata(self.metadata)


def task_from_record(data: bytes) -> TaskRecord:
    partition, stores, metadata = decode_value(data)
    return TaskRecord(partition, tuple(stores), metadata)


def catalog_key(name: str) -> bytes:
    return CATALOG + name.encode()


def task_key(task_id: str) -> bytes:
    return TASKS + task_id.encode()


def restore_key(task_id: str) -> bytes:
    return RESTORES + task_id.encode()


def marker(sequence: int) -> tuple[list[bytes], list[bytes | None]]:
    """The row that says up to which commit a physical store is."""
    return [MARKER], [encode_number(sequence)]


def encode_number(n: int) -> bytes:
    return _U64.pack(n - BEGINNING_MS)


def decode_number(data: bytes | None, default: int) -> int:
    return default if data is None else _U64.unpack(data)[0] + BEGINNING_MS

"""The decoded rows of small stores that queries read whole. A commit changes few of them, so the next query reads only rows that have changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowql.runtime.state.layout import StoreEntry
from flowql.runtime.state.locks import NamedLock
from flowql.runtime.state.physical import PhysicalSnapshot, Writes
from flowql.runtime.state.rows import Key, Rows, Value
from flowql.runtime.state.runs.reader import TOMBSTONE
from flowql.runtime.state.runs.run import AREA, PREFIX_BYTES, blocks_area, decode_blocks, floor_key
from flowql.runtime.state.values import decode_values

Changed = dict[bytes, bytes | None]  # by physical keys
ROW_BYTES, DECODED = 300, 4  # of Python's objects: for each row, and for each byte of it


@dataclass(slots=True, eq=False)
class _Held:
    """Rows as of commit `sequence`, in order of their physical keys, which `at` has with their numbers. keys: decoded. sizes: encoded, by physical key.

    size: memory. pending: by commits, rows that they have changed; None for a value that has to be looked up. pending_size: their memory.
    Readers have the lists, which never change.
    """

    sequence: int
    lock: NamedLock = field(default_factory=lambda: NamedLock("held store", guards="its other fields but pending ones"))
    is_read: bool = False
    size: int = 0
    at: dict[bytes, int] = field(default_factory=dict)
    keys: list[Key] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    sizes: dict[bytes, int] = field(default_factory=dict)
    pending: list[tuple[int, Changed]] = field(default_factory=list)
    pending_size: int = 0

    def measure(self) -> None:
        self.size = ROW_BYTES * len(self.sizes) + DECODED * sum(self.sizes.values())


class HeldStores:
    """Any thread may call its methods."""

    def __init__(self, sequence: int, bytes_max: int) -> None:
        """sequence: the newest commit. bytes_max: memory of all rows."""
        self._noted, self._bytes_max = sequence, bytes_max
        self._lock = NamedLock("held stores", guards="which stores are held, and their pending rows")
        self._held = dict[str, _Held]()  # by store; those read longest ago first
        self._by_prefix: Mapping[bytes, str] = {}
        self._too_large = set[str]()

    def note(self, sequence: int, writes: Writes) -> None:
        """Notes what a commit changes, before any snapshot shows it."""
        with self._lock:
            self._noted = sequence
            if not self._held:
                return
            changed = dict[str, Changed]()
            for key, value in zip(writes.keys, writes.values, strict=True):
                store = self._by_prefix.get(key[:PREFIX_BYTES])
                if store is None:
                    continue
                prefix = key[:PREFIX_BYTES]
                if not key.startswith(AREA, PREFIX_BYTES):
                    changed.setdefault(store, {})[key] = value  # rows in no run are newer than all runs
                elif key == floor_key(prefix):
                    self._drop(store)
                elif key >= blocks_area(prefix)[0] and value is not None:
                    keys = [prefix + k for k in decode_blocks([value]).keys.to_bytes()]
                    changed.setdefault(store, {}).update(dict.fromkeys(keys))
            for low, high in writes.ranges:
                for prefix, store in self._by_prefix.items():
                    if low < prefix + AREA and high > prefix:
                        self._drop(store)
            for store, rows in changed.items():
                if (held := self._held.get(store)) is not None:
                    held.pending.append((sequence, rows))
                    held.pending_size += _pending_size(rows)
                    if held.pending_size > self._bytes_max:  # no query has asked for long
                        self._drop(store)

    def rows(self, physical: PhysicalSnapshot, entry: StoreEntry, sequence: int) -> Rows | None:
        """All rows of a store as of a commit, in order; the lists are not to be changed. Returns None if it is not held: its rows have to be read."""
        store = entry.spec.name
        with self._lock:
            held = self._held.pop(store, None)
            is_out = entry.segment_ms is not None or store in self._too_large or self._noted > sequence
            if held is None and is_out:
                return None
            held = self._held[store] = held or _Held(sequence)
            self._by_prefix = {**self._by_prefix, **{entry.prefix(p): store for p in entry.partitions}}
        with held.lock:
            if held.sequence > sequence or held.size > self._bytes_max:
                return None
            try:
                self._read_on(held, physical, entry, sequence)
            except BaseException:
                held.size = self._bytes_max + 1  # for readers that wait for it
                with self._lock:
                    self._drop(store)
                raise
            found = held.keys, held.values
        return found if self._fits(store, held.size) else None

    def _read_on(self, held: _Held, physical: PhysicalSnapshot, entry: StoreEntry, sequence: int) -> None:
        with self._lock:
            due: Changed = {}
            for _, rows in (p for p in held.pending if p[0] <= sequence):
                due.update(rows)
                held.pending_size -= _pending_size(rows)
            held.pending = [p for p in held.pending if p[0] > sequence]
        held.sequence = sequence
        if not held.is_read:
            held.is_read = True
            _read_whole(held, physical, entry, self._bytes_max)
        elif due:
            unknown = [key for key, value in due.items() if value is None]
            due.update(zip(unknown, physical.multi_get(unknown), strict=True))
            _change(held, entry, due)

    def _fits(self, store: str, size: int) -> bool:
        """Whether the rows of a store fit, without others if need be."""
        with self._lock:
            if size > self._bytes_max:
                self._too_large.add(store)
                self._drop(store)
                return False
            others = [s for s in self._held if s != store]
            while others and size + sum(self._held[s].size for s in others) > self._bytes_max:
                self._drop(others.pop(0))
        return True

    def _drop(self, store: str) -> None:
        self._held.pop(store, None)
        self._by_prefix = {p: s for p, s in self._by_prefix.items() if s != store}


def _read_whole(held: _Held, physical: PhysicalSnapshot, entry: StoreEntry, bytes_max: int) -> None:
    """Ends early if the rows need more memory."""
    for partition in entry.partitions:
        for keys, values in physical.chunks(*entry.partition_range(partition)):
            held.sizes.update(zip(keys, map(_size, keys, values), strict=True))
            held.keys += entry.codec.decode_many([k[PREFIX_BYTES:] for k in keys])
            held.values += decode_values(values)
            held.measure()
            if held.size > bytes_max:
                return
    held.at = {key: i for i, key in enumerate(held.sizes)}


def _change(held: _Held, entry: StoreEntry, changed: Changed) -> None:
    """changed: the values of rows now; None or TOMBSTONE where they are deleted."""
    data = {k: v for k, v in changed.items() if v is not None and v != TOMBSTONE}
    decoded = dict(zip(data, decode_values(list(data.values())), strict=True))
    gone = [k for k in changed if k not in data and k in held.at]
    new = [k for k in data if k not in held.at]
    held.sizes.update(zip(data, map(_size, data, data.values()), strict=True))
    held.measure()
    if not gone and not new:
        held.values = held.values.copy()
        for key, value in decoded.items():
            held.values[held.at[key]] = value
        return
    for key in gone:
        del held.sizes[key]
    held.measure()
    keys = dict(zip(new, entry.codec.decode_many([k[PREFIX_BYTES:] for k in new]), strict=True))
    order = sorted(held.sizes)
    at, old_keys, old_values = held.at, held.keys, held.values
    held.keys = [keys[k] if k in keys else old_keys[at[k]] for k in order]
    held.values = [decoded[k] if k in decoded else old_values[at[k]] for k in order]
    held.at = {key: i for i, key in enumerate(order)}


def _pending_size(rows: Changed) -> int:
    return sum(ROW_BYTES + len(value or b"") for value in rows.values())


def _size(key: bytes, value: bytes) -> int:
    return len(key) + len(value)

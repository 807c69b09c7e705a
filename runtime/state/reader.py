"""The state of a stopped or killed instance, from its directory and the log's redo alone; nothing is written."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from flowql.runtime.errors import StateError
from flowql.runtime.state.catalog import read_stores
from flowql.runtime.state.frozen import read_redo
from flowql.runtime.state.layout import MARKER, TaskRecord, decode_number
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.physical import ByteRange, PhysicalReader, Writes, chunked
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.state.runs.reader import RunsReader
from flowql.runtime.state.snapshot import SharedSnapshot, StateSnapshot


class _Closable(PhysicalReader, Protocol):
    def close(self) -> None: ...


def open_readonly(
    path: Path | str,
    redo: Iterable[tuple[int, bytes]] = (),
    owns: Callable[[Mapping[str, TaskRecord]], frozenset[str] | None] = lambda _tasks: None,
) -> StateSnapshot:
    """The last commit of an instance that is not running: what it flushed, with the redo records since replayed in memory.

    redo: (sequence, payload) in order, from anywhere at or before the flushed commit. StateError if one in between is missing.
    owns: which of the tasks that are here are shown; None for all.
    """
    base: _Closable = open_rocks(path, read_only=True) if (Path(path) / "CURRENT").exists() else MemoryPhysical()
    sequence = decode_number(base.get(MARKER), 0)
    overlaid = RedoReader(base)
    for number, payload in redo:
        if number <= sequence:
            continue
        if number != sequence + 1:
            base.close()
            raise StateError(f"the redo of commit {sequence + 1} is missing; the next one belongs to commit {number}")
        overlaid.redo(read_redo(payload, number))
        sequence = number
    shared = SharedSnapshot(RunsReader(overlaid), read_stores(overlaid), sequence)
    return StateSnapshot(shared, owns(shared.tasks))


class RedoReader:
    """A physical snapshot: a reader with redone writes over it."""

    def __init__(self, base: _Closable) -> None:
        self._base = base
        self._rows: dict[bytes, bytes | None] = {}
        self._order: list[bytes] = []
        self._gone: list[ByteRange] = []  # ranges deleted below

    def redo(self, writes: Writes) -> None:
        for low, high in writes.ranges:
            for key in self._between(low, high):
                self._rows[key] = None
            self._gone.append((low, high))
        self._rows.update(zip(writes.keys, writes.values, strict=True))

    def get(self, key: bytes) -> bytes | None:
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        below = [k for k in keys if k not in self._rows and not self._is_gone(k)]
        found = dict(zip(below, self._base.multi_get(below), strict=True)) if below else {}
        return [self._rows[k] if k in self._rows else found.get(k) for k in keys]

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._merge(self._between(low, high), self._base.scan(low, high))

    def chunks(self, low: bytes, high: bytes) -> Iterator[tuple[list[bytes], list[bytes]]]:
        return chunked(self.scan(low, high))

    def close(self) -> None:
        self._base.close()

    def _merge(self, above: list[bytes], below: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        at, rows = 0, self._rows
        for key, value in below:
            while at < len(above) and above[at] < key:
                redone = rows[above[at]]
                if redone is not None:
                    yield above[at], redone
                at += 1
            if key not in rows and not self._is_gone(key):
                yield key, value
        for key in above[at:]:
            redone = rows[key]
            if redone is not None:
                yield key, redone

    def _is_gone(self, key: bytes) -> bool:
        return any(low <= key < high for low, high in self._gone)

    def _between(self, low: bytes, high: bytes) -> list[bytes]:
        if len(self._order) != len(self._rows):
            self._order = sorted(self._rows)
        return self._order[bisect_left(self._order, low) : bisect_left(self._order, high)]

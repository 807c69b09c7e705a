"""Where the rows of a local table are kept by key: in memory, or in a database on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from typing import Protocol

import msgspec

from flowql.runtime.state.layout import successor
from flowql.runtime.state.physical import BATCH_ROWS_MAX, Physical
from flowql.runtime.state.values import decode_value, encode_value
from flowql.runtime.topology.table_rows import Kept, Key

_ABOUT, _ROWS = b"a", b"r"  # prefixes in the database; behind them a digest of the table's topic


@dataclass(frozen=True, slots=True)
class Followed:
    """How far a store has followed the topic of its table.

    identity: tells the topic, its partitions and the table's columns apart from others: rows of another identity are of no use.
    positions: by partition, the next offset to read. at_ms: when it was last at the end. last: by partition, a digest of the record before the position.
    """

    identity: str = ""
    positions: Mapping[int, int] = field(default_factory=dict)
    at_ms: int = 0
    last: Mapping[int, str] = field(default_factory=dict)


class RowStore(Protocol):
    """The rows of one table. One thread at a time."""

    @property
    def followed(self) -> Followed:
        """As of the last `write`."""
        ...

    def get(self, key: Key) -> Kept | None: ...

    def items(self) -> Iterator[tuple[Key, Kept]]:
        """All rows, in an order that no one may rely on. Nothing may be written while it is consumed."""
        ...

    def write(self, changes: Mapping[Key, Kept | None], followed: Followed) -> None:
        """Puts rows; None deletes. A crash in the midst of it leaves the former `followed`."""
        ...

    def clear(self) -> None: ...


class RowStores(Protocol):
    """Gives each table its store, the same one for the same topic."""

    def of(self, topic: str) -> RowStore: ...

    def close(self) -> None: ...


class RowsInMemory:
    """Rows of one table as they are; nothing survives the process."""

    def __init__(self) -> None:
        self._rows: dict[Key, Kept] = {}
        self.followed = Followed()

    def get(self, key: Key) -> Kept | None:
        return self._rows.get(key)

    def items(self) -> Iterator[tuple[Key, Kept]]:
        return iter(self._rows.items())

    def write(self, changes: Mapping[Key, Kept | None], followed: Followed) -> None:
        rows = self._rows
        for key, row in changes.items():
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
        self.followed = followed

    def clear(self) -> None:
        self._rows, self.followed = {}, Followed()


class StoresInMemory:
    """For programs without an instance, and for tests."""

    def of(self, topic: str) -> RowStore:
        del topic
        return RowsInMemory()

    def close(self) -> None:
        """Nothing is held."""


class RowsInDatabase:
    """Rows of one table in a database that others share. What a crash loses of it is read again from the topic."""

    def __init__(self, physical: Physical, topic: str) -> None:
        self._physical = physical
        digest = blake2b(topic.encode(), digest_size=8).digest()
        self._about, self._prefix = _ABOUT + digest, _ROWS + digest
        known = physical.get(self._about)
        self.followed = Followed() if known is None else msgspec.msgpack.decode(known, type=Followed)

    def get(self, key: Key) -> Kept | None:
        found = self._physical.get(self._prefix + key)
        return None if found is None else _kept(found)

    def items(self) -> Iterator[tuple[Key, Kept]]:
        cut = len(self._prefix)
        for key, value in self._physical.scan(self._prefix, successor(self._prefix)):
            yield key[cut:], _kept(value)

    def write(self, changes: Mapping[Key, Kept | None], followed: Followed) -> None:
        left = iter(changes.items())
        while part := list(islice(left, BATCH_ROWS_MAX - 1)):
            keys = [self._prefix + key for key, _ in part]
            self._physical.write_batch(keys, [_data(row) for _, row in part])
        self._physical.write_batch([self._about], [msgspec.msgpack.encode(followed)])  # last, see `RowStore.write`
        self.followed = followed

    def clear(self) -> None:
        rows = (self._prefix, successor(self._prefix))
        self._physical.write_batch([self._about], [None], [rows])
        self.followed = Followed()


_TEXT = ord("{")  # the first byte of a JSON text; no row in msgpack begins with it


def _data(kept: Kept | None) -> bytes | None:
    return kept if kept is None or isinstance(kept, bytes) else encode_value(kept)


def _kept(data: bytes) -> Kept:
    return data if data[0] == _TEXT else decode_value(data)


class StoresInDatabase:
    """One database for all tables. Tables that are dropped leave their rows there until the topic's name is used again."""

    def __init__(self, physical: Physical) -> None:
        self._physical = physical

    def of(self, topic: str) -> RowStore:
        return RowsInDatabase(self._physical, topic)

    def close(self) -> None:
        self._physical.close()

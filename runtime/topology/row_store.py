"""Where the rows of a local table are kept by key: in memory, or in a database on disk. And INSERT INTO ... VALUES as a record."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import islice
from sys import getsizeof
from typing import Protocol

import msgspec
import pyarrow as pa

from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.plan.logical import Sink
from flowql.compiler.plan.topology import InsertValues, SourceDef
from flowql.runtime.batch import DELETE, INSERT, from_rows
from flowql.runtime.errors import StateError, StateFull, StatementFailed
from flowql.runtime.operators.encode import Encoder
from flowql.runtime.state.layout import successor
from flowql.runtime.state.physical import BATCH_ROWS_MAX, Physical
from flowql.runtime.state.values import decode_value, encode_value
from flowql.runtime.topology.table_rows import Kept, Key

_ROW_BYTES = 150  # of a row in memory, beside its key and values: measured with CPython 3.11
_IN_MEMORY = ("rocksdb.cur-size-all-mem-tables", "rocksdb.block-cache-usage", "rocksdb.estimate-table-readers-mem")
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

    def takes_rows(self) -> bool:
        """Called after a table was refused: whether another attempt may succeed. Opens a database again if its disk has room."""
        ...

    @property
    def memory_bytes(self) -> int:
        """That rows take now, about."""
        ...

    def close(self) -> None: ...


class RowsInMemory:
    """Rows of one table as they are; nothing survives the process. memory_bytes: see `RowStores`."""

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        """check: called after rows were put. Its error comes out of `write`, and the store is then empty."""
        self._rows: dict[Key, Kept] = {}
        self._check = check
        self.followed, self.memory_bytes = Followed(), 0

    def get(self, key: Key) -> Kept | None:
        return self._rows.get(key)

    def items(self) -> Iterator[tuple[Key, Kept]]:
        return iter(self._rows.items())

    def write(self, changes: Mapping[Key, Kept | None], followed: Followed) -> None:
        rows = self._rows
        for key, row in changes.items():
            before = rows.pop(key, None)
            self.memory_bytes -= 0 if before is None else _memory(key, before)
            if row is not None:
                rows[key] = row
                self.memory_bytes += _memory(key, row)
        self.followed = followed
        try:
            self._check()
        except StateError:
            self.clear()
            raise

    def clear(self) -> None:
        self._rows, self.followed, self.memory_bytes = {}, Followed(), 0


def _memory(key: Key, kept: Kept) -> int:
    return len(key) + _ROW_BYTES + (len(kept) if isinstance(kept, bytes) else sum(map(getsizeof, kept)))


class StoresInMemory:
    """For programs without an instance, for tests, and in place of a database whose disk is full."""

    def __init__(self, memory_max: int | None = None, why: str = "") -> None:
        """memory_max: bytes of all rows. A table that exceeds it has no rows in memory, and its statements fail (StateFull). why: they are in memory."""
        self._memory_max, self._why = memory_max, why
        self._made = dict[str, RowsInMemory]()

    def of(self, topic: str) -> RowStore:
        return self._made.setdefault(topic, RowsInMemory(partial(self._check, topic)))

    @property
    def memory_bytes(self) -> int:
        return sum(rows.memory_bytes for rows in list(self._made.values()))

    def _check(self, topic: str) -> None:
        if self._memory_max is not None and (used := self.memory_bytes) > self._memory_max:
            title = (
                f"the rows of the table of topic {topic} cannot be kept: tables take {used >> 20:,} MB of memory, and "
                f"{self._memory_max >> 20:,} MB are allowed{self._why}"
            )
            raise StateFull(title)

    def takes_rows(self) -> bool:
        return True  # other tables may have fewer rows now

    def close(self) -> None:
        """Nothing is held."""


class OpenedAgain(StateError):
    """The database of the rows was opened again meanwhile and may lack rows: read `followed` again and repeat."""


@dataclass(slots=True)
class _Database:
    """A database of several tables. opened: how often it was opened again. lock: held while that happens, and by who writes rows."""

    physical: Physical
    opened: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class RowsInDatabase:
    """Rows of one table in a database that others share. What a crash loses of it is read again from the topic."""

    def __init__(self, database: _Database, topic: str) -> None:
        self._database, self._physical = database, database.physical
        digest = blake2b(topic.encode(), digest_size=8).digest()
        self._about, self._prefix = _ABOUT + digest, _ROWS + digest
        self._opened, self._followed = -1, Followed()

    @property
    def followed(self) -> Followed:
        if self._opened != self._database.opened:
            with self._database.lock:
                known = self._physical.get(self._about)
                self._followed = Followed() if known is None else msgspec.msgpack.decode(known, type=Followed)
                self._opened = self._database.opened
        return self._followed

    def get(self, key: Key) -> Kept | None:
        with self._same():
            found = self._physical.get(self._prefix + key)
        return None if found is None else _kept(found)

    def items(self) -> Iterator[tuple[Key, Kept]]:
        cut = len(self._prefix)
        with self._same():
            for key, value in self._physical.scan(self._prefix, successor(self._prefix)):
                yield key[cut:], _kept(value)

    def write(self, changes: Mapping[Key, Kept | None], followed: Followed) -> None:
        left = iter(changes.items())
        with self._database.lock, self._same():
            self._check()
            while part := list(islice(left, BATCH_ROWS_MAX - 1)):
                keys = [self._prefix + key for key, _ in part]
                self._physical.write_batch(keys, [_data(row) for _, row in part])
            self._physical.write_batch([self._about], [msgspec.msgpack.encode(followed)])  # last, see `RowStore.write`
        self._followed = followed

    def clear(self) -> None:
        rows = (self._prefix, successor(self._prefix))
        with self._database.lock, self._same():
            self._check()
            self._physical.write_batch([self._about], [None], [rows])
        self._followed = Followed()

    @contextmanager
    def _same(self) -> Iterator[None]:
        """Raises OpenedAgain at the end, also in place of an error, if the database is no longer the one of `followed`."""
        try:
            yield
        except StateError:
            self._check()
            raise
        self._check()

    def _check(self) -> None:
        if self._opened != self._database.opened:
            raise OpenedAgain("the rows of local tables were opened again")


_TEXT = ord("{")  # the first byte of a JSON text; no row in msgpack begins with it


def _data(kept: Kept | None) -> bytes | None:
    return kept if kept is None or isinstance(kept, bytes) else encode_value(kept)


def _kept(data: bytes) -> Kept:
    return data if data[0] == _TEXT else decode_value(data)


class StoresInDatabase:
    """One database for all tables. Tables that are dropped leave their rows there until the topic's name is used again."""

    def __init__(self, physical: Physical) -> None:
        self._database = _Database(physical)

    def of(self, topic: str) -> RowStore:
        return RowsInDatabase(self._database, topic)

    def takes_rows(self) -> bool:
        database = self._database
        with suppress(StateError), database.lock:
            if database.physical.accepts_files():
                database.opened += 1
                database.physical.reopen(lambda: None)
                return True
        return False

    @property
    def memory_bytes(self) -> int:
        return sum(self._database.physical.property(name) or 0 for name in _IN_MEMORY)

    def close(self) -> None:
        self._database.physical.close()


def encode_insert(source: SourceDef, insert: InsertValues, now_ms: int) -> pa.RecordBatch:
    """The record an INSERT VALUES writes; columns it leaves out are null, its time is ROWTIME or now. Raises StatementFailed."""

    def refuse(index: int, error: Exception) -> None:
        raise StatementFailed(f"VALUES, column {insert.columns[max(index, ~index)]}: {error}") from error

    values = dict(zip(insert.columns, compile_row(insert.values, [], on_error=refuse)(()), strict=True))
    row = tuple(values.get(name) for name in source.schema.names)
    no_value = source.kind == "table" and all(values.get(f.name) is None for f in source.schema.value)
    rowtime = now_ms if insert.rowtime is None else insert.rowtime
    sink = Sink(source.name, source.topic, source.kind, source.key_format, source.value_format, source.timestamp)
    batch = from_rows(source.schema, [row], [rowtime], [DELETE if no_value else INSERT], [0])
    records = Encoder(sink, source.schema).encode(batch)
    if source.timestamp is not None and not records.num_rows:
        column = source.timestamp.column
        value = "NULL" if values.get(column) is None else values[column]
        raise StatementFailed(f"VALUES, column {column}: {value} cannot be the time of a record")
    return records

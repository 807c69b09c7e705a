"""State as operators and the commit see it.

Layers of a read, newest first: batch -> active epoch -> frozen epoch -> committed (a cache, then RocksDB).
A batch's writes are private until `TaskState.publish`; the cut turns active into frozen; `StateManager.apply` makes frozen
committed after the log has committed it; abort drops batch, active and frozen (rule R1). Nothing uncommitted is ever
written to RocksDB (rule R10, asserted).

Who calls: the methods of `Store` and `TaskState` are called by the one thread that holds the task; `cut`, `apply`, `abort`
by the committing thread; snapshots by anyone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.state.columns.layer import Found
from flowql.runtime.state.columns.packed import PackedKeys
from flowql.runtime.state.columns.values import RowValues, ValueLayout
from flowql.runtime.state.rows import Key, Rows, Value


class Store(Protocol):
    """One logical store of one task."""

    spec: StoreSpec

    def get(self, key: Key) -> Value | None: ...

    def get_many(self, keys: Sequence[Key]) -> list[Value | None]:
        """As `get` for each key; one multi-get for those not in memory. Prefer it."""
        ...

    def put(self, key: Key, value: Value | None) -> None:
        """Write to the batch layer; None deletes."""
        ...

    def put_many(self, keys: Sequence[Key], values: Sequence[Value | None]) -> None: ...

    def scan(self, *, low: Key | None = None, high: Key | None = None) -> Iterator[tuple[Key, Value]]:
        """Live rows in key order over all layers, low <= key < high (tuple prefixes allowed)."""
        ...

    def scan_prefix(self, prefix: Key, *, after: Key = ()) -> Iterator[tuple[Key, Value]]:
        """Live rows of a `table` store whose keys start with `prefix`, in key order over all layers; with `after` those above that key.

        Lazy: a row costs a step in each layer, so the first of many rows is cheap. Nothing may be put while it is consumed.
        """
        ...

    def append(self, keys: PackedKeys, values: RowValues) -> None:
        """Writes rows of a store that the task itself seldom reads, to the batch layer: no look-up. Of a key that comes twice the last counts."""
        ...

    def columns(self, layout: ValueLayout) -> ColumnStore:
        """The same rows in columns of this layout, from now on: those written by key are seen in columns, and the reverse."""
        ...

    def expire(self, before_ms: int) -> None:
        """Stores with a time segment (kinds window and join: the last key part is a time in ms; session: see below):
        rows whose time part is < before_ms vanish, for reads at once, physically by range delete at commit.

        For kind `session` the operator deletes sessions itself; `expire` is not used.
        """
        ...


class ColumnStore(Protocol):
    """The rows of a store for whole batches. Keys are encoded, different ones."""

    def find(self, keys: PackedKeys) -> Found:
        """Slots and values; no value where there is none, or it has expired."""
        ...

    def stage(self, found: Found, values: RowValues) -> None:
        """Write values of all keys that were found to the batch layer; no value deletes."""
        ...


class TaskState(Protocol):
    """All stores of one task, and its metadata. closing: called when the task ends, by the thread that closes it."""

    closing: list[Callable[[], None]]

    def store(self, name: str) -> Store: ...

    @property
    def metadata(self) -> dict[str, Any]:
        """A private copy of the task's metadata as of the last published batch (positions, stream times, ...)."""
        ...

    def publish(self, metadata: dict[str, Any]) -> None:
        """A batch is complete: its writes and metadata enter the active epoch together. Caller holds the epoch lock."""
        ...

    @property
    def revoked(self) -> bool:
        """True if the current micro-batch is void: its task goes back to the last commit."""
        ...

    def discard(self) -> None:
        """The batch failed: drop its writes. One that was revoked stays so."""
        ...


class Snapshot(Protocol):
    """A committed, immutable view of all stores at one commit sequence."""

    sequence: int

    def stores(self) -> Sequence[StoreSpec]: ...

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Task id -> its committed metadata (positions, stream times)."""
        ...

    def get(self, store: str, key: Key) -> Value | None:
        """Point look-up over all partitions of the store."""
        ...

    def scan(
        self, store: str, *, low: Key | None = None, high: Key | None = None, limit: int | None = None
    ) -> Iterator[tuple[Key, Value]]:
        """Rows of all partitions of the store (in key order within a partition)."""
        ...

    def chunks(self, store: str, *, low: Key | None = None, high: Key | None = None) -> Iterator[Rows]:
        """As `scan`, some rows at a time, at first few; a chunk may be empty."""
        ...

    def size(self, store: str) -> tuple[int, int]:
        """(rows, bytes) of a store, counted by walking through it: keys and values as they are written, uncompressed."""
        ...

    def rows_read(self) -> int:
        """How many physical rows this snapshot has read so far (bounded look-ups are asserted with it)."""
        ...

    def close(self) -> None: ...

"""The writes of one cut as rows, as a redo payload and as changelog records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.batch import Ints
from flowql.runtime.errors import StateError
from flowql.runtime.state.columns.layer import ColumnWrite, last_values
from flowql.runtime.state.layers import Overlay
from flowql.runtime.state.layout import BEGINNING_MS, StoreEntry, TaskRecord, encode_number, restore_key, task_key
from flowql.runtime.state.physical import ByteRange, PhysicalReader, Writes
from flowql.runtime.state.positions import ChangelogPosition, StorePartition, position_from_record
from flowql.runtime.state.runs.run import FlatRows, newest
from flowql.runtime.state.runs.writing import RowList, RunWriter
from flowql.runtime.state.task_store import TaskStore
from flowql.runtime.state.values import encode_value


class Drops:
    """Range deletes by the prefix they empty, and single rows (metadata, bounds) to delete.

    tasks, partitions: the same for changelogs; (store, partition), None for a store that is not here but has a changelog.
    """

    def __init__(self) -> None:
        self.ranges: dict[bytes, ByteRange] = {}
        self.rows: dict[bytes, bytes | None] = {}
        self.tasks: dict[str, None] = {}
        self.partitions: dict[tuple[str, int], StoreSpec | None] = {}

    def __bool__(self) -> bool:
        return bool(self.ranges or self.rows)

    def add_task(self, task_id: str) -> None:
        self.rows[task_key(task_id)] = None
        self.rows[restore_key(task_id)] = None
        self.tasks[task_id] = None

    def add_partition(self, entry: StoreEntry, partition: int) -> None:
        self.ranges[entry.prefix(partition)] = entry.partition_range(partition)
        self.rows[entry.bound_key(partition)] = None
        self.rows[entry.position_key(partition)] = None
        self.partitions[entry.spec.name, partition] = entry.spec

    def has_task(self, task_id: str) -> bool:
        return task_id in self.tasks

    def has_partition(self, entry: StoreEntry, partition: int) -> bool:
        return entry.prefix(partition) in self.ranges

    def merged(self, newer: Drops) -> Drops:
        """Both, after the commit that should have made these was aborted."""
        both = Drops()
        both.ranges = {**self.ranges, **newer.ranges}
        both.rows = {**self.rows, **newer.rows}
        both.tasks = {**self.tasks, **newer.tasks}
        both.partitions = {**self.partitions, **newer.partitions}
        return both


REDO_FORMAT = 1
# A changelog record with this key holds the time bound of its store; encoded keys start with 00 or 01.
BOUND_RECORD = b"\xffbound"
# And one with this key says that everything before it in the partition is gone. Compaction keeps the newest of both.
DROP_RECORD = b"\xffdrop"

_Payload = tuple[int, list[tuple[bytes, bytes]], list[bytes], list[bytes | None]]
_encode_payload = msgspec.msgpack.Encoder().encode
_decode_payload = msgspec.msgpack.Decoder(_Payload).decode
_decode_any = msgspec.msgpack.Decoder(list[Any]).decode


class UnwritableState(StateError, code="FQ4012"):
    """A task put something into a store that cannot be kept; nothing of the epoch was written.

    of_values: not for a mistake in the code that writes it.
    """

    def __init__(self, task_id: str, store: str, cause: Exception) -> None:
        super().__init__(f"task {task_id} put something into {store} that cannot be kept: {cause}")
        self.task_id, self.store = task_id, store
        of_code = isinstance(cause, (AssertionError, LookupError, NameError, NotImplementedError))
        self.of_values = (
            isinstance(cause, pa.ArrowException) or not of_code
        )  # some of Arrow's are NotImplementedError, too


class RedoUnreadable(StateError):
    """A redo payload that this FlowQL does not read. sequence: of its commit, where it is known."""

    def __init__(self, problem: str, sequence: int | None = None) -> None:
        self.problem, self.sequence = problem, sequence
        super().__init__(f"the redo {'' if sequence is None else f'of commit {sequence} '}{problem}")


def read_redo(payload: bytes, sequence: int | None = None) -> Writes:
    """The writes of a redo payload, which is that of commit `sequence`. RedoUnreadable."""
    try:
        version, ranges, keys, values = _decode_payload(payload)
    except msgspec.DecodeError as error:
        found = _version(payload)  # another format may have other fields
        if found in (None, REDO_FORMAT):
            raise RedoUnreadable(f"cannot be read: {error}", sequence) from error
        version = found
    if version != REDO_FORMAT:
        problem = f"has format {version}, as another version of FlowQL writes it; this one reads {REDO_FORMAT}"
        raise RedoUnreadable(problem, sequence)
    return Writes(ranges, keys, values)


def _version(payload: bytes) -> Any:
    """The first thing in a payload; None if there is none."""
    try:
        return next(iter(_decode_any(payload)), None)
    except msgspec.DecodeError:
        return None


@dataclass(frozen=True, slots=True)
class FrozenStore:
    """The frozen overlay of one store of one task. counts: see `ManagedTask`."""

    task_id: str
    store: TaskStore
    overlay: Overlay
    counts: bool = True


@dataclass(slots=True)
class EncodedStore:
    """The same as bytes: keys without prefix. flat: the rows are to be a run."""

    store: TaskStore
    keys: list[bytes]
    values: list[bytes | None]
    bound_ms: int  # `BEGINNING_MS` unless the commit moves it
    flat: FlatRows | None = None

    def lists(self) -> RowList:
        if self.flat is not None and not self.keys:
            self.keys, self.values = self.flat.lists()
        return self.keys, self.values

    def sizes(self) -> Sequence[int] | Ints:
        """Bytes of key and value of each row."""
        if self.flat is not None:
            return self.flat.sizes()
        return [len(k) + (0 if v is None else len(v)) for k, v in zip(self.keys, self.values, strict=True)]

    def written(self, writer: RunWriter | None, sequence: int) -> RowList:
        """As the physical store has it."""
        entry, partition, fresh = self.store.entry, self.store.partition, self.store.detached
        if writer is None:
            return entry.place(self.keys, partition), self.values
        if self.flat is not None:
            bound_ms = max(self.bound_ms, self.store.committed_bound_ms)
            return writer.run(entry, partition, self.flat, sequence, bound_ms, fresh=fresh)
        return writer.rows(entry, partition, self.keys, self.values, fresh=fresh)


def encode_rows(task_id: str, store: TaskStore, overlay: Overlay, bound_ms: int) -> FlatRows | RowList:
    """Keys without prefix, and values; in order of the keys if there are deltas. UnwritableState if one of them has no durable form."""
    try:
        rows = overlay.rows
        if bound_ms > BEGINNING_MS:  # what is expired already need not be written
            rows = {k: v for k, v in rows.items() if k[-1] >= bound_ms}  # type: ignore[operator]
        keys = store.entry.codec.encode_many(rows)
        values: list[bytes | None] = [None if v is None else encode_value(v) for v in rows.values()]
        return (keys, values) if not overlay.deltas else _encode_deltas(overlay.deltas, keys, values, bound_ms)
    except Exception as error:
        raise UnwritableState(task_id, store.spec.name, error) from error


def batch_rows(task_id: str, store: TaskStore) -> RowList:
    """The writes of the current micro-batch, as a commit would write it, see `encode_rows`."""
    rows = encode_rows(task_id, store, store.batch, max(store.batch.bound_ms, store.committed_bound_ms))
    return rows.lists() if isinstance(rows, FlatRows) else rows


def _encode_deltas(
    deltas: Sequence[ColumnWrite], keys: list[bytes], values: list[bytes | None], bound_ms: int
) -> FlatRows:
    """Deltas over rows that are encoded already."""
    parts = [newest([FlatRows.of(keys, values)])] if keys else []
    for packed, of_keys in last_values(deltas):
        if bound_ms > BEGINNING_MS:
            at = np.flatnonzero(packed.last_times() >= bound_ms)
            packed, of_keys = packed.take(at), of_keys.take(at)
        parts.append(FlatRows(packed, of_keys.encode()))
    return parts[0] if len(parts) == 1 else newest(parts)


class FrozenEpoch:
    """The state writes of a cut, on their way to the log and then to RocksDB. Immutable but for what it remembers of its encoding.

    catalog: rows of the catalog that change; entries: the whole catalog if any did. writer: of runs, None for rows alone.
    as_of_ms: wall clock at the cut. to_renew: stores and partitions whose position in the changelog is renewed. restoring: tasks whose
    rows are not all here, so that their records are kept for the restoration.
    """

    def __init__(
        self,
        sequence_hint: int,
        *,
        stores: Sequence[FrozenStore],
        tasks: dict[str, TaskRecord],
        drops: Drops,
        catalog: dict[bytes, bytes | None],
        entries: dict[str, StoreEntry] | None,
        has_changelog: Callable[[StoreSpec], bool],
        writer: RunWriter | None = None,
        as_of_ms: int = 0,
        to_renew: Sequence[tuple[StoreEntry, int]] = (),
        restoring: Collection[str] = frozenset(),
    ) -> None:
        self.sequence_hint, self._writer = sequence_hint, writer
        self.as_of_ms, self.to_renew, self.restoring = as_of_ms, to_renew, restoring
        self.stores, self.tasks = stores, tasks
        self.drops, self.catalog, self.entries = drops, catalog, entries
        self._has_changelog = has_changelog
        self._encoded: list[EncodedStore] | None = None
        self._writes: Writes | None = None
        self.expired: list[ByteRange] = []

    def check(self) -> None:
        """Before anything of it is written: UnwritableState if some of it has no durable form. Encoding is remembered, so nothing is done twice."""
        self._encode()

    def changed(self) -> Iterator[tuple[str, str]]:
        """(task, store name) of every store with writes."""
        return ((s.task_id, s.store.spec.name) for s in self.stores)

    def without(self, task_ids: Collection[str]) -> FrozenEpoch:
        """The same without the writes of these tasks. Stores that they alone use may stay in the catalog, empty."""
        return FrozenEpoch(
            self.sequence_hint,
            stores=[s for s in self.stores if s.task_id not in task_ids],
            tasks={t: record for t, record in self.tasks.items() if t not in task_ids},
            drops=self.drops,
            catalog=self.catalog,
            entries=self.entries,
            has_changelog=self._has_changelog,
            writer=self._writer,
            as_of_ms=self.as_of_ms,
            to_renew=self.to_renew,
            restoring=self.restoring,
        )

    def redo(self) -> bytes:
        """All writes as one self-contained payload; `StateManager.replay` applies it. Idempotent: rows are absolute."""
        return _encode_payload((REDO_FORMAT, *self.writes()))

    def changelog(self) -> Iterator[tuple[str, int, bytes, bytes | None]]:
        """(store name, partition, key, value) of every row written, for stores whose changelog is on."""
        for name, partition, keys, values in self.changelog_columns():
            for key, value in zip(keys, values, strict=True):
                yield name, partition, key, value

    def changelog_columns(self) -> Iterator[tuple[str, int, list[bytes], list[bytes | None]]]:
        """The same as (store name, partition, keys, values); a partition may come more than once."""
        for (name, partition), spec in self.drops.partitions.items():
            if spec is None or self._has_changelog(spec):
                yield name, partition, [DROP_RECORD], [b""]
        for s in self._encode():
            if not self._has_changelog(s.store.spec):
                continue
            bound = s.bound_ms > BEGINNING_MS
            keys, values = s.lists()
            if bound:
                keys, values = [*keys, BOUND_RECORD], [*values, encode_number(s.bound_ms)]
            if keys:
                yield s.store.spec.name, s.store.partition, keys, values

    def changelog_partitions(self) -> list[StorePartition]:
        """Partitions of stores with a changelog that have writes in this epoch."""
        return [(s.store.spec.name, s.store.partition) for s in self.stores if self._has_changelog(s.store.spec)]

    def counted_rows(self) -> list[Sequence[int] | Ints]:
        """Bytes of key, without prefix, and value of each row, by store whose rows count as uncommitted ones."""
        return [e.sizes() for s, e in zip(self.stores, self._encode(), strict=True) if s.counts]

    def forget_writes(self) -> None:
        """The physical store was opened again, and may have other runs."""
        self._writes = None

    def writes(self) -> Writes:
        """Everything in a fixed order: drops, expired segments, catalog, rows by store, metadata of tasks last."""
        if self._writes is None:
            encoded = self._encode()
            rows = {**self.drops.rows, **self.catalog}
            keys, values = list(rows), list(rows.values())
            for s in encoded:
                written = s.written(self._writer, self.sequence_hint)
                keys += written[0]
                values += written[1]
                if s.bound_ms > BEGINNING_MS:
                    bound = {s.store.entry.bound_key(s.store.partition): encode_number(s.bound_ms)}
                    if self._writer is not None:
                        bound |= self._writer.floor(s.store.entry, s.store.partition, s.bound_ms)
                    keys += bound
                    values += bound.values()
            for task_id, record in self.tasks.items():
                keys.append(restore_key(task_id) if task_id in self.restoring else task_key(task_id))
                values.append(record.record())
            self._writes = Writes([*self.drops.ranges.values(), *self.expired], keys, values)
        return self._writes

    def _encode(self) -> list[EncodedStore]:
        if self._encoded is None:
            self._encoded = [self._encode_store(s) for s in self.stores]
        return self._encoded

    def _encode_store(self, frozen: FrozenStore) -> EncodedStore:
        store, overlay = frozen.store, frozen.overlay
        entry, bound = store.entry, overlay.bound_ms
        committed = store.committed_bound_ms
        if bound > committed:
            expired = entry.expired_range(store.partition, bound)
            if committed == BEGINNING_MS or expired != entry.expired_range(store.partition, committed):
                self.expired.append(expired)
        rows = encode_rows(frozen.task_id, store, overlay, max(bound, committed))
        bound = bound if bound > committed else BEGINNING_MS
        if isinstance(rows, FlatRows) and self._writer is not None and len(rows) >= self._writer.rows_min:
            return EncodedStore(store, [], [], bound, rows)
        keys, values = rows.lists() if isinstance(rows, FlatRows) else rows
        return EncodedStore(store, keys, values, bound)


def position_rows(
    physical: PhysicalReader, epoch: FrozenEpoch, positions: Mapping[StorePartition, ChangelogPosition]
) -> tuple[list[bytes], list[bytes]]:
    """The new positions of a committed epoch, and those that it renews."""
    rows: dict[bytes, bytes] = {}
    for entry, partition in epoch.to_renew:
        key = entry.position_key(partition)
        if (known := physical.get(key)) is not None:
            rows[key] = position_from_record(known).renewed(epoch.as_of_ms).record()
    for changed in epoch.stores:
        position = positions.get((changed.store.spec.name, changed.store.partition))
        if position is not None:
            rows[changed.store.entry.position_key(changed.store.partition)] = position.record()
    return list(rows), list(rows.values())

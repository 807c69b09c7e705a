"""Bringing tasks back from their changelogs: what is written when a restoration begins, goes on and ends.

A task that is restored has a restore row and no task row; one write turns the one into the other when all its rows are here.
So whatever else is committed meanwhile, a crash never leaves half a task that looks whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import lt
from pathlib import Path

from flowql.runtime.state.catalog import StoreCatalog, read_tasks
from flowql.runtime.state.frozen import BOUND_RECORD, DROP_RECORD
from flowql.runtime.state.layout import BEGINNING_MS, StoreEntry, TaskRecord, decode_number, restore_key, task_key
from flowql.runtime.state.physical import ByteRange, PhysicalReader, Writes
from flowql.runtime.state.positions import ChangelogPosition, StorePartition
from flowql.runtime.state.runs.reader import TOMBSTONE

RESTORE_ROWS_MAX = 10_000  # per hold of the commit lock: some 20 ms
NO_POSITIONS: Mapping[str, ChangelogPosition] = {}


def begin_writes(
    physical: PhysicalReader,
    catalog: StoreCatalog,
    whole: Mapping[str, TaskRecord],
    stale: Iterable[str],
    kept: Collection[StorePartition],
) -> tuple[Writes, dict[str, TaskRecord]]:
    """Clear what is behind the log, and remember what to restore: tasks of `whole` (all there are) that are `stale` or missing.

    Local tasks that `whole` does not know were dropped by commits that this state has not seen.
    """
    local = read_tasks(physical)
    restoring = {t: whole[t] for t in sorted({*stale, *(set(whole) - set(local))})}
    known: dict[str, list[TaskRecord]] = {}
    for task_id in sorted((set(local) - set(whole)) | set(restoring)):
        known[task_id] = [r for r in (local.get(task_id), restoring.get(task_id)) if r is not None]
    return clear_writes(catalog, known, restoring, kept), restoring


def clear_writes(
    catalog: StoreCatalog | Mapping[str, StoreEntry],
    known: Mapping[str, Iterable[TaskRecord]],
    restoring: Mapping[str, TaskRecord],
    kept: Collection[StorePartition] = (),
) -> Writes:
    """Delete what is here of tasks, by all that is known of their stores; of `restoring` ones a restore row stays.

    kept: rows that stay with their position, to be restored from there on.
    """
    ranges: list[ByteRange] = []
    rows: dict[bytes, bytes | None] = {}
    for task_id, records in known.items():
        for record in records:
            for name in record.stores:
                entry = catalog.get(name)
                if entry is not None and (name, record.partition) not in kept:
                    ranges.append(entry.partition_range(record.partition))
                    rows[entry.bound_key(record.partition)] = None
                    rows[entry.position_key(record.partition)] = None
        rows[task_key(task_id)] = None
        new = restoring.get(task_id)
        rows[restore_key(task_id)] = None if new is None else new.record()
    return Writes(list(dict.fromkeys(ranges)), list(rows), list(rows.values()))


def no_floor(_entry: StoreEntry, _partition: int, _bound_ms: int) -> Mapping[bytes, bytes]:
    """See `RunWriter.floor`: for a store without runs."""
    return {}


def end_writes(
    physical: PhysicalReader,
    entries: Iterable[StoreEntry],
    task_id: str,
    record: TaskRecord,
    floor: Callable[[StoreEntry, int, int], Mapping[bytes, bytes]] = no_floor,
    positions: Mapping[str, ChangelogPosition] = NO_POSITIONS,
) -> Writes:
    """Marks a task as complete, and deletes segments below its time bound. positions: by store, the ends of its changelogs."""
    ranges: list[ByteRange] = []
    rows: dict[bytes, bytes | None] = {}
    for entry in entries:
        if entry.segment_ms is not None:
            bound = decode_number(physical.get(entry.bound_key(record.partition)), BEGINNING_MS)
            if bound > BEGINNING_MS:
                ranges.append(entry.expired_range(record.partition, bound))
                rows |= floor(entry, record.partition, bound)
        if (position := positions.get(entry.spec.name)) is not None:
            rows[entry.position_key(record.partition)] = position.record()
    rows |= {task_key(task_id): record.record(), restore_key(task_id): None}
    return Writes(ranges, list(rows), list(rows.values()))


@dataclass(frozen=True, slots=True)
class RowFile:
    """The effect of changelog records, made by another process. path: the file of their rows, None without rows. around: their other
    writes, which come first. records: their number. next_offset: the offset after them.
    """

    path: Path | None
    around: Writes
    records: int
    next_offset: int


def place_records(
    entry: StoreEntry, partition: int, record_keys: Sequence[bytes], record_values: Sequence[bytes | None]
) -> tuple[Writes, Writes]:
    """Changelog records as physical rows, in order: of several with one key the last, and nothing from before a drop.

    First what is to be written before them: ranges that go, and the time bound.
    """
    around = Writes([], [], [])
    if DROP_RECORD in record_keys or BOUND_RECORD in record_keys:
        around, record_keys, record_values = _apart(entry, partition, record_keys, record_values)
    keys = entry.place(record_keys, partition)
    if all(map(lt, keys, islice(keys, 1, None))):  # as one commit wrote them
        return around, Writes([], keys, list(record_values))
    rows = dict(zip(keys, record_values, strict=True))
    ordered = sorted(rows)
    return around, Writes([], ordered, list(map(rows.__getitem__, ordered)))


def over_runs(rows: Writes) -> Writes:
    """Rows for a store that has runs: a deleted row stays, to hide what they have of it."""
    return rows._replace(values=[TOMBSTONE if v is None else v for v in rows.values])


def _apart(
    entry: StoreEntry, partition: int, keys: Sequence[bytes], values: Sequence[bytes | None]
) -> tuple[Writes, list[bytes], list[bytes | None]]:
    """Records that are no rows: what they say, and the others since the last drop."""
    drops = [i for i, key in enumerate(keys) if key == DROP_RECORD]
    records = list(zip(keys, values, strict=True))[drops[-1] + 1 if drops else 0 :]
    bounds = [value for key, value in records if key == BOUND_RECORD]
    rows = [(key, value) for key, value in records if key != BOUND_RECORD]
    around = Writes(
        [entry.partition_range(partition)] if drops else [],
        [entry.bound_key(partition)] if drops or bounds else [],
        bounds[-1:] or ([None] if drops else []),
    )
    return around, [key for key, _ in rows], [value for _, value in rows]

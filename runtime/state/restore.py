"""Bringing tasks back from their changelogs: what is written when a restoration begins, goes on and ends.

A task that is restored has a restore row and no task row; one write turns the one into the other when all its rows are here.
So whatever else is committed meanwhile, a crash never leaves half a task that looks whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from runtime.state.catalog import Catalog, read_tasks
from runtime.state.frozen import BOUND_RECORD, DROP_RECORD, Writes
from runtime.state.layout import BEGINNING_MS, StoreEntry, TaskRecord, decode_number, restore_key, task_key
from runtime.state.physical import ByteRange, PhysicalReader

RESTORE_ROWS_MAX = 10_000  # per hold of the commit lock: some 20 ms


def begin_writes(
    physical: PhysicalReader, catalog: Catalog, whole: Mapping[str, TaskRecord], stale: Iterable[str]
) -> tuple[Writes, dict[str, TaskRecord]]:
    """Clear what is behind the log, and remember what to restore: tasks of `whole` (all there are) that are `stale` or missing.

    Local tasks that `whole` does not know were dropped by commits that this state has not seen.
    """
    local = read_tasks(physical)
    restoring = {t: whole[t] for t in sorted({*stale, *(set(whole) - set(local))})}
    known: dict[str, list[TaskRecord]] = {}
    for task_id in sorted((set(local) - set(whole)) | set(restoring)):
        known[task_id] = [r for r in (local.get(task_id), restoring.get(task_id)) if r is not None]
    return clear_writes(catalog, known, restoring), restoring


def clear_writes(
    catalog: Catalog, known: Mapping[str, Iterable[TaskRecord]], restoring: Mapping[str, TaskRecord]
) -> Writes:
    """Delete what is here of tasks, by all that is known of their stores; of `restoring` ones a restore row stays."""
    ranges: list[ByteRange] = []
    rows: dict[bytes, bytes | None] = {}
    for task_id, records in known.items():
        for record in records:
            for name in record.stores:
                entry = catalog.get(name)
                if entry is not None:
                    ranges.append(entry.partition_range(record.partition))
                    rows[entry.bound_key(record.partition)] = None
        rows[task_key(task_id)] = None
        new = restoring.get(task_id)
        rows[restore_key(task_id)] = None if new is None else new.record()
    return Writes(list(dict.fromkeys(ranges)), list(rows), list(rows.values()))


def end_writes(physical: PhysicalReader, entries: Iterable[StoreEntry], task_id: str, record: TaskRecord) -> Writes:
    """The task is whole; segments below its time bound go."""
    ranges = []
    for entry in entries:
        if entry.segment_ms is not None:
            bound = decode_number(physical.get(entry.bound_key(record.partition)), BEGINNING_MS)
            if bound > BEGINNING_MS:
                ranges.append(entry.expired_range(record.partition, bound))
    return Writes(ranges, [task_key(task_id), restore_key(task_id)], [record.record(), None])


def place_records(
    entry: StoreEntry, partition: int, record_keys: Sequence[bytes], record_values: Sequence[bytes | None]
) -> Writes:
    """Changelog records as physical rows; of several with one key the last, and nothing from before a drop.

    Sorted, as neighbours go into the store faster.
    """
    rows = dict(zip(record_keys, record_values, strict=True))
    ranges: list[ByteRange] = []
    bound: bytes | None = None
    dropped = DROP_RECORD in rows
    if dropped:
        first = max(i for i, key in enumerate(record_keys) if key == DROP_RECORD) + 1
        rows = dict(zip(record_keys[first:], record_values[first:], strict=True))
        ranges.append(entry.partition_range(partition))
    if BOUND_RECORD in rows:
        bound = rows.pop(BOUND_RECORD)
    ordered = sorted(rows)
    keys, values = entry.place(ordered, partition), list(map(rows.__getitem__, ordered))
    if dropped or bound is not None:
        keys.append(entry.bound_key(partition))
        values.append(bound)
    return Writes(ranges, keys, values)

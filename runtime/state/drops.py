"""Deletions of the next commit beside the writes of tasks: tasks, stores, partitions of stores. Guarded by the epoch lock."""

from __future__ import annotations

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.state.layout import StoreEntry, restore_key, task_key
from flowql.runtime.state.physical import ByteRange


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

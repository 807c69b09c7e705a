"""Rows that a task did not use: late rows and dead letters, kept with its state so that a restart forgets none of it.

In a task's metadata under LOST: {"late": {operator: [rows, furthest behind in ms, stream time then]}, "dead": records, "looks": {join:
[stream rows, how many of them met a row, latest time of these, latest time of the table's rows]}}; of a join its first rows count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flowql.runtime.operators.base import NO_TIME, Looks

LOST = "lost"
FIRST_ROWS = 1_000  # of a join, in all partitions: by then one of them should have met a row


@dataclass(frozen=True, slots=True)
class LateCount:
    """Rows of an operator that came too late in one partition. behind_ms: the furthest behind stream time; 0: not known."""

    operator: str
    partition: int
    rows: int
    behind_ms: int
    stream_time: int


def with_micro_batch(
    lost: Mapping[str, Any],
    late: Mapping[str, int],
    behind: Mapping[str, int],
    times: Mapping[str, int],
    dead: int,
    looks: Mapping[str, Looks],
) -> dict[str, Any]:
    """The counts of lost rows after a micro-batch; an empty mapping if no row was ever lost."""
    after = dict(lost)
    if looks:
        after["looks"] = _with_looks(lost.get("looks", {}), looks)
    if late:
        known = dict(lost.get("late", {}))
        for operator, rows in late.items():
            before = known.get(operator, [0, 0, 0])
            known[operator] = [
                before[0] + rows,
                max(before[1], behind.get(operator, 0)),
                max(before[2], times.get(operator, 0)),
            ]
        after["late"] = known
    if dead:
        after["dead"] = lost.get("dead", 0) + dead
    return after


def _with_looks(known: Mapping[str, Sequence[int]], looks: Mapping[str, Looks]) -> dict[str, Sequence[int]]:
    after = dict(known)
    for join, new in looks.items():
        rows, found, stream_ms, table_ms = known.get(join, (0, 0, NO_TIME, NO_TIME))
        if rows < FIRST_ROWS:
            rows, found, stream_ms = rows + new.rows, found + new.found, max(stream_ms, new.stream_ms)
        after[join] = (rows, found, stream_ms, table_ms if found else max(table_ms, new.table_ms))
    return after


def _blind_joins(lost: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each join whose first rows met nothing, while the table has rows of later times; of all partitions together."""
    together: dict[str, list[Sequence[int]]] = {}
    for each in lost:
        for join, numbers in each.get("looks", {}).items():
            together.setdefault(join, []).append(numbers)
    for join, parts in sorted(together.items()):
        rows, found = sum(p[0] for p in parts), sum(p[1] for p in parts)
        if rows < FIRST_ROWS or found:
            continue
        if max(p[3] for p in parts) > min(p[2] for p in parts if p[0]):
            yield (
                f"{join}: none of its first {rows:,} rows found a row of its table, whose rows have later times; import the table "
                "without --timestamp to have its rows count from the beginning, or give them earlier times"
            )


@dataclass(frozen=True, slots=True)
class LostRows:
    """Lost rows of a query, all its partitions together."""

    dead_letters: int
    late: tuple[LateCount, ...]
    notes: tuple[str, ...] = ()

    @property
    def late_records(self) -> int:
        return sum(each.rows for each in self.late)

    def to_data(self) -> dict[str, Any]:
        """The fields of an entry of `status`."""
        return {
            "dead_letters": self.dead_letters,
            "late_records": self.late_records,
            "late": [asdict(each) for each in self.late],
            "notes": list(self.notes),
        }


def losses_of(tasks: Iterable[tuple[int, Mapping[str, Any]]]) -> LostRows:
    """tasks: the partition of each and its LOST."""
    tasks = list(tasks)
    dead, late = 0, list[LateCount]()
    for partition, lost in tasks:
        dead += lost.get("dead", 0)
        late += [LateCount(operator, partition, *numbers) for operator, numbers in sorted(lost.get("late", {}).items())]
    notes = tuple(_blind_joins(lost for _, lost in tasks))
    return LostRows(dead, tuple(sorted(late, key=lambda each: (each.operator, each.partition))), notes)

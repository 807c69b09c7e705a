"""Positions: how far the changelog partition of a store is applied to the rows that are here.

A position is an offset below which every committed record of the partition is applied. Rows may be newer than their position, never older: changes are
absolute, so a restoration that reads on from the position writes the same rows again. docs/internals/state.md has the proof.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from flowql.runtime.log.base import Admin, TopicPartition
from flowql.runtime.state.layout import StoreEntry, TaskRecord
from flowql.runtime.state.locks import NamedLock
from flowql.runtime.state.physical import PhysicalReader
from flowql.runtime.state.task_state import ManagedTask
from flowql.runtime.state.values import decode_value, encode_value

# Positions of tasks that commit nothing are renewed so often. It bounds how old a position of a running instance is.
RENEW_MS = 3_600_000

KEPT_MS = "delete.retention.ms"  # how long a topic keeps tombstones once they were compacted; a day by default
_DAY_MS = 86_400_000

StorePartition = tuple[str, int]
"""Name of a store, and a partition of it."""


@dataclass(frozen=True, slots=True)
class ChangelogPosition:
    """Where the rows of one partition of a store are in its changelog.

    topic_id: of the changelog topic, see `TopicDescription`. offset: every committed record below it is applied. as_of_ms: wall clock at a time when
    the rows were all that the partition held; a tombstone behind `offset` was written later. writer, sequence: the transactional id and
    the number of the commit that wrote the position; empty and 0 after a restoration.
    """

    topic_id: str
    offset: int
    as_of_ms: int
    writer: str = ""
    sequence: int = 0

    def record(self) -> bytes:
        return encode_value((self.topic_id, self.offset, self.as_of_ms, self.writer, self.sequence))

    def renewed(self, now_ms: int) -> ChangelogPosition:
        """The same as of a later time, for rows that nothing was written behind since."""
        return replace(self, as_of_ms=now_ms)


def position_from_record(data: bytes) -> ChangelogPosition:
    return ChangelogPosition(*decode_value(data))


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a position is not used. ahead: the log has lost what was committed."""

    reason: str
    ahead: bool = False


def doubts(
    admin: Admin,
    positions: Mapping[TopicPartition, ChangelogPosition],
    *,
    sequences: Mapping[str, int],
    now_ms: int,
) -> dict[TopicPartition, Doubt]:
    """The positions from which a restoration must not begin, by changelog partition. Asks brokers. LogUnavailable.

    sequences: of the last commit of each writer that the log has. now_ms: by the wall clock.
    """
    if not positions:
        return {}
    tps = sorted(positions)
    names = sorted({tp.topic for tp in tps})
    described, topics = admin.describe_topics(names).result(), admin.topics()
    begins, ends = admin.begin_offsets(tps), admin.ask_written_offsets(tps).result()
    found: dict[TopicPartition, Doubt] = {}
    for tp in tps:
        known, position = described.get(tp.topic), positions[tp]
        config = topics[tp.topic].config if tp.topic in topics else {}
        age_ms_max = int(config.get(KEPT_MS, _DAY_MS)) // 2
        age_ms = now_ms - position.as_of_ms
        if known is None or known.id != position.topic_id:
            found[tp] = Doubt("its topic is another one by now")
        elif position.sequence > sequences.get(position.writer, 0):
            lost = f"commit {position.sequence} of {position.writer} is not in the log"
            found[tp] = Doubt(lost, ahead=True)
        elif not begins.get(tp, 0) <= position.offset <= ends.get(tp, 0):
            ahead = position.offset > ends.get(tp, 0)
            bounds = f"offset {position.offset} is not between {begins.get(tp, 0)} and {ends.get(tp, 0)}"
            found[tp] = Doubt(bounds, ahead=ahead)
        elif abs(age_ms) > age_ms_max:  # clocks of two machines, or of one at two times, may differ
            found[tp] = Doubt(f"it is {age_ms} ms old, and deletions are kept for {2 * age_ms_max} ms")
    return found


class PositionRenewals:
    """When the positions of tasks that may write nothing are renewed: once in `RENEW_MS`. The epoch lock is held."""

    def __init__(self) -> None:
        self._renewed_ms = 0

    def due(
        self, tasks: Iterable[ManagedTask], restoring: Collection[str], now_ms: int
    ) -> list[tuple[StoreEntry, int]]:
        """Stores and partitions of open tasks, if it is time. Their rows are all that the log has for them."""
        if abs(now_ms - self._renewed_ms) < RENEW_MS:
            return []
        self._renewed_ms = now_ms
        whole = [t for t in tasks if t.id not in restoring]
        return [(s.entry, s.partition) for t in whole for s in t.stores.values() if not s.detached]


def read_positions(
    physical: PhysicalReader, entries: Iterable[StoreEntry], partition: int
) -> dict[StorePartition, ChangelogPosition]:
    """Those of one partition of these stores that there are."""
    found = ((e.spec.name, physical.get(e.position_key(partition))) for e in entries)
    return {(name, partition): position_from_record(data) for name, data in found if data is not None}


class LostRows:
    """Partitions of stores with rows that cannot be read any more, because their blocks in a remote store are gone or damaged.

    Nothing stops for it: their tasks are closed, and restored as if their rows had never been here. Any thread; replaced as a whole. A restart
    forgets them, and finds them again.
    """

    def __init__(self) -> None:
        self._lock = NamedLock("lost rows", guards="the replacement of the set; readers take it as it is")
        self._lost: frozenset[StorePartition] = frozenset()

    def __bool__(self) -> bool:
        return bool(self._lost)

    def add(self, prefix: bytes, stores: Iterable[StoreEntry]) -> StorePartition | None:
        """The partition of one of these stores that has its rows under this prefix, if it is there."""
        found = next(((e.spec.name, p) for e in stores for p in e.partitions if e.prefix(p) == prefix), None)
        if found is not None:
            with self._lock:
                self._lost |= {found}
        return found

    def restored(self, partitions: Iterable[StorePartition]) -> None:
        """Forgets the lost rows of these partitions."""
        with self._lock:
            self._lost -= frozenset(partitions)

    def all(self) -> frozenset[StorePartition]:
        return self._lost

    def of(self, record: TaskRecord) -> bool:
        """Whether a task has lost rows."""
        return any((store, record.partition) in self._lost for store in record.stores)

    def without(self, positions: dict[StorePartition, ChangelogPosition]) -> dict[StorePartition, ChangelogPosition]:
        """Positions of rows that are all here."""
        return {at: position for at, position in positions.items() if at not in self._lost}

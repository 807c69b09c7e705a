"""A Kafka cluster in memory: partitions with open transactions and markers, producers with epochs, and groups (`groups.py`).

What it does as brokers do: aborted records and markers take offsets; readers see up to the first open transaction; the outcome of a
transaction is decided at once, but its markers reach each partition, and the positions of the group, a moment later, one by one;
a newer epoch of a producer fences the older one; a transaction that stays open too long is aborted and its producer fenced.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

from flowql.runtime.clock import Clock
from flowql.runtime.errors import Fenced, LogError, LogUnavailable, TopicMissing
from flowql.runtime.log.base import RECORD_SCHEMA, Position, TopicInfo, TopicPartition
from tests.sim.groups import Group

TRANSACTION_MS_MAX = 2_000


class TransactionState(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class Transaction:
    """unmarked: partitions and groups that have no marker of it yet."""

    writer: str
    begun_ms: int
    outcome: TransactionState = TransactionState.OPEN
    positions: dict[str, dict[TopicPartition, Position]] = field(default_factory=dict)
    unmarked: set[TopicPartition | str] = field(default_factory=set)

    @property
    def finished(self) -> bool:
        return self.outcome is not TransactionState.OPEN and not self.unmarked


@dataclass(slots=True, eq=False)
class Entry:
    """Records from offset `base` up to `end`, or a marker (records is None)."""

    base: int
    end: int
    records: pa.RecordBatch | None
    transaction: Transaction | None


@dataclass(slots=True)
class Partition:
    start: int = 0
    end: int = 0
    bases: list[int] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    open: dict[Transaction, int] = field(default_factory=dict)  # without a marker: where its records begin

    @property
    def stable_end(self) -> int:
        """Up to here readers see."""
        return min(self.open.values(), default=self.end)

    def append(self, records: pa.RecordBatch | None, transaction: Transaction | None) -> None:
        end = self.end + (1 if records is None else records.num_rows)
        if records is not None:
            offsets = pa.array(range(self.end, end), pa.int64())
            records = pa.RecordBatch.from_arrays([offsets, *records.columns], schema=RECORD_SCHEMA)
            if transaction is not None:
                self.open.setdefault(transaction, self.end)
        self.bases.append(self.end)
        self.entries.append(Entry(self.end, end, records, transaction))
        self.end = end

    def mark(self, transaction: Transaction) -> None:
        del self.open[transaction]
        self.append(None, transaction)

    def visible_from(self, offset: int) -> pa.RecordBatch | None:
        """The committed records that hold `offset`, or the next ones; None if there are none yet."""
        n = max(0, bisect_right(self.bases, offset) - 1)
        for entry in self.entries[n:]:
            if entry.base >= self.stable_end:
                return None
            aborted = entry.transaction is not None and entry.transaction.outcome is TransactionState.ABORTED
            if entry.end > offset and entry.records is not None and not aborted:
                return entry.records
        return None


@dataclass(slots=True)
class Writer:
    """A transactional id."""

    epoch: int = 0
    current: Transaction | None = None


class Broker:
    """marker_delay_ms: how long until a marker is at a partition or a group; 0 is at once."""

    def __init__(self, clock: Clock, marker_delay_ms: Callable[[TopicPartition | str], int] = lambda place: 0) -> None:
        self.clock, self.marker_delay_ms = clock, marker_delay_ms
        self.topics: dict[str, TopicInfo] = {}
        self.topic_ids: Counter[str] = Counter()  # how often a topic of that name was made
        self.partitions: dict[TopicPartition, Partition] = {}
        self.writers: dict[str, Writer] = {}
        self.groups: dict[str, Group] = {}
        self.fences = True  # a planted bug takes it away
        self.on_commit: Callable[[Transaction], None] = lambda transaction: None  # decided, and not marked yet
        self._markers: list[tuple[int, Transaction, TopicPartition | str]] = []  # when due
        self._late_ends: list[tuple[int, str, int, bool]] = []  # requests that are still on their way

    # -- topics

    def partition(self, tp: TopicPartition) -> Partition:
        found = self.partitions.get(tp)
        if found is None:
            if tp.topic in self.topics:
                raise LogError(f"topic {tp.topic} has {self.topics[tp.topic].partitions} partitions, not {tp}")
            raise TopicMissing(f"there is no topic {tp.topic}")
        return found

    def group(self, name: str) -> Group:
        if name not in self.groups:
            self.groups[name] = Group()
        return self.groups[name]

    # -- transactions

    def init(self, name: str) -> int:
        """A new epoch; what the last one left open is aborted, what was decided is finished."""
        writer = self.writers.setdefault(name, Writer())
        writer.epoch += 1
        self._abort(writer)
        return writer.epoch

    def check_epoch(self, name: str, epoch: int) -> Writer:
        writer = self.writers[name]
        if self.fences and epoch != writer.epoch:
            raise Fenced(f"a newer producer {name} exists, or its transaction took too long")
        return writer

    def write(self, name: str, epoch: int, tp: TopicPartition, records: pa.RecordBatch) -> None:
        """Records of the open transaction; it begins with the first of them, once the one before it is finished."""
        partition, transaction = self.partition(tp), self._open(self.check_epoch(name, epoch), name)
        partition.append(records, transaction)
        transaction.unmarked.add(tp)

    def append(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        """Outside of a transaction."""
        self.partition(tp).append(records, None)

    def move_positions(self, name: str, epoch: int, group: str, positions: dict[TopicPartition, Position]) -> None:
        writer = self.check_epoch(name, epoch)
        for tp in positions:
            self.partition(tp)
        transaction = self._open(writer, name)
        transaction.positions.setdefault(group, {}).update(positions)
        transaction.unmarked.add(group)
        self.group(group).pending.setdefault(transaction, {}).update(positions)

    def end(self, name: str, epoch: int, *, commit: bool) -> None:
        """Decide the open transaction. Markers follow."""
        writer = self.check_epoch(name, epoch)
        transaction = writer.current
        if transaction is None or transaction.outcome is not TransactionState.OPEN:
            return
        transaction.outcome = TransactionState.COMMITTED if commit else TransactionState.ABORTED
        if commit:
            self.on_commit(transaction)
        for place in sorted(transaction.unmarked, key=str):
            delay = self.marker_delay_ms(place)
            if delay:
                self._markers.append((self.clock.timer_ms() + delay, transaction, place))
            else:
                self._mark(transaction, place)

    def end_later(self, name: str, epoch: int, after_ms: int) -> None:
        """A request to commit that is still on its way: it counts if the producer is not fenced by then."""
        self._late_ends.append((self.clock.timer_ms() + after_ms, name, epoch, True))

    def written(self, transaction: Transaction | None) -> bool:
        """Whether readers see it."""
        return transaction is None or transaction.finished

    def tick(self) -> None:
        """What is due: markers, late requests, transactions that took too long."""
        now = self.clock.timer_ms()
        due = [m for m in self._markers if m[0] <= now]
        if due:
            self._markers = [m for m in self._markers if m[0] > now]
            for _, transaction, place in due:
                self._mark(transaction, place)
        for late in [e for e in self._late_ends if e[0] <= now]:
            self._late_ends.remove(late)
            _, name, epoch, commit = late
            if self.writers[name].epoch == epoch:
                self.end(name, epoch, commit=commit)
        for writer in self.writers.values():
            t = writer.current
            if t is not None and t.outcome is TransactionState.OPEN and now - t.begun_ms > TRANSACTION_MS_MAX:
                writer.epoch += 1
                self._abort(writer)

    def finish_markers(self) -> None:
        """All of them, now."""
        markers, self._markers = self._markers, []
        for _, transaction, place in markers:
            self._mark(transaction, place)

    def _open(self, writer: Writer, name: str) -> Transaction:
        if writer.current is not None and writer.current.outcome is not TransactionState.OPEN:
            self._finish(writer.current)  # the client waits for it
        if writer.current is None or writer.current.finished:
            writer.current = Transaction(name, self.clock.timer_ms())
        return writer.current

    def _abort(self, writer: Writer) -> None:
        transaction = writer.current
        if transaction is not None:
            if transaction.outcome is TransactionState.OPEN:
                transaction.outcome = TransactionState.ABORTED
            self._finish(transaction)

    def _finish(self, transaction: Transaction) -> None:
        for place in sorted(transaction.unmarked, key=str):
            self._mark(transaction, place)
        self._markers = [m for m in self._markers if m[1] is not transaction]

    def _mark(self, transaction: Transaction, place: TopicPartition | str) -> None:
        if place not in transaction.unmarked:
            return
        transaction.unmarked.discard(place)
        if isinstance(place, TopicPartition):
            if place in self.partitions:  # else the topic was deleted
                self.partitions[place].mark(transaction)
            return
        group = self.group(place)
        positions = group.pending.pop(transaction)
        if transaction.outcome is TransactionState.COMMITTED:
            group.move(positions)

    # -- positions

    def stable_positions(self, group: str, tps: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        found, wanted = self.group(group), set(tps)
        for positions in found.pending.values():
            if wanted & positions.keys():
                raise LogUnavailable(f"group {group}: a transaction that moves positions is not finished")
        return {tp: p for tp, p in found.positions.items() if tp in wanted}

"""Where a result can be read: an interactive query, its topic from the beginning, and a reader that follows the topic all along."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from flowql.compiler.plan.topology import SourceDef
from flowql.query.relations import Relation, arrow_schema
from flowql.query.room import QueryMemory, Room
from flowql.query.session import answer
from flowql.query.statement import Statement
from flowql.query.united import restored, unite
from flowql.runtime.errors import OffsetOutOfRange
from flowql.runtime.log.base import EARLIEST, Log, Reader, TopicPartition
from flowql.server.on_runtime import RuntimeEngine

Row = tuple[int, int, bytes | None, bytes | None, int]  # partition, offset, key, value, time
State = Counter[Any]


def records(reader: Reader) -> list[Row]:
    """What comes next."""
    found: list[Row] = []
    while True:
        try:
            raw = reader.read(1_000_000, 1 << 30)
        except OffsetOutOfRange:  # a new generation has taken their place
            reader.seek(EARLIEST)
            continue
        if raw is None:
            return found
        columns = [raw.records.column(n).to_pylist() for n in ("offset", "key", "value", "timestamp")]
        found += [(reader.tp.partition, *row) for row in zip(*columns, strict=True)]


def partitions_of(log: Log, topic: str) -> list[TopicPartition]:
    info = log.admin().topics().get(topic)
    return [TopicPartition(topic, p) for p in range(info.partitions)] if info is not None else []


def of_topic(log: Log, source: SourceDef) -> State:
    """The topic as one reads it who begins now."""
    found = [row for tp in partitions_of(log, source.topic) for row in records(log.reader(tp, EARLIEST))]
    return state_of(source, found)


def state_of(source: SourceDef, rows: list[Row]) -> State:
    """A stream: its records. A table: the last value of each key that has one.

    When a row of a table was last written depends on which of its changes were one (rule R13), so times of tables do not count.
    """
    if source.kind == "stream":
        return Counter((p, key, value, time) for p, _, key, value, time in rows)
    last = {(p, key): value for p, _, key, value, _ in rows}
    return Counter((*key, value) for key, value in last.items() if value is not None)


ROOM = Room(QueryMemory(1 << 62))  # whatever a story holds


class NotWhole(Exception):
    """A member of a group answers for some partitions only: it has just begun."""


def of_relation(front: RuntimeEngine, name: str) -> State:
    """What an interactive query is answered from."""
    return of_relations(front, [name])[name]


def of_relations(front: RuntimeEngine, names: Sequence[str]) -> dict[str, State]:
    """What an interactive query about all of them is answered from. NotWhole if that is not all of them."""
    commit = front.take(names)
    try:
        made: dict[str, Relation] = {n: make() for n, make in commit.relations().items() if n in names}
        if commit.others is not None:
            made, coverage = unite(commit, made, Statement("", tuple(names)), ROOM)
        else:
            coverage = restored(commit, made)
        if not coverage.whole:
            raise NotWhole(coverage.why)
        return {
            name: rows_of_table(
                pa.Table.from_batches(made[name].batches((), None, ROOM), arrow_schema(made[name].schema))
            )
            for name in names
        }
    finally:
        commit.snapshot.close()


def of_query(front: RuntimeEngine, name: str) -> State:
    return rows_of_table(answer(f"SELECT * FROM {name}", front.take).table())


def rows_of_table(table: Any) -> State:
    names = tuple(table.column_names)
    columns = [c.to_pylist() for c in table.columns]
    return Counter(
        (names, *(tuple(v) if isinstance(v, list) else v for v in row)) for row in zip(*columns, strict=True)
    )


@dataclass(slots=True)
class Follower:
    """Reads a topic from the first moment on and never begins again, but where its partitions have changed. kinds: what it has been the
    topic of. reshaped: whether they may have.
    """

    topic: str
    readers: list[Reader]
    kinds: set[str] = field(default_factory=set)
    reshaped: bool = False
    rows: list[Row] = field(default_factory=list)

    @classmethod
    def of(cls, log: Log, topic: str) -> Follower:
        return cls(topic, [log.reader(tp, EARLIEST) for tp in partitions_of(log, topic)])

    def read(self, log: Log) -> None:
        """Up to the end. Of a stream, what a new generation has replaced is forgotten; of a table nothing is, but that it was a stream."""
        there = partitions_of(log, self.topic)
        if self.reshaped and len(there) != len(self.readers):
            self.readers, self.rows = [log.reader(tp, EARLIEST) for tp in there], []
        for reader in self.readers:
            self.rows += records(reader)
        if self.kinds != {"table"} or self.reshaped:
            begin = {r.tp.partition: log.admin().begin_offset(r.tp) for r in self.readers}
            self.rows = [row for row in self.rows if row[1] >= begin[row[0]]]

    def moved(self, log: Log) -> None:
        """The same log, opened again."""
        there = set(partitions_of(log, self.topic))
        if self.reshaped and not all(r.tp in there for r in self.readers):
            self.readers, self.rows = [log.reader(tp, EARLIEST) for tp in sorted(there)], []
            return
        self.readers = [log.reader(r.tp, r.position) for r in self.readers]

    def state(self, source: SourceDef) -> State:
        return state_of(source, self.rows)

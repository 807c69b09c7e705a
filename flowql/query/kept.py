"""Rows of tables as they were last read from their topics, kept for the next look-up: what was read once is not decoded again.

A table in a topic is the last record of each key. Without this, a look-up would decode every record of the topic. Here it reads the records since
the last one and finds its key in an index.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.topology import SourceDef, scan_of
from flowql.query.lookup import Points, access
from flowql.query.own_keys import rows_of
from flowql.query.pace import Pace, Share
from flowql.query.relations import TopicRelation, ambiguous, decode, records
from flowql.query.room import Room
from flowql.query.statement import Condition
from flowql.runtime.batch import DELETE
from flowql.runtime.log.base import RawBatch, TopicPartition
from flowql.runtime.log.repairs import RepairedLog
from flowql.runtime.operators.decode import Decoder
from flowql.runtime.state.rows import Key
from flowql.runtime.state.values import encode_value

KEY_BYTES = 250  # of a key and its place in the index
DEAD_ROWS_MIN = 1_024  # replaced rows that are kept until they are more than half of all
# Where offsets do not tell whether compaction has removed deletions that were not read: no broker removes them sooner than this by default.
UNREAD_S_MAX = 3_600.0
Ends = Mapping[TopicPartition, int]
Place = tuple[int, int]


class KeptTopics:
    """The tables asked for last, within a size. Any thread."""

    def __init__(self, bytes_max: int, share: Share) -> None:
        """share: what reading may take of the interpreter."""
        self._bytes_max, self.share = bytes_max, share
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._lock = threading.Lock()  # guards the tables; each has a lock of its own

    def of(self, source: SourceDef, *, is_asked: bool = True) -> Kept:
        """is_asked: a query reads it now."""
        with self._lock:
            known = self._kept.get(source.topic)
            if known is None or (known.source is not source and known.source != source):
                if known is not None:
                    known.left()
                known = self._kept[source.topic] = self.made(source)
            if is_asked:
                self._kept.move_to_end(source.topic)
            return known

    def made(self, source: SourceDef) -> Kept:
        """One that has no rows yet."""
        return Kept(source)

    def points(self, relation: TopicRelation, keys: Sequence[Key], room: Room) -> list[pa.RecordBatch] | None:
        """The rows of a table with these keys; None if more was read already than the relation has. A local table that may be too large to be kept is searched."""
        if relation.source.is_own_table and self.left_to_read(relation) * KEY_BYTES > self._bytes_max:
            return rows_of(relation, keys, room)
        kept = self.of(relation.source)
        with kept.lock:
            found = kept.points(keys) if kept.advance(relation, room, self.share) else None
        self.trim()
        return found

    def read_to(self, relation: TopicRelation) -> dict[TopicPartition, int]:
        """Up to where the records of a table are kept; their beginning if they are not."""
        kept = self._kept.get(relation.source.topic)
        begins = {tp: begin for tp, (begin, _) in relation.spans.items()}
        if kept is None or kept.source != relation.source or kept.begins != begins:
            return begins
        ends = dict(kept.ends)
        return {tp: max(begin, ends.get(tp, begin)) for tp, begin in begins.items()}

    def left_to_read(self, relation: TopicRelation) -> int:
        """How many records of a table are not kept."""
        at = self.read_to(relation)
        return sum(max(0, end - at[tp]) for tp, (_, end) in relation.spans.items())

    def read_on(self, relation: TopicRelation, room: Room) -> bool:
        """Reads a table on to the ends of the relation, in the background. False if it does not fit beside those that queries have read meanwhile."""
        kept = self.of(relation.source, is_asked=False)
        with kept.lock:
            kept.advance(relation, room, self.share)
        room.back()
        self.trim()
        return self._kept.get(relation.source.topic) is kept

    def points_now(self, relation: TopicRelation, keys: Sequence[Key]) -> list[pa.RecordBatch] | None:
        """As `points`, without waiting: None if records have to be read, or another thread reads them."""
        kept = self._kept.get(relation.source.topic)
        if kept is None or kept.source != relation.source or not kept.lock.acquire(blocking=False):
            return None
        try:
            found = kept.points(keys) if kept.has_all(relation) else None
        finally:
            kept.lock.release()
        if found is not None:
            self.of(relation.source)  # now the one that was asked for last
        return found

    def trim(self) -> None:
        """Forgets those that were asked for longest ago, until the others fit."""
        with self._lock:
            while self._kept and sum(k.size for k in self._kept.values()) > self._bytes_max:
                self._kept.popitem(last=False)[1].left()


@dataclass(slots=True, eq=False)
class Kept:
    """Rows of one table up to `ends`. All but `source` is guarded by `lock`; batches that were given out are never changed."""

    source: SourceDef
    size: int = 0  # bytes
    lock: threading.Lock = field(default_factory=threading.Lock)
    begins: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    _batches: list[pa.RecordBatch] = field(default_factory=list)
    _alive: list[np.ndarray] = field(default_factory=list)
    _index: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    _shown: list[pa.RecordBatch] | None = None  # rows that are alive, until the next change
    _dead: int = 0
    _repaired_to: int = 0  # the position in the topic of repairs
    _read_at: float = 0.0

    def advance(self, relation: TopicRelation, room: Room, share: Share | None = None) -> bool:
        """Reads on to the ends of the relation; False if more was read already than it has. share: what that may take of the interpreter."""
        begins, ends = (
            {tp: b for tp, (b, _) in relation.spans.items()},
            {tp: e for tp, (_, e) in relation.spans.items()},
        )
        if any(self.ends.get(tp, 0) > end for tp, end in ends.items()) and self.begins == begins:
            return False
        repaired_to = relation.log.repairs.position if isinstance(relation.log, RepairedLog) else 0
        may_have_missed = not relation.log.drops_with_commits and time.monotonic() - self._read_at > UNREAD_S_MAX
        # Where its beginning is gone it is another generation, or retention has deleted records.
        if self.begins != begins or self._repaired_to != repaired_to or may_have_missed:
            self._restart()
        self.begins, self._repaired_to = begins, repaired_to
        self.reach(relation, ends, room, share)
        if self._dead > max(DEAD_ROWS_MIN, len(self._index)):
            self._compact()
        return True

    def has_all(self, relation: TopicRelation) -> bool:
        """Whether it has the rows of the relation, and no later ones."""
        repaired_to = relation.log.repairs.position if isinstance(relation.log, RepairedLog) else 0
        spans = {tp: (self.begins.get(tp, 0), end) for tp, end in self.ends.items()}
        return spans == relation.spans and self._repaired_to == repaired_to and relation.log.drops_with_commits

    def reach(self, relation: TopicRelation, ends: Ends, room: Room, share: Share | None = None) -> None:
        """Reads on to these ends. Arguments as of `advance`."""
        begins = self.begins
        try:
            if not self._read(relation, ends, room, share):
                self._restart()
                self.begins = begins
                self._read(relation, ends, room, share)
        except BaseException:
            self._forget()
            raise
        self.ends, self._read_at = dict(ends), time.monotonic()

    def _read(self, relation: TopicRelation, ends: Ends, room: Room, share: Share | None) -> bool:
        """False if compaction has removed records since the last time: a deletion may be one of them."""
        decoder, pace = None, Pace(share) if share is not None else None
        for tp, end in sorted(ends.items()):
            at = max(self.begins[tp], self.ends.get(tp, 0))
            for raw in records(relation.log, tp, at, end):
                gap = raw.first_offset != at or raw.next_offset - at != raw.records.num_rows
                if gap and self.ends and relation.log.drops_with_commits:
                    return False
                decoder = decoder or Decoder(scan_of(self.source), self.source.schema)
                room.check()
                if pace is not None:
                    pace.begin()
                try:
                    self._add(relation, decoder, raw, room)
                    if pace is not None:
                        pace.rest()
                finally:
                    if pace is not None:
                        pace.end()
                at = raw.next_offset
        return True

    def rows(self) -> list[pa.RecordBatch]:
        """All of them."""
        if self._shown is None:
            self._shown = [
                b if a.all() else b.filter(pa.array(a)) for b, a in zip(self._batches, self._alive, strict=True)
            ]
        return [b for b in self._shown if b.num_rows]

    def points(self, keys: Sequence[Key]) -> list[pa.RecordBatch]:
        """Those with these keys."""
        return points_of(self._batches, self._index.get, keys)

    def touch(self, key: bytes, before: tuple[int, int] | None) -> None:
        """A record of a key was read. before: its row until then."""

    def _add(self, relation: TopicRelation, decoder: Decoder, raw: RawBatch, room: Room) -> None:
        batch = decode(decoder, raw)
        if not len(batch):
            return
        shown, number, alive = relation.shown(batch), len(self._batches), np.ones(len(batch), np.bool_)
        room.hold(shown.nbytes)
        self._batches.append(shown)
        self._alive.append(alive)
        names = [f.name for f in batch.schema if f.role in ("key", "window")]
        for row, key in enumerate(zip(*(batch.column(n) for n in names), strict=True)):
            encoded = encode_value(key)
            before = self._index.pop(encoded, None)
            self.touch(encoded, before)
            if before is not None:
                self._alive[before[0]][before[1]] = False
                self._dead += 1
            if batch.op[row] == DELETE:
                alive[row] = False
                self._dead += 1
            else:
                self._index[encoded] = number, row
        self._shown = None
        self._measure()

    def left(self) -> None:
        """It is no longer kept, or what it was made of."""

    def _compact(self) -> None:
        """Drops rows that were replaced."""
        self.left()
        places = [np.cumsum(a) - 1 for a in self._alive]
        starts = np.concatenate([[0], np.cumsum([int(a.sum()) for a in self._alive])])
        table = pa.Table.from_batches(self.rows(), self._batches[0].schema).combine_chunks()
        self._index = {k: (0, int(starts[n] + places[n][row])) for k, (n, row) in self._index.items()}
        self._batches = table.to_batches()
        assert len(self._batches) <= 1, "a column of its strings has less than 2 GB"
        self._alive = [np.ones(b.num_rows, np.bool_) for b in self._batches]
        self._shown, self._dead = None, 0
        self._measure()

    def _restart(self) -> None:
        """All records are read again, so any key may have another row, or none."""
        self._forget()

    def _forget(self) -> None:
        self.left()
        self._batches, self._alive, self._index, self._shown, self._dead = [], [], {}, None, 0
        self.begins, self.ends, self.size = {}, {}, 0

    def _measure(self) -> None:
        self.size = sum(b.nbytes for b in self._batches) + KEY_BYTES * len(self._index)


@runtime_checkable
class ByKey(Protocol):
    """A table whose rows are found by key."""

    def points(self, keys: Sequence[Key], room: Room) -> list[pa.RecordBatch] | None:
        """The rows with these keys; None if more was read already than the relation has."""
        ...

    def points_now(self, keys: Sequence[Key]) -> list[pa.RecordBatch] | None:
        """The same without waiting; None if something has to be waited for."""
        ...


class KeptRelation(TopicRelation):
    """A table whose rows come from what is kept of it."""

    __slots__ = ("_topics",)
    _topics: KeptTopics

    def __init__(self, relation: TopicRelation, topics: KeptTopics) -> None:
        super().__init__(
            relation.name, relation.source, relation.log, relation.spans, relation.columns, relation.bounds
        )
        object.__setattr__(self, "_topics", topics)  # it is frozen

    def again(self) -> TopicRelation:
        again = TopicRelation(self.name, self.source, self.log, self.spans_again(), self.columns, self.bounds)
        return KeptRelation(again, self._topics)

    def batches(
        self, conditions: Sequence[Condition], columns: frozenset[str] | None, room: Room
    ) -> Iterator[pa.RecordBatch]:
        kept = self._topics.of(self.source)
        with kept.lock:
            found = self._found(kept, conditions) if kept.advance(self, room, self._topics.share) else None
        self._topics.trim()
        if found is None:
            yield from super().batches(conditions, columns, room)
        else:
            yield from found

    def points(self, keys: Sequence[Key], room: Room) -> list[pa.RecordBatch] | None:
        return self._topics.points(self, keys, room)

    def points_now(self, keys: Sequence[Key]) -> list[pa.RecordBatch] | None:
        return self._topics.points_now(self, keys)

    def _found(self, kept: Kept, conditions: Sequence[Condition]) -> list[pa.RecordBatch]:
        keys = keys_left(self, conditions)
        return kept.rows() if keys is None else kept.points(keys)


def keys_left(relation: TopicRelation, conditions: Sequence[Condition]) -> Sequence[Key] | None:
    """The keys that the conditions leave; None: any."""
    key: tuple[Field, ...] = tuple(f for f in relation.source.schema if f.role in ("key", "window"))
    place = None if ambiguous(relation.schema) else access(key, conditions)
    return place.keys if isinstance(place, Points) else None


def points_of(
    batches: Sequence[pa.RecordBatch], place_of: Callable[[bytes], Place | None], keys: Sequence[Key]
) -> list[pa.RecordBatch]:
    """The rows of these keys. place_of: gives the batch and the row of an encoded key."""
    found = (place_of(encode_value(key)) for key in keys)
    return [batches[n].slice(row, 1) for n, row in sorted(place for place in found if place is not None)]


def kept_if_table(relation: TopicRelation, topics: KeptTopics) -> TopicRelation:
    """Rows of streams are only added, and no key finds them: they are read each time."""
    plain = type(relation) is TopicRelation and relation.source.kind == "table" and relation.columns is None
    return KeptRelation(relation, topics) if plain else relation

"""Rows of tables as they were last read from their topics, kept for the next look-up: what was read once is not decoded again.

A table in a topic is the last record of each key. Without this, a look-up would decode every record of the topic. Here it reads the records since
the last one and finds its key in an index.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.topology import SourceDef, scan_of
from flowql.pg.errors import PgError
from flowql.pg.pins import PINS_MAX, Pin, PinnedStream, PinnedTable, Place, changed_meanwhile
from flowql.query.lookup import Points, access
from flowql.query.relations import TopicRelation, ambiguous, decode, records, spans_of
from flowql.query.room import Room
from flowql.query.statement import Condition
from flowql.runtime.batch import DELETE
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.base import RawBatch, TopicPartition
from flowql.runtime.operators.decode import Decoder
from flowql.runtime.state.values import encode_value

KEY_BYTES = 250  # of a key and its place in the index
PIN_TRIES = 5
DEAD_ROWS_MIN = 1_024  # replaced rows that are kept until they are more than half of all
Ends = Mapping[TopicPartition, int]
T = TypeVar("T")


class KeptTopics:
    """The tables asked for last, within a size. Any thread."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._pins: list[Pin] = []
        self._lock = (
            threading.Lock()
        )  # guards the tables and the pins; each table has a lock of its own, which is taken after it

    def pin(self, make: Callable[[], Pin], *, is_counted: bool = True) -> Pin:
        """Adds a pin until it is released: from now on the rows that it sees are kept. make: gives one of this moment. is_counted: among those of
        which there may be `PINS_MAX`. Raises PgError if there are too many.
        """
        for tries in range(1, PIN_TRIES + 1):
            made = make()
            made.is_counted = is_counted
            with self._lock:
                self._pins[:] = [p for p in self._pins if not p.is_released]
                if is_counted and sum(p.is_counted for p in self._pins) >= PINS_MAX:
                    title = f"at most {PINS_MAX} transactions read tables and views at the same time"
                    raise PgError("53400", title, help="end another one, or use autocommit")
                pinned = [t for t in made.spans if t in self._kept]
                beyond = [t for t in pinned if _is_beyond(self._kept[t].ends, made.ends(t))]
                if beyond and tries < PIN_TRIES:
                    continue  # other threads have read on meanwhile
                for topic in beyond:  # or the topic was made again
                    self._kept.pop(topic).left()
                self._pins.append(made)
                return made
        raise AssertionError("the last try adds it")

    def pinned(self, pin: Pin, relation: TopicRelation, room: Room, found: Callable[[Kept, PinnedTable], T]) -> T:
        """What is found in a table as the pin sees it. relation: with the spans of the pin. Raises PgError 40001 if that is no longer known."""
        topic = relation.source.topic
        kept = self.of(relation.source)
        with kept.lock:
            if topic not in pin.tables and topic not in pin.lost:
                try:
                    kept.advance(relation, room)
                except RuntimeFailure as error:
                    raise changed_meanwhile(relation.name) from error
            table = pin.tables.get(topic)
            if table is None:
                raise changed_meanwhile(relation.name)
            made = found(kept, table)
        self.trim()
        return made

    def of(self, source: SourceDef) -> Kept:
        with self._lock:
            known = self._kept.get(source.topic)
            if known is None or (known.source is not source and known.source != source):
                if known is not None:
                    known.left()
                known = self._kept[source.topic] = Kept(source, pins=self._pins)
            self._kept.move_to_end(source.topic)
            return known

    def matching(self, relation: TopicRelation, wanted: Mapping[str, int | str], room: Room) -> list[pa.RecordBatch]:
        """The rows of a table whose columns have these values."""
        while True:
            kept = self.of(relation.source)
            with kept.lock:
                if kept.advance(relation, room):
                    found = kept.matching(wanted)
                    break
            relation = relation.again()  # another thread has read further
        self.trim()
        return found

    def trim(self) -> None:
        """Forgets those that were asked for longest ago, until the others fit."""
        with self._lock:
            while self._kept and sum(k.size for k in self._kept.values()) > self._bytes_max:
                self._kept.popitem(last=False)[1].left()

    def clear(self) -> None:
        with self._lock:
            for kept in self._kept.values():
                kept.left()
            self._kept.clear()


@dataclass(slots=True, eq=False)
class Kept:
    """Rows of one table up to `ends`. All but `source` is guarded by `lock`; batches that were given out are never changed."""

    source: SourceDef
    size: int = 0  # bytes
    pins: Sequence[Pin] = ()  # that may see rows of it
    lock: threading.Lock = field(default_factory=threading.Lock)
    begins: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    _batches: list[pa.RecordBatch] = field(default_factory=list)
    _alive: list[np.ndarray] = field(default_factory=list)
    _index: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    _shown: list[pa.RecordBatch] | None = None  # rows that are alive, until the next change
    _dead: int = 0
    _seen: list[PinnedTable] = field(default_factory=list)  # by pins; each notes what becomes of the rows

    def advance(self, relation: TopicRelation, room: Room) -> bool:
        """Reads on to the ends of the relation; False if more was read already than it has. Stops on the way where a pin sees the table."""
        begins, ends = (
            {tp: b for tp, (b, _) in relation.spans.items()},
            {tp: e for tp, (_, e) in relation.spans.items()},
        )
        if any(self.ends.get(tp, 0) > end for tp, end in ends.items()) and self.begins == begins:
            return False
        if self.begins != begins:  # what was at the beginning is gone: another generation, or retention
            self._forget()
        self.begins = begins
        self._seen = [t for t in self._seen if not t.pin.is_released]
        for pin in self._stops(ends):
            self._see(pin, relation, room)
        self._read(relation, ends, room)
        if self._dead > max(DEAD_ROWS_MIN, len(self._index)):
            self._compact()
        return True

    def _stops(self, ends: Ends) -> list[Pin]:
        """Pins on the way to these ends, in order."""
        topic = self.source.topic
        found = [
            p
            for p in tuple(self.pins)
            if topic not in p.tables and topic not in p.lost and p.begins(topic) == self.begins
        ]
        at = ((p, p.ends(topic)) for p in found)
        on_the_way = ((p, e) for p, e in at if not _is_beyond(self.ends, e) and not _is_beyond(e, ends))
        return [p for p, _ in sorted(on_the_way, key=lambda pair: sum(pair[1].values()))]

    def _see(self, pin: Pin, relation: TopicRelation, room: Room) -> None:
        """Reads on to the ends of a pin, and keeps what it sees from now on."""
        topic, at = self.source.topic, pin.ends(self.source.topic)
        has_read, was_empty = self.ends == at, not self.ends
        self._read(relation, at, room)
        # Records that newer ones replace may have gone before they were read.
        if not has_read and has_gone(pin, relation, was_empty=was_empty):
            pin.lost.add(topic)
            return
        table = PinnedTable(pin, self._batches, self._alive, self._index, len(self._batches))
        pin.tables[topic] = table
        self._seen.append(table)

    def _read(self, relation: TopicRelation, ends: Ends, room: Room) -> None:
        decoder = Decoder(scan_of(self.source), self.source.schema)
        try:
            for tp, end in sorted(ends.items()):
                for raw in records(relation.log, tp, max(self.begins[tp], self.ends.get(tp, 0)), end):
                    self._add(relation, decoder, raw, room)
        except BaseException:
            self._forget()
            raise
        self.ends = dict(ends)

    def left(self) -> None:
        """It is no longer kept: what pins see of it is theirs alone."""
        for table in tuple(self._seen):
            table.pin.charge(self.size)

    def rows(self) -> list[pa.RecordBatch]:
        """All of them."""
        if self._shown is None:
            self._shown = [
                b if a.all() else b.filter(pa.array(a)) for b, a in zip(self._batches, self._alive, strict=True)
            ]
        return [b for b in self._shown if b.num_rows]

    def points(self, keys: Sequence[tuple[object, ...]]) -> list[pa.RecordBatch]:
        """Those with these keys."""
        return _points(self._batches, self._index.get, keys)

    def matching(self, wanted: Mapping[str, int | str], seen: PinnedTable | None = None) -> list[pa.RecordBatch]:
        """Those whose columns have these values. seen: the table as a pin sees it."""
        key = [f.name for f in self.source.schema if f.role in ("key", "window")]
        if wanted.keys() == set(key):
            keys = [tuple(wanted[name] for name in key)]
            return self.points(keys) if seen is None else _points(seen.batches, seen.get, keys)
        found = self.rows() if seen is None else seen.rows()
        for column, value in wanted.items():
            found = [b.filter(pc.equal(b.column(column), value)) for b in found]
        return [b for b in found if b.num_rows]

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
            for seen in self._seen:
                if encoded not in seen.undo:
                    seen.undo[encoded] = before
                    seen.pin.charge(KEY_BYTES)
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

    def _compact(self) -> None:
        """Drops rows that were replaced. Pins keep the rows as they are until now."""
        self._let_pins_go()
        places = [np.cumsum(a) - 1 for a in self._alive]
        starts = np.concatenate([[0], np.cumsum([int(a.sum()) for a in self._alive])])
        table = pa.Table.from_batches(self.rows(), self._batches[0].schema).combine_chunks()
        self._index = {k: (0, int(starts[n] + places[n][row])) for k, (n, row) in self._index.items()}
        self._batches = table.to_batches()
        assert len(self._batches) <= 1, "a column of its strings has less than 2 GB"
        self._alive = [np.ones(b.num_rows, np.bool_) for b in self._batches]
        self._shown, self._dead = None, 0
        self._measure()

    def _let_pins_go(self) -> None:
        """What is kept is made again, and leaves what it was made of to the pins."""
        self.left()
        self._seen = []

    def _forget(self) -> None:
        self._let_pins_go()
        self._batches, self._alive, self._index, self._shown, self._dead = [], [], {}, None, 0
        self.begins, self.ends, self.size = {}, {}, 0

    def _measure(self) -> None:
        self.size = sum(b.nbytes for b in self._batches) + KEY_BYTES * len(self._index)


class KeptRelation(TopicRelation):
    """A table whose rows come from what is kept of it."""

    __slots__ = ("_topics",)
    _topics: KeptTopics

    def __init__(self, relation: TopicRelation, topics: KeptTopics) -> None:
        super().__init__(relation.name, relation.source, relation.log, relation.spans, relation.columns)
        object.__setattr__(self, "_topics", topics)  # it is frozen

    def again(self) -> TopicRelation:
        spans = spans_of(self.log, self.source.topic)
        return KeptRelation(TopicRelation(self.name, self.source, self.log, spans, self.columns), self._topics)

    def batches(
        self, conditions: Sequence[Condition], columns: frozenset[str] | None, room: Room
    ) -> Iterator[pa.RecordBatch]:
        kept = self._topics.of(self.source)
        with kept.lock:
            found = self._found(kept, conditions, room) if kept.advance(self, room) else None
        self._topics.trim()
        if found is None:
            yield from super().batches(conditions, columns, room)
        else:
            yield from found

    def _found(self, kept: Kept, conditions: Sequence[Condition], room: Room) -> list[pa.RecordBatch]:
        keys = _keys(self, conditions)
        return kept.rows() if keys is None else kept.points(keys)


class PinnedRelation(TopicRelation):
    """A table as a pin sees it."""

    __slots__ = ("_pin", "_topics")
    _topics: KeptTopics
    _pin: Pin

    def __init__(self, relation: TopicRelation, topics: KeptTopics, pin: Pin) -> None:
        super().__init__(relation.name, relation.source, relation.log, relation.spans, relation.columns)
        object.__setattr__(self, "_topics", topics)  # it is frozen
        object.__setattr__(self, "_pin", pin)

    def again(self) -> TopicRelation:
        raise changed_meanwhile(self.name)

    def batches(
        self, conditions: Sequence[Condition], columns: frozenset[str] | None, room: Room
    ) -> Iterator[pa.RecordBatch]:
        def found(_: Kept, table: PinnedTable) -> list[pa.RecordBatch]:
            keys = _keys(self, conditions)
            return table.rows() if keys is None else _points(table.batches, table.get, keys)

        yield from self._topics.pinned(self._pin, self, room, found)


def _keys(relation: TopicRelation, conditions: Sequence[Condition]) -> Sequence[tuple[object, ...]] | None:
    """The keys that the conditions leave; None: any."""
    key: tuple[Field, ...] = tuple(f for f in relation.source.schema if f.role in ("key", "window"))
    place = None if ambiguous(relation.schema) else access(key, conditions)
    return place.keys if isinstance(place, Points) else None


def _points(
    batches: Sequence[pa.RecordBatch],
    place_of: Callable[[bytes], Place | None],
    keys: Sequence[tuple[object, ...]],
) -> list[pa.RecordBatch]:
    found = (place_of(encode_value(key)) for key in keys)
    return [batches[n].slice(row, 1) for n, row in sorted(place for place in found if place is not None)]


def _is_beyond(one: Ends, other: Ends) -> bool:
    """Whether one has records after the other's end."""
    return any(end > other.get(tp, 0) for tp, end in one.items())


def has_gone(pin: Pin, relation: TopicRelation, *, was_empty: bool) -> bool:
    """Whether compaction may have removed records that a pin sees. was_empty: records were read from the beginning of the topic. Where the log
    does not tell, this is taken for possible once newer records have come; those since what is kept was last read are too young for it.
    """
    admin, topic = relation.log.admin(), relation.source.topic
    files = pin.files.get(topic, {})
    if any(known is None for known in files.values()):
        return was_empty and admin.end_offsets(list(files)) != pin.ends(topic)
    return any(known is None or not known <= (admin.files_of(tp) or frozenset()) for tp, known in files.items())


def pinned_relation(relation: TopicRelation, topics: KeptTopics, pin: Pin) -> TopicRelation:
    """The relation as a pin sees it."""
    spans = pin.spans.get(relation.source.topic, {})
    found = PinnedStream(relation.name, relation.source, relation.log, spans, relation.columns)
    if relation.source.kind == "table" and relation.columns is None:
        return PinnedRelation(found, topics, pin)
    return found


def kept_if_table(relation: TopicRelation, topics: KeptTopics) -> TopicRelation:
    """Rows of streams are only added, and no key finds them: they are read each time."""
    plain = type(relation) is TopicRelation and relation.source.kind == "table" and relation.columns is None
    return KeptRelation(relation, topics) if plain else relation

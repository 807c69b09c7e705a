"""Rows of tables that are kept between queries (`flowql.query.kept`), and as the transactions of sessions see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from flowql.compiler.plan.topology import SourceDef
from flowql.pg.errors import PgError
from flowql.pg.pins import PINS_MAX, Pin, PinnedStream, PinnedTable, changed_meanwhile
from flowql.query.kept import KEY_BYTES, Kept, KeptTopics, keys_left, points_of
from flowql.query.pace import Share
from flowql.query.relations import TopicRelation
from flowql.query.room import Room
from flowql.query.statement import Condition
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.state.rows import Key

PIN_TRIES = 5
Ends = Mapping[TopicPartition, int]
T = TypeVar("T")


class PinnedTopics(KeptTopics):
    """The tables asked for last, within a size, and the pins that see rows of them. Any thread. A lock of a table is taken after that of all."""

    def __init__(self, bytes_max: int, share: Share) -> None:
        super().__init__(bytes_max, share)
        self._pins: list[Pin] = []

    def made(self, source: SourceDef) -> Kept:
        return KeptForPins(source, pins=self._pins)

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
        """Calls `found` with a table as the pin sees it. relation: with the spans of the pin. Raises PgError 40001 if that is no longer known."""
        topic = relation.source.topic
        kept = self.of(relation.source)
        with kept.lock:
            if topic not in pin.tables and topic not in pin.lost:
                try:
                    kept.advance(relation, room, self.share)
                except RuntimeFailure as error:
                    raise changed_meanwhile(relation.name) from error
            table = pin.tables.get(topic)
            if table is None:
                raise changed_meanwhile(relation.name)
            made = found(kept, table)
        self.trim()
        return made


@dataclass(slots=True, eq=False)
class KeptForPins(Kept):
    """Rows of one table, which notes what becomes of those that pins see. pins: that may see rows of it."""

    pins: Sequence[Pin] = ()
    _seen: list[PinnedTable] = field(default_factory=list)

    def reach(self, relation: TopicRelation, ends: Ends, room: Room, share: Share | None = None) -> None:
        """Stops on the way where a pin sees the table."""
        self._seen = [t for t in self._seen if not t.pin.is_released]
        for pin in self._stops(ends):
            self._see(pin, relation, room)
        super(KeptForPins, self).reach(relation, ends, room, share)

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
        super(KeptForPins, self).reach(relation, at, room)
        # Records that newer ones replace may have gone before they were read.
        if not has_read and has_gone(pin, relation, was_empty=was_empty):
            pin.lost.add(topic)
            return
        table = PinnedTable(pin, self._batches, self._alive, self._index, len(self._batches))
        pin.tables[topic] = table
        self._seen.append(table)

    def touch(self, key: bytes, before: tuple[int, int] | None) -> None:
        for seen in self._seen:
            if key not in seen.undo:
                seen.undo[key] = before
                seen.pin.charge(KEY_BYTES)

    def left(self) -> None:
        """Charges the rows to the pins that still see them, as nothing else keeps them."""
        for table in self._seen:
            table.pin.charge(self.size)
        self._seen = []


class PinnedRelation(TopicRelation):
    """A table as a pin sees it."""

    __slots__ = ("_pin", "_topics")
    _topics: PinnedTopics
    _pin: Pin

    def __init__(self, relation: TopicRelation, topics: PinnedTopics, pin: Pin) -> None:
        super().__init__(relation.name, relation.source, relation.log, relation.spans, relation.columns)
        object.__setattr__(self, "_topics", topics)  # it is frozen
        object.__setattr__(self, "_pin", pin)

    def again(self) -> TopicRelation:
        raise changed_meanwhile(self.name)

    def batches(
        self, conditions: Sequence[Condition], columns: frozenset[str] | None, room: Room
    ) -> Iterator[pa.RecordBatch]:
        def found(_: Kept, table: PinnedTable) -> list[pa.RecordBatch]:
            keys = keys_left(self, conditions)
            return table.rows() if keys is None else points_of(table.batches, table.get, keys)

        yield from self._topics.pinned(self._pin, self, room, found)

    def points(self, keys: Sequence[Key], room: Room) -> list[pa.RecordBatch] | None:
        return self._topics.pinned(self._pin, self, room, lambda _, table: points_of(table.batches, table.get, keys))

    def points_now(self, keys: Sequence[Key]) -> None:
        """The table may have to be read up to the pin."""


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


def pinned_relation(relation: TopicRelation, topics: PinnedTopics, pin: Pin) -> TopicRelation:
    """The relation as a pin sees it."""
    spans = pin.spans.get(relation.source.topic, {})
    found = PinnedStream(relation.name, relation.source, relation.log, spans, relation.columns)
    if relation.source.kind == "table" and relation.columns is None:
        return PinnedRelation(found, topics, pin)
    return found

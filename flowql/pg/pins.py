"""Pins: what a transaction reads is as it was at its first query, while other sessions and continuous queries go on.

A pin is the plan and an end of each topic. It copies nothing. Rows of a table that are kept (`flowql.pg.kept`) are never changed in place; from a pin
on, each key that gets a new record notes its row before. Streams are read from their topics up to the ends. A table of which nothing was kept is
read up to the end of the pin when it is first named. Its records may have been compacted away by then: that is an error, never another answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.topology import Plan
from flowql.errors import CommandError
from flowql.pg.errors import PgError
from flowql.query.relations import TopicRelation
from flowql.query.room import Room
from flowql.query.statement import Condition
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.base import TopicPartition

PINS_MAX = 16  # transactions that read, at the same time
Spans = Mapping[TopicPartition, tuple[int, int]]
Files = frozenset[tuple[int, int]] | None
Place = tuple[int, int]


@dataclass(slots=True, eq=False)
class Pin:
    """The commit that a transaction reads. sequence: of the commit. spans: of topics. files: of the partitions of each topic (`Admin.files_of`). room: the
    memory that it holds.
    """

    plan: Plan
    sequence: int
    spans: Mapping[str, Spans]
    files: Mapping[str, Mapping[TopicPartition, Files]]
    room: Room
    tables: dict[str, PinnedTable] = field(default_factory=dict)  # by topic, those that are kept as they were
    lost: set[str] = field(default_factory=set)  # topics of which records have gone that it would have to read
    is_over: bool = False  # it would take more memory than there is
    is_released: bool = False
    is_counted: bool = True
    _lock: threading.Lock = field(default_factory=threading.Lock)  # guards the room

    def charge(self, size: int) -> None:
        """Takes memory on behalf of the pin, in whichever thread has made it necessary. That thread does not wait and does not fail."""
        with self._lock:
            if not self.is_released and not self.room.take_now(size):
                self.is_over = True

    def release(self) -> None:
        """Gives back its memory."""
        with self._lock:
            self.is_released = True
            self.room.back()
        self.tables.clear()

    def ends(self, topic: str) -> dict[TopicPartition, int]:
        return {tp: end for tp, (_, end) in self.spans.get(topic, {}).items()}

    def begins(self, topic: str) -> dict[TopicPartition, int]:
        return {tp: begin for tp, (begin, _) in self.spans.get(topic, {}).items()}

    def check(self) -> None:
        """Raises PgError where there is no memory for it."""
        if self.is_over:
            title = (
                "the rows that this transaction still sees, and that have changed since, need more memory than there is"
            )
            raise PgError("53200", title, help="ROLLBACK, and use shorter transactions")


@dataclass(frozen=True, slots=True, eq=False)
class PinnedTable:
    """A table as it was. batches, alive, index: those of what is kept, which goes on; the first `count` batches count. undo: of keys with newer
    records, their rows before. The lock of what is kept guards it.
    """

    pin: Pin
    batches: Sequence[pa.RecordBatch]
    alive: Sequence[np.ndarray]
    index: Mapping[bytes, Place]
    count: int
    undo: dict[bytes, Place | None] = field(default_factory=dict)

    def rows(self) -> list[pa.RecordBatch]:
        """All of them."""
        again: dict[int, list[int]] = {}
        for place in self.undo.values():
            if place is not None:
                again.setdefault(place[0], []).append(place[1])
        found = []
        for number in range(self.count):
            alive, batch = self.alive[number], self.batches[number]
            if number in again:
                alive = alive.copy()
                alive[again[number]] = True
            found.append(batch if alive.all() else batch.filter(pa.array(alive)))
        return [b for b in found if b.num_rows]

    def get(self, key: bytes) -> Place | None:
        return self.undo[key] if key in self.undo else self.index.get(key)


def changed_meanwhile(name: str) -> PgError:
    title = f"{name} as it was at the first query of this transaction can no longer be read: its records were replaced or compacted"
    return PgError("40001", title, help="ROLLBACK, and run the transaction again")


class PinnedStream(TopicRelation):
    """The records of a topic up to the ends of a pin."""

    __slots__ = ()

    def again(self) -> TopicRelation:
        raise changed_meanwhile(self.name)

    def batches(
        self, conditions: Sequence[Condition], columns: frozenset[str] | None, room: Room
    ) -> Iterator[pa.RecordBatch]:
        try:
            yield from super().batches(conditions, columns, room)
        except RuntimeFailure as error:
            raise changed_meanwhile(self.name) from error


class Holder:
    """The pin of one transaction, made when it is needed. Any thread: a statement that was abandoned may come late."""

    def __init__(self) -> None:
        self._making = threading.Lock()  # held by the thread that makes the pin, which may take seconds
        self._lock = threading.Lock()  # guards the two below; never held for long, as the event loop takes it
        self._pin: Pin | None = None
        self._is_closed = False
        self._release: Callable[[Pin], None] | None = None

    @property
    def pin(self) -> Pin | None:
        return self._pin

    def pinned(self, make: Callable[[], Pin], release: Callable[[Pin], None]) -> Pin:
        """The pin. release: gives it back. Raises PgError."""
        with self._making:
            with self._lock:
                made, is_closed = self._pin, self._is_closed
            if made is None and not is_closed:
                made = make()
                with self._lock:
                    is_closed = self._is_closed
                    if not is_closed:
                        self._pin, self._release = made, release
                if is_closed:
                    release(made)
        if is_closed or made is None:
            raise PgError("25P01", "the transaction has ended")
        made.check()
        return made

    def close(self) -> None:
        """Gives the pin back, now or as soon as it is made. Does not wait."""
        with self._lock:
            self._is_closed = True
            pin, self._pin = self._pin, None
        if pin is not None and self._release is not None:
            with suppress(CommandError):
                self._release(pin)

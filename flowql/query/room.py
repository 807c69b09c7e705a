"""Memory that questions hold outside DuckDB: one budget for all questions of a process, of which each takes what it needs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from flowql.query.errors import NO_ROOM, TOO_LARGE, QueryError
from flowql.runtime.budget import MIB

WAIT_S = 5.0  # until others give back: meanwhile a question holds a commit, and what it has taken
_CHECK_S = 0.2


class QuestionMemory:
    """bytes_max: of all questions together. taken: by all of them. Any thread."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max, self.taken = bytes_max, 0
        self.changed = threading.Condition()  # guards what is taken, here and in each room


class Room:
    """The part of one question, for all of its threads. check: raises when the question is not to go on waiting."""

    def __init__(self, memory: QuestionMemory, check: Callable[[], None] = lambda: None) -> None:
        self._memory, self.check, self.taken = memory, check, 0

    @property
    def bytes_max(self) -> int:
        """Of all questions together."""
        return self._memory.bytes_max

    def take(self, size: int) -> None:
        """Waits for others if need be. Raises QueryError if there is no room in time, or never will be."""
        memory, limit = self._memory, time.monotonic() + WAIT_S
        with memory.changed:
            while memory.taken + size > memory.bytes_max:
                if self.taken + size > memory.bytes_max:
                    raise too_large(memory.bytes_max)
                left = limit - time.monotonic()
                if left <= 0:
                    raise no_room(memory.bytes_max, memory.taken - self.taken)
                memory.changed.wait(min(left, _CHECK_S))
                self.check()
            self.taken += size
            memory.taken += size

    def hold(self, size: int) -> None:
        """Take what rows on their way need. If they need more than there is they take all of it, so that no others are held meanwhile."""
        self.take(min(size, self._memory.bytes_max - self.taken))

    def passing(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Each of them, which is held until the next one is asked for."""
        before = self.taken
        for batch in batches:
            self.hold(batch.nbytes)
            yield batch
            self.back(before)

    def back(self, taken: int = 0) -> None:
        """What was taken since `taken` was all of it is no longer held."""
        with self._memory.changed:
            self._memory.taken -= self.taken - taken
            self.taken = taken
            self._memory.changed.notify_all()

    def keep(self, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """All of them, if there is room."""
        kept = []
        for batch in batches:
            self.take(batch.nbytes)
            kept.append(batch)
        return kept


def too_large(bytes_max: int) -> QueryError:
    title = f"this question needs more than the {bytes_max / MIB:,.0f} MB of memory that questions have here"
    help_ = "ask for fewer rows or columns, or give the target more:  memory: 2 GB   # in flowql.yaml"
    return QueryError(title, code=TOO_LARGE, help=help_)


def no_room(bytes_max: int, others: int) -> QueryError:
    """others: what they hold."""
    title = (
        f"other questions hold {others / MIB:,.0f} MB of the {bytes_max / MIB:,.0f} MB of memory that all questions share here, "
        f"and gave back too little within {WAIT_S:g} s"
    )
    help_ = "ask again in a moment, or give the target more:  memory: 2 GB   # in flowql.yaml"
    return QueryError(title, code=NO_ROOM, help=help_)

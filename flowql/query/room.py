"""Memory that interactive queries hold outside DuckDB: one budget for all of a process, of which each takes as much as it needs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from flowql.query.errors import NO_ROOM, TOO_LARGE, QueryError
from flowql.runtime.budget import MIB

WAIT_S = 5.0  # until others give back: during which a query holds a commit and the memory it has taken
_CHECK_S = 0.2


class QueryMemory:
    """bytes_max: of all interactive queries together. taken: by all of them. Any thread."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max, self.taken = bytes_max, 0
        self.changed = threading.Condition()  # guards what is taken, here and in each room


class Room:
    """The memory of one interactive query, for all of its threads. check: raises when the query has to stop waiting."""

    def __init__(self, memory: QueryMemory, check: Callable[[], None] = lambda: None) -> None:
        self._memory, self.check, self.taken = memory, check, 0

    @property
    def bytes_max(self) -> int:
        """The limit of all interactive queries together."""
        return self._memory.bytes_max

    def take(self, size: int) -> None:
        """Takes memory, after waiting for others to give back theirs if need be. Raises QueryError if too little is free in time or at all."""
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

    def take_now(self, size: int) -> bool:
        """Takes memory if it is free at this moment; whether it was."""
        with self._memory.changed:
            if self._memory.taken + size > self._memory.bytes_max:
                return False
            self.taken += size
            self._memory.taken += size
            return True

    def hold(self, size: int) -> None:
        """Takes memory for rows in transit; if they need more than the whole budget, all of it, so that no other rows are held meanwhile."""
        self.take(min(size, self._memory.bytes_max - self.taken))

    def passing(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields each batch and holds its memory until the next one is requested."""
        before = self.taken
        for batch in batches:
            self.hold(batch.nbytes)
            yield batch
            self.back(before)

    def back(self, taken: int = 0) -> None:
        """Gives back all but `taken` bytes."""
        with self._memory.changed:
            self._memory.taken -= self.taken - taken
            self.taken = taken
            self._memory.changed.notify_all()

    def keep(self, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """All batches, with their memory taken."""
        kept = []
        for batch in batches:
            self.take(batch.nbytes)
            kept.append(batch)
        return kept


def too_large(bytes_max: int, disk: str = "", remedy: str = "") -> QueryError:
    """disk: why what does not fit into memory could not be written to disk, and what to do about it."""
    title = f"this query needs more than the {bytes_max / MIB:,.0f} MB of memory for interactive queries here"
    help_ = "ask for fewer rows or columns, or give the target more:  memory: 2 GB   # in flowql.yaml"
    if disk:
        title, help_ = f"{title}, and {disk}", f"{remedy}; or {help_}"
    return QueryError(title, code=TOO_LARGE, help=help_)


def no_room(bytes_max: int, others: int) -> QueryError:
    """others: what they hold."""
    title = (
        f"other interactive queries hold {others / MIB:,.0f} MB of the {bytes_max / MIB:,.0f} MB of memory that they share here, "
        f"and gave back too little within {WAIT_S:g} s"
    )
    help_ = "ask again in a moment, or give the target more:  memory: 2 GB   # in flowql.yaml"
    return QueryError(title, code=NO_ROOM, help=help_)

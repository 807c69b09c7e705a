"""New rows of a stream and changes of a table, to iterate over, also from asynchronous code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from types import TracebackType

from flowql.query.arrow_changes import of_batch, to_batch
from flowql.query.change import Change, Rebuilt
from flowql.server.following import Following


class Subscription:
    """Iterates changes as they are committed, and blocks in between. Close it, or use it in a `with`.

    Yields a `Change` per row, and `Rebuilt` before all rows of a new generation. Ends at its limit, when closed, or
    after the last change if no instance runs.

    Iterate in one thread; close from any. `async for` waits in another thread.
    """

    def __init__(self, changes: Generator[Change | Rebuilt], end: Callable[[], None]) -> None:
        """end: ends `changes` soon. Thread-safe; may be called more than once."""
        self._changes, self._end = changes, end
        self._closed = False
        self._iterating = threading.Lock()  # held by the thread that waits for a change

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the iteration, whose thread releases its resources."""
        self._closed = True
        self._end()
        if self._iterating.acquire(blocking=False):
            self._released()

    def __iter__(self) -> Iterator[Change | Rebuilt]:
        return self

    def __next__(self) -> Change | Rebuilt:
        if not self._iterating.acquire(blocking=False):
            raise RuntimeError("another thread iterates this subscription; open one for each thread")
        if self._closed:
            self._released()
            raise StopIteration
        try:
            return next(self._changes)
        finally:
            self._iterating.release()

    def _released(self) -> None:
        """Releases the resources of the iterator and its lock."""
        try:
            self._changes.close()
        finally:
            self._iterating.release()

    async def __aiter__(self) -> AsyncIterator[Change | Rebuilt]:
        try:
            while (change := await asyncio.to_thread(next, self, None)) is not None:
                yield change
        finally:
            self.close()


def changes_of(following: Following) -> Generator[Change | Rebuilt]:
    """The changes of a push query of this process, with Python values: reference values of a TIMESTAMP are milliseconds."""
    try:
        for found in following:
            if isinstance(found, Rebuilt):
                yield found
            elif found:
                yield from of_batch(to_batch(found, following.query.result.schema))
    finally:
        following.close()

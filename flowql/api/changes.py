"""New rows of a stream and changes of a table, to iterate over, also from asynchronous code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType

from flowql.query.arrow_changes import of_batch, to_batch
from flowql.query.change import Change, Rebuilt
from flowql.server.following import Following


class Subscription:
    """Changes as they are committed, one after the other; blocks while there are none. Close it, or use it in a `with`.

    A `Change` is `insert` of a row into a stream, `put` or `delete` of a row of a table (`delete`: its row has the key alone). `Rebuilt`
    says that what was told so far was replaced, and that all rows of the new generation follow. It ends at its limit, when it
    is closed, and when no instance runs any more and everything was told.

    One thread iterates it; any thread may close it. `async for` waits in a thread of its own.
    """

    def __init__(self, changes: Iterator[Change | Rebuilt], end: Callable[[], None]) -> None:
        """end: has `changes` end soon; any thread may call it, more than once."""
        self._iterator, self._end = changes, end

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends it. The thread that iterates releases what it holds."""
        self._end()

    def __iter__(self) -> Iterator[Change | Rebuilt]:
        return self._iterator

    async def __aiter__(self) -> AsyncIterator[Change | Rebuilt]:
        try:
            while (change := await asyncio.to_thread(next, self._iterator, None)) is not None:
                yield change
        finally:
            self.close()


def changes_of(following: Following) -> Iterator[Change | Rebuilt]:
    """What a push query of this process tells, with values as Python has them: reference values of a TIMESTAMP are milliseconds."""
    try:
        for found in following:
            if isinstance(found, Rebuilt):
                yield found
            elif found:
                yield from of_batch(to_batch(found, following.query.result.schema))
    finally:
        following.close()

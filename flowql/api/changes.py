"""New rows of a stream and changes of a table, to iterate over, also from asynchronous code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from flowql.api.following import Following, Rebuilt
from flowql.query.tail import Change, with_bounds
from flowql.runtime.batch import to_arrow


class Subscription:
    """Changes as they are committed, one after the other; blocks while there are none. Close it, or use it in a `with`.

    A `Change` is `insert` of a row into a stream, `put` or `delete` of a row of a table (`delete`: its row has the key alone). `Rebuilt`
    says that what was told so far was replaced, and that all rows of the new generation follow. It ends at its limit, when it
    is closed, and when no instance runs any more and everything was told.

    One thread iterates it; any thread may close it. `async for` waits in a thread of its own.
    """

    def __init__(self, following: Following, closed: threading.Event) -> None:
        self._following, self._closed = following, closed
        self._iterator = self._changes()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends it. The thread that iterates releases what it holds."""
        self._closed.set()

    def __iter__(self) -> Iterator[Change | Rebuilt]:
        return self._iterator

    async def __aiter__(self) -> AsyncIterator[Change | Rebuilt]:
        try:
            while (change := await asyncio.to_thread(next, self._iterator, None)) is not None:
                yield change
        finally:
            self.close()

    def _changes(self) -> Iterator[Change | Rebuilt]:
        following = self._following
        try:
            for found in following:
                if isinstance(found, Rebuilt):
                    yield found
                else:
                    yield from self._typed(found)
        finally:
            following.close()

    def _typed(self, changes: Sequence[Change]) -> Iterator[Change]:
        """Their values as Python has them: reference values of a TIMESTAMP are milliseconds."""
        schema = with_bounds(self._following.query.result.schema)
        columns: dict[str, list[Any]] = {}
        for f in schema:
            columns[f.name] = to_arrow([c.row.get(f.name) for c in changes], f.type).to_pylist(maps_as_pydicts="strict")
        for i, c in enumerate(changes):
            row: Mapping[str, Any] = {name: columns[name][i] for name in c.row}
            yield Change(c.op, c.rowtime_ms, row)

"""A subscription for one client, which takes the pieces of a feed when the client takes them. It has no thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from flowql.errors import CommandError, CompileError, RuntimeFailure
from flowql.server.change_stream import KEEP_ALIVE_S, Form
from flowql.server.failures import INTERNAL, Failure
from flowql.server.feeds import Asked, Cursor, Feeds, LeftBehind, Piece
from flowql.server.following import Point


class Subscriber:
    """`begin` it, iterate its `frames`, and `close` it. failure: that the last frame tells."""

    def __init__(
        self, feeds: Feeds, ask: Callable[[], Asked], form: Form, limit: int | None, ended: Callable[[Subscriber], None]
    ) -> None:
        """ask: compiles the statement, which takes a while. limit: of changes. ended: called when all it held is released."""
        self._feeds, self._ask, self._form, self._limit, self._ended = feeds, ask, form, limit, ended
        self._cursor: Cursor | None = None
        self._opening: asyncio.Future[None] | None = None
        self._point: Point  # after the changes sent so far
        self._rows = 0
        self._is_closed = False  # the lock of the feeds guards it
        self.failure: Failure | None = None

    async def begin(self) -> None:
        """Returns after some seconds even if the changes have not begun. Raises CompileError, CommandError or RuntimeFailure."""
        self._loop, self._told = asyncio.get_running_loop(), asyncio.Event()
        asked = await self._loop.run_in_executor(self._feeds.threads, self._ask)
        limits = [n for n in (self._limit, asked.query.limit) if n is not None]
        self._limit = min(limits, default=None)
        self._opening = asyncio.ensure_future(self._open(asked))
        if (await asyncio.wait([self._opening], timeout=KEEP_ALIVE_S))[0]:
            self._opening.result()

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """Until the end or an error, which is the last frame."""
        assert self._opening is not None, "begun"
        try:
            while not (await asyncio.wait([self._opening], timeout=KEEP_ALIVE_S))[0]:
                yield self._form.alive
            self._opening.result()
            yield self._form.begun(self._point)
            while not self._is_full:
                self._told.clear()
                try:
                    piece = self._take()
                except LeftBehind:
                    if reset := await self._open_again():
                        yield reset
                    continue
                if piece is None:
                    try:
                        async with asyncio.timeout(KEEP_ALIVE_S):
                            await self._told.wait()
                    except TimeoutError:
                        yield self._form.alive
                elif piece.moved:
                    assert self._cursor is not None
                    self._cursor = self._cursor.next
                elif piece.found is None:
                    self.failure = piece.failure
                    break
                else:
                    yield await self._encoded(piece)
                    self._point = piece.after
        except (CommandError, CompileError, RuntimeFailure) as error:
            self.failure = error
        except Exception as error:  # the instance continues, and the subscriber gets the error
            self.failure = CommandError(f"internal error: {type(error).__name__}: {error}", code=INTERNAL)
        yield self._form.end if self.failure is None else self._form.error(self.failure)

    def close(self) -> None:
        """Any thread."""
        with self._feeds.lock:
            if self._is_closed:
                return
            self._is_closed = True
            cursor = self._cursor
        if self._opening is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._opening.cancel)
        if cursor is None:
            self._ended(self)
        else:
            self._feeds.leave(cursor, lambda: self._ended(self))

    @property
    def _is_full(self) -> bool:
        return self._limit is not None and self._rows >= self._limit

    async def _open(self, asked: Asked) -> None:
        """Gets a cursor, where others read the same if there is one."""
        point = None
        while point is None:
            with self._feeds.lock:
                self._cursor = Cursor(self._form, self._loop, self._told)
                self._cursor.is_closed = self._is_closed
            point = await asyncio.wrap_future(self._feeds.open(asked, self._cursor))
            asked = replace(asked, alone=True)
        self._point = point

    async def _open_again(self) -> bytes:
        """Continues after the changes sent so far. What is sent if it cannot; else empty."""
        asked = await self._loop.run_in_executor(self._feeds.threads, self._ask)
        await self._open(replace(asked, token=self._point.token or "", alone=True, is_slow=True))
        return self._form.reset(self._point) if self._point.reset else b""

    def _take(self) -> Piece | None:
        cursor = self._cursor
        assert cursor is not None
        assert cursor.feed is not None, "begun"
        with self._feeds.lock:
            return cursor.feed.take(cursor)

    async def _encoded(self, piece: Piece) -> bytes:
        found = piece.found
        if isinstance(found, pa.RecordBatch):
            self._rows += len(found)
            if self._is_full and self._limit is not None:  # the point is behind changes left out
                shown = found.slice(0, len(found) - (self._rows - self._limit))
                return self._form.rows(shown, replace(piece.after, token=None))
        if piece.is_encoded(self._form):
            return piece.encoded(self._form)
        assert self._cursor is not None
        assert self._cursor.feed is not None, "begun"
        return await self._loop.run_in_executor(self._feeds.threads, self._cursor.feed.encoded, piece, self._form)

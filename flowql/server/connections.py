"""Connections of a port: how many there may be, for how long one may stand still, and how they end.

A request is under limits once its head is read (`flowql.server.limits`). What comes before and after it costs a file and memory as well: a
client that says nothing, one that never ends its head, and one that leaves its answer where it is.

Where all connections of a port are in use, a new one takes the place of the oldest that has never sent the token: clients that say nothing,
however many there are, keep nobody out who has it.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from flowql.server.descriptors import Reserve

CONNECTIONS_MAX = 256  # of one port; more are hung up on
SILENT_S = 5.0  # without a byte
HEAD_S = 30.0  # without a request
HOLDS_TOKEN = "flowql.token"  # in the scope of a request: it came with the token
TAKE_S = 600.0  # with a part of an answer that the client has not taken: as long as an interactive query may take
LOOK_S = 5.0  # between two looks
TICK_S = 0.1  # of a server: what uvicorn counts in
END_LOOK_S = 0.005  # between two looks whether all connections are closed


class Connection(H11Protocol):
    """One that is hung up on where nothing moves."""

    _next_look: asyncio.TimerHandle | None = None
    _moved_at = _made_at = 0.0
    _has_sent = _holds_token = False
    # As of the last look.
    _request: object = None
    _unsent = 0
    _has_taken = False  # since then

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._moved_at = self._made_at = self.loop.time()
        self._next_look = self.loop.call_later(min(SILENT_S, LOOK_S), self._look)
        if len(self.connections) > CONNECTIONS_MAX:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        self._has_sent = True
        super().data_received(data)

    @property
    def is_known(self) -> bool:
        """Whether it has sent a request with the token."""
        scope = getattr(self, "scope", None)
        self._holds_token = self._holds_token or (scope is not None and HOLDS_TOKEN in scope)
        return self._holds_token

    def _make_room(self) -> None:
        """Hangs up on the oldest one without the token that is asking nothing; on this one if there is none."""
        others = [c for c in self.connections if isinstance(c, Connection) and c is not self]
        idle = [c for c in others if not c.is_known and (c.cycle is None or c.cycle.response_complete)]
        oldest = min(idle, key=lambda c: c._made_at, default=self)
        oldest.transport.abort()
        self.connections.discard(oldest)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._next_look is not None:
            self._next_look.cancel()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._has_taken = True

    def _look(self) -> None:
        now, request, unsent = self.loop.time(), self.cycle, self.transport.get_write_buffer_size()
        if unsent:
            moves, limit_s = self._has_taken or not 0 < self._unsent <= unsent, TAKE_S
        else:
            is_answered = request is None or request.response_complete
            moves, limit_s = request is not self._request or not is_answered, HEAD_S if self._has_sent else SILENT_S
        if moves:
            self._moved_at = now
        elif now - self._moved_at >= limit_s:
            self.transport.abort()
            return
        self._request, self._unsent, self._has_taken = request, unsent, False
        self._next_look = self.loop.call_later(LOOK_S, self._look)


class HttpServer(Server):
    """Ends as soon as it is told to and all answers are given; uvicorn's looks every 100 ms whether it is, and waits 100 ms for connections to close."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None

    def end(self) -> None:
        """Accepts nothing more; its thread ends once what it was asked is answered. Any thread."""
        self.should_exit = True
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(self._told.set)

    async def main_loop(self) -> None:
        self._told = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        reserve = Reserve(self._loop.time)
        self._loop.set_exception_handler(reserve.handle)
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 1
            reserve.look()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), TICK_S)
        reserve.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        for _ in range(round(TICK_S / END_LOOK_S)):
            await asyncio.sleep(END_LOOK_S)
            if not (self.server_state.connections or self.server_state.tasks):
                for listener in sockets or ():
                    listener.close()
                return
        await super().shutdown(sockets)

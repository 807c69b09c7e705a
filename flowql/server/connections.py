"""Connections of a port: how many there may be, for how long one may stand still, and how they end.

A request is under limits once its head is read (`flowql.server.limits`). Before and after that, a connection costs a file
and memory as well: a client that says nothing, one that never ends its head, and one that leaves its answer where it is.

Where all connections of a port are in use, a new one takes the place of the oldest that has never sent the token: clients that say nothing,
however many there are, keep nobody out who has it. Next is a WebSocket that is closing, which may never have sent the token. If there is none,
the connection that has been idle for longest ends. If none is idle, the new one is told so.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress

from h11 import Request
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from flowql.config.api import CONNECTIONS
from flowql.errors import CommandError
from flowql.server.descriptors import Reserve
from flowql.server.failures import LIMITED, MALFORMED, last_answer
from flowql.server.web_sockets import WebSocketConnection

SILENT_S = 5.0  # without a byte
HEAD_S = 30.0  # without a request
KEEP_S = 75  # without a further request of a client that has sent the token
HOLDS_TOKEN = "flowql.token"  # in the scope of a request: it came with the token
TAKE_S = 600.0  # with a part of an answer that the client has not taken: as long as an interactive query may take
LOOK_S = 5.0  # between two looks
TURNED_AWAY_S, TURNED_AWAY_MAX = 1.0, 64  # for reading why there is no room, and how many are told at the same time
TICK_S = 0.1  # of a server: what uvicorn counts in
END_LOOK_S = 0.005  # between two looks whether all connections are closed


class PortConfig(Config):
    """connections_max: of the port. turned_away: connections above it that are being told so."""

    connections_max = CONNECTIONS
    turned_away = 0


class Connection(H11Protocol):
    """A connection that is closed when nothing is sent or taken for too long."""

    config: PortConfig
    _next_look: asyncio.TimerHandle | None = None
    _moved_at = _made_at = 0.0
    _has_sent = _holds_token = _has_part = False  # has_part: of the head of a request
    _is_turned_away = False
    # As of the last look.
    _request: object = None
    _unsent = 0
    _has_taken = False  # since then

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._moved_at = self._made_at = self.loop.time()
        self._next_look = self.loop.call_later(min(SILENT_S, LOOK_S), self._look)
        if len(self.connections) > self.config.connections_max:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        if self._is_turned_away:
            return
        self._has_sent = True
        super().data_received(data)
        self._has_part = self.is_idle

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_known(self) -> bool:
        """Whether it has sent a request with the token."""
        scope = getattr(self, "scope", None)
        self._holds_token = self._holds_token or (scope is not None and HOLDS_TOKEN in scope)
        return self._holds_token

    def _make_room(self) -> None:
        """Ends a connection of the port that waits for a request, or a WebSocket that is closing. If there is none, turns this one away."""
        others = [c for c in self.connections if isinstance(c, Connection) and c is not self and c.is_idle]
        unknown = [c for c in others if not c.is_known]
        closing = (c for c in self.connections if isinstance(c, WebSocketConnection) and c.is_ending)
        oldest: Connection | WebSocketConnection | None = min(unknown, key=lambda c: c._made_at, default=None)
        oldest = next(closing, None) if oldest is None else oldest
        oldest = min(others, key=lambda c: c._moved_at, default=None) if oldest is None else oldest
        if oldest is not None:
            oldest.transport.abort()
            self.connections.discard(oldest)
        elif self.config.turned_away < TURNED_AWAY_MAX:
            self._turn_away()
        else:
            self.transport.abort()
            self.connections.discard(self)

    def _turn_away(self) -> None:
        """Its request is read and dropped: to close at once would reset the connection before the client reads the answer."""
        self._stop_looking()
        self.connections.discard(self)
        self._is_turned_away = True
        self.config.turned_away += 1
        title = f"the port serves {self.config.connections_max:,} connections, and all of them are in use"
        help_ = "ask again in a moment, use a connection for several requests, or set `connections` of `api`"
        self.transport.write(last_answer(503, CommandError(title, code=LIMITED, help=help_)))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._next_look = self.loop.call_later(TURNED_AWAY_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_looking()
        self.config.turned_away -= self._is_turned_away

    def send_400_response(self, msg: str) -> None:
        """Tells, in the form of all errors, that what came is not HTTP (400), or that the head of a request is too long (431)."""
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()  # in the middle of an answer
            return
        status = getattr(sys.exception(), "error_status_hint", 400)
        title = "the head of the request is too long" if status == 431 else msg
        self.transport.write(last_answer(status, CommandError(title, code=MALFORMED)))
        self.transport.close()

    def _should_upgrade(self) -> bool:
        return self.scope["method"] == "GET" and self._get_upgrade() == b"websocket"

    def handle_websocket_upgrade(self, event: Request) -> None:
        """The connection continues as one of WebSocket, which has rules of its own."""
        self._stop_looking()
        self.connections.discard(self)
        made = WebSocketConnection(self.config, self.server_state, self.transport)
        self.transport.set_protocol(made)
        made.open(self.scope)

    def on_response_complete(self) -> None:
        self.timeout_keep_alive = KEEP_S if self.is_known else self.config.timeout_keep_alive
        super().on_response_complete()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._has_taken = True

    def _stop_looking(self) -> None:
        if self._next_look is not None:
            self._next_look.cancel()

    def _look(self) -> None:
        now, request, unsent = self.loop.time(), self.cycle, self.transport.get_write_buffer_size()
        if unsent:
            moves, limit_s = self._has_taken or not 0 < self._unsent <= unsent, TAKE_S
        else:
            moves, limit_s = request is not self._request or not self.is_idle, self._idle_limit_s()
        if moves:
            self._moved_at = now
        elif now - self._moved_at >= limit_s:
            self.transport.abort()
            return
        self._request, self._unsent, self._has_taken = request, unsent, False
        self._next_look = self.loop.call_later(LOOK_S, self._look)

    def _idle_limit_s(self) -> float:
        if not self._has_sent:
            return SILENT_S
        return KEEP_S if self.is_known and not self._has_part else HEAD_S


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

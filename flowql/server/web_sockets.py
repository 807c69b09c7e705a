"""WebSocket connections (RFC 6455) on a port: they send events to a client, which sends only the handshake, control frames and the end.

Frames are those of the library `websockets`, without its connections. uvicorn's protocols take messages, and keep a connection whose client takes nothing.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.types import Message
from uvicorn import Config
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State
from websockets.utils import accept_key

from flowql.errors import CommandError
from flowql.runtime.events import ERROR, say
from flowql.server.failures import INTERNAL, MALFORMED, last_answer

MESSAGE_BYTES_MAX = 4_096  # of a client: every message is a mistake, and a longer one closes with another code
PING_S = 20.0  # between two pings, and until a client that does not answer is gone
TAKE_S = 600.0  # without taking anything: as for answers over HTTP
LOOK_S = 5.0  # between two looks
CLOSE_S = 2.0  # for the client's part of the closing handshake
REASON_BYTES_MAX = 123
NORMAL, UNSUPPORTED, ABNORMAL, POLICY, TOO_LARGE, FAILED, RESTART, LATER = (
    1000, 1003, 1006, 1008, 1009, 1011, 1012, 1013,
)  # fmt: skip
_MESSAGES = (Opcode.CONT, Opcode.TEXT, Opcode.BINARY)


class WebSocketConnection(asyncio.Protocol):
    """A connection upgraded from HTTP; `open` begins it. The application gets the messages of ASGI, but no message of the client."""

    def __init__(self, config: Config, server_state: ServerState, transport: asyncio.Transport) -> None:
        self.transport = transport
        self._app, self._loop = config.loaded_app, asyncio.get_running_loop()
        self._connections, self._tasks = server_state.connections, server_state.tasks
        self._told: asyncio.Queue[Message] = asyncio.Queue()
        self._writable = asyncio.Event()
        self._writable.set()
        self._frames = Protocol(Side.SERVER, max_size=MESSAGE_BYTES_MAX)
        self._is_open = self._is_gone = self._is_told = False  # told: the application knows that the connection ends
        self._response: Message | None = None  # in place of the handshake
        self._accept = ""
        self._pinged = b""  # the ping that is to be answered
        self._next_ping: asyncio.TimerHandle | None = None
        self._next_look: asyncio.TimerHandle | None = None
        self._end: asyncio.TimerHandle | None = None
        self._taken_at = 0.0
        self._unsent = 0  # as of the last look

    def open(self, scope: Mapping[str, Any]) -> None:
        """The handshake, whose request the protocol for HTTP has parsed."""
        self._connections.add(self)  # type: ignore[arg-type]  # it ends as the others
        headers = dict(scope["headers"])
        key = headers.get(b"sec-websocket-key", b"").strip()
        if why := _why_not(key, headers.get(b"sec-websocket-version", b"").strip()):
            self.transport.write(last_answer(400, CommandError(why, code=MALFORMED)))
            self.transport.close()
            return
        self._accept = accept_key(key.decode())
        asked = headers.get(b"sec-websocket-protocol", b"").decode("latin-1")
        self._told.put_nowait({"type": "websocket.connect"})
        about = {
            **{k: v for k, v in scope.items() if k != "method"},
            "type": "websocket",
            "scheme": "wss" if scope["scheme"] == "https" else "ws",
            "subprotocols": [name.strip() for name in asked.split(",") if name.strip()],
            "extensions": {"websocket.http.response": {}},
        }
        task = self._loop.create_task(self._run(about))
        task.add_done_callback(self._tasks.discard)
        self._tasks.add(task)

    @property
    def is_ending(self) -> bool:
        """Whether only the closing handshake is left."""
        return self._is_open and not self._is_going

    # Called by asyncio and the server.

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._is_gone = True
        for timer in (self._next_ping, self._next_look, self._end):
            if timer is not None:
                timer.cancel()
        self._tell_end(ABNORMAL)
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Frames come only after the handshake."""
        if not self._is_open:
            self.transport.abort()
            return
        self._frames.receive_data(data)
        for frame in self._frames.events_received():
            assert isinstance(frame, Frame), "the handshake is over"
            if frame.opcode in _MESSAGES:
                self._fail(UNSUPPORTED, "clients send no messages")
            elif frame.opcode is Opcode.PONG and frame.data == self._pinged:
                self._pinged = b""
            elif frame.opcode is Opcode.CLOSE:
                self._end_soon()
        if not self._is_going:
            self._tell_end(self._frames.close_code or NORMAL)
        self._flush()

    def pause_writing(self) -> None:
        """Its pings are not read either: each would be answered."""
        self._writable.clear()
        self.transport.pause_reading()
        self._taken_at, self._unsent = self._loop.time(), self.transport.get_write_buffer_size()
        self._next_look = self._loop.call_later(LOOK_S, self._look)

    def resume_writing(self) -> None:
        self._writable.set()
        self.transport.resume_reading()
        if self._next_look is not None:
            self._next_look.cancel()

    def shutdown(self) -> None:
        """The instance stops. A subscription tells what it has yet to tell and closes; one whose client takes nothing is closed here."""
        if not self._is_open:
            self.transport.close()
        elif not self._writable.is_set():
            self._fail(RESTART, "the instance stops")

    # Called by the application (ASGI).

    async def _run(self, scope: Mapping[str, Any]) -> None:
        try:
            await self._app(scope, self._receive, self._send)
        except OSError:  # the client is gone
            pass
        except Exception as error:
            say(ERROR, "websocket.failed", f"{type(error).__name__}: {error}")
            if not self._is_open:
                self.transport.write(last_answer(500, CommandError("internal error", code=INTERNAL)))
        finally:
            if self._end is None:
                self.transport.close()

    async def _receive(self) -> Message:
        return await self._told.get()

    async def _send(self, message: Message) -> None:
        await self._writable.wait()
        if self._is_gone or (self._is_open and not self._is_going):
            raise ConnectionResetError("the client is gone")
        match message["type"]:
            case "websocket.accept":
                self._open(message.get("subprotocol"))
            case "websocket.send":
                self._frames.send_text(message["text"].encode())
                self._flush()
            case "websocket.close":
                self._close(message.get("code", NORMAL), message.get("reason") or "")
            case "websocket.http.response.start":
                self._response = message
            case "websocket.http.response.body":
                assert self._response is not None, "begun"
                self.transport.write(_head(self._response["status"], self._response["headers"]) + message["body"])
                self.transport.close()

    def _open(self, subprotocol: str | None) -> None:
        headers = [
            (b"upgrade", b"websocket"),
            (b"connection", b"Upgrade"),
            (b"sec-websocket-accept", self._accept.encode()),
        ]
        if subprotocol is not None:
            headers.append((b"sec-websocket-protocol", subprotocol.encode("latin-1")))
        self.transport.write(_head(101, headers))
        self._is_open = True
        self._next_ping = self._loop.call_later(PING_S, self._ping)

    # Frames.

    @property
    def _is_going(self) -> bool:
        """Neither side has begun to close it."""
        return self._frames.state is State.OPEN

    def _close(self, code: int, reason: str) -> None:
        """The client answers with its part of the closing handshake."""
        self._frames.send_close(code, _cut(reason))
        self._end_soon()
        self._flush()

    def _fail(self, code: int, reason: str) -> None:
        """Closes without waiting for the application. What the client still sends is dropped."""
        self._tell_end(code)
        self._frames.fail(code, _cut(reason))
        self._end_soon()
        self._flush()

    def _flush(self) -> None:
        """Writes frames, and the end after the last one. What the client still sends is read meanwhile: closing at once would reset the connection, and
        the code would not arrive.
        """
        for data in self._frames.data_to_send():
            if data:
                self.transport.write(data)
            elif self._frames.close_rcvd is not None:
                self.transport.close()
            else:
                self._end_soon()
                if self.transport.can_write_eof():
                    self.transport.write_eof()

    def _tell_end(self, code: int) -> None:
        """Once: the application expects nothing after it."""
        if not self._is_told:
            self._is_told = True
            self._told.put_nowait({"type": "websocket.disconnect", "code": code})

    def _end_soon(self) -> None:
        self._end = self._end or self._loop.call_later(CLOSE_S, self.transport.abort)

    # Called by timers.

    def _ping(self) -> None:
        """A client that takes nothing gets none: its pong would come after what it has not taken, and `_look` sees to it."""
        if not self._is_going:
            return
        if self._writable.is_set():
            if self._pinged:
                self._fail(FAILED, "no pong")
                return
            self._pinged = os.urandom(4)
            self._frames.send_ping(self._pinged)
            self._flush()
        self._next_ping = self._loop.call_later(PING_S, self._ping)

    def _look(self) -> None:
        now, unsent = self._loop.time(), self.transport.get_write_buffer_size()
        if unsent < self._unsent:
            self._taken_at = now
        elif now - self._taken_at >= TAKE_S:
            self._fail(LATER, "the changes were not taken")
            return
        self._unsent = unsent
        self._next_look = self._loop.call_later(LOOK_S, self._look)


def _why_not(key: bytes, version: bytes) -> str:
    """Why a handshake is malformed; empty if it is not."""
    if version != b"13":
        return "the only supported version of WebSocket is 13"
    try:
        is_key = len(base64.b64decode(key, validate=True)) == 16
    except binascii.Error:
        is_key = False
    return "" if is_key else "Sec-WebSocket-Key is missing or malformed"


def _head(status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    lines = b"".join(b"%s: %s\r\n" % header for header in headers)
    return b"HTTP/1.1 %d %s\r\n%s\r\n" % (status, HTTPStatus(status).phrase.encode(), lines)


def _cut(reason: str) -> str:
    return reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore")

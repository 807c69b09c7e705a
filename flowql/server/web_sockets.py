"""WebSocket connections (RFC 6455) on a port: they send events to a client, which sends only the handshake, control frames and the end.

uvicorn's protocols were not chosen: they need a library that nothing else here uses, take messages, collect fragments, answer pings without
bounds, and keep a connection whose client takes nothing. A server that only sends needs the framing of what it sends and of control frames.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
import struct
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.types import Message
from uvicorn import Config
from uvicorn.server import ServerState

from flowql.errors import CommandError
from flowql.runtime.events import ERROR, say
from flowql.server.failures import INTERNAL, MALFORMED, last_answer

MESSAGE_BYTES_MAX = 4_096  # of a client: every message is a mistake, and a longer one closes with another code
PING_S = 20.0  # between two pings, and until a client that does not answer is gone
TAKE_S = 600.0  # without taking anything: as for answers over HTTP
LOOK_S = 5.0  # between two looks
CLOSE_S = 2.0  # for the client's part of the closing handshake
REASON_BYTES_MAX = 123
NORMAL, PROTOCOL, UNSUPPORTED, POLICY, TOO_LARGE, FAILED, RESTART, LATER = (
    1000, 1002, 1003, 1008, 1009, 1011, 1012, 1013,
)  # fmt: skip
_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10
_MESSAGES, _CONTROLS = (0, 1, 2), (_CLOSE, _PING, _PONG)
_CONTROL_BYTES_MAX = 125
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class WebSocketConnection(asyncio.Protocol):
    """A connection upgraded from HTTP; `open` begins it. The application gets the messages of ASGI, but no message of the client."""

    def __init__(self, config: Config, server_state: ServerState, transport: asyncio.Transport) -> None:
        self.transport = transport
        self._app, self._loop = config.loaded_app, asyncio.get_running_loop()
        self._connections, self._tasks = server_state.connections, server_state.tasks
        self._told: asyncio.Queue[Message] = asyncio.Queue()
        self._writable = asyncio.Event()
        self._writable.set()
        self._buffer = bytearray()  # of a frame that is not whole: below 140 bytes
        self._is_open = self._is_ending = self._is_gone = False
        self._drops = False  # what the client sends
        self._response: Message | None = None  # in place of the handshake
        self._accept = b""
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
        self._accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
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
        return self._is_ending

    # Called by asyncio and the server.

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._is_gone = True
        for timer in (self._next_ping, self._next_look, self._end):
            if timer is not None:
                timer.cancel()
        self._told.put_nowait({"type": "websocket.disconnect", "code": 1006})
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Bytes before the end of the handshake are no frame, and end the connection. Bytes after a mistake are dropped."""
        if not self._is_open:
            self.transport.abort()
        elif not self._drops:
            self._buffer += data
            while not self._drops and self._take_frame():
                pass

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
        if self._is_gone or self._is_ending:
            raise ConnectionResetError("the client is gone")
        match message["type"]:
            case "websocket.accept":
                self._open(message.get("subprotocol"))
            case "websocket.send":
                self.transport.write(_frame(_TEXT, message["text"].encode()))
            case "websocket.close":
                self._close(message.get("code", NORMAL), message.get("reason") or "")
            case "websocket.http.response.start":
                self._response = message
            case "websocket.http.response.body":
                assert self._response is not None, "begun"
                self.transport.write(_head(self._response["status"], self._response["headers"]) + message["body"])
                self.transport.close()

    def _open(self, subprotocol: str | None) -> None:
        headers = [(b"upgrade", b"websocket"), (b"connection", b"Upgrade"), (b"sec-websocket-accept", self._accept)]
        if subprotocol is not None:
            headers.append((b"sec-websocket-protocol", subprotocol.encode("latin-1")))
        self.transport.write(_head(101, headers))
        self._is_open = True
        self._next_ping = self._loop.call_later(PING_S, self._ping)

    def _close(self, code: int, reason: str) -> None:
        """The client answers with its part of the closing handshake."""
        self._is_ending = True
        self.transport.write(_frame(_CLOSE, struct.pack("!H", code) + _cut(reason)))
        self._end = self._loop.call_later(CLOSE_S, self.transport.abort)

    def _fail(self, code: int, reason: str) -> None:
        """Closes without waiting for the application. The code arrives only if what the client still sends is read: closing at once would reset
        the connection.
        """
        self._drops = True  # before anything else: `data_received` takes frames until then
        self._buffer.clear()
        if self._is_ending:
            return
        self._close(code, reason)
        self._told.put_nowait({"type": "websocket.disconnect", "code": code})
        if self.transport.can_write_eof():
            self.transport.write_eof()

    # Frames of the client.

    def _take_frame(self) -> bool:
        """Takes one frame from the buffer. False if it is not whole."""
        data = self._buffer
        if len(data) < 2:
            return False
        opcode, length = data[0] & 0x0F, data[1] & 0x7F
        if data[0] & 0x70 or not data[1] & 0x80 or opcode not in (*_MESSAGES, *_CONTROLS):
            self._fail(PROTOCOL, "not a frame of a client")
        elif opcode in _MESSAGES:
            size = {126: 2, 127: 8}.get(length, 0)
            if len(data) < 2 + size:
                return False
            is_large = (int.from_bytes(data[2 : 2 + size], "big") if size else length) > MESSAGE_BYTES_MAX
            self._fail(TOO_LARGE if is_large else UNSUPPORTED, "clients send no messages")
        elif length > _CONTROL_BYTES_MAX or not data[0] & 0x80:
            self._fail(PROTOCOL, "not a control frame")
        elif len(data) < 6 + length:
            return False
        else:
            payload = _unmasked(bytes(data[2:6]), bytes(data[6 : 6 + length]))
            del data[: 6 + length]
            self._take_control(opcode, payload)
        return True

    def _take_control(self, opcode: int, payload: bytes) -> None:
        if opcode == _CLOSE:
            if not self._is_ending:
                self._is_ending = True
                self.transport.write(_frame(_CLOSE, payload[:2]))
                self._told.put_nowait({"type": "websocket.disconnect", "code": 1005})
            self._drops = True
            self.transport.close()
            self._end = self._end or self._loop.call_later(CLOSE_S, self.transport.abort)
        elif opcode == _PING and not self._is_ending:
            self.transport.write(_frame(_PONG, payload))
        elif opcode == _PONG and payload == self._pinged:
            self._pinged = b""

    # Called by timers.

    def _ping(self) -> None:
        """A client that takes nothing gets none: its pong would come after what it has not taken, and `_look` sees to it."""
        if self._is_ending:
            return
        if self._writable.is_set():
            if self._pinged:
                self._fail(FAILED, "no pong")
                return
            self._pinged = os.urandom(4)
            self.transport.write(_frame(_PING, self._pinged))
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


def _frame(opcode: int, payload: bytes) -> bytes:
    """One that is whole; servers do not mask."""
    n = len(payload)
    if n < 126:
        head = struct.pack("!BB", 0x80 | opcode, n)
    elif n < 1 << 16:
        head = struct.pack("!BBH", 0x80 | opcode, 126, n)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 127, n)
    return head + payload


def _unmasked(mask: bytes, payload: bytes) -> bytes:
    n = len(payload)
    repeated = (mask * (n // 4 + 1))[:n]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(n, "big")


def _cut(reason: str) -> bytes:
    return reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore").encode()

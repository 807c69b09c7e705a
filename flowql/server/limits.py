"""Limits of a request before it is processed: the host it names, the length of its body and how long that takes, and how many there are at once.

Every port has these, around its routes. A request that is refused ends its connection: what is left of its body is not read.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import threading
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flowql.errors import CommandError
from flowql.server.access import RELAYED
from flowql.server.failures import FORBIDDEN, LIMITED, to_wire
from flowql.server.routes import APP, WEBSOCKET, Limit, Routes

RETRY_AFTER_S = b"1"  # of 503
HEAD_BYTES_MAX = 1 << 16  # parsers have their own limit for heads that come in parts
BODY_S = 30.0  # from the headers to the end of a body
ANY_NAME = ("localhost",)
_RELAYED = RELAYED.encode()  # it has all results of a token; the port limits it


class RequestCounts:
    """The number of requests that are being answered, by what they are counted as."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the counts
        self._counts: dict[str, int] = {}

    def begin(self, counted: str, at_once: int) -> bool:
        """Counts one more request. False if `at_once` are being answered already."""
        with self._lock:
            count = self._counts.get(counted, 0)
            if count < at_once:
                self._counts[counted] = count + 1
            return count < at_once

    def end(self, counted: str) -> None:
        with self._lock:
            self._counts[counted] -= 1
            if not self._counts[counted]:
                del self._counts[counted]


class Limited:
    """The routes of a port behind limits. app: calls that of the route (`routed`). names: hosts by which it may be called; an address always may be. origins: of web pages whose scripts may open a WebSocket, besides those of the port itself; for other requests, browsers ask for CORS.

    A page in a browser can have its own name lead to this machine; then Host has that name, and it is turned away.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Routes,
        names: Collection[str] = (),
        origins: Collection[str] = (),
    ) -> None:
        self._app, self._routes = app, routes
        self._origins = frozenset(origins)
        self._names = {n.casefold() for n in (*ANY_NAME, *names)}
        self._running = RequestCounts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_socket = scope["type"] == "websocket"
        headers = {k.lower(): v for k, v in scope["headers"]}
        route, scope["path_params"] = self._routes.find(WEBSOCKET if is_socket else scope["method"], scope["path"])
        counted, limit, scope[APP] = route.counted, route.limit, route.app
        head_bytes = sum(len(k) + len(v) for k, v in scope["headers"] if k != _RELAYED)
        refused = self._refused(headers, head_bytes, limit, is_socket=is_socket)
        if refused is None and not self._running.begin(counted, limit.at_once):
            refused = 503, _error(f"{limit.at_once} such requests are being answered", "ask again in a moment")
        if refused is not None:
            await _refuse(scope, send, *refused)
        elif is_socket:
            try:
                await self._app(scope, receive, send)
            finally:
                self._running.end(counted)
        else:
            await self._within(counted, limit, scope, receive, send)

    def _refused(
        self, headers: Mapping[bytes, bytes], head_bytes: int, limit: Limit, *, is_socket: bool
    ) -> tuple[int, CommandError] | None:
        """The status and the error of a request that is refused before it is routed."""
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._is_known(host):
            help_ = "use its address, or add the name to `names` in flowql.yaml"
            return 421, _error("this host name is not the instance's", help_)
        if head_bytes > HEAD_BYTES_MAX:
            return 431, _error(f"the head of a request has {HEAD_BYTES_MAX:,} bytes at most")
        if is_socket:
            origin = headers.get(b"origin", b"").decode("latin-1")
            if not origin or origin in self._origins or origin.partition("://")[2] == host:
                return None
            title = "scripts of this web page may not open a WebSocket here"
            return 403, CommandError(title, code=FORBIDDEN, help="add its origin to `origins` in flowql.yaml")
        if (encoding := headers.get(b"content-encoding", b"identity")).lower() != b"identity":
            title = f"a body with content-encoding {encoding.decode('latin-1')[:40]} is not unpacked here"
            return 415, _error(title, "send it as it is")
        if _length(headers) > limit.body_bytes:
            return 413, _error(f"a body has {limit.body_bytes:,} bytes at most here")
        return None

    async def _within(self, counted: str, limit: Limit, scope: Scope, receive: Receive, send: Send) -> None:
        body = _Body(receive, send, limit.body_bytes)
        try:
            await self._app(scope, body.receive, body.send)
        except _TooMuch as error:
            if not body.answered:
                await _refuse(scope, send, error.status, _error(str(error)))
        finally:
            self._running.end(counted)

    def _is_known(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
        name = name.removeprefix("[").removesuffix("]").casefold()
        return name in self._names or _is_address(name)


class _TooMuch(BaseException):
    """A body that is too large. It is not an Exception, which routes would answer with an internal error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Body:
    """The messages of one request, counted and timed until its body has ended; the connection ends with it if it has not."""

    def __init__(self, receive: Receive, send: Send, bytes_max: int) -> None:
        self._receive, self._send, self._left = receive, send, bytes_max
        self._limit = asyncio.get_running_loop().time() + BODY_S
        self._whole = self.answered = False

    async def receive(self) -> Message:
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._limit):
                message = await self._receive()
        except TimeoutError:
            raise _TooMuch(408, f"the body did not come within {BODY_S:.0f} s") from None
        self._left -= len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._left < 0:
            raise _TooMuch(413, "the body is too long")
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.answered = True
            if not self._whole and message["status"] >= 400:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await self._send(message)


@lru_cache(256)
def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _length(headers: Mapping[bytes, bytes]) -> int:
    text = headers.get(b"content-length", b"0")
    return int(text) if text.isdigit() else 0


def _error(title: str, help_: str = "") -> CommandError:
    return CommandError(title, code=LIMITED, help=help_)


async def _refuse(scope: Scope, send: Send, status: int, error: CommandError) -> None:
    body = json.dumps(to_wire(error)).encode()
    headers: list[tuple[bytes, Any]] = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *([(b"retry-after", RETRY_AFTER_S)] if status == 503 else []),
    ]
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"  # before the handshake ends
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})

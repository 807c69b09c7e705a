"""Requests that only the instance can answer: the gateway sends them to its local port, and passes bodies and answers on piece by piece.

Each side is read as fast as the other one takes it. When the client leaves, the connection to the instance closes, and the request ends there as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import h11
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from flowql.errors import CommandError
from flowql.server.access import RELAYED, Caller, Relayed
from flowql.server.address import LOST, SEEN
from flowql.server.entries import Call, Elsewhere, Entry, response

PIECE_BYTES = 1 << 16
# Connections that wait for the next request, and for how long. The instance keeps them for longer.
FREE_MAX, FREE_S = 16, 30.0
_SENT = {b"content-type", b"content-length", b"accept"}  # besides parameters of an entry
# The server of the client's connection sets these.
_DROPPED = {b"connection", b"keep-alive", b"transfer-encoding", b"date", b"server"}


class InstanceLost(Exception):
    """The connection to the instance ended before its answer did."""


@dataclass(slots=True, eq=False)
class Stream:
    """A connection to the instance, with one request at a time."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    http: h11.Connection = field(default_factory=lambda: h11.Connection(h11.CLIENT))
    free_since: float = 0.0

    async def send(self, *events: h11.Event) -> None:
        """Raises OSError."""
        self.writer.write(b"".join(self.http.send(event) or b"" for event in events))
        await self.writer.drain()

    async def events(self) -> AsyncIterator[h11.Event]:
        """The answer, until its end. Raises InstanceLost."""
        while True:
            try:
                event = self.http.next_event()
                if event is h11.NEED_DATA:
                    self.http.receive_data(await self.reader.read(PIECE_BYTES))
                    continue
            except (OSError, h11.RemoteProtocolError) as error:
                raise InstanceLost(str(error)) from error
            assert isinstance(event, h11.Event)
            yield event
            if isinstance(event, h11.EndOfMessage):
                return

    @property
    def is_reusable(self) -> bool:
        return self.http.our_state is h11.DONE and self.http.their_state is h11.DONE

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self.free_since < FREE_S and not self.reader.at_eof()


class Relay:
    """Connections to the instance's local port. One loop."""

    def __init__(self, port: int, token: str, answered: Callable[[], None], seen: Callable[[], int]) -> None:
        """answered: is called when an answer has begun, before its client gets it. seen: the newest commit that the gateway has answered from."""
        self._port, self._authorization = port, (b"authorization", f"Bearer {token}".encode())
        self._seen = seen
        self.answered = answered
        self._free: list[Stream] = []

    async def stream(self) -> Stream:
        """Raises OSError."""
        while self._free:
            found = self._free.pop()
            if found.is_fresh:
                return found
            found.writer.close()
        return Stream(*await asyncio.open_connection("127.0.0.1", self._port, limit=PIECE_BYTES))

    def leave(self, stream: Stream) -> None:
        """Keeps a connection whose answer was read to its end; closes any other one."""
        if not stream.is_reusable or len(self._free) >= FREE_MAX:
            stream.writer.close()
            return
        stream.http.start_next_cycle()
        stream.free_since = time.monotonic()
        self._free.append(stream)

    async def post(self, path: str, body: bytes) -> bytes:
        """The body of the instance's answer. Raises OSError, InstanceLost."""
        headers = [*self._own(), (b"content-length", b"%d" % len(body))]
        stream, said = await self.stream(), list[bytes]()
        try:
            await stream.send(
                h11.Request(method="POST", target=path, headers=headers), h11.Data(data=body), h11.EndOfMessage()
            )
            async for event in stream.events():
                if isinstance(event, h11.Response):
                    self.answered()
                    if event.status_code != 200:
                        raise InstanceLost(f"status {event.status_code}")
                if isinstance(event, h11.Data):
                    said.append(bytes(event.data))
        finally:
            self.leave(stream)
        return b"".join(said)

    def _own(self) -> list[tuple[bytes, bytes]]:
        return [(b"host", b"127.0.0.1"), self._authorization, (SEEN.encode(), b"%d" % self._seen())]

    def answer(self, entry: Entry, request: Request, caller: Caller, body: bytes | None) -> Elsewhere:
        """The answer of the instance. body: of the request; None if it has not been read."""
        known = _SENT | {p.name.encode() for p in entry.parameters if p.where == "header"}
        headers = [(name, value) for name, value in request.headers.raw if name in known]
        if "transfer-encoding" in request.headers:  # it counts where both are given (RFC 9112, 6.3)
            headers = [(name, value) for name, value in headers if name != b"content-length"]
        if body is None and not any(name == b"content-length" for name, _ in headers):
            headers.append((b"transfer-encoding", b"chunked"))
        if body is not None:
            headers = [(n, v) for n, v in headers if n != b"content-length"] + [(b"content-length", b"%d" % len(body))]
        client = request.client
        relayed = Relayed(caller, None if client is None else (client.host, client.port))
        headers += [*self._own(), (RELAYED.encode(), relayed.to_header().encode())]
        query = request.scope["query_string"]
        target = request.scope["raw_path"].partition(b"?")[0] + (b"?" + query if query else b"")
        return _Answer(self, h11.Request(method=request.method, target=target, headers=headers), body)


class _Answer(Elsewhere):
    """Sends a request to the instance, and passes its answer on."""

    def __init__(self, relay: Relay, asked: h11.Request, body: bytes | None) -> None:
        super().__init__()
        self._relay, self._asked, self._body = relay, asked, body
        self._has_begun = self._is_whole = False  # the answer of the instance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            stream = await self._relay.stream()
        except OSError as error:
            await _lost(error)(scope, receive, send)
            return
        asking = asyncio.ensure_future(self._ask(stream, receive))
        passing = asyncio.ensure_future(self._pass(stream, send))
        try:
            await asyncio.wait((asking, passing), return_when=asyncio.FIRST_COMPLETED)
            if asking.done() and not self._is_whole:
                asking.result()
                if not passing.done():
                    return  # the client has left
            await passing
        except InstanceLost as error:
            if not self._has_begun:
                await _lost(error)(scope, receive, send)
        finally:
            asking.cancel()
            passing.cancel()
            await asyncio.gather(asking, passing, return_exceptions=True)
            self._relay.leave(stream)
        if self._is_whole:  # last, as the client may then send the next request: this one must no longer be counted
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _ask(self, stream: Stream, receive: Receive) -> None:
        """Sends the request. Returns when the client has left."""
        with suppress(OSError, h11.LocalProtocolError):  # what the instance has answered tells why
            if self._body is not None:
                await stream.send(self._asked, h11.Data(data=self._body), h11.EndOfMessage())
            else:
                await stream.send(self._asked)
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return
                    await stream.send(h11.Data(data=message.get("body", b"")))
                    if not message.get("more_body", False):
                        break
                await stream.send(h11.EndOfMessage())
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _pass(self, stream: Stream, send: Send) -> None:
        async for event in stream.events():
            if isinstance(event, h11.Response):
                self._has_begun = True
                self._relay.answered()
                headers = [(n, v) for n, v in event.headers if n not in _DROPPED]
                if event.status_code >= 400 and (b"connection", b"close") in list(event.headers):
                    headers.append((b"connection", b"close"))
                await send({"type": "http.response.start", "status": event.status_code, "headers": headers})
            elif isinstance(event, h11.Data):
                await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
            elif isinstance(event, h11.EndOfMessage):
                self._is_whole = True


def _lost(error: Exception) -> Response:
    title = f"the instance does not answer: {error}; the request may have been carried out nevertheless"
    return response(CommandError(title, code=LOST, help="ask again"), 502)


async def relayed(relay: Relay, entry: Entry, call: Call) -> Elsewhere:
    """The instance's answer to a call."""
    is_read = entry.read is not None or entry.body is not None or entry.signed
    body = await call.request.body() if is_read or call.request.method in ("GET", "HEAD") else None
    return relay.answer(entry, call.request, call.caller, body)

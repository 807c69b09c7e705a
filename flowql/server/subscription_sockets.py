"""Subscriptions over WebSocket: each event of `Messages` is a text message, and an error is an event before the connection closes with its code.

The handshake is the GET request of the entry. Scripts of web pages see neither the status nor the body of a refused handshake, and cannot set
headers. So errors come after the handshake, and the token may come as a subprotocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from flowql.server.access import Caller, Tokens
from flowql.server.entries import Call, Entry, Server, audit, caller_of, failed, given_of, permit
from flowql.server.event_stream import Messages
from flowql.server.failures import Failure, to_wire, unauthorized
from flowql.server.subscriber import Subscriber
from flowql.server.web_sockets import FAILED, LATER, NORMAL, POLICY, RESTART, TOO_LARGE

SUBPROTOCOL, BEARER = "flowql", "bearer."
_CODES: Mapping[int, int] = {413: TOO_LARGE, 500: FAILED, 503: LATER}  # by status; POLICY for others


def socket_of(entry: Entry, server: Server, tokens: Tokens | None) -> ASGIApp:
    """Answers requests of an entry with `follow` that become WebSockets. tokens: see `app_of`."""
    guarded = _guarded(entry, server, tokens)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await guarded(WebSocket(scope, receive, send))

    return app


@dataclass(frozen=True, slots=True)
class _End:
    """How a connection closes."""

    code: int
    reason: str = ""

    @classmethod
    def of(cls, failure: Failure, status: int) -> _End:
        return cls(_CODES.get(status, POLICY), str(failure))


def _guarded(entry: Entry, server: Server, tokens: Tokens | None) -> Callable[[WebSocket], Awaitable[None]]:
    async def guarded(socket: WebSocket) -> None:
        asked = [str(name) for name in socket.scope["subprotocols"]]
        request = Request({**socket.scope, "type": "http", "method": "GET"})
        caller = caller_of(tokens, request, _authorization(request, asked))
        await socket.accept(SUBPROTOCOL if SUBPROTOCOL in asked else None)
        try:
            end = await _answered(entry, server, request, caller, socket)
        except Exception as error:  # the instance continues, and the client gets the error
            failure, status = failed(error)
            if status == 403 and caller is not None:
                await audit(entry, server, request, caller, status, to_wire(failure)["error"]["code"])
            await _sent(socket, Messages().error(failure))
            end = _End.of(failure, status)
        if end is not None:
            with suppress(WebSocketDisconnect, RuntimeError):
                await socket.close(end.code, end.reason)

    return guarded


async def _answered(
    entry: Entry, server: Server, request: Request, caller: Caller | None, socket: WebSocket
) -> _End | None:
    """None if the client is gone."""
    if caller is None:
        raise unauthorized()
    permit(entry, caller, None)
    assert entry.follow is not None
    subscriber = entry.follow(Call(server, request, given_of(entry, request), None, caller))
    try:
        await subscriber.begin()
        end = await _followed(socket, subscriber)
    finally:
        subscriber.close()
    return _End(RESTART, "the instance stops") if end == _End(NORMAL) and not server.readers.is_running() else end


def _authorization(request: Request, subprotocols: list[str]) -> str:
    """The Authorization header, or what it would be."""
    token = next((name.removeprefix(BEARER) for name in subprotocols if name.startswith(BEARER)), None)
    return request.headers.get("authorization", "" if token is None else f"Bearer {token}")


async def _followed(socket: WebSocket, subscriber: Subscriber) -> _End | None:
    """Sends events until the end. None if the client is gone."""
    hearing = asyncio.ensure_future(socket.receive())
    sending = asyncio.ensure_future(_send(socket, subscriber))
    try:
        await asyncio.wait((hearing, sending), return_when=asyncio.FIRST_COMPLETED)
        if hearing.done():
            return None
        if not sending.result():
            return None
        return _End(NORMAL) if subscriber.failure is None else _End.of(*failed(subscriber.failure))
    finally:
        hearing.cancel()
        sending.cancel()
        await asyncio.gather(hearing, sending, return_exceptions=True)


async def _send(socket: WebSocket, subscriber: Subscriber) -> bool:
    """False if the client is gone."""
    async with aclosing(subscriber.frames()) as frames:
        async for frame in frames:
            if not await _sent(socket, frame):
                return False
    return True


async def _sent(socket: WebSocket, event: bytes) -> bool:
    try:
        await socket.send_text(event.decode())
    except (WebSocketDisconnect, RuntimeError):  # Starlette raises RuntimeError after it has read of the end
        return False
    return True

"""Requests that are read at once are read as h11 reads them, and answered with the same bytes."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator

import h11
import pytest
from starlette.types import Message, Receive, Scope, Send

from flowql.server.connections import Connection, HttpServer, PortConfig
from flowql.server.whole_requests import WholeCycle, WholeRequest

HOST = b"Host: 127.0.0.1\r\n"
PLAIN = (
    b"GET / HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /a%20b?x=1&y=%2F HTTP/1.1\r\n" + HOST + b"Accept:text/csv\r\nX_y-Z: a  b, c\r\n\r\n",
    b"POST /p HTTP/1.1\r\nhost: h\r\nContent-Length: 4\r\nConnection: Keep-Alive\r\n\r\n\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + HOST + b"Padded: \t x\r\n\r\n",
)
FOR_H11 = (
    b"",
    b"GET / HTTP/1.0\r\n" + HOST + b"\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + HOST,
    b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    b"GET / HTTP/1.1\n" + HOST + b"\r\n",
    b"GET / HTTP/1.1\r\n" + HOST + b"A : b\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + HOST + b"A: b \r\n\r\n",
    b"GET / HTTP/1.1\r\n" + HOST + b"A: b\r\n c\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + HOST + b"A: \x00\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + HOST + b"A: b\rc\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + HOST + b"\r\nGET / HTTP/1.1\r\n" + HOST + b"\r\n",
    b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\na",
    b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\n\r\nab",
    b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1, 1\r\n\r\na",
    b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET http://localhost/ HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET / HTTP/1.1\r\n" + HOST + b"A: " + b"x" * 8_192 + b"\r\n\r\n",
)


@pytest.mark.parametrize("data", PLAIN)
def test_a_plain_request_is_read_as_h11_reads_it(data: bytes) -> None:
    read = WholeRequest.of(data)
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    head, body = connection.next_event(), b""
    while isinstance(event := connection.next_event(), h11.Data):
        body += event.data
    assert isinstance(head, h11.Request)
    assert isinstance(event, h11.EndOfMessage)
    assert read is not None
    assert (read.method.encode(), read.target, read.headers) == (head.method, head.target, list(head.headers))
    assert read.body == body


@pytest.mark.parametrize("data", FOR_H11)
def test_h11_reads_all_others(data: bytes) -> None:
    assert WholeRequest.of(data) is None


GO_ON = asyncio.Event()


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    """Says what it was asked: in one part, in chunks, without a body, or in a broken way."""
    body = (await receive())["body"]
    if scope["path"] == "/wait":
        await GO_ON.wait()
    if scope["path"] == "/go":
        GO_ON.set()
    said = b"%s %s %s %s" % (scope["method"].encode(), scope["path"].encode(), scope["query_string"], body)
    status = 204 if scope["path"] == "/nothing" else 200
    length = {"/long": 200_000, "/short": 3}.get(scope["path"], len(said))
    headers = [(b"content-length", b"%d" % length), (b"x-place", b"here")]
    if scope["path"] in ("/chunks", "/nothing"):
        headers = headers[1:]
    if scope["path"] == "/close":
        headers.append((b"connection", b"close"))
    if scope["path"] == "/split":
        headers.append((b"x-said", b"a\r\nb: c"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if scope["path"] == "/chunks":
        for part in (b"a", b"", b"bc"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
    said = {"/long": b"x" * 200_000, "/nothing": b""}.get(scope["path"], said)
    await send({"type": "http.response.body", "body": said})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = PortConfig(_app, http=Connection, ws="none", log_level="critical", lifespan="off")
    config.load()
    server = HttpServer(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
    yield int(listener.getsockname()[1])
    server.end()
    thread.join(30)
    assert not thread.is_alive()


def _said(port: int, *parts: bytes) -> bytes:
    """All that the server sends, until it closes."""
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        said = b""
        for part in parts:
            client.sendall(part)
            if part is not parts[-1]:
                said += client.recv(1 << 20)
        while data := client.recv(1 << 20):
            said += data
    return re.sub(rb"date: [^\r]*", b"date:", said)


def _request(path: bytes, body: bytes = b"") -> bytes:
    head = b"%s %s HTTP/1.1\r\n%s" % (b"POST" if body else b"GET", path, HOST)
    return head + (b"Content-Length: %d\r\n" % len(body) if body else b"") + b"\r\n" + body


LAST = b"GET /last HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"  # h11 reads it


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[WholeCycle]:
    """The requests that h11 has not read."""
    found, made = list[WholeCycle](), WholeCycle.send

    async def send(self: WholeCycle, message: Message) -> None:
        if message["type"] == "http.response.start":
            found.append(self)
        await made(self, message)

    monkeypatch.setattr(WholeCycle, "send", send)
    return found


@pytest.mark.parametrize("path", [b"/one?x=1", b"/chunks", b"/nothing", b"/long", b"/body"])
def test_an_answer_has_the_bytes_that_h11_writes(port: int, answered: list[WholeCycle], path: bytes) -> None:
    asked = _request(path, b"abc" if path == b"/body" else b"")
    by_h11 = _said(port, asked + LAST)
    assert not answered, "several requests in one part are for h11"
    assert _said(port, asked, LAST) == by_h11
    assert len(answered) == 1


def test_an_answer_that_closes_its_connection(port: int, answered: list[WholeCycle]) -> None:
    by_h11 = _said(port, _request(b"/close") + LAST)
    assert not answered
    assert _said(port, _request(b"/close")) == by_h11
    assert len(answered) == 1


@pytest.mark.parametrize("path", [b"/short", b"/split"])
def test_a_broken_answer_ends_its_connection(port: int, answered: list[WholeCycle], path: bytes) -> None:
    assert _said(port, _request(path)) == b""
    assert len(answered) == 1


def test_requests_that_arrive_during_an_answer_are_answered_in_their_order(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(_request(b"/wait"))
        assert _said(port, _request(b"/before"), LAST), "the server has read it"
        client.sendall(_request(b"/first"))
        assert _said(port, _request(b"/between"), LAST)
        client.sendall(_request(b"/second")[:20])
        assert _said(port, _request(b"/go"), LAST)
        client.sendall(_request(b"/second")[20:] + LAST)
        said = b""
        while data := client.recv(1 << 20):
            said += data
    assert re.findall(rb"GET (\S+) ", said) == [b"/wait", b"/first", b"/second", b"/last"]

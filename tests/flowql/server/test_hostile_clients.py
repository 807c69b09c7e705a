"""Clients that send what is no request, too much of it, or a part, and clients that leave: the right status, and nothing is left of them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import httpx
import pytest

from flowql.config.api import ApiSettings
from flowql.deploy.settings import Settings
from flowql.gateway.gateway import Gateway
from flowql.server import connections
from flowql.server.host import Host
from tests.flowql.query.harness import plan_of
from tests.gateway import gateway_of, port_of

SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE A AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
"""
TOKEN = "t" * 16
HEAD = f"Host: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
# One request of each kind.
KINDS = {
    "query": "POST /v1/query HTTP/1.1\r\n",
    "rows": "POST /v1/streams/S/rows HTTP/1.1\r\nContent-Type: application/x-ndjson\r\n",
    "arrow": "POST /v1/streams/S/rows HTTP/1.1\r\nContent-Type: application/vnd.apache.arrow.stream\r\n",
    "webhook": "POST /v1/streams/S/events HTTP/1.1\r\n",
    "look-up": "GET /v1/tables/A/rows?K=x HTTP/1.1\r\n",
    "events": "GET /v1/subscribe?sql=S HTTP/1.1\r\n",
    "frames": "POST /v1/subscribe HTTP/1.1\r\n",
    "websocket": "GET /v1/subscribe?sql=S HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    "nowhere": "GET /nowhere HTTP/1.1\r\n",
}
# What follows the first line: the status for all kinds, and for requests whose body is read.
HEADS: dict[str, tuple[str, int]] = {
    "a header of 70 KB": (f"{HEAD}X: {'x' * 70_000}\r\n\r\n", 431),
    "thousands of headers": (HEAD + "".join(f"X-{n}: {n}\r\n" for n in range(8_000)) + "\r\n", 431),
    "a header that does not end": (f"{HEAD}X: {'x' * 100_000}", 431),
    "a line that is no header": (f"{HEAD}no header\r\n\r\n", 400),
    "two lengths": (f"{HEAD}Content-Length: 3\r\nContent-Length: 4\r\n\r\n", 400),
    "a length that is no number": (f"{HEAD}Content-Length: -1\r\n\r\n", 400),
    "another transfer coding": (f"{HEAD}Transfer-Encoding: gzip\r\n\r\n", 501),
    "a packed body": (f"{HEAD}Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", 415),
    "another host": ("Host: evil.example.com\r\nContent-Length: 0\r\n\r\n", 421),
    "no host": ("Content-Length: 0\r\n\r\n", 400),
}
READ = ("query", "rows", "arrow", "webhook", "frames")
BODIES: dict[str, tuple[bytes, int]] = {
    "nothing": (b"", 400),
    "half of it": (b'{"sql": "SELECT', 400),
    "another charset": ('{"sql": "é", "K": "é"}'.encode("latin-1"), 400),
    "half of a character": (b'{"sql": "\\ud800", "K": "\\ud800"}', 400),
    "deep nesting": (b"[" * 60_000, 400),
    "deep objects": (b'{"K":' * 60_000, 400),
    "a number without end": (b'{"K": "x", "sql": ' + b"9" * 60_000 + b"}", 400),
    "zeros": (b"\0" * 60_000, 400),
}  # fmt: skip


class Site:
    def __init__(self, gateway: Gateway) -> None:
        self.port, self.readers, self.server = port_of(gateway), gateway.readers, gateway.ports[0].server

    def connected(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        made.settimeout(30)
        return made

    def sent(self, data: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer to one request, after which the connection may stay open."""
        with self.connected() as made:
            with suppress(OSError):
                made.sendall(data)
            return answered(made)

    def is_at_rest(self) -> bool:
        return not self.server.server_state.connections and not self.readers.subscriptions


def answered(made: socket.socket) -> tuple[int, bytes]:
    said = b""
    while True:
        head, _, body = said.partition(b"\r\n\r\n")
        _, _, length = head.lower().partition(b"content-length: ")
        if length and len(body) >= int(length.split(b"\r\n")[0]):
            return int(head.split(b" ")[1]), body
        part = made.recv(1 << 16)
        assert part, said
        said += part


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    host = Host(Settings(tmp_path_factory.mktemp("host"), "demo", 1, 64 << 20))
    host.start()
    host.service.deploy(plan_of(SQL))
    with gateway_of(host, ApiSettings(1, TOKEN)) as gateway:
        made = Site(gateway)
        yield made
        until(made.is_at_rest)
        assert made.sent(f"GET /health HTTP/1.1\r\n{HEAD}\r\n".encode())[0] == 200
    assert host.engine.fatal is None
    host.close()


def until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + 30
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.mark.parametrize("what", HEADS)
def test_heads(site: Site, what: str) -> None:
    head, wanted = HEADS[what]
    for kind, line in KINDS.items():
        if (kind, what) == ("websocket", "a packed body"):
            continue  # it has no body
        status, body = site.sent(line.encode() + head.encode())
        assert (status, bool(json.loads(body)["error"]["code"])) == (wanted, True), kind


@pytest.mark.parametrize("what", BODIES)
def test_bodies(site: Site, what: str) -> None:
    data, wanted = BODIES[what]
    for kind in READ:
        head = f"{KINDS[kind]}{HEAD}Content-Length: {len(data)}\r\n\r\n"
        status, body = site.sent(head.encode() + data)
        assert (status, bool(json.loads(body)["error"]["code"])) == (wanted, True), (kind, body[:200])


def test_other_media_types(site: Site) -> None:
    for kind in ("application/xml", "text/csv", "x" * 300):
        head = f"POST /v1/streams/S/rows HTTP/1.1\r\n{HEAD}Content-Type: {kind}\r\nContent-Length: 1\r\n\r\n"
        assert site.sent(f"{head}x".encode())[0] == 415


def test_what_is_not_http(site: Site) -> None:
    for data in (
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"\r\n\r\n",
        b"\0\0\0\x08\x04\xd2\x16\x2f\r\n\r\n",
        b"GET /\r\n\r\n",
    ):
        status, body = site.sent(data)
        assert (status, json.loads(body)["error"]["code"]) == (400, "FQ5307"), data
    for chunk in (b"zz\r\n", b"5\r\nabc\r\n0\r\n\r\nx\r\n"):  # after the request has begun
        with site.connected() as made:
            made.sendall(f"{KINDS['query']}{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk)
            assert answered(made)[0] == 400


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_closes_its_side_or_all_of_it_leaves_nothing(site: Site, kind: str) -> None:
    """In the head, in the body, and behind the request."""
    head = f"{KINDS[kind]}{HEAD}"
    for data in (head, f"{head}Content-Length: 100\r\n\r\nx", f"{head}\r\n"):
        with site.connected() as made:
            made.sendall(data.encode())
            made.shutdown(socket.SHUT_WR)
            while made.recv(1 << 16):
                pass
        with site.connected() as made:
            made.sendall(data.encode())
    until(site.is_at_rest)


def test_a_client_that_does_not_read_its_events_leaves_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LOOK_S", 0.1)
    monkeypatch.setattr(connections, "TAKE_S", 0.5)
    rows = b"".join(b'{"K": "%s", "V": 1}\n' % (b"x" * 1_000) for _ in range(2_000))
    head = f"{KINDS['rows']}{HEAD}Content-Length: {len(rows)}\r\n\r\n"
    assert site.sent(head.encode() + rows)[0] == 200
    query = httpx.QueryParams({"sql": f"SELECT K, '{'y' * 4_000}' AS Y FROM S EMIT CHANGES", "start": "earliest"})
    with closing(socket.socket()) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        slow.settimeout(30)
        slow.connect(("127.0.0.1", site.port))
        slow.sendall(f"GET /v1/subscribe?{query} HTTP/1.1\r\n{HEAD}\r\n".encode())
        until(lambda: site.readers.subscriptions == 1)
        until(site.is_at_rest)


def opened(site: Site, stack: ExitStack, path: str) -> socket.socket:
    """A connection that has had an answer, or its beginning."""
    made = stack.enter_context(site.connected())
    made.sendall(f"GET {path} HTTP/1.1\r\n{HEAD}\r\n".encode())
    if path == "/health":
        assert answered(made)[0] == 200
    else:
        assert made.recv(1 << 16).split(b" ")[1] == b"200"
    return made


def is_over(connection: socket.socket) -> bool:
    """Whether the server ends it without an answer."""
    try:
        return connection.recv(1 << 16) == b""
    except ConnectionError:
        return True


def test_above_the_limit_the_connection_that_is_idle_for_longest_ends(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(site.is_at_rest)
    monkeypatch.setattr(site.server.config, "connections_max", 3)
    with ExitStack() as stack:
        oldest, *others = [opened(site, stack, "/health") for _ in range(3)]
        opened(site, stack, "/health")
        assert is_over(oldest)
        for kept in others:
            kept.sendall(f"GET /health HTTP/1.1\r\n{HEAD}\r\n".encode())
            assert answered(kept)[0] == 200
    until(site.is_at_rest)


def test_above_the_limit_a_websocket_that_is_closing_ends(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client without the token is told so after the handshake, and would keep others out until the closing handshake has ended."""
    until(site.is_at_rest)
    monkeypatch.setattr(site.server.config, "connections_max", 2)
    with ExitStack() as stack:
        for _ in range(2):
            closing_one = stack.enter_context(site.connected())
            closing_one.sendall((KINDS["websocket"] + f"Host: 127.0.0.1:{site.port}\r\n\r\n").encode())
            said = b""
            while b"\x03\xf0" not in said:  # 1008
                said += closing_one.recv(1 << 12)
        assert site.sent(f"GET /health HTTP/1.1\r\n{HEAD}\r\n".encode())[0] == 200
    until(site.is_at_rest)


def test_where_none_is_idle_the_newest_is_told_why(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    until(site.is_at_rest)
    monkeypatch.setattr(site.server.config, "connections_max", 2)
    monkeypatch.setattr(connections, "TURNED_AWAY_MAX", 2)
    with ExitStack() as stack:
        for _ in range(2):
            opened(site, stack, "/v1/subscribe?sql=S")
        told: list[Any] = []
        waiting = [stack.enter_context(site.connected()) for _ in range(2)]
        with site.connected() as third:
            assert is_over(third)
        for newest in waiting:
            newest.sendall(f"GET /health HTTP/1.1\r\n{HEAD}\r\n".encode())
            status, body = answered(newest)
            told.append((status, json.loads(body)["error"]["code"]))
        assert told == [(503, "FQ5308")] * 2
    until(lambda: site.is_at_rest() and not site.server.config.turned_away)  # type: ignore[attr-defined]

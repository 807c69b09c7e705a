"""Subscriptions over WebSocket: the events of server-sent events, and a code for each end."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from flowql.config.api import ApiSettings, TokenSettings
from flowql.deploy.settings import Settings
from flowql.gateway.gateway import Gateway
from flowql.query.resuming import FOREIGN, KEEPS_STATE
from flowql.server import web_sockets
from flowql.server.access import hash_of
from flowql.server.audit import FILE
from flowql.server.host import Host
from flowql.server.readers import Readers
from tests.flowql.query.harness import plan_of
from tests.gateway import gateway_of, port_of
from tests.one_meaning.world import free_port
from tests.web_socket import BINARY, TEXT, Closed, Refused, WebSocket, connected

SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 3, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE A AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
CREATE STREAM DOUBLED AS SELECT K, V * 2 AS W FROM S WHERE K = 'rebuilt';
"""
TOKEN, ORIGIN = "t" * 16, "https://shop.example.com"
TOKENS = {
    "writes": TokenSettings(hash_of("writes"), ("write",)),
    "reads A": TokenSettings(hash_of("reads A"), ("read",), ("a",)),
}


@dataclass(frozen=True)
class Site:
    """An instance in this process, and its port."""

    host: Host
    gateway: Gateway

    @property
    def port(self) -> int:
        return port_of(self.gateway)

    @property
    def readers(self) -> Readers:
        return self.gateway.readers

    def write(self, *rows: dict[str, Any]) -> None:
        url, headers = f"http://127.0.0.1:{self.port}/v1/streams/S/rows", {"Authorization": f"Bearer {TOKEN}"}
        assert httpx.post(url, json=list(rows), headers=headers, trust_env=False, timeout=30).status_code == 200

    def path(self, **given: Any) -> str:
        query = httpx.QueryParams({k.replace("_", "-"): str(v) for k, v in given.items()})
        return f"/v1/subscribe?{query}"

    @contextmanager
    def socket(self, token: str | None = TOKEN, **given: Any) -> Iterator[WebSocket]:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        with connected(self.port, self.path(**given), headers) as made:
            yield made

    def connections(self) -> int:
        return len(self.gateway.ports[0].server.server_state.connections)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("host")


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[Site]:
    host = Host(Settings(folder, "demo", 1, 64 << 20))
    host.start()
    host.service.deploy(plan_of(SQL))
    with gateway_of(host, ApiSettings(1, TOKEN, tokens=TOKENS, origins=(ORIGIN,))) as gateway:
        yield Site(host, gateway)
    assert host.engine.fatal is None
    host.close()


def event(connection: WebSocket) -> dict[str, Any]:
    while True:
        said = json.loads(connection.receive())
        if said["event"] != "alive":
            assert isinstance(said, dict)
            return said


def end_of(connection: WebSocket) -> tuple[list[dict[str, Any]], int, str]:
    """The events up to the end, its code and its reason."""
    found, closed = [], None
    while closed is None:
        try:
            found.append(event(connection))
        except Closed as error:
            closed = error
    assert closed.code is not None, "there is a closing frame"
    return found, closed.code, closed.reason


def until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + 30
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_a_client_that_connects_again_sees_each_row_of_a_stream_once(site: Site) -> None:
    sql, last, seen = "SELECT K, V FROM S WHERE K = 'again' EMIT CHANGES", "", list[int]()
    with site.socket(sql=sql) as connection:
        last = event(connection)["id"]
    for n in range(5):
        site.write({"K": "again", "V": 2 * n}, {"K": "again", "V": 2 * n + 1})
        with site.socket(sql=sql, last_event_id=last) as connection:
            assert event(connection)["event"] == "begin"
            said = event(connection)
            last = said["id"]
            seen += [change["row"]["V"] for change in said["data"]]
    assert seen == list(range(10))


def test_a_table_and_a_token_that_fits_no_longer_begin_again(site: Site) -> None:
    site.write({"K": "table", "V": 1})
    with site.socket(sql="A", start="earliest") as connection:
        begin, changes = event(connection), list[dict[str, Any]]()
        while not (of_it := [c for c in changes if c["row"]["K"] == "table"]):  # the row is read once it is committed
            changes = event(connection)["data"]
    assert (begin["event"], begin["data"]) == ("begin", {"columns": ["K", "N"]})
    (put,) = of_it
    assert (put["op"], put["row"], type(put["rowtime"])) == ("put", {"K": "table", "N": 1}, int)
    for last, why in ((begin["id"], KEEPS_STATE), ("x", FOREIGN)):
        with site.socket(sql="A", last_event_id=last) as connection:
            reset = event(connection)
        assert (reset["event"], reset["data"]["reason"]) == ("reset", why)


def test_a_rebuild_is_a_reset(site: Site) -> None:
    site.write({"K": "rebuilt", "V": 1})
    with site.socket(sql="DOUBLED", start="earliest") as connection:
        assert event(connection)["event"] == "begin"
        assert [c["row"]["W"] for c in event(connection)["data"]] == [2]
        site.host.service.deploy(plan_of(SQL.replace("V * 2", "V * 3")))
        reset = event(connection)
        assert (reset["event"], "generation 2 of DOUBLED" in reset["data"]["reason"]) == ("reset", True)
        assert [c["row"]["W"] for c in event(connection)["data"]] == [3]


def test_a_limit_ends_it(site: Site) -> None:
    site.write(*({"K": "limit", "V": v} for v in range(3)))
    with site.socket(sql="S", start="earliest", limit=2) as connection:
        events, code, _ = end_of(connection)
    assert (events[0]["event"], events[-1], code) == ("begin", {"event": "end", "data": {}}, 1000)


@pytest.mark.parametrize(
    ("token", "given", "code", "error"),
    [
        (None, {"sql": "S"}, 1008, "FQ5301"),
        ("wrong", {"sql": "S"}, 1008, "FQ5301"),
        ("writes", {"sql": "S"}, 1008, "FQ5315"),
        ("reads A", {"sql": "S"}, 1008, "FQ5103"),
        (TOKEN, {}, 1008, "FQ5307"),
        (TOKEN, {"sql": "S", "start": "middle"}, 1008, "FQ5307"),
        (TOKEN, {"sql": "S", "no": "1"}, 1008, "FQ5307"),
        (TOKEN, {"sql": "NOBODY"}, 1008, "FQ5103"),
        (TOKEN, {"sql": "SELECT * FROM NOBODY EMIT CHANGES"}, 1008, "FQ"),
        (TOKEN, {"sql": f"SELECT '{'x' * 20_000}' AS X FROM S EMIT CHANGES", "limit": 0}, 1000, ""),
    ],
)
def test_an_error_is_an_event_and_a_code(
    site: Site, token: str | None, given: dict[str, Any], code: int, error: str
) -> None:
    with site.socket(token, **given) as connection:
        events, ended, reason = end_of(connection)
    assert ended == code
    if error:
        (said,) = events
        assert (said["event"], said["data"]["error"]["code"][: len(error)]) == ("error", error)
        assert reason.isascii() or reason


def test_a_role_that_does_not_permit_it_is_in_the_audit_log(site: Site, folder: Path) -> None:
    (folder / FILE).unlink(missing_ok=True)
    with site.socket("writes", sql="S") as connection:
        end_of(connection)
    (line,) = [json.loads(line) for line in (folder / FILE).read_text().splitlines()]
    assert (line["who"], line["request"], line["status"], line["error"]) == (
        "writes",
        "GET /v1/subscribe",
        403,
        "FQ5315",
    )


def test_a_script_of_a_web_page_sends_the_token_as_a_subprotocol(site: Site) -> None:
    asked = {"Sec-WebSocket-Protocol": f"flowql, bearer.{TOKEN}"}
    for origin in (ORIGIN, f"http://127.0.0.1:{site.port}", ""):
        headers = {**asked, **({"Origin": origin} if origin else {})}
        with connected(site.port, site.path(sql="S"), headers) as connection:
            assert connection.subprotocol == "flowql"
            assert event(connection)["event"] == "begin"
    for origin in ("https://evil.example.com", "null", f"{ORIGIN}.evil.com", "http://127.0.0.1:1"):
        with pytest.raises(Refused) as refused, connected(site.port, site.path(sql="S"), {**asked, "Origin": origin}):
            pass
        assert refused.value.status == 403, origin
        assert json.loads(refused.value.body)["error"]["code"] == "FQ5315"


def test_the_handshake_is_refused_as_other_requests_are(site: Site) -> None:
    def status(path: str = "/v1/subscribe?sql=S", **headers: str) -> tuple[int, str]:
        with raw(site.port, path, headers) as connection:
            said = b""
            while part := connection.recv(1 << 16):
                said += part
        return int(said.split(b" ")[1]), said.partition(b"\r\n\r\n")[2].decode()

    code, body = status(Host="evil.example.com")
    assert (code, json.loads(body)["error"]["code"]) == (421, "FQ5308")
    code, body = status("/v1/status")
    assert (code, json.loads(body)["error"]["code"]) == (404, "FQ5314")
    assert status(**{"Sec-WebSocket-Key": "x"})[0] == 400
    assert status(**{"Sec-WebSocket-Version": "7"})[0] == 400
    with (
        suppress(ConnectionError),
        raw(site.port, "/v1/subscribe?sql=S", behind=b"\x89\x80\0\0\0\0" * 1_000_000) as connection,
    ):
        while connection.recv(1 << 16):  # it does not wait for the answer
            pass
    with raw(site.port, "/health", method="POST") as connection:  # not a handshake
        assert connection.recv(1 << 16).split(b" ")[1] == b"405"


def test_more_subscriptions_than_there_may_be_are_to_come_later(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    until(lambda: site.readers.subscriptions == 0)
    monkeypatch.setattr(site.readers, "subscriptions_max", 1)
    with site.socket(sql="S") as kept:
        assert event(kept)["event"] == "begin"
        with site.socket(sql="A") as connection:
            (said,), code, _ = end_of(connection)
        assert (said["data"]["error"]["code"], code) == ("FQ5308", 1013)
    until(lambda: site.readers.subscriptions == 0)
    with site.socket(sql="S") as connection:
        assert event(connection)["event"] == "begin"


@pytest.mark.parametrize(
    ("opcode", "message", "code"),
    [
        (TEXT, b"hello", 1003),
        (BINARY, b"x", 1003),
        (TEXT, b"x" * 5_000, 1009),
        (TEXT, b"x" * (4 << 20), 1009),
        (3, b"", 1002),
        (0x49, b"", 1002),
        (9, b"x" * 126, 1002),
    ],
)
def test_a_client_that_sends_messages_is_closed(site: Site, opcode: int, message: bytes, code: int) -> None:
    with site.socket(sql="S") as connection:
        event(connection)
        connection.send(opcode, message)
        assert end_of(connection)[1] == code
    until(lambda: site.readers.subscriptions == 0)


@pytest.mark.parametrize("frame", [b"\x81\x80\0\0\0\0", b"\x83\x80\0\0\0\0", b"\x89\xfe\0\x7e\0\0\0\0"])
def test_a_mistake_after_the_end_holds_up_nobody(site: Site, frame: bytes) -> None:
    """The instance has sent its closing frame, also to a client without the token, which sends a message all the same."""
    with raw(site.port, "/v1/subscribe?sql=S", {"Authorization": "Bearer wrong"}) as connection:
        said = b""
        while b"\x03\xf0" not in said:  # 1008
            said += connection.recv(1 << 12)
        connection.sendall(frame * 3)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = f"http://127.0.0.1:{site.port}/health"
        assert httpx.get(url, headers=headers, trust_env=False, timeout=5).status_code == 200


def test_fragments_and_pings_without_end_take_no_memory(site: Site) -> None:
    """Empty fragments are not collected, and a client that floods the instance with pings has to read the pongs."""
    with raw(site.port, "/v1/subscribe?sql=S") as connection:
        assert connection.recv(1 << 12).split(b" ")[1] == b"101"
        connection.sendall(b"\x01\x80\0\0\0\0" + b"\x00\x80\0\0\0\0" * 1_000)
        said = b""
        while part := connection.recv(1 << 16):
            said += part
    assert b"\x03\xeb" in said  # 1003
    with raw(site.port, "/v1/subscribe?sql=S") as connection:
        assert connection.recv(1 << 12).split(b" ")[1] == b"101"
        connection.settimeout(0.5)
        sent, pings = 0, (b"\x89\xfd\0\0\0\0" + b"p" * 125) * 1_000
        with suppress(TimeoutError):
            while sent < 64 << 20:
                sent += connection.send(pings[sent % len(pings) :])
        assert sent < 64 << 20, "somebody reads on"
    until(lambda: site.readers.subscriptions == 0)


def test_a_client_that_takes_nothing_is_closed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_sockets, "LOOK_S", 0.1)
    monkeypatch.setattr(web_sockets, "TAKE_S", 0.5)
    until(lambda: site.connections() <= 1)
    site.write(*({"K": "x" * 1_000, "V": 1} for _ in range(2_000)))
    sql = "SELECT K, '" + "y" * 4_000 + "' AS Y FROM S EMIT CHANGES"
    with raw(site.port, "/v1/subscribe?" + str(httpx.QueryParams({"sql": sql, "start": "earliest"}))) as connection:
        until(lambda: site.readers.subscriptions == 1)
        until(lambda: site.readers.subscriptions == 0)
        taken = b""
        while part := connection.recv(1 << 20):
            taken = taken[-200:] + part
    assert b"the changes were not taken" in taken
    site.write({"K": "again", "V": 1})


def test_a_client_that_is_gone_is_closed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers no ping."""
    monkeypatch.setattr(web_sockets, "PING_S", 0.2)
    with raw(site.port, "/v1/subscribe?sql=S") as connection:
        until(lambda: site.readers.subscriptions == 1)
        until(lambda: site.readers.subscriptions == 0)
        assert connection.recv(1 << 16)


def test_the_end_of_the_instance_is_a_restart(tmp_path: Path) -> None:
    port = free_port()
    host = Host(Settings(tmp_path, "demo", 1, 64 << 20, api=ApiSettings(port, TOKEN)))
    host.start()
    host.service.deploy(plan_of(SQL))
    with connected(port, "/v1/subscribe?sql=S", {"Authorization": f"Bearer {TOKEN}"}) as connection:
        assert event(connection)["event"] == "begin"
        ending = threading.Thread(target=host.close)
        ending.start()
        events, code, _ = end_of(connection)
        assert (events[-1]["event"], code) == ("end", 1012)
    ending.join(30)
    assert not ending.is_alive()


@contextmanager
def raw(
    port: int, path: str, headers: dict[str, str] | None = None, method: str = "GET", behind: bytes = b""
) -> Iterator[socket.socket]:
    """A connection that has sent a handshake, and reads little at once."""
    head = {
        "Host": f"127.0.0.1:{port}", "Authorization": f"Bearer {TOKEN}", "Connection": "Upgrade", "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", **(headers or {}),
    }  # fmt: skip
    with closing(socket.socket()) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        made.settimeout(30)
        made.connect(("127.0.0.1", port))
        made.sendall(
            (f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in head.items()) + "\r\n").encode()
            + behind
        )
        yield made

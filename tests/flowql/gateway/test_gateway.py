"""The process for the ports of `api` and `pg`: what it answers by itself, what it sends on to the instance, and its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.config.api import ApiSettings, TokenSettings
from flowql.config.pg import PgSettings
from flowql.config.sections import InteractiveQuerySettings
from flowql.deploy.settings import Settings
from flowql.server.access import RELAYED, Caller, Relayed, hash_of
from flowql.server.audit import FILE
from flowql.server.gateway_process import GatewayProcess
from flowql.server.host import Host
from tests.gateway import gateway_of, port_of
from tests.one_meaning.world import free_port

SQL = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, customer VARCHAR, amount INT);
CREATE MATERIALIZED VIEW spent AS SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer;
"""
TOKEN, ADAS = "t" * 16, "a token of ada"
TOKENS = {"ada": TokenSettings(hash_of(ADAS), ("read", "operate"))}
WAIT_S = 60.0


def plan() -> Plan:
    return compile_project([SourceText("shop.sql", SQL)], dialect="standard").plan


def until(true: Callable[[], object]) -> None:
    limit = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    queries = InteractiveQuerySettings(dialect="standard")
    made = Host(Settings(tmp_path_factory.mktemp("host"), "demo", 1, 128 << 20, interactive_queries=queries))
    made.start()
    made.service.deploy(plan())
    yield made
    assert made.engine.fatal is None
    made.close()


@pytest.fixture(scope="module")
def port(host: Host) -> Iterator[int]:
    with gateway_of(host, ApiSettings(1, TOKEN, tokens=TOKENS)) as gateway:
        yield port_of(gateway)


def ask(port: int, method: str, path: str, token: str = TOKEN, **given: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}", **given.pop("headers", {})}
    return httpx.request(
        method, f"http://127.0.0.1:{port}{path}", headers=headers, trust_env=False, timeout=WAIT_S, **given
    )


def rows(port: int, sql: str) -> Any:
    return ask(port, "POST", "/v1/query", json={"sql": sql}).json()["rows"]


def execute(port: int, sql: str) -> None:
    said = ask(port, "POST", "/v1/execute", json={"statements": sql})
    assert said.status_code == 200, said.text


def test_queries_that_the_log_answers_do_not_reach_the_instance(
    host: Host, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(port, "INSERT INTO orders VALUES (1, 'ada', 10), (2, 'ada', 5)")
    for name in ("query", "look_up"):
        monkeypatch.setattr(host.service, name, lambda *_, **__: pytest.fail("the instance is asked"))
    until(lambda: rows(port, "SELECT total FROM spent WHERE customer = 'ada'") == [{"total": 15}])
    assert rows(port, "SELECT COUNT(*) AS n FROM orders") == [{"n": 2}]
    for _ in range(2):  # the second time as a look-up
        assert ask(port, "GET", "/v1/tables/orders/rows?id=2").json()["rows"][0]["amount"] == 5
    monkeypatch.undo()
    document = ask(port, "POST", "/v1/query", json={"sql": "SELECT 1 AS x"}).json()
    assert document["commit"] >= ask(port, "POST", "/v1/query", json={"sql": "SELECT * FROM orders"}).json()["commit"]
    assert document["commit"] > 0


def test_a_relayed_request_is_that_of_its_sender(host: Host, port: int) -> None:
    """In the audit log, and for the rights. The header of the gateway means nothing from other clients."""
    said = ask(port, "POST", "/v1/pause", ADAS, json={"queries": [], "paused": True})
    assert said.status_code == 200, said.text
    told = Relayed(Caller("mallory"), ("192.0.2.1", 1)).to_header()
    said = ask(port, "POST", "/v1/execute", ADAS, headers={RELAYED: told}, json={"statements": "DELETE FROM orders"})
    assert said.status_code == 403
    lines = [json.loads(line) for line in (host._settings.data_dir / FILE).read_text().splitlines()]
    paused, refused = lines[-2:]
    assert (paused["who"], paused["from"], paused["request"]) == ("ada", "127.0.0.1", "POST /v1/pause")
    assert (refused["who"], refused["from"], refused["status"]) == ("ada", "127.0.0.1", 403)


def test_a_sender_has_its_rights_and_no_others() -> None:
    for caller in (
        Caller("ada"),
        Caller("b", frozenset(), frozenset(), "user"),
        Caller("ü", frozenset({"read"}), frozenset({"ß"})),
    ):
        relayed = Relayed(caller, ("::1", 9))
        text = relayed.to_header()
        assert text.isascii()
        assert Relayed.of_header(text) == relayed


def test_a_client_that_leaves_ends_its_request_in_the_instance(
    host: Host, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert host.listening is not None
    (local,) = host.listening.ports
    connections = local.server.server_state.connections
    begun, go_on = threading.Event(), threading.Event()

    def slow(*, detail: bool) -> dict[str, Any]:
        begun.set()
        assert go_on.wait(WAIT_S)
        return {"large": "x" * (32 << 20)}

    monkeypatch.setattr(host.service, "status", slow)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(f"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        assert begun.wait(WAIT_S)
        used = len(connections)
    until(lambda: len(connections) < used)
    go_on.set()
    monkeypatch.undo()
    assert ask(port, "GET", "/v1/status").status_code == 200


def test_a_long_answer_is_passed_on_whole(host: Host, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    large = {"large": ["x" * 1_000] * 20_000}
    monkeypatch.setattr(host.service, "status", lambda *, detail: large)
    assert ask(port, "GET", "/v1/status").json() == large
    assert ask(port, "HEAD", "/v1/status").content == b""


def test_a_local_table_with_rows_is_subscribed_to(port: int) -> None:
    execute(port, "INSERT INTO orders VALUES (77, 'eve', 1)")
    given = {"sql": "SELECT id, amount FROM orders WHERE customer = 'eve'", "start": "earliest", "limit": 1}
    said = ask(port, "GET", "/v1/subscribe", params=given)
    assert said.status_code == 200, said.text
    assert '"row":{"id":"77","amount":1}' in said.text or '"row":{"id":77,"amount":1}' in said.text


def test_where_the_instance_does_not_answer_the_client_is_told(host: Host) -> None:
    with gateway_of(host, ApiSettings(1, TOKEN)) as gateway:
        gateway.relay._port, was = free_port(), gateway.relay._port
        gateway.relay._free.clear()
        said = ask(port_of(gateway), "GET", "/v1/status")
        assert (said.status_code, said.json()["error"]["code"]) == (502, "FQ5302")
        gateway.relay._port = was
        assert ask(port_of(gateway), "GET", "/v1/status").status_code == 200


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[GatewayProcess, int]]:
    """The process of an instance, and its port of `api`."""
    number = free_port()
    queries = InteractiveQuerySettings(dialect="standard")
    settings = Settings(
        tmp_path,
        "demo",
        1,
        128 << 20,
        api=ApiSettings(number, TOKEN),
        pg=PgSettings(free_port()),
        interactive_queries=queries,
    )
    made = Host(settings)
    made.start()
    made.service.deploy(plan())
    assert made.listening is not None
    assert made.listening.gateway is not None
    yield made.listening.gateway, number
    made.close()
    assert made.listening.gateway.pid is None


def test_a_killed_gateway_ends_connections_and_another_one_starts(served: tuple[GatewayProcess, int]) -> None:
    gateway, port = served
    execute(port, "INSERT INTO orders VALUES (1, 'ada', 10)")
    with socket.create_connection(("127.0.0.1", port)) as idle:
        idle.sendall(
            f"GET /v1/subscribe?sql=orders HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        said = idle.recv(1 << 12)
        assert said.startswith(b"HTTP/1.1 200"), said
        before = gateway.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        idle.settimeout(WAIT_S)
        while idle.recv(1 << 12):
            pass
    assert rows(port, "SELECT amount FROM orders") == [{"amount": 10}]  # it waits in the queue of the socket
    assert gateway.pid not in (None, before)


def test_an_instance_that_ends_before_its_gateway_serves_does_not_wait_for_it(tmp_path: Path) -> None:
    made = Host(Settings(tmp_path, "demo", 1, 64 << 20, api=ApiSettings(free_port(), TOKEN)))
    made.start()
    assert made.listening is not None
    gateway = made.listening.gateway
    assert gateway is not None
    until(lambda: gateway.pid is not None)
    assert not gateway._is_serving
    gateway.end()
    assert gateway.pid is None
    made.close()

"""The process for the ports of `api` and `pg`: what it answers by itself, what it sends on to the instance, and its end."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
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
from flowql.errors import CommandError
from flowql.gateway.child import Told
from flowql.pg.reading import Reading
from flowql.query import catching_up, state_nearby
from flowql.runtime.events import EVENT, LOGGER, WARNING
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.server.access import RELAYED, Caller, Relayed, hash_of
from flowql.server.address import read_address
from flowql.server.app import ENTRIES
from flowql.server.audit import FILE
from flowql.server.gateway_process import GatewayProcess
from flowql.server.host import Host
from flowql.server.on_runtime import RuntimeEngine
from flowql.server.ports import bound
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
    total = "SELECT total FROM spent WHERE customer = 'ada'"
    until(lambda: rows(port, total) == [{"total": 15}])  # until the view has finished a tick, the instance answers
    for name in ("query", "look_up"):
        monkeypatch.setattr(host.service, name, lambda *_, **__: pytest.fail("the instance is asked"))
    assert rows(port, total) == [{"total": 15}]
    assert rows(port, "SELECT COUNT(*) AS n FROM orders") == [{"n": 2}]
    for _ in range(2):  # the second time as a look-up
        assert ask(port, "GET", "/v1/tables/orders/rows?id=2").json()["rows"][0]["amount"] == 5
    monkeypatch.undo()
    document = ask(port, "POST", "/v1/query", json={"sql": "SELECT 1 AS x"}).json()
    assert document["commit"] >= ask(port, "POST", "/v1/query", json={"sql": "SELECT * FROM orders"}).json()["commit"]
    assert document["commit"] > 0


KSQL = """
CREATE STREAM BIDS (AUCTION BIGINT KEY, PRICE INT, NAME STRING) WITH (KAFKA_TOPIC = 'bids', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE SPENT AS SELECT AUCTION, COUNT(*) AS N, SUM(PRICE) AS TOTAL, AVG(PRICE) AS MEAN, MIN(NAME) AS LEAST FROM BIDS GROUP BY AUCTION;
CREATE TABLE MINUTES AS SELECT AUCTION, COUNT(*) AS N FROM BIDS WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY AUCTION;
"""
ASKED = (
    "SELECT * FROM SPENT ORDER BY AUCTION",
    "SELECT * FROM SPENT WHERE AUCTION = 3",
    "SELECT MEAN, AUCTION FROM SPENT WHERE AUCTION = 2",
    "SELECT COUNT(*) AS N, MAX(TOTAL) AS M FROM SPENT WHERE LEAST IS NOT NULL",
    "SELECT AUCTION, N FROM MINUTES ORDER BY AUCTION",
    "SELECT AUCTION FROM BIDS ORDER BY AUCTION LIMIT 3",
    "SELECT ROWTIME FROM SPENT",
    "SELECT S.N FROM SPENT S JOIN MINUTES M ON S.AUCTION = M.AUCTION ORDER BY S.N",
    "SHOW TABLES",
    "SELECT * FROM NOBODY",
)


@pytest.fixture(scope="module")
def in_ksql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    made = Host(Settings(tmp_path_factory.mktemp("ksql"), "demo", 1, 128 << 20))
    made.start()
    made.service.deploy(compile_project([SourceText("shop.sql", KSQL)]).plan)
    assert made.listening is not None
    bids = [
        {"AUCTION": n % 7, "PRICE": None if n % 5 == 0 else n, "NAME": f"é{n}" if n % 7 else None} for n in range(100)
    ]
    made.listening.rows.produce_json("BIDS", bids, None, declared_only=False)
    caught_up = made.engine.catch_up()
    until(caught_up)
    yield made
    assert made.engine.fatal is None
    made.close()


def own_port(host: Host) -> tuple[int, str]:
    address = read_address(host._settings.data_dir)
    assert address is not None
    return address.port, address.token


def same_answers(host: Host, port: int) -> None:
    """The answers of the gateway to `ASKED` are those of the instance, also to those who may read one result only."""
    local, token = own_port(host)
    for sql in ASKED:
        for accept in ("application/json", "text/csv"):
            given = {"json": {"sql": sql}, "headers": {"Accept": accept}}
            here = ask(port, "POST", "/v1/query", **given)  # type: ignore[arg-type]
            there = ask(local, "POST", "/v1/query", token, **given)  # type: ignore[arg-type]
            assert (here.status_code, here.text) == (there.status_code, there.text), sql
            assert here.headers["content-type"] == there.headers["content-type"]


def test_answers_over_tables_of_ksql_are_those_of_the_instance(in_ksql: Host) -> None:
    """Their topics may have other rows than the stores: those of INSERT VALUES, for example."""
    with gateway_of(in_ksql, ApiSettings(1, TOKEN)) as gateway:
        port = port_of(gateway)
        same_answers(in_ksql, port)
        execute(port, "INSERT INTO SPENT (AUCTION, N, TOTAL) VALUES (3, 1000, 1000), (99, 1, 1);")
        same_answers(in_ksql, port)
        same_answers(in_ksql, port)


def asked_nearby(
    host: Host, port: int, sql: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], list[dict[str, Any]]]:
    """Asks the gateway, once it follows the state: from then on the instance is asked for no query."""
    asked, service = list[int](), host.service

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            asked.append(1)
            return call(*arguments, **options)

        return called

    for name in ("query", "look_up"):
        monkeypatch.setattr(service, name, counted(getattr(service, name)))

    def is_nearby() -> bool:
        asked.clear()
        rows(port, sql)
        return not asked

    def answer() -> list[dict[str, Any]]:
        found = rows(port, sql)
        assert not asked, "the instance is asked"
        return found

    until(is_nearby)
    return answer


def write_bids(host: Host, bids: list[dict[str, Any]]) -> None:
    assert host.listening is not None
    host.listening.rows.produce_json("BIDS", bids, None, declared_only=False)


def test_queries_over_tables_of_ksql_do_not_reach_the_instance(in_ksql: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway follows the state. It never shows less than the instance has shown."""
    sql = "SELECT N, TOTAL FROM SPENT WHERE AUCTION = 77 AND N > 0"
    with gateway_of(in_ksql, ApiSettings(1, TOKEN)) as gateway:
        port = port_of(gateway)
        answer = asked_nearby(in_ksql, port, sql, monkeypatch)
        take = "SELECT N FROM SPENT WHERE AUCTION = 77"
        for n in range(1, 30):
            write_bids(in_ksql, [{"AUCTION": 77, "PRICE": n, "NAME": "x"}])
            until(lambda n=n: [r["N"] for r in in_ksql.service.query(take).table().to_pylist()] == [n])  # type: ignore[misc]
            monkeypatch.undo()
            answer = asked_nearby(in_ksql, port, sql, monkeypatch)
            assert answer() == [{"N": n, "TOTAL": n * (n + 1) // 2}]
            assert ask(port, "GET", "/v1/tables/SPENT/rows?AUCTION=77").json()["rows"][0]["N"] == n
        monkeypatch.undo()
        same_answers(in_ksql, port)


def test_a_query_over_the_state_is_computed_once_between_two_commits(
    in_ksql: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = "SELECT COUNT(*) AS N, MAX(AUCTION) AS M FROM SPENT WHERE AUCTION > 200"
    dated = "SELECT CURRENT_TIMESTAMP AS T FROM SPENT LIMIT 1"
    with gateway_of(in_ksql, ApiSettings(1, TOKEN)) as gateway:
        port = port_of(gateway)
        asked_nearby(in_ksql, port, sql, monkeypatch)
        monkeypatch.undo()
        for n in range(1, 4):
            write_bids(in_ksql, [{"AUCTION": 200 + n, "PRICE": n, "NAME": "x"}])
            until(lambda n=n: rows(port, sql) == [{"N": n, "M": 200 + n}])  # type: ignore[misc]
            computed = list[str]()
            from_log = gateway.reading.from_log

            def counted(sql: str, *arguments: Any, **options: Any) -> Any:
                computed.append(sql)  # noqa: B023
                return from_log(sql, *arguments, **options)  # noqa: B023

            def is_known(n: int = n) -> bool:
                computed.clear()  # noqa: B023
                assert [rows(port, sql) for _ in range(5)] == [[{"N": n, "M": 200 + n}]] * 5
                return not computed  # noqa: B023

            monkeypatch.setattr(gateway.reading, "from_log", counted)
            until(is_known)
            monkeypatch.undo()
        assert rows(port, dated) != rows(port, dated)


def test_the_instance_shows_no_less_than_the_gateway_has_shown(in_ksql: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has a commit before the state of the instance."""
    sql = "SELECT N FROM SPENT WHERE AUCTION = 78 AND N > 0"
    assert isinstance(in_ksql.engine, RuntimeEngine)
    state = in_ksql.engine.instance.state
    apply = state.apply

    def late(*arguments: Any, **options: Any) -> None:
        time.sleep(0.2)
        apply(*arguments, **options)

    with gateway_of(in_ksql, ApiSettings(1, TOKEN)) as gateway:
        port = port_of(gateway)
        asked_nearby(in_ksql, port, sql, monkeypatch)
        monkeypatch.undo()
        monkeypatch.setattr(state, "apply", late)
        for n in range(1, 6):
            write_bids(in_ksql, [{"AUCTION": 78, "PRICE": n, "NAME": "x"}])
            until(lambda n=n: rows(port, sql) == [{"N": n}])  # type: ignore[misc]
            elsewhere = {"sql": sql, "allow_standby": True}
            assert ask(port, "POST", "/v1/query", json=elsewhere).json()["rows"] == [{"N": n}]


def test_an_error_of_the_copy_of_the_state_is_an_event_of_the_instance(
    in_ksql: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The process of the gateway has no log of its own. It tells the instance."""

    def broken(*_: Any) -> Any:
        raise ValueError("a file is broken")

    monkeypatch.setattr(state_nearby, "FollowedState", broken)
    told = io.StringIO()
    LOGGER.addHandler(handler := Told(told))
    try:
        with gateway_of(in_ksql, ApiSettings(1, TOKEN)) as gateway:
            port = port_of(gateway)
            until(lambda: rows(port, "SELECT N FROM SPENT WHERE AUCTION = 9 AND N > 0") == [] and told.getvalue())  # type: ignore[arg-type, return-value]
    finally:
        LOGGER.removeHandler(handler)
    caplog.clear()
    GatewayProcess(Settings(tmp_path, "demo", 1, 64 << 20))._hear(json.loads(told.getvalue()))
    (record,) = caplog.records
    assert record.levelno == WARNING
    assert getattr(record, EVENT)["event"] == "state.copy"
    assert record.getMessage().endswith("ValueError: a file is broken")


def test_look_ups_in_the_state_that_wait_are_few_requests(in_ksql: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()
    look_up = in_ksql.service.look_up

    def counted(*arguments: Any) -> Any:
        asked.append(1)
        return look_up(*arguments)

    monkeypatch.setattr(in_ksql.service, "copied", lambda: None)
    with gateway_of(in_ksql, ApiSettings(1, TOKEN)) as gateway:
        port = port_of(gateway)
        assert ask(port, "GET", "/v1/tables/SPENT/rows?AUCTION=9").json()["rows"] == []  # the instance learns its shape
        monkeypatch.setattr(in_ksql.service, "query", lambda *_, **__: pytest.fail("it is no look-up"))
        monkeypatch.setattr(in_ksql.service, "look_up", counted)
        with ThreadPoolExecutor(8) as threads:
            found = list(
                threads.map(
                    lambda n: ask(port, "GET", f"/v1/tables/SPENT/rows?AUCTION={n % 8}").json()["rows"], range(64)
                )
            )
        assert [[r["AUCTION"] for r in rows] for rows in found] == [[n % 8] if n % 8 < 7 else [] for n in range(64)]
        assert len(asked) == 64


def test_a_large_view_is_read_in_the_background(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile the instance answers, then the gateway."""
    monkeypatch.setattr(catching_up, "NEAR_RECORDS", 3)
    sql, asked, query = "SELECT COUNT(*) AS n FROM spent WHERE customer LIKE 'many%'", list[int](), host.service.query

    def counted(*arguments: Any, **options: Any) -> Any:
        asked.append(1)
        return query(*arguments, **options)

    monkeypatch.setattr(host.service, "query", counted)
    with gateway_of(host, ApiSettings(1, TOKEN)) as gateway:
        port = port_of(gateway)
        execute(port, "INSERT INTO orders VALUES " + ", ".join(f"({n}, 'many{n}', 1)" for n in range(100, 120)))
        until(lambda: rows(port, sql) == [{"n": 20}])
        assert asked

        def is_near() -> bool:
            asked.clear()
            assert rows(port, sql) == [{"n": 20}]
            return not asked

        until(is_near)


def test_the_status_tells_about_the_process(tmp_path: Path) -> None:
    api = ApiSettings(free_port(), TOKEN)
    host = Host(Settings(tmp_path, "demo", 1, 128 << 20, api=api))
    host.start()
    try:
        host.service.deploy(compile_project([SourceText("shop.sql", KSQL)]).plan)

        def gateway() -> dict[str, Any]:
            found: dict[str, Any] = host.service.status()["instance"]["gateway"]
            return found

        until(lambda: gateway()["pid"] is not None)
        with httpx.Client(base_url=f"http://127.0.0.1:{api.port}") as client:
            for _ in range(3):
                client.get("/health", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=WAIT_S)
            until(lambda: gateway()["requests"] == 3 and gateway()["connections"] == 1)
        assert (
            10 << 20 < gateway()["memory_bytes"] < gateway()["memory_bytes_max"] == host._settings.budget.gateway_bytes
        )
        assert gateway()["restarts"] == 0
        os.kill(gateway()["pid"], signal.SIGKILL)
        until(lambda: gateway()["restarts"] == 1 and gateway()["pid"] is not None)
        assert gateway()["requests"] == 0
    finally:
        host.close()


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


def test_a_token_may_be_limited_to_thousands_of_results(host: Host) -> None:
    results = ("orders", *(f"a_stream_with_a_name_of_some_length_{n}" for n in range(5_000)))
    tokens = {"eve": TokenSettings(hash_of(ADAS), ("read",), results)}
    with gateway_of(host, ApiSettings(1, TOKEN, tokens=tokens)) as gateway:
        said = ask(port_of(gateway), "GET", "/v1/streams/orders", ADAS)
        assert (said.status_code, said.json()["name"]) == (200, "orders")


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


def test_a_request_is_not_counted_once_its_answer_is_whole(port: int) -> None:
    """One replay is answered at a time. A client sends the next request when it has the answer, or even before."""
    body = '{"records": []}'
    head = f"POST /v1/dead-letters/replay HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 15\r\n"
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as client:
        client.sendall((f"{head}\r\n{body}" * 4 + f"{head}Connection: close\r\n\r\n{body}").encode())
        said = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert said.count(b"HTTP/1.1 200") == 5, said


def test_a_local_table_with_rows_is_subscribed_to(port: int) -> None:
    execute(port, "INSERT INTO orders VALUES (77, 'eve', 1)")
    given = {"sql": "SELECT id, amount FROM orders WHERE customer = 'eve'", "start": "earliest", "limit": 1}
    said = ask(port, "GET", "/v1/subscribe", params=given)
    assert said.status_code == 200, said.text
    assert '"row":{"id":"77","amount":1}' in said.text or '"row":{"id":77,"amount":1}' in said.text


def test_a_body_with_a_length_and_in_chunks_is_passed_on_whole(in_ksql: Host) -> None:
    """The chunks count. The length was passed on as well, and the body ended there."""
    row = b'{"AUCTION": 501, "PRICE": 1, "NAME": "zoe"}\n'
    head = f"POST /v1/streams/BIDS/rows HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/x-ndjson\r\n"
    with (
        gateway_of(in_ksql, ApiSettings(1, TOKEN)) as gateway,
        socket.create_connection(("127.0.0.1", port_of(gateway))) as client,
    ):
        client.sendall(f"{head}Transfer-Encoding: chunked\r\nContent-Length: {len(row)}\r\n\r\n".encode())
        for part in (row, row.replace(b"501", b"502")):
            client.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            time.sleep(0.3)
        client.sendall(b"0\r\n\r\n")
        said = client.recv(1 << 12)
        assert said.startswith(b"HTTP/1.1 200"), said
        found = rows(port_of(gateway), "SELECT AUCTION FROM BIDS WHERE NAME = 'zoe' ORDER BY AUCTION")
    assert found == [{"AUCTION": 501}, {"AUCTION": 502}]


def test_a_body_that_is_cut_off_is_no_error_of_the_instance(host: Host, port: int) -> None:
    audited = (host._settings.data_dir / FILE).read_text()
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(
            f"POST /v1/streams/orders/rows HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        client.sendall(b'5\r\n{"id"\r\n')
        time.sleep(0.3)
    assert ask(port, "GET", "/v1/status").status_code == 200
    time.sleep(0.3)
    assert "FQ5000" not in (host._settings.data_dir / FILE).read_text().removeprefix(audited)


def test_on_a_broker_the_instance_answers(host: Host, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop of the gateway never waits for a broker."""
    monkeypatch.setattr(Reading, "is_local", False)
    monkeypatch.setattr(EmbeddedLog, "last_sequence", on_loop := OnLoop(EmbeddedLog.last_sequence))
    for _ in range(2):
        assert ask(port, "POST", "/v1/query", json={"sql": "SELECT id FROM orders WHERE id = 1"}).status_code == 200
        assert ask(port, "GET", "/v1/tables/orders/rows?id=1").status_code == 200
    assert not on_loop.calls


class OnLoop:
    """Counts calls in the thread of a gateway's loop. The instance has its own log."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call, self.calls = call, 0

    def __get__(self, log: Any, _: Any) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            self.calls += any(
                "/flowql/gateway/" in f.filename and "/tests/" not in f.filename for f in traceback.extract_stack()
            )
            return self._call(log, *arguments)

        return called


def test_a_relayed_request_has_no_other_rights_on_the_local_port(host: Host) -> None:
    local, token = own_port(host)
    nobody = Relayed(Caller("nobody", frozenset()), None).to_header()
    for entry in ENTRIES:
        path = entry.path.replace("{name}", "orders")
        for told, status in ((nobody, 403), ("{}", 400), ("[", 400)):
            if entry.scope != "none" or told != nobody:
                said = ask(local, entry.method, path, token, headers={RELAYED: told})
                assert said.status_code == status, (path, said.text)


def test_a_port_that_another_instance_has_is_a_mistake_of_the_project(tmp_path: Path) -> None:
    number = free_port()
    with closing(bound("127.0.0.1", number, "api")):
        made = GatewayProcess(Settings(tmp_path, "demo", 1, 64 << 20, api=ApiSettings(number, TOKEN)))
        with pytest.raises(CommandError, match="cannot listen on"):
            made.bind()
        made.end()


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

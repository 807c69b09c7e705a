"""Who may do what: all requests by all roles, results that a token is limited to, signatures, pages of other origins, and the audit log."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import flowql
from flowql.config.api import ROLES, ApiSettings, TokenSettings
from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.server.access import Caller, authorize, hash_of
from flowql.server.app import ENTRIES
from flowql.server.audit import FILE, AuditLog
from flowql.server.entries import Entry
from flowql.server.host import Host
from flowql.server.row_service import Statements
from tests.flowql.query.harness import plan_of
from tests.gateway import gateway_of, port_of

SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM OTHER (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 'o', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE A AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
CREATE TABLE B AS SELECT K, COUNT(*) AS N FROM OTHER GROUP BY K;
"""
ORIGIN = "https://shop.example.com"
SECRET = "shared-with-the-sender"
ALL = "all-the-rights-there-are"
# By name: roles, and the results that it is limited to.
TOKENS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **{role: ((role,), ()) for role in ROLES},
    "none": ((), ()),
    "reads A": (("read",), ("a",)),
    "writes S": (("write",), ("S",)),
    "reads and writes S": (("read", "write"), ("S",)),
}
Ask = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("host")


@pytest.fixture(scope="module")
def ask(folder: Path) -> Iterator[Ask]:
    """A request with the token of that name."""
    host = Host(Settings(folder, "demo", 1, 64 << 20))
    host.start()
    host.service.deploy(plan_of(SQL))
    tokens = {name: TokenSettings(hash_of(f"{name}'s"), *given) for name, given in TOKENS.items()}
    api = ApiSettings(1, ALL, tokens=tokens, webhooks={"S": SECRET}, origins=(ORIGIN,))
    with (
        gateway_of(host, api) as gateway,
        httpx.Client(base_url=f"http://127.0.0.1:{port_of(gateway)}", trust_env=False, timeout=60) as client,
    ):

        def asked(who: str | None, method: str, path: str, **given: Any) -> httpx.Response:
            token = {None: None, "token": ALL}.get(who, f"{who}'s")
            headers = {**({} if token is None else {"Authorization": f"Bearer {token}"}), **given.pop("headers", {})}
            return client.request(method, path, headers=headers, **given)

        yield asked
        assert host.engine.fatal is None
    host.close()


def path_of(entry: Entry, name: str) -> str:
    return entry.path.replace("{name}", name)


def permitted(entry: Entry, who: str, result: str) -> bool:
    roles, results = TOKENS[who]
    if entry.scope == "none":
        return True
    if entry.action not in roles or (entry.also is not None and entry.also not in roles):
        return False
    if not results or entry.scope == "sql":
        return True
    return entry.scope == "result" and result.casefold() in {r.casefold() for r in results}


@pytest.mark.parametrize("entry", [e for e in ENTRIES if not e.local], ids=lambda e: f"{e.method} {e.path}")
def test_each_request_by_each_role(ask: Ask, entry: Entry) -> None:
    """The bodies are empty: what is permitted is malformed at most."""
    for who in TOKENS:
        for result in ("S", "A", "OTHER") if entry.scope == "result" else ("S",):
            said = ask(who, entry.method, path_of(entry, result))
            if permitted(entry, who, result):
                assert said.status_code not in (401, 403), (who, result, said.text)
            else:
                assert (said.status_code, said.json()["error"]["code"]) == (403, "FQ5315"), (who, result)
    for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Basic {ALL}"}, {"Authorization": ALL}):
        assert ask(None, entry.method, path_of(entry, "S"), headers=headers).status_code == 401


def test_rows_of_returning_need_the_right_to_read(ask: Ask) -> None:
    """As Arrow, `/v1/execute` has them."""
    arrow = {"Accept": "application/vnd.apache.arrow.stream"}
    writers = [who for who, (roles, _) in TOKENS.items() if "write" in roles and "read" not in roles]
    assert writers
    for who in writers:
        said = ask(who, "POST", "/v1/execute", json={"statements": "DELETE FROM A RETURNING *"}, headers=arrow)
        assert (said.status_code, said.json()["error"]["code"]) == (403, "FQ5315"), said.text


def test_what_a_token_may_not_read_is_not_there(ask: Ask) -> None:
    def query(who: str, sql: str) -> httpx.Response:
        return ask(who, "POST", "/v1/query", json={"sql": sql})

    assert query("reads A", "SELECT * FROM A").status_code == 200
    hidden = (
        "B",
        "S",
        "OTHER",
        "DEAD_LETTERS",
        "FLOWQL_STORES",
        "(SELECT * FROM B) x",
        "A WHERE EXISTS (SELECT 1 FROM b)",
    )
    for what in hidden:
        said = query("reads A", f"SELECT * FROM {what}")
        assert (said.status_code, said.json()["error"]["code"]) == (404, "FQ5103"), what
        assert "OTHER" not in said.json()["error"]["help"]
    said = query("reads A", "SELECT * FROM duckdb_tables()")
    assert said.status_code != 200 or not {r["table_name"] for r in said.json()["rows"]} & {"B", "S", "OTHER"}
    shown = query("reads A", "SHOW TABLES")
    assert shown.status_code != 200 or not {"B", "S", "OTHER"} & {
        str(v) for r in shown.json()["rows"] for v in r.values()
    }


def test_what_a_token_may_not_subscribe_to_is_not_there(ask: Ask) -> None:
    for sql in (
        "B",
        "OTHER",
        "SELECT * FROM OTHER EMIT CHANGES",
        "SELECT * FROM DEAD_LETTERS EMIT CHANGES",
        "DEAD_LETTERS",
    ):
        said = ask("reads A", "GET", "/v1/subscribe", params={"sql": sql, "limit": 0})
        assert said.status_code in (400, 404), (sql, said.text)
    said = ask("reads A", "GET", "/v1/subscribe", params={"sql": "A", "start": "earliest", "limit": 0})
    assert said.status_code == 200


def test_what_a_token_may_not_write_is_not_there(ask: Ask) -> None:
    def execute(who: str, sql: str, path: str = "/v1/execute") -> httpx.Response:
        return ask(who, "POST", path, json={"statements": sql})

    assert execute("writes S", "INSERT INTO S (K, V) VALUES ('a', 1);").status_code == 200
    assert execute("writes S", "INSERT INTO OTHER (K, V) VALUES ('a', 1);").status_code in (400, 404)
    assert execute("write", "INSERT INTO OTHER (K, V) VALUES ('a', 1);").status_code == 200


STANDARD = """
CREATE TABLE a (id INTEGER PRIMARY KEY, v TEXT);
CREATE TABLE b (id INTEGER PRIMARY KEY, v TEXT);
CREATE VIEW av AS SELECT v, COUNT(*) AS n FROM a GROUP BY v;
"""


def test_standard_sql_is_limited_too(tmp_path: Path) -> None:
    """Also for a text whose plan is kept from a caller who may read all of it."""
    (tmp_path / "flowql.yaml").write_text("name: shop\ndialect: standard\nsql: [shop.sql]\ntargets:\n  main: {}\n")
    (tmp_path / "shop.sql").write_text(STANDARD)
    with flowql.Instance(tmp_path) as instance:
        host = instance._host
        assert host is not None
        assert host.listening is not None
        rows, service = host.listening.rows, host.service
        both = "INSERT INTO a VALUES (1, 'x'); INSERT INTO b VALUES (1, 'secret');"
        assert len(rows.carry_out(Statements(both), Caller("all"))) == 2
        queries = (
            "SELECT * FROM b",
            "SELECT * FROM av",
            "SELECT * FROM a WHERE v IN (SELECT v FROM b)",
            "WITH z AS (TABLE b) SELECT * FROM z",
        )
        for query in queries:
            service.query(query).table()
            for visible in (frozenset({"a"}), frozenset[str]()):
                with pytest.raises(CommandError, match="there is no table") as hidden:
                    service.query(query, visible=visible)
                assert hidden.value.code == "FQ5103"
        assert service.query("SELECT v FROM a", visible=frozenset({"a"})).table().to_pylist() == [{"v": "x"}]
        writer = Caller("writer", frozenset({"write"}), frozenset({"a"}))
        assert rows.carry_out(Statements("INSERT INTO a VALUES (2, 'y');"), writer)[0].rows == 1
        for statement in (
            "INSERT INTO b VALUES (2, 'y');",
            "INSERT INTO a SELECT id + 10, v FROM b;",
            "UPDATE a SET v = (SELECT MAX(v) FROM b);",
            "DELETE FROM a WHERE v IN (SELECT v FROM b);",
        ):
            with pytest.raises((CommandError, flowql.CompileError), match=r"there is no table|unknown stream/table"):
                rows.carry_out(Statements(statement), writer)


def test_a_signed_event_needs_no_token(ask: Ask) -> None:
    body = json.dumps({"k": "signed", "v": 1}).encode()
    good = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()

    def sent(path: str, signature: str, content: bytes = body) -> int:
        headers = {"X-Hub-Signature-256": signature.encode()} if signature else {}
        return ask(None, "POST", path, content=content, headers=headers).status_code

    assert sent("/v1/streams/S/events", good) == 200
    assert sent("/v1/streams/s/events", good) == 200
    for path, signature, content in (
        ("/v1/streams/S/events", good, body + b" "), ("/v1/streams/S/events", "", body), ("/v1/streams/S/events", "sha256=", body),
        ("/v1/streams/S/events", "sha256=é", body), ("/v1/streams/OTHER/events", good, body), ("/v1/streams/S/rows", good, body),
        ("/v1/streams/S/events", good.removeprefix("sha256="), body),
    ):  # fmt: skip
        assert sent(path, signature, content) == 401, (path, signature)


def test_changes_and_refusals_are_in_the_audit_log(ask: Ask, folder: Path) -> None:
    (folder / FILE).unlink(missing_ok=True)
    ask("token", "POST", "/v1/pause", json={"queries": ["A"], "paused": True})
    ask("token", "POST", "/v1/pause", json={"queries": ["A"], "paused": False})
    ask("operate", "POST", "/v1/pause", json={"queries": ["NOBODY"], "paused": True})
    ask("read", "POST", "/v1/streams/S/rows", json=[{"K": "private"}])
    ask("read", "POST", "/v1/query", json={"sql": "SELECT 'private' AS x"})
    ask("write", "POST", "/v1/streams/S/rows", json=[{"K": "private", "V": 1}])
    text = (folder / FILE).read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(x["who"], x["request"], x["status"], x["error"]) for x in lines] == [
        ("token", "POST /v1/pause", 200, None),
        ("token", "POST /v1/pause", 200, None),
        ("operate", "POST /v1/pause", 404, "FQ5202"),
        ("read", "POST /v1/streams/S/rows", 403, "FQ5315"),
        ("write", "POST /v1/streams/S/rows", 200, None),
    ]
    assert all(x["time"].endswith("Z") and x["from"] == "127.0.0.1" for x in lines)
    assert "private" not in text


def test_the_audit_log_has_an_end_and_a_full_disk_stops_nothing(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, bytes_max=200)
    for n in range(9):
        log.write({"who": f"{n}"})
    kept = [json.loads(x)["who"] for f in ("audit.1.jsonl", FILE) for x in (tmp_path / f).read_text().splitlines()]
    assert kept == [str(n) for n in range(9)][-len(kept) :]
    assert 4 <= len(kept) < 9
    AuditLog(tmp_path / "missing").write({"who": "x"})


def test_two_processes_write_one_audit_log_whichever_puts_the_full_file_away(tmp_path: Path) -> None:
    logs = [AuditLog(tmp_path, bytes_max=200) for _ in range(2)]
    for n in range(9):
        logs[n % 2].write({"who": f"{n}"})
    kept = [json.loads(x)["who"] for f in ("audit.1.jsonl", FILE) for x in (tmp_path / f).read_text().splitlines()]
    assert kept == [str(n) for n in range(9)][-len(kept) :]
    assert 4 <= len(kept) < 9
    (tmp_path / FILE).unlink()
    logs[0].write({"who": "after its file was deleted"})
    assert (tmp_path / FILE).read_text().count("after its file was deleted") == 1


def test_an_interrupted_write_leaves_the_audit_log_unlocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    log = AuditLog(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(AuditLog, "_is_current", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.write({"who": "x"})
    with (tmp_path / FILE).open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    log.write({"who": "y"})
    assert json.loads((tmp_path / FILE).read_text())["who"] == "y"


def test_a_line_of_the_audit_log_is_written_when_threads_have_ended(tmp_path: Path) -> None:
    log, threads = AuditLog(tmp_path), ThreadPoolExecutor(1)
    threads.shutdown()
    for n in range(2):
        log.begin({"who": f"{n}"}, threads.submit).result(timeout=10)
    assert [json.loads(x)["who"] for x in (tmp_path / FILE).read_text().splitlines()] == ["0", "1"]


def test_pages_of_configured_origins_may_send_requests(ask: Ask) -> None:
    preflight = {
        "Origin": ORIGIN,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    said = ask(None, "OPTIONS", "/v1/query", headers=preflight)
    assert (said.status_code, said.headers["access-control-allow-origin"]) == (200, ORIGIN)
    said = ask("read", "POST", "/v1/query", json={"sql": "SELECT 1"}, headers={"Origin": ORIGIN})
    assert said.headers["access-control-allow-origin"] == ORIGIN
    other = {**preflight, "Origin": "https://evil.example.com"}
    assert "access-control-allow-origin" not in ask(None, "OPTIONS", "/v1/query", headers=other).headers
    assert (
        ask(
            "read", "POST", "/v1/query", json={"sql": "SELECT 1"}, headers={**preflight, "Host": "evil.example.com"}
        ).status_code
        == 421
    )


@pytest.mark.parametrize("result", [None, "A", "a", "B"])
def test_authorize_is_one_rule(result: str | None) -> None:
    for roles in ((), ("read",), ("write", "deploy")):
        for results in (None, frozenset({"a"})):
            caller = Caller("x", frozenset(roles), results)
            allowed = "read" in roles and (results is None or (result is not None and result.casefold() in results))
            if allowed:
                authorize(caller, "read", result)
            else:
                with pytest.raises(CommandError, match="the token `x`"):
                    authorize(caller, "read", result)

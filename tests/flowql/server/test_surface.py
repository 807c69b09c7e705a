"""What comes from outside, on every endpoint: refused with the status that says why, and the instance goes on."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from dataclasses import replace

import httpx
import pytest

from flowql.config.sections import InteractiveQuerySettings, MetricsSettings
from flowql.deploy.settings import Settings
from flowql.query.database import QueryDatabase
from flowql.query.errors import INVALID, REFUSED, TOO_LONG, QueryError
from flowql.query.interactive import InteractiveQuery
from flowql.query.limits import QueryLimits
from flowql.query.query_pool import QueryPool
from flowql.query.session import evaluate
from flowql.server import app as routes
from flowql.server import connections, limits
from flowql.server import host as host_module
from flowql.server.failures import MALFORMED, NO_ROUTE
from flowql.server.host import Host
from flowql.server.running import connect
from tests.flowql.query.harness import plan_of

pytestmark = pytest.mark.turns("servers")

SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE A AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
"""
ROUTES = [(e.method, e.path.replace("{name}", "S")) for e in routes.ENTRIES]
POSTS = [(e, e.path.replace("{name}", "S")) for e in routes.ENTRIES if e.method == "POST"]
OF_JSON = [path for e, path in POSTS if e.body is not None]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    metrics = MetricsSettings(free_port(), names=("watched.example.com",))
    folder, queries = tmp_path_factory.mktemp("host"), InteractiveQuerySettings(at_once=2)
    made = Host(Settings(folder, "demo", 1, 64 << 20, metrics=metrics, interactive_queries=queries))
    made.start()
    made.service.deploy(plan_of(SQL))
    yield made
    made.close()


@pytest.fixture(scope="module")
def ports(host):
    """Every port that an instance may listen on, by name. The one for other instances has the token `members`."""
    app = routes.make_members_app(host.listening._server, "members", ["member.example.com"])
    (own,) = [p.number for p in host.listening.ports[1:]]
    return {"own": own, "metrics": host._settings.metrics.port, "members": host.listening.serve(app, "127.0.0.1", 0)}


@pytest.fixture
def ask(host):
    """A request with the token, unless other headers are given."""
    client = connect(host._settings.data_dir)
    address = client.address
    client.close()
    mine = {"Authorization": f"Bearer {address.token}"}

    def asked(method, path, headers=None, **given):
        url = f"http://127.0.0.1:{address.port}{path}"
        return httpx.request(method, url, headers=mine if headers is None else headers, trust_env=False, **given)

    asked.port, asked.token, asked.mine = address.port, address.token, mine
    yield asked
    assert asked("GET", "/health").status_code == 200  # it goes on, whatever it was asked
    assert host.engine.fatal is None


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_without_the_token_nothing_is_told_and_no_body_is_read(ask, method, path):
    for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": ask.token}, {"Authorization": "Basic eDp5"}):
        assert ask(method, path, headers=headers).status_code == 401
    sent = poured(ask.port, f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {400 << 20}\r\n\r\n")
    assert (sent.status, sent.closed) == (413, True)
    assert sent.bytes < 8 << 20
    sent = poured(
        ask.port, f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n", chunks=True
    )
    assert (sent.status, sent.closed) == (401, True)
    assert sent.bytes < 8 << 20


@pytest.mark.parametrize(("memory", "warmed"), [(1 << 30, True), (512 << 20, False)])
def test_a_process_for_queries_starts_when_an_instance_has_run_for_a_while(host, monkeypatch, memory, warmed):
    """Not in commands that end by themselves, which do not call `serve`, and not where the budget has no room for it."""
    warm, looks = threading.Event(), []
    monkeypatch.setattr(QueryPool, "warm", lambda _: warm.set())
    monkeypatch.setattr(host, "_settings", replace(host._settings, memory_bytes=memory))
    monkeypatch.setattr(host_module, "WARM_AFTER_S", 0.05)
    monkeypatch.setattr(
        host, "wait", lambda _: looks.append(warm.is_set()) or warm.is_set() or len(looks) > 20 or time.sleep(0.01)
    )
    host.serve()
    assert warm.is_set() == warmed
    assert looks[:2] == [False, False]


@pytest.mark.parametrize(("entry", "path"), POSTS)
def test_a_body_that_is_too_long_is_not_read(ask, entry, path):
    with_token = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {ask.token}\r\n"
    sent = poured(ask.port, f"{with_token}Content-Length: {400 << 20}\r\n\r\n")
    assert (sent.status, sent.closed) == (413, True)
    assert sent.bytes < 8 << 20
    if path in ("/backup", "/state-copy", "/stop"):  # they look at no body
        return
    sent = poured(ask.port, f"{with_token}Transfer-Encoding: chunked\r\n\r\n", chunks=True)
    assert (sent.status, sent.closed) == (413, True)
    assert sent.bytes < entry.limit.body_bytes + (32 << 20)


@pytest.mark.parametrize("path", OF_JSON)
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"3", b'"x"', b"null", b"{}", b"\xff", b"[" * 60_000, b'{"query": 1, "no": 2}', b'{"plan": 3}'],
)
def test_malformed_json_is_a_400(ask, path, body):
    said = ask("POST", path, content=body)
    assert said.status_code == 400, said.text
    assert said.json()["error"]["code"] == MALFORMED


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/pause", {"queries": "A", "paused": True}),
        ("/v1/pause", {"queries": [1], "paused": True}),
        ("/v1/pause", {"queries": ["A"], "paused": "yes"}),
        ("/v1/deployments", {"plan": "{}"}),
        ("/v1/deployments", {"plan": "x"}),
    ],
)
def test_a_document_of_the_wrong_shape_is_a_400(ask, path, body):
    assert ask("POST", path, json=body).status_code == 400


def test_a_name_that_does_not_exist_is_a_404(ask):
    for path, body in (
        ("/v1/pause", {"queries": ["NOBODY"], "paused": True}),
        ("/v1/priority", {"query": "NOBODY", "priority": "high"}),
        ("/v1/query", {"sql": "SELECT * FROM NOBODY"}),
    ):
        said = ask("POST", path, json=body)
        assert said.status_code == 404, said.text
        assert "NOBODY" in said.json()["error"]["message"]


def test_methods_and_paths_that_are_not_there(ask):
    for method, path in (("GET", "/v1/query"), ("POST", "/v1/status")):
        said = ask(method, path)
        assert (said.status_code, said.json()["error"]["code"], "allow" in said.headers) == (405, NO_ROUTE, True)
    for path in ("/", "/rows", "//status", "/v1/status/", "/%2e%2e/instance.json"):
        said = ask("GET", path, follow_redirects=False)
        assert said.status_code in (307, 404), path
        assert said.status_code == 307 or said.json()["error"]["code"] == NO_ROUTE


@pytest.mark.parametrize(
    "name", ["evil.example.com", "127.0.0.1.evil.example.com", "localhost.evil.com:80", "", "x" * 300]
)
def test_a_host_name_that_is_not_the_instances_is_turned_away_on_every_port(ask, ports, name):
    """A page in a browser whose own name leads here reads nothing."""
    for which, path in (("own", "/v1/status"), ("metrics", "/metrics"), ("members", "/rows")):
        url = f"http://127.0.0.1:{ports[which]}{path}"
        said = httpx.get(url, headers={**ask.mine, "Host": name}, trust_env=False)
        assert said.status_code in ((421,) if name else (400, 421)), (which, name)


def test_the_port_for_other_instances_refuses_what_the_others_refuse(ask, ports):
    url, mine = f"http://127.0.0.1:{ports['members']}", {"Authorization": "Bearer members"}

    def asked(path, **given):
        return httpx.post(url + path, trust_env=False, **given).status_code

    for headers in ({}, ask.mine, {"Authorization": "members"}):
        assert asked("/rows", headers=headers, content=b"{}") == 401
    for body in (b"", b"{", b"[]", b"3", b"null", b"{}", b"\xff", b"[" * 60_000, b'{"wanted": 3}', b'{"wanted": [3]}'):
        assert asked("/rows", headers=mine, content=body) == 400, body
    assert asked("/v1/query", headers=mine, content=b"SELECT 1") == 404
    assert httpx.get(f"{url}/rows", headers=mine, trust_env=False).status_code == 405
    for head, status in ((f"Content-Length: {400 << 20}", 413), ("Transfer-Encoding: chunked", 413)):
        said = poured(
            ports["members"],
            f"POST /rows HTTP/1.1\r\nHost: member.example.com\r\nAuthorization: Bearer members\r\n{head}\r\n\r\n",
            chunks="chunked" in head,
        )
        assert (said.status, said.closed) == (status, True), head
        assert said.bytes < 8 << 20


def test_the_port_for_metrics_reads_no_body(ports):
    for head, status in ((f"Content-Length: {400 << 20}", 413), ("Transfer-Encoding: chunked", 405)):
        sent = poured(
            ports["metrics"], f"POST /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n\r\n", chunks="chunked" in head
        )
        assert (sent.status, sent.closed) == (status, True), head
        assert sent.bytes < 8 << 20


def test_its_own_names_are_known(ask, host):
    metrics = host._settings.metrics.port
    for port, path, names in (
        (ask.port, "/health", ("127.0.0.1", f"localhost:{ask.port}", "[::1]:80", "LOCALHOST")),
        (metrics, "/metrics", ("127.0.0.1", "localhost", "watched.example.com", socket.gethostname())),
    ):
        for name in names:
            said = httpx.get(f"http://127.0.0.1:{port}{path}", headers={**ask.mine, "Host": name}, trust_env=False)
            assert said.status_code == 200, name
    assert httpx.get(f"http://127.0.0.1:{metrics}/v1/status", headers=ask.mine, trust_env=False).status_code == 404
    assert httpx.post(f"http://127.0.0.1:{metrics}/metrics", trust_env=False).status_code == 405


def test_more_requests_at_once_than_an_endpoint_answers_are_turned_away(ask, monkeypatch, host):
    going_on = threading.Event()
    waiting = threading.Semaphore(0)

    def query(sql, begun, client, options):
        waiting.release()
        going_on.wait(30)
        raise QueryError("at last", code=INVALID)

    monkeypatch.setattr(host.service, "query", query)
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(ask("POST", "/v1/query", json={"sql": "x"}, timeout=60)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
        assert waiting.acquire(timeout=30)
    turned_away = ask("POST", "/v1/query", json={"sql": "x"})
    assert (turned_away.status_code, turned_away.headers["retry-after"]) == (503, "1")
    assert ask("GET", "/v1/status").status_code == 200
    going_on.set()
    for thread in threads:
        thread.join()
    assert [a.status_code for a in answers] == [400, 400]


def test_a_body_that_does_not_come_ends_in_time(ask, monkeypatch):
    monkeypatch.setattr(limits, "BODY_S", 0.5)
    with socket.create_connection(("127.0.0.1", ask.port), timeout=30) as slow:
        slow.sendall(
            f"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {ask.token}\r\nContent-Length: 9\r\n\r\nS".encode()
        )
        assert slow.recv(1_000).split(b" ")[1] == b"408"


def test_an_interactive_query_that_takes_too_long_is_broken_off(ask, monkeypatch, host):
    shorter = QueryDatabase(QueryLimits(settings=InteractiveQuerySettings(time_ms=500)))
    monkeypatch.setattr(host.service, "database", shorter)
    begun = time.monotonic()
    sql = "SELECT SUM(a.range * b.range) FROM range(10000000) a, range(1000000) b"
    said = ask("POST", "/v1/query", json={"sql": sql}, timeout=60)
    assert (said.status_code, said.json()["error"]["code"]) == (400, TOO_LONG)
    assert time.monotonic() - begun < 30


def test_who_does_not_take_an_answer_holds_nothing_for_ever(ask, monkeypatch, host):
    monkeypatch.setattr(
        host.service, "database", QueryDatabase(QueryLimits(settings=InteractiveQuerySettings(time_ms=500)))
    )
    sql = json.dumps({"sql": f"SELECT range, '{'x' * 1000}' AS x FROM range(1000000)"}).encode()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        slow.connect(("127.0.0.1", ask.port))
        head = f"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {ask.token}\r\nContent-Length: {len(sql)}\r\n\r\n"
        slow.sendall(head.encode() + sql)
        assert slow.recv(1_000).split(b" ")[1] == b"200"
        slow.settimeout(20)
        time.sleep(1.5)
        taken = 0
        while piece := slow.recv(1 << 16):  # what was on its way; then it hangs up
            taken += len(piece)
        assert taken < 100 << 20
    for _ in range(3):  # there is room for two at once
        assert ask("POST", "/v1/query", json={"sql": "SELECT 1"}).status_code == 200


@pytest.mark.parametrize("said", [b"", b"GET /health HT", b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "])
def test_who_does_not_end_a_request_is_hung_up_on(monkeypatch, ports, said):
    monkeypatch.setattr(connections, "LOOK_S", 0.1)
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    for port in ports.values():
        with socket.create_connection(("127.0.0.1", port), timeout=30) as slow:
            slow.sendall(said)
            assert slow_end(slow, b"a") == b""


def test_who_asks_again_and_again_is_not_hung_up_on(ask, monkeypatch):
    monkeypatch.setattr(connections, "LOOK_S", 0.1)
    monkeypatch.setattr(connections, "HEAD_S", 1.0)
    with httpx.Client(base_url=f"http://127.0.0.1:{ask.port}", headers=ask.mine, trust_env=False) as client:
        used = set()
        for _ in range(16):
            said = client.get("/health")
            used.add(said.extensions["network_stream"].get_extra_info("socket").getsockname())
            time.sleep(0.15)
    assert len(used) == 1


def test_more_connections_than_a_port_has_are_hung_up_on(ask, monkeypatch, ports):
    """Each is an open file; without an end to them there is none left for the state."""
    monkeypatch.setattr(connections.PortConfig, "connections_max", 6)
    for port in ports.values():
        kept = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(6)]
        with socket.create_connection(("127.0.0.1", port), timeout=30) as newest:
            assert slow_end(kept[0]) == b"", "the oldest one goes"
            newest.settimeout(0.2)
            with pytest.raises(TimeoutError):
                newest.recv(1)
        for connection in kept:
            connection.close()
        until(lambda port=port: health(port) in (200, 401, 404))


def test_connections_that_say_nothing_keep_nobody_out(ask, monkeypatch):
    """With 256 of them open no request was answered, and those who had asked before were not either."""
    monkeypatch.setattr(connections.PortConfig, "connections_max", 6)
    with httpx.Client(base_url=f"http://127.0.0.1:{ask.port}", headers=ask.mine, trust_env=False) as client:
        mine = client.get("/health").extensions["network_stream"].get_extra_info("socket").getsockname()
        idle = [socket.create_connection(("127.0.0.1", ask.port), timeout=30) for _ in range(20)]
        assert ask("GET", "/health").status_code == 200
        said = client.get("/health")
        assert said.extensions["network_stream"].get_extra_info("socket").getsockname() == mine
        for connection in idle:
            connection.close()


def test_who_sends_nothing_is_hung_up_on_soon(monkeypatch, ports):
    monkeypatch.setattr(connections, "LOOK_S", 0.1)
    monkeypatch.setattr(connections, "SILENT_S", 0.3)
    for port in ports.values():
        with socket.create_connection(("127.0.0.1", port), timeout=30) as silent:
            assert silent.recv(1) == b""


def test_no_port_delays_small_packets(host, ports):
    """A listening socket of protocol 0 has asyncio leave Nagle's algorithm on: each answer on a kept connection took 40 ms."""
    states = {p.number: p.server.server_state for p in host.listening.ports}
    for port in ports.values():
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            mine = client.getsockname()
            until(lambda port=port, mine=mine: mine in [c.client for c in list(states[port].connections)])
            (accepted,) = [c for c in list(states[port].connections) if c.client == mine]
            own = accepted.transport.get_extra_info("socket")
            assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_who_takes_nothing_of_an_answer_holds_no_connection(ask, monkeypatch, host):
    """One that was made as a whole stayed in memory for as long as the client stayed."""
    monkeypatch.setattr(connections, "LOOK_S", 0.1)
    monkeypatch.setattr(connections, "TAKE_S", 0.3)
    large = "x" * (32 << 20)
    monkeypatch.setattr(host.service, "status", lambda *, detail: {"large": large})
    (own,) = [p.server.server_state for p in host.listening.ports if p.number == ask.port]
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        slow.connect(("127.0.0.1", ask.port))
        slow.sendall(
            f"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {ask.token}\r\n\r\n".encode()
        )
        address = slow.getsockname()  # connections of other tests end in the meantime
        until(lambda: address in [c.client for c in list(own.connections)])
        until(lambda: address not in [c.client for c in list(own.connections)])
    monkeypatch.undo()


def until(true):
    limit = time.monotonic() + 30
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.02)


def slow_end(connection, drop=b""):
    """What comes until the other side hangs up; a byte is sent now and then."""
    found = b""
    connection.settimeout(0.1)
    limit = time.monotonic() + 30
    while True:
        assert time.monotonic() < limit, "nobody hangs up"
        try:
            connection.sendall(drop)
            piece = connection.recv(1_000)
        except TimeoutError:
            continue
        except OSError:
            return found
        if not piece:
            return found
        found += piece


def health(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code
    except httpx.HTTPError:
        return 0


REACHING = [
    "SET threads = 8", "RESET memory_limit", "PRAGMA database_list", "CALL pragma_version()", "ATTACH 'x.db'", "USE x",
    "COPY (SELECT 1) TO '/tmp/x'", "COPY a FROM '/etc/passwd'", "EXPORT DATABASE '/tmp/x'", "IMPORT DATABASE '/tmp/x'",
    "INSTALL httpfs", "LOAD httpfs", "LOAD '/tmp/x.so'", "CREATE TABLE t AS SELECT 1", "CREATE SECRET s (TYPE s3)",
    "DROP TABLE a", "INSERT INTO a VALUES ('x', 1)", "DELETE FROM a", "CHECKPOINT", "VACUUM", "SELECT 1; SELECT 2",
    "CREATE MACRO m(x) AS x", "PREPARE p AS SELECT 1", "EXPLAIN COPY (SELECT 1) TO '/tmp/x'",
    "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM read_text('/etc/passwd')", "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM read_blob('/proc/self/environ')", "SELECT * FROM glob('/*')", "SELECT * FROM read_parquet('x')",
    "SELECT * FROM read_json_auto('http://127.0.0.1:1/x')", "SELECT * FROM 'https://example.com/x.csv'",
    "SELECT * FROM read_duckdb('x')", "SELECT * FROM sniff_csv('/etc/passwd')", "SELECT getenv('HOME')",
    "SELECT * FROM query('SELECT 1')", "SELECT * FROM query_table('a')", "FROM parquet_metadata('/tmp/x')",
    "SELECT * FROM parquet_schema('/tmp/x')", "SELECT * FROM read_ndjson_objects('/etc/passwd')", "SHOW DATABASES; SET x=1",
    "SELECT * FROM duckdb_extensions()", "SELECT * FROM glob('{spill}/*')", "SELECT * FROM read_blob('{spill}/*')",
    "SELECT a.* FROM range(1) r, LATERAL (SELECT * FROM read_text('{spill}/*')) a", "FROM read_csv_auto('{spill}/x')",
]  # fmt: skip


def spilled(host):
    """Its folder. Others of this process may be there, too."""
    (found,) = host._settings.data_dir.glob(f"spill-{os.getpid()}-*")
    return found


@pytest.mark.parametrize("sql", REACHING)
def test_an_interactive_query_reaches_no_setting_file_network_or_extension(host, sql):
    host.listening.database.connection().close()
    spill = str(spilled(host))
    with pytest.raises(QueryError) as raised:
        evaluate(sql.replace("{spill}", spill), host.engine.take, host.listening.database)
    assert raised.value.code in (REFUSED, INVALID, "FQ5103")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM duckdb_settings()", "SELECT * FROM duckdb_settings", "SELECT * FROM pg_catalog.pg_settings",
        "SELECT current_setting('temp_directory')", "SELECT Current_Setting('temp' || '_directory')", "FROM duckdb_secrets()",
        "WITH s AS (SELECT * FROM duckdb_temporary_files()) FROM s", "EXPLAIN SELECT * FROM DUCKDB_EXTENSIONS()",
        "SELECT (SELECT max(message) FROM duckdb_logs)", "SELECT * FROM duckdb_external_file_cache()",
    ],
)  # fmt: skip
def test_an_interactive_query_shows_no_path_of_the_machine(ask, sql):
    said = ask("POST", "/v1/query", json={"sql": sql})
    assert (said.status_code, said.json()["error"]["code"]) == (400, REFUSED)
    assert "/" not in said.json()["error"]["message"]


def test_settings_without_paths_can_be_read(ask):
    for sql in ("SELECT current_setting('TimeZone') AS z", "SELECT count(*) FROM duckdb_columns()"):
        assert ask("POST", "/v1/query", json={"sql": sql}).status_code == 200


def test_errors_of_an_interactive_query_name_no_path(host):
    """What could not be written to disk was told with the file's path."""
    for said in ('IO Error: Could not write file "{}/x.tmp": No space left on device', "IO Error: {}/y is gone"):
        query = InteractiveQuery("SELECT 1", host.listening.database)
        try:
            told = query.error(OSError(said.replace("{}", str(spilled(host)))))
        finally:
            query.end()
        assert str(host._settings.data_dir) not in f"{told.title} {told.help}"


def test_the_locks_of_an_interactive_query_are_on(host):
    with host.listening.database.connection() as connection:
        values = dict(connection.execute("SELECT name, value FROM duckdb_settings()").fetchall())
    names = ("enable_external_access", "lock_configuration", "threads", "memory_limit", "temp_directory")
    assert [values[name] for name in names] == ["false", "true", "1", "32.0 MiB", f"{spilled(host)}/files"]


class Sent:
    """What came back, whether the connection was closed, and how much of a body was taken."""

    def __init__(self, status, closed, taken):
        self.status, self.closed, self.bytes = status, closed, taken


def poured(port, head, *, chunks=False):
    """Send a body without an end until somebody hangs up, or 400 MB are gone."""
    piece = b"x" * (1 << 16)
    piece = b"%x\r\n%s\r\n" % (len(piece), piece) if chunks else piece
    taken, said = 0, b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(head.encode())
        closed = False
        try:
            while taken < 400 << 20:
                connection.sendall(piece)
                taken += len(piece)
        except OSError:
            closed = True
        try:
            while part := connection.recv(1 << 16):
                said += part
        except OSError:
            pass
    return Sent(int(said.split(b" ")[1]) if said else None, closed, taken)

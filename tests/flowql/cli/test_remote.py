"""Targets with `url`: commands do on another machine what they do beside the instance."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowql.cli.place import place_of
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from flowql.deploy.settings import settings_of
from flowql.runtime.log.base import TopicPartition
from flowql.server import client as protocol
from flowql.server import operations
from flowql.server.host import Host
from flowql.server.logs import Wanted
from flowql.server.on_runtime import RuntimeEngine
from tests.certificates import certificate_in
from tests.flowql.cli.program import CommandResult, Program
from tests.runtime.log.records import produce

pytestmark = pytest.mark.turns("servers")

TOKEN = "correct-horse-battery"
SQL = """
CREATE STREAM s (k TEXT KEY, v INT, d NUMERIC(9, 2), at TIMESTAMPTZ, b BYTEA, l BIGINT[])
  WITH (kafka_topic = 's', partitions = 1, value_format = 'JSON');
CREATE MATERIALIZED VIEW a AS SELECT k, COUNT(*) AS n, SUM(d) AS d FROM s GROUP BY k;
CREATE MATERIALIZED VIEW big AS SELECT k, v * 2 AS w, at FROM s WHERE v > 5;
CREATE TABLE own (id INT PRIMARY KEY, name TEXT);
"""
RECORDS = (
    (5, b"a", b'{"v": 1, "d": 1.50, "at": 1767323045678, "l": [9007199254740993]}'),
    (6, b"b", b'{"v": 22, "d": -3, "at": 1767323045000}'),
    (7, b"c", b'{"v": "x"}'),
    (8, b"\xff\x00", b"\x00\x01"),
)
MORE = SQL + "CREATE MATERIALIZED VIEW c AS SELECT k, MAX(v) AS m FROM s GROUP BY k;\n"
# Each is typed at both targets, one after the other: what changes something is undone, or the same twice.
SCRIPT: tuple[tuple[str, ...], ...] = (
    ("status",),
    ("status", "-o", "json"),
    ("top", "--once", "-o", "json"),
    ("query", "SELECT * FROM S ORDER BY K"),
    ("query", "SELECT * FROM S ORDER BY K", "-o", "json"),
    ("query", "SELECT * FROM A ORDER BY K", "-o", "csv"),
    ("query", "SELECT K, N + 0.5 AS X FROM A ORDER BY K", "--engine", "duckdb"),
    ("query", "SELECT * FROM NOTHING"),
    ("query", "SELEC"),
    ("exec", "INSERT INTO OWN VALUES (1, 'ada'), (2, 'bob'); UPDATE OWN SET NAME = 'eve' WHERE ID = 2 RETURNING *; DELETE FROM OWN"),
    ("exec", "INSERT INTO OWN VALUES (3, 'x') RETURNING ID; DELETE FROM OWN RETURNING NAME, ID", "-o", "json"),
    ("exec", "INSERT INTO own VALUES (4, 'x'); DELETE FROM own RETURNING id + 1 AS y", "-o", "csv"),
    ("exec", "DELETE FROM OWN; DELETE FROM OWN", "-o", "csv"),
    ("exec", "DELETE FROM own WHERE id < 0"),
    ("exec", "DELETE FROM NOTHING"),
    ("subscribe", "S", "--from", "earliest", "--limit", "2"),
    ("subscribe", "S", "--from", "earliest", "--limit", "2", "-o", "json"),
    ("subscribe", "SELECT K, N, D FROM A EMIT CHANGES", "--from", "earliest", "--limit", "2"),
    ("subscribe", "NOTHING"),
    ("pause", "A"),
    ("resume", "A"),
    ("pause", "NOTHING"),
    ("priority", "set", "A", "high", "--latency-target", "200 ms"),
    ("priority", "set", "A", "normal", "--latency-target", "none", "-o", "json"),
    ("logs", "--level", "warning"),
    ("logs", "--query", "CTAS_a", "-o", "json", "-n", "1"),
    ("diff", "BIG"),
    ("promote",),
    ("dlq", "ls"),
    ("dlq", "ls", "-o", "json"),
    ("dlq", "ls", "--where", "V = 'x'"),
    ("dlq", "show", "s/0@2"),
    ("dlq", "show", "s/0@0"),
    ("dlq", "export", "-o", "csv"),
    ("dlq", "replay", "--set", "V = 7", "--dry-run"),
    ("shell", "-c", "SHOW QUERIES; DESCRIBE A; SELECT * FROM A ORDER BY K; SHOW TOPICS; PAUSE CTAS_a; RESUME CTAS_a"),
    ("shell", "-c", "SET 'auto.offset.reset' = 'earliest'; SELECT K, W FROM BIG EMIT CHANGES LIMIT 1", "-o", "json"),
    ("shell", "-c", "EXPLAIN SELECT K FROM S EMIT CHANGES; INSERT INTO OWN VALUES (1, 'x'); DELETE FROM OWN RETURNING *"),
    ("shell", "-c", "PRINT s FROM BEGINNING LIMIT 3; PRINT 's' FROM BEGINNING INTERVAL 2 LIMIT 2"),
    ("shell", "-c", "PRINT nothing FROM BEGINNING"),
    ("plan",),
    ("plan", "--prune", "--format", "markdown"),
    ("plan", "-s", "A"),
    ("deployments",),
)  # fmt: skip


class Shop:
    """A project with a target on this machine and one at the URL of the same instance."""

    def __init__(self, flowql: Program, folder: Path, url: str) -> None:
        self._flowql, self.folder, self.url = flowql, folder, url

    def __call__(self, target: str, *arguments: str) -> CommandResult:
        return self._flowql("-p", str(self.folder), "-t", target, *arguments)

    def targets(self, remote: str) -> None:
        """Writes the project with another remote target."""
        (self.folder / "flowql.yaml").write_text(
            f"name: demo\ndialect: standard\nsql: [demo.sql]\ntargets:\n  here: {{data_dir: data, api: {{port: {self.url.rpartition(':')[2]}, token: {TOKEN}}}}}\n"
            f"  there: {remote}\n"
        )


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, Host]]:
    """One record of the topic is no row."""
    folder = tmp_path_factory.mktemp("shop")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    made = Shop(None, folder, f"http://127.0.0.1:{port}")  # type: ignore[arg-type]
    made.targets(f"{{url: '{made.url}', token: {{env: SHOP_TOKEN}}}}")
    (folder / "demo.sql").write_text(SQL)
    host = Host(settings_of(load_project(folder, target="here")))
    host.start()
    host.service.deploy(compile_sources(load_project(folder, target="here")).plan)

    assert isinstance(host.engine, RuntimeEngine)
    produce(host.engine.instance.log, "by-hand", (TopicPartition("s", 0), list(RECORDS)))
    yield folder, made.url, host
    host.close()


@pytest.fixture
def shop(flowql: Program, instance: tuple[Path, str, Host], monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("SHOP_TOKEN", TOKEN)
    folder, url, host = instance
    made = Shop(flowql, folder, url)
    made.targets(f"{{url: '{made.url}', token: {{env: SHOP_TOKEN}}}}")
    (folder / "demo.sql").write_text(SQL)
    done = host.engine.catch_up()
    while not done():
        pass
    return made


def equalised(done: CommandResult, line: tuple[str, ...]) -> str:
    """Without figures that differ between two moments, and the name of the target."""
    text = str(done).replace("target `there`", "target `here`")
    text = re.sub(r'"tick": "own/0:\d+"', '"tick": "own/0:#"', text)
    if line[0] in ("status", "top", "logs"):
        text = re.sub(r"\d+(\.\d+)?(e-\d+)?", "#", text)
    return text


@pytest.mark.parametrize("line", SCRIPT, ids=" ".join)
def test_a_command_says_the_same_here_and_there(shop: Shop, line: tuple[str, ...]) -> None:
    here, there = (equalised(shop(target, *line), line) for target in ("here", "there"))
    assert there == here
    assert "Traceback" not in here
    assert "internal error" not in here


def test_a_deployment_is_planned_shown_and_built_there(shop: Shop) -> None:
    """Over the URL alone: the target has no directory here."""
    (shop.folder / "demo.sql").write_text(MORE)
    planned = shop("there", "plan", "-o", "json")
    assert (planned.code, json.loads(planned.out)["changed"]) == (2, 1)
    done = shop("there", "deploy", "-o", "json")
    assert (done.code, json.loads(done.out)["changes"]) == (0, json.loads(planned.out)["changes"])
    assert shop("there", "query", "SELECT * FROM c", "-o", "csv").code == 0
    (shop.folder / "demo.sql").write_text(SQL)
    assert shop("there", "deploy", "--prune").code == 0
    assert shop("there", "plan").code == 0
    assert not (shop.folder / ".flowql").exists()


def test_dead_letters_are_repaired_there(shop: Shop) -> None:
    """The instance of a target without `url` does the same: it is asked over the same requests."""
    where = ("--where", "v = 'x'")
    before = shop("there", "query", "SELECT w FROM big ORDER BY w", "-o", "csv").out
    assert shop("there", "dlq", "replay", *where, "--set", "v = 8", "--append").code == 0
    after = shop("there", "query", "SELECT w FROM big ORDER BY w", "-o", "csv").out
    assert after.split() == [*before.split()[:1], "16", *before.split()[1:]]
    assert "1 record;" in shop("there", "dlq", "ls").err, "the record that is no text is still open"


def test_logs_go_on_where_they_were(shop: Shop) -> None:
    """`--follow` asks for what came since the position of the last answer."""
    place = place_of(load_project(shop.folder, target="there"))
    wanted = Wanted("info", "")
    found, newer = place.log(wanted, 3)
    assert len(found) <= 3
    assert newer() == []
    shop("there", "pause", "a")
    shop("there", "resume", "a")
    here = place_of(load_project(shop.folder, target="here")).log(wanted, 1_000)[0]
    came = newer()
    assert came == here[-len(came) :] if came else here[-len(found) :] == found


def test_records_of_a_topic_are_printed_as_they_come(shop: Shop) -> None:
    """In a remote shell `PRINT` asks again with the position behind what it has."""
    place = place_of(load_project(shop.folder, target="there"))
    with place.records("s", beginning=False) as found:
        assert next(found) == []
        assert shop("there", "shell", "-c", "INSERT INTO s (k, v) VALUES ('p', 1), ('q', 2)").code == 0
        came = [*next(found), *next(found)]
        assert [(json.loads(line)["key"], json.loads(line)["value"]["v"]) for line in came] == [("p", 1), ("q", 2)]


def test_doctor_asks_the_instance(shop: Shop) -> None:
    done = shop("there", "doctor", "-o", "json")
    (found,) = [f for f in json.loads(done.out) if f["check"].startswith("target ")]
    assert found["check"] == "target there: instance"
    assert (found["state"], found["says"]) == ("ok", f"the instance at {shop.url} runs 2 queries")
    shop.targets(f"{{url: '{shop.url}', token: wrong}}")
    (found,) = [f for f in json.loads(shop("there", "doctor", "-o", "json").out) if f["check"].startswith("target ")]
    assert (found["state"], found["says"]) == ("failed", f"{shop.url} refuses the token")
    assert not (shop.folder / ".flowql").exists()


def test_commands_verify_the_certificate(flowql: Program, tmp_path: Path) -> None:
    certificate, key = certificate_in(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    (tmp_path / "demo.sql").write_text(SQL)
    url, api = f"https://localhost:{port}", f"port: {port}, token: {TOKEN}, certificate: {certificate}, key: {key}"
    (tmp_path / "flowql.yaml").write_text(
        f"name: demo\ndialect: standard\nsql: demo.sql\ntargets:\n  here: {{data_dir: data, api: {{{api}}}}}\n"
        f"  there: {{url: '{url}', token: {TOKEN}, certificate: cert.pem}}\n  untrusting: {{url: '{url}', token: {TOKEN}}}\n"
        f"  plain: {{url: 'http://localhost:{port}', token: {TOKEN}}}\n  nofile: {{url: '{url}', token: {TOKEN}, certificate: no.pem}}\n"
    )
    host = Host(settings_of(load_project(tmp_path, target="here")))
    host.start()
    try:
        for line in (("deploy",), ("exec", "INSERT INTO own VALUES (1, 'x')"), ("status",)):
            assert flowql("-p", str(tmp_path), "-t", "there", *line).code == 0
        asked = flowql("-p", str(tmp_path), "-t", "there", "query", "SELECT * FROM own", "-o", "csv")
        assert asked.out.split() == ["id,name", "1,x"]
        for target, code, said in (
            ("untrusting", "FQ5302", "its certificate is not trusted"),
            ("plain", "FQ5302", "does not answer"),
            ("nofile", "FQ5309", "no.pem cannot be used"),
        ):
            refused = flowql("-p", str(tmp_path), "-t", target, "status")
            assert (refused.code, f"error[{code}]" in refused.err, said in refused.err) == (1, True, True), refused
    finally:
        host.close()


WRONG = {
    "{url: 'http://127.0.0.1:1', token: x}": ("FQ5302", "nothing listens on port 1 of 127.0.0.1"),
    "{url: 'http://nowhere.invalid:80', token: x}": ("FQ5302", "no machine is called nowhere.invalid"),
    "{url: 'URL', token: wrong-horse-battery}": ("FQ5301", "refuses the token"),
    "{url: 'https://127.0.0.1:PORT', token: x}": ("FQ5302", "it does not speak TLS"),
    "{url: 'ftp://example.com', token: x}": ("FQ5309", "is not a URL of an instance"),
    "{url: 'URL', token: {env: NOT_THERE}}": ("FQ3022", "the environment has no variable NOT_THERE"),
    "{url: 'URL', token: {file: nothing}}": ("FQ3022", "secret file nothing cannot be read"),
    "{url: 'URL', token: {command: 'false quiet-argument'}}": ("FQ3022", "secret command false exits with 1"),
    "{url: 'URL', token: {command: [not-a-program]}}": ("FQ3022", "secret command not-a-program cannot be started"),
    "{url: 'URL'}": ("FQ3006", "`token` is missing in target `there`"),
    "{url: 'URL', token: x, threads: 3}": ("FQ3003", "`threads` is set where the instance of target `there` runs"),
    "{token: x}": ("FQ3003", "`token` is for targets with `url`"),
    "{url: 'URL', token: {vault: x}}": ("FQ3004", "`token` must be a token or one reference to it"),
}


@pytest.mark.parametrize("target", WRONG)
def test_what_is_wrong_with_a_remote_target_is_said(shop: Shop, target: str) -> None:
    code, said = WRONG[target]
    shop.targets(target.replace("URL", shop.url).replace("PORT", shop.url.rpartition(":")[2]))
    done = shop("there", "status")
    assert (done.code, f"error[{code}]" in done.err, said in done.err) == (1, True, True), done
    assert "quiet-argument" not in done.err


def test_another_version_is_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "PROTOCOL", protocol.PROTOCOL + 1)
    done = shop("there", "status")
    assert (done.code, "error[FQ5311]" in done.err) == (1, True), done


@pytest.mark.parametrize(
    "line", [("stop",), ("serve",), ("topic", "ls"), ("state", "ls"), ("backup", "x"), ("run",)], ids=" ".join
)
def test_what_needs_the_machine_is_refused(shop: Shop, line: tuple[str, ...]) -> None:
    done = shop("there", *line)
    assert (done.code, "error[FQ5310]" in done.err) == (1, True), done


@pytest.mark.parametrize("reference", ["{env: SHOP_TOKEN}", "{file: token.txt}", "{command: cat token.txt}"])
def test_a_secret_is_read_where_it_is_used_and_never_shown(shop: Shop, reference: str) -> None:
    (shop.folder / "token.txt").write_text(f"{TOKEN}\n")
    shop.targets(f"{{url: '{shop.url}', token: {reference}}}")
    assert shop("there", "status").code == 0
    for line in (
        ("plan", "-o", "json"),
        ("compile",),
        ("explain", "-o", "json"),
        ("status", "-o", "json"),
        ("query", "SELEC"),
    ):
        done = shop("there", *line)
        assert TOKEN not in done.out + done.err, line

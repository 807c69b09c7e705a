"""The HTTP interface of an instance."""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from flowql.deploy.control import NewPriority
from flowql.deploy.request import DeployRequest
from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.query.answer import Answer
from flowql.query.errors import QueryError
from flowql.query.options import QueryOptions
from flowql.query.session import Begun
from flowql.runtime.app.plan_topic import read_plan
from flowql.server.address import FILE, Address, own_address, read_address, write_address
from flowql.server.at_rest import stopped_status
from flowql.server.client import Client
from flowql.server.ending import end_instance
from flowql.server.host import Host
from flowql.server.on_runtime import RuntimeEngine
from flowql.server.running import HEALTH_S, NotAnswering, connect
from tests.flowql.query.harness import plan_of

pytestmark = pytest.mark.turns("long")

SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE A WITH (PRIORITY = 'high') AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
INSERT INTO S (K, V) VALUES ('a', 1);
"""
GOLDEN = Path(__file__).parent / "status.json"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(Settings(tmp_path, "demo", 1, 64 << 20))
    made.start()
    yield made
    made.close()


@pytest.fixture
def client(host: Host, tmp_path: Path) -> Iterator[Client]:
    found = connect(tmp_path)
    assert found is not None
    yield found
    found.close()


def test_deploy_ask_and_status(host: Host, client: Client, tmp_path: Path) -> None:
    done = client.deploy(plan_of(SQL))
    assert (done["id"], done["applied"], done["withheld"]) == (1, True, [])
    assert [(c["query"], c["action"], c["state"]) for c in done["changes"]] == [("CTAS_A", "add", None)]
    assert client.plan()[0] == host.engine.plan
    while not client.query("SELECT * FROM a").num_rows:
        assert host.engine.fatal is None
    assert client.query("SELECT * FROM a").to_pylist() == [{"K": "a", "N": 1}]
    status = client.status()
    assert status["instance"]["pid"] == os.getpid()
    golden = json.loads(GOLDEN.read_text())
    assert shown(status["instance"], golden["instance"]) == golden["instance"]
    assert [shown(q, g) for q, g in zip(status["queries"], golden["queries"], strict=True)] == golden["queries"]
    assert client.deploy(plan_of(SQL))["changes"][0]["action"] == "none"
    planned = client.planned(plan_of(SQL[: SQL.index("CREATE TABLE")]), DeployRequest(prune=True))
    assert (planned["applied"], [c["action"] for c in planned["changes"]]) == (False, ["remove"])
    assert [q["id"] for q in client.status()["queries"]] == ["CTAS_A"]


def shown(found: dict[str, Any], golden: dict[str, Any]) -> dict[str, Any]:
    """Figures that change from moment to moment as the golden file has them, as dots."""
    return {k: "..." if golden.get(k) == "..." else v for k, v in found.items()}


def test_a_priority_holds_at_once_and_until_the_next_deployment(host: Host, client: Client) -> None:
    client.deploy(plan_of(SQL))
    done = client.set_priority(NewPriority("a", "batch", latency_target_ms=200))
    assert done == {"id": "CTAS_A", "priority": "batch", "weight": 1, "latency_target_ms": 200}
    assert isinstance(host.engine, RuntimeEngine)
    assert host.engine.instance.manager.accounts.queries["CTAS_A"].weight == 1
    assert read_plan(host.engine.instance.log, "demo") == host.engine.plan  # it would be so after a restart
    assert client.set_priority(NewPriority("CTAS_A", "batch", weight=3))["latency_target_ms"] == 200
    assert client.set_priority(NewPriority("CTAS_A", "batch", latency_target_ms=0))["latency_target_ms"] is None
    with pytest.raises(CommandError, match="no query B"):
        client.set_priority(NewPriority("B", "batch"))
    (change,) = client.deploy(plan_of(SQL))["changes"]
    assert (change["query"], change["action"], change["state"]) == ("CTAS_A", "priority", "kept")
    assert client.status()["queries"][0]["weight"] == 16


def test_a_pause_outlives_deployments(host: Host, client: Client) -> None:
    client.deploy(plan_of(SQL))
    assert client.pause(["a"], paused=True) == ["CTAS_A"]
    assert client.status()["queries"][0]["state"] == "paused"
    assert client.deploy(plan_of(SQL))["changes"][0]["action"] == "none"
    assert client.status()["queries"][0]["state"] == "paused"
    assert client.pause(["A"], paused=False) == ["CTAS_A"]
    assert client.status()["queries"][0]["state"] == "running"
    with pytest.raises(CommandError, match="no query B"):
        client.pause(["B"], paused=True)
    client.pause(["A"], paused=True)
    client.deploy(plan_of(SQL[: SQL.index("CREATE TABLE")]), DeployRequest(prune=True))
    client.deploy(plan_of(SQL))
    assert client.status()["queries"][0]["state"] != "paused"  # another one of the same name, which may just swap in


def test_mistakes_reach_who_asked(client: Client) -> None:
    with pytest.raises(QueryError, match="DROP"):
        client.query("DROP TABLE a")
    missing = SQL.replace("PARTITIONS = 1, ", "")
    with pytest.raises(CommandError, match="topics that do not exist: s"):
        client.deploy(plan_of(missing))
    assert client.status()["queries"] == []


def test_a_mistake_late_in_a_long_answer_reaches_who_asked(host: Host, client: Client) -> None:
    client.deploy(plan_of(SQL))
    text = "SELECT CAST(CASE WHEN i = 150000 THEN 'x' ELSE '1' END AS INT) AS v FROM range(200000) t(i)"
    with client.answer(text) as answer:
        assert next(answer.batches).num_rows > 0
        with pytest.raises(QueryError, match="Could not convert string 'x'"):
            list(answer.batches)


def test_who_leaves_early_ends_the_answer(host: Host, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.deploy(plan_of(SQL))
    ended = threading.Event()
    ask = host.service.query

    def watched(sql: str, begun: Begun, client: str, options: QueryOptions) -> Answer:
        found = ask(sql, begun, client, options)

        def batches() -> Generator[pa.RecordBatch]:
            try:
                yield from found.batches
            finally:
                ended.set()

        return Answer(found.schema, batches())

    monkeypatch.setattr(host.service, "query", watched)
    with client.answer("SELECT i, 'some text to fill buffers' AS t FROM range(100000000) r(i)") as answer:
        assert next(answer.batches).num_rows > 0
        assert not ended.is_set()
    assert ended.wait(60), "nobody reads it, and it is still computed"


def test_who_leaves_before_the_first_row_ends_the_computation(
    host: Host, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.deploy(plan_of(SQL))
    broken, said = threading.Event(), []
    ask = host.service.query

    def watched(sql: str, begun: Begun, client: str, options: QueryOptions) -> Answer:
        try:
            return ask(sql, begun, client, options)
        except QueryError as error:
            said.append(error.title)
            broken.set()
            raise

    monkeypatch.setattr(host.service, "query", watched)
    base = f"http://127.0.0.1:{client.address.port}"
    headers = {"Authorization": f"Bearer {client.address.token}"}
    endless = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range + b.range = -1"
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{base}/v1/query", json={"sql": endless}, headers=headers, timeout=1.0, trust_env=False)
    assert broken.wait(60), "nobody waits for it, and it is still computed"
    assert "was cancelled" in said[0]


def test_nobody_without_the_token(client: Client) -> None:
    base = f"http://127.0.0.1:{client.address.port}"
    for headers in ({}, {"Authorization": "Bearer nope"}):
        for method, path in (("GET", "/health"), ("GET", "/v1/status"), ("POST", "/v1/query"), ("POST", "/stop")):
            answer = httpx.request(method, base + path, headers=headers, trust_env=False)
            assert (answer.status_code, "Bearer TOKEN" in answer.json()["error"]["help"]) == (401, True)
    assert client.answers(HEALTH_S)


def test_the_address_is_private_and_goes_with_the_instance(host: Host, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    host.close()
    assert connect(tmp_path) is None
    assert not (tmp_path / FILE).exists()


def test_stale_addresses_are_ignored(tmp_path: Path) -> None:
    me = own_address(1, "token")
    write_address(tmp_path, me)
    written = read_address(tmp_path)
    assert written is not None
    assert replace(written, folder=None) == me
    with pytest.raises(
        NotAnswering, match=f"process {me.pid} runs the instance"
    ):  # the process lives, and nothing listens there
        connect(tmp_path)
    write_address(tmp_path, Address(me.pid, 1, "token", me.started - 100))  # another process had this number
    assert read_address(tmp_path) is None
    write_address(tmp_path, Address(2**22 + 1, 1, "token", 0.0))
    assert read_address(tmp_path) is None
    (tmp_path / FILE).write_text("{")
    assert read_address(tmp_path) is None


def test_the_address_in_a_copied_directory_is_not_that_of_its_instance(tmp_path: Path) -> None:
    """Otherwise `flowql stop` in a copy of a project's folder ends the instance of the original."""
    original, copy, moved = tmp_path / "original", tmp_path / "copy", tmp_path / "moved"
    original.mkdir()
    write_address(original, own_address(1, "token"))
    shutil.copytree(original, copy)
    assert read_address(copy) is None
    original.rename(moved)
    assert read_address(moved) is not None
    older = {n: v for n, v in json.loads((moved / FILE).read_text()).items() if n != "folder"}
    (copy / FILE).write_text(json.dumps(older))
    assert read_address(copy) is not None


def test_a_stop_is_a_request(host: Host, client: Client) -> None:
    assert not host.wait(0)
    with pytest.raises(CommandError, match="in this process"):
        end_instance(host._settings.data_dir)
    client.request_stop()
    assert host.wait(60.0)


def test_the_status_of_a_directory(host: Host, client: Client, tmp_path: Path) -> None:
    client.deploy(plan_of(SQL))
    while not client.query("SELECT * FROM a").num_rows:
        assert host.engine.fatal is None
    host.close()
    status = stopped_status(Settings(tmp_path, "demo", 1, 64 << 20))
    assert status["instance"]["pid"] is None
    (query,) = status["queries"]
    assert (query["id"], query["state"], query["priority"], query["weight"], query["lag"]) == (
        "CTAS_A",
        "stopped",
        "high",
        16,
        0,
    )
    assert stopped_status(Settings(tmp_path / "none", "demo", 1, 64 << 20))["queries"] == []

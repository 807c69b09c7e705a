"""Interactive queries that make values without a bound, by HTTP and by the program: an error with a code, and no process is left."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from pathlib import Path

import httpx
import psutil
import pytest

from flowql.query import query_process
from flowql.query.errors import TOO_LARGE
from flowql.server.client import Client
from flowql.server.host import Host
from flowql.server.running import connect
from tests.flowql.cli.conftest import flowql, folder, host  # noqa: F401 - fixtures
from tests.flowql.cli.program import Program
from tests.processes import children_that_run

pytestmark = pytest.mark.turns("long")

ATTACK = "SELECT len(list_transform(range(10000), lambda x: range(10000)))"
DOUBLING = "SELECT length(list_reduce([K for x in range(60)], lambda a, b: a || a)) FROM A"
WAIT_S = 60.0


def connected(data_dir: Path) -> Client:
    client = connect(data_dir)
    assert client is not None
    return client


def _started(before: set[int]) -> list[int]:
    """Child processes that answer queries and were not there before: tests before this one may have left one of the process that they share."""
    return [c.pid for c in children_that_run(query_process.PROGRAM) if c.pid not in before]


def test_by_http_an_instance_outlives_them(host: Host) -> None:  # noqa: F811 - a fixture
    before = {c.pid for c in children_that_run(query_process.PROGRAM)}
    with closing(connected(host._settings.data_dir)) as client:
        url = f"http://127.0.0.1:{client.address.port}/v1/query"
        mine = {"Authorization": f"Bearer {client.address.token}"}

        def ask(sql: str) -> httpx.Response:
            return httpx.post(url, json={"sql": sql}, headers=mine, timeout=WAIT_S, trust_env=False)

        for sql in (ATTACK, DOUBLING, "SELECT len(range(1000000000))"):
            said = ask(sql)
            assert (said.status_code, said.json()["error"]["code"]) == (400, TOO_LARGE)
            assert ask("SELECT 1").status_code == 200
        assert ask("SELECT list(N ORDER BY N) FROM A").status_code == 200
        shown = client.status()["instance"]
        assert shown["query_processes"] == len(_started(before)) == 1
        assert shown["query_processes_memory_bytes"] > 10 << 20
    host.close()
    assert not _started(before)


def test_the_program_says_so_for_a_stopped_project(flowql: Program, folder: Path) -> None:  # noqa: F811 - fixtures
    before = {c.pid for c in children_that_run(query_process.PROGRAM)}
    assert flowql("run", "--until-caught-up", "-p", str(folder)).code == 0
    for sql in (ATTACK, DOUBLING):
        said = flowql("query", sql, "-p", str(folder))
        assert said.code == 1
        assert TOO_LARGE in said.err
    said = flowql("query", "SELECT list(N ORDER BY N) AS L FROM A", "-o", "csv", "-p", str(folder))
    assert (said.code, said.out.splitlines()[1:]) == (0, ['"[1, 2]"']), said
    assert not _started(before)


@pytest.mark.slow
@pytest.mark.parametrize("kill", [True, False])
def test_no_process_outlives_an_instance(flowql: Program, folder: Path, kill: bool) -> None:  # noqa: F811 - fixtures
    assert flowql("deploy", "-p", str(folder)).code == 0
    assert flowql("query", "SELECT list(N) FROM A", "-p", str(folder)).code == 0
    with closing(connected(folder / ".flowql" / "default")) as client:
        instance = client.address.pid
    (child,) = children_that_run(query_process.PROGRAM, instance)
    if kill:
        os.kill(instance, signal.SIGKILL)
    else:
        assert flowql("stop", "-p", str(folder)).code == 0
    limit = time.monotonic() + WAIT_S
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < limit
        time.sleep(0.05)

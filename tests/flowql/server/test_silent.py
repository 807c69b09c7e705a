"""An instance that does not answer runs: no command takes it for a stopped one, and there is a way to end it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from flowql.cli.status import silent_lines
from flowql.config.load import load_project
from flowql.deploy.settings import settings_of
from flowql.runtime.app.beat_file import RUNNING, Activity, Snapshot
from flowql.runtime.log.embedded import named
from flowql.server import descriptors, ending, running
from flowql.server.client import Client
from flowql.server.running import RunningProcess, process_of
from flowql.server.spawn import spawn
from tests.flowql.cli.conftest import SQL
from tests.flowql.cli.program import Program
from tests.flowql.query.harness import plan_of

pytestmark = pytest.mark.turns("long")

IDLE = 300


@pytest.fixture
def flowql(capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(capsys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flowql.yaml").write_text("name: demo\nsql: [demo.sql]\n")
    (tmp_path / "demo.sql").write_text(SQL)
    return tmp_path


@pytest.fixture
def client(folder: Path) -> Iterator[Client]:
    """Of an instance in a process of its own."""
    found = spawn(settings_of(load_project(folder)))
    found.deploy(plan_of(SQL))
    yield found
    found.close()
    if (process := process_of(folder / ".flowql" / "default")) is not None:
        os.kill(process.pid, signal.SIGKILL)


def test_an_instance_that_does_not_answer_is_not_called_stopped(
    flowql: Program, folder: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`status` showed all queries as stopped with exit code 0, and `stop` succeeded."""
    at, pid = ("-p", str(folder)), client.address.pid
    idle = [socket.create_connection(("127.0.0.1", client.address.port), timeout=30) for _ in range(IDLE)]
    assert (asked := flowql("status", *at)).code == 0, asked.err
    assert f"process {pid}:" in asked.err
    for connection in idle:
        connection.close()

    monkeypatch.setattr(running, "HEALTH_S", 0.5)
    monkeypatch.setattr(ending, "TOLD_S", 0.5)
    monkeypatch.setattr(named, "HELD_S", 0.5)
    os.kill(pid, signal.SIGSTOP)
    said = flowql("status", *at)
    assert said.code == 3
    assert (
        f"process {pid} runs and does not answer: it is suspended by a signal (kill -CONT {pid} continues it)"
        in said.err
    )
    assert "stopped" not in said.err + said.out
    found = json.loads(flowql("status", *at, "-o", "json").out)
    about = {name: found["instance"][name] for name in ("pid", "answers", "suspended", "state")}
    assert about == {"pid": pid, "answers": False, "suspended": True, "state": RUNNING}
    (lock,) = folder.rglob("append.lock")
    with lock.open() as held:  # as if it had been suspended while it commits
        fcntl.flock(held, fcntl.LOCK_EX)
        for words in (
            ["query", "SELECT 1"],
            ["deploy"],
            ["pause", "A"],
            ["resume", "A"],
            ["backup", str(folder / "b")],
        ):
            refused = flowql(*words, *at)
            assert (refused.code, "error[FQ5312]" in refused.err) == (1, True), (words, refused.err)
        examined = flowql("doctor", "-t", "default", *at)  # it waited for the lock for ever
        assert examined.code == 1
        holder = f"process {os.getpid()}" if sys.platform == "linux" else "another process"
        assert f"not examined: {holder} holds {lock} and has not released it" in " ".join(examined.out.split())

    refused = flowql("stop", *at)
    assert (refused.code, "error[FQ5313]" in refused.err) == (1, True), refused.err
    assert f"process {pid} still runs" in refused.err
    killed = flowql("stop", "--force", *at)
    assert (killed.code, killed.err) == (0, f"killed process {pid}; nothing committed is lost\n")
    assert "no instance is running" in flowql("status", *at).err


def test_sigterm_ends_an_instance_that_goes_on_and_nobody_says_so_before(
    flowql: Program, folder: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = client.address.pid
    monkeypatch.setattr(running, "HEALTH_S", 0.2)
    os.kill(pid, signal.SIGSTOP)
    real = ending._signal

    def continued(process: RunningProcess, number: signal.Signals) -> None:
        real(process, number)
        os.kill(pid, signal.SIGCONT)

    monkeypatch.setattr(ending, "_signal", continued)
    assert flowql("stop", "-p", str(folder)).err == f"stopped process {pid}\n"
    assert process_of(folder / ".flowql" / "default") is None


def test_what_a_frozen_instance_does_is_shown() -> None:
    started = time.monotonic()
    batch = Activity("processing-1", 5, 6, 31.5, 31.0, "A@2", "A", "d", "0_1", {"s-1": 1234})
    seen = Snapshot(
        os.getpid(),
        started,
        RUNNING,
        7,
        30.0,
        29.0,
        True,
        False,
        (batch, Activity("polling", 6, 7, 2.0, None, "", "", "", "", {})),
    )
    assert silent_lines(RunningProcess(os.getpid(), None, seen)) == [
        f"process {os.getpid()} runs and does not answer: it is frozen for 30 s",
        "it has used 29 s of processor time since its last sign of life",
        "  processing-1 for 31.5 s: A task 0_1, a micro-batch for 31.0 s (s-1 at offset 1,234)",
        "  polling for 2.0 s",
        "flowql stop  ends it, flowql stop --force  also if it does not react; what is committed stays",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux sets the limits of another process")
def test_an_instance_without_file_descriptors_says_so_and_goes_on(
    flowql: Program, folder: Path, client: Client
) -> None:
    """It answered nothing, wrote a thousand tracebacks a second, and no command said why."""
    at, pid, data_dir = ("-p", str(folder)), client.address.pid, folder / ".flowql" / "default"
    files = psutil.Process(pid)
    before = files.rlimit(psutil.RLIMIT_NOFILE)
    assert before[0] == min(descriptors.WANTED, before[1])
    files.rlimit(psutil.RLIMIT_NOFILE, (files.num_fds() - descriptors.RESERVED, before[1]))
    assert "file descriptors are in use (ulimit -n" in process_of(data_dir).doing()
    assert (asked := flowql("status", *at)).code == 0, asked.err  # by one that was kept in reserve
    assert "http.refused" in (data_dir / "instance.log").read_text()
    assert "Traceback" not in (data_dir / "instance.err").read_text()
    files.rlimit(psutil.RLIMIT_NOFILE, before)
    assert (asked := flowql("status", *at)).code == 0, asked.err

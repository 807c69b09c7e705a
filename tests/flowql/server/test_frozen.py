"""Instances whose interpreter freezes: the watchdog process ends them, and the next start holds the query that was to blame."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from flowql.errors import CommandError
from flowql.runtime.app.watchdog_process import LIMITS
from flowql.server import ending, running
from flowql.server.address import is_alive
from tests.flowql.cli.program import Program
from tests.flowql.server.frozen_project import BLOCK, CRITICAL, FREEZE, POISONED, PRUNED, SQL, WAIT_S, FrozenProject
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.turns("processes")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FrozenProject]:
    monkeypatch.setenv(LIMITS, "1,3")
    made = FrozenProject(tmp_path)
    yield made
    made.end()


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(capsys)


def events(project: FrozenProject, name: str) -> list[dict[str, Any]]:
    lines = (project.data_dir / "instance.log").read_text().splitlines()
    return [event for line in lines if (event := json.loads(line))["event"] == name]


def test_a_function_that_freezes_the_instance_is_held_after_the_next_start(
    project: FrozenProject, program: Program
) -> None:
    project.connection.deploy()
    first = project.running()
    project.send("s", 1, 2)
    project.await_rows("poisoned", 2)
    project.send("s", FREEZE, 3)
    second = project.running(after=first)
    assert not is_alive(first)
    project.send("u", 1)
    project.await_rows("critical", 1)
    found = project.query(POISONED)
    assert (found["state"], project.query(CRITICAL)["state"]) == ("hung", "running")
    for part in ("functions.py:8 careless", "task CTAS_POISONED/0_0", "s-0 offset 2", "flowql resume CTAS_POISONED"):
        assert part in found["last_error"]
    (event,) = events(project, "instance.frozen")
    assert (event["query"], event["process"]) == (POISONED, first)
    assert 'functions.py", line 8 in careless' in event["trace"]
    assert "processor time" in event["message"]

    with suppress(CommandError):  # it is tried again and freezes again, perhaps before the answer
        project.connection.resume("poisoned")
    project.until(lambda s: s.frozen_s > 0 or s.pid != second)
    project.write(SQL.replace(PRUNED, ""))  # and removed while it is frozen
    limit = time.monotonic() + WAIT_S
    while (pruned := program("deploy", "--prune", "-p", str(project.folder))).code and "it is starting" in pruned.err:
        assert time.monotonic() < limit, pruned
    assert (pruned.code, "CTAS_POISONED" in pruned.out + pruned.err) == (0, True), pruned
    assert [q["id"] for q in project.connection.status()["queries"]] == [CRITICAL]
    assert len(events(project, "instance.frozen")) == 2


def test_a_frozen_instance_is_shown_with_what_it_does_and_ended_by_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Program
) -> None:
    """SIGTERM reaches the process and no thread of it can react, so that `stop` does not say that it has stopped."""
    monkeypatch.setenv(LIMITS, "1000,1000")
    monkeypatch.setattr(running, "HEALTH_S", 0.3)
    monkeypatch.setattr(ending, "TOLD_S", 0.3)
    project = FrozenProject(tmp_path)
    try:
        project.connection.deploy()
        pid, at = project.running(), ("-p", str(project.folder))
        project.send("s", FREEZE)
        project.until(lambda s: s.frozen_s > 0)
        shown = program("status", "-o", "json", *at)
        assert shown.code == 3
        found = json.loads(shown.out)["instance"]
        assert (found["pid"], found["answers"], found["suspended"]) == (pid, False, False)
        assert found["frozen_s"] > 0
        (busy,) = (t for t in found["threads"] if t["query"] == POISONED)
        assert busy["positions"] == {"s-0": 0}
        refused = program("stop", *at)
        assert (refused.code, "error[FQ5313]" in refused.err) == (1, True), refused
        assert f"process {pid} still runs" in refused.err
        assert "it is frozen for" in refused.err
        killed = program("stop", "--force", *at)
        assert (killed.code, f"killed process {pid}" in killed.err) == (0, True), killed
    finally:
        project.end()


def test_an_instance_that_is_stopped_by_a_signal_is_not_ended(project: FrozenProject) -> None:
    """It ends with the command that started it, however that ends."""
    command = [sys.executable, "-m", "flowql", "run", "-p", str(project.folder)]
    running = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        pid = project.running()
        os.kill(pid, signal.SIGSTOP)
        project.until(lambda s: s.silent_s > 5)  # limits are 1 s and 3 s
        os.kill(pid, signal.SIGCONT)
        project.until(lambda s: s.silent_s < 0.5)
        project.send("u", 1)
        project.await_rows("critical", 1)
        assert project.running() == pid
    finally:
        running.kill()
        running.wait()
    project.until(lambda s: not s.is_alive)


def test_serve_starts_an_instance_again_and_ends_when_asked(project: FrozenProject) -> None:
    """A function that waits with the lock held, which uses no processor time itself. The command stays the same process.

    A query that the command leaves out is paused by its first start alone.
    """
    project.connection.deploy()
    project.connection.stop()
    command = [sys.executable, "-m", "flowql", "serve", "-p", str(project.folder), "--without", "critical"]
    serving = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
    try:
        first = project.running()
        assert first != serving.pid
        assert [project.query(name)["state"] for name in (CRITICAL, POISONED)] == ["paused", "running"]
        project.connection.resume("critical")
        project.send("s", BLOCK)
        project.running(after=first)
        assert [project.query(name)["state"] for name in (CRITICAL, POISONED)] == ["running", "hung"]
        assert [e["position"] for e in events(project, "instance.frozen")] == ["s-0 offset 0"]
        serving.send_signal(signal.SIGTERM)
        _, said = serving.communicate(timeout=60)
    finally:
        serving.kill()
        serving.communicate()
    assert serving.returncode == 0
    assert f"{CRITICAL} is paused; it continues with:  flowql resume {CRITICAL}".encode() in said
    assert f"process {first} froze in a micro-batch of {POISONED}".encode() in said

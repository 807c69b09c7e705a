"""Heartbeats of an instance on Spark, and how long other machines take them for the present status. No Spark."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS
from flowql.runtime.clock import SystemClock, VirtualClock
from flowql.runtime.errors import LogUnavailable
from flowql.server import spark_heartbeat
from flowql.server.spark_heartbeat import FILE, TIMEOUT_MS, Document, Heartbeat, HeartbeatWriter, read_heartbeat
from tests.flowql.cli.program import Program
from tests.flowql.cli.test_spark_targets import SQL

QUERY = {
    "id": "CTAS_SPENT",
    "state": "running",
    "priority": "normal",
    "weight": PRIORITY_WEIGHTS["normal"],
    "lag": 7,
    "records_in": 5,
    "last_error": None,
}
STATUS = {
    "instance": {"pid": 4711, "engine": "spark", "log": "embedded", "master": "spark://m:7077", "functions": []},
    "queries": [
        {**QUERY, "records_out": 5, "late_records": 0, "dead_letters": 0, "errors": 0, "batch": 3, "rate": 2.5}
    ],
}
BEAT = Heartbeat(0, "node-3", 4711, 1.0, True, STATUS)


def put(folder: Path, beat: Heartbeat) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(asdict(beat)))


def test_another_machine_is_believed_until_it_is_silent() -> None:
    assert BEAT.is_current(TIMEOUT_MS - 1)
    assert not BEAT.is_current(TIMEOUT_MS)
    assert not replace(BEAT, running=False).is_current(0)


def test_of_this_machine_the_process_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_heartbeat.socket, "gethostname", lambda: "node-3")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as ended:
        started = psutil.Process(ended.pid).create_time()
        theirs = replace(BEAT, pid=ended.pid, started=started)
        assert theirs.is_current(100 * TIMEOUT_MS), "its store may be away"
        assert not replace(theirs, started=started - 60).is_current(0), "a later process with the same number"
    assert not theirs.is_current(0), "it was killed a moment ago"


def test_heartbeats_go_on_until_the_instance_stops(tmp_path: Path) -> None:
    clock = VirtualClock(5_000)
    writer = HeartbeatWriter(lambda: tmp_path / "new", lambda: STATUS, clock)
    assert read_heartbeat(tmp_path) is None
    writer.start()
    limit = time.monotonic() + 30
    while (beat := read_heartbeat(tmp_path / "new")) is None:
        assert time.monotonic() < limit
    assert (beat.status, beat.at_ms, beat.pid, beat.running) == (STATUS, 5_000, os.getpid(), True)
    writer.stop()
    beat = read_heartbeat(tmp_path / "new")
    assert beat is not None
    assert not beat.running


def test_an_instance_that_was_refused_at_its_start_leaves_heartbeats_of_others(tmp_path: Path) -> None:
    put(tmp_path, BEAT)
    HeartbeatWriter(lambda: tmp_path, lambda: STATUS, VirtualClock()).stop()
    assert read_heartbeat(tmp_path) == BEAT


def test_what_cannot_be_read_is_nothing(tmp_path: Path) -> None:
    put(tmp_path, replace(BEAT, format=2))
    assert read_heartbeat(tmp_path) is None
    for damaged in (b"", b'{"at_ms": 1}', b"\xff"):
        (tmp_path / FILE).write_bytes(damaged)
        assert read_heartbeat(tmp_path) is None


def test_a_store_that_fails_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "place"
    place.write_text("a file is in its way")
    writer = HeartbeatWriter(lambda: place, lambda: STATUS, VirtualClock())
    with caplog.at_level(logging.INFO, "flowql"):
        for _ in range(3):
            writer.write_once()
        (said,) = caplog.messages
        assert said.startswith("other machines do not see the status of this instance: ")
        place.unlink()
        for _ in range(2):
            writer.write_once()
    assert caplog.messages[1:] == ["other machines see the status of this instance again"]


def test_a_status_that_cannot_be_made_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def status() -> Document:
        raise LogUnavailable("b1:9092 does not answer")

    writer = HeartbeatWriter(lambda: tmp_path, status, VirtualClock())
    writer.write_once()
    assert caplog.messages == ["other machines do not see the status of this instance: b1:9092 does not answer"]
    assert read_heartbeat(tmp_path) is None


@pytest.mark.parametrize("age_ms", [3_000, 4_000_000])
def test_the_status_on_a_machine_that_runs_nothing(
    age_ms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flowql = Program(capsys)
    monkeypatch.chdir(tmp_path)
    spark = {"master": "local[2]", "checkpoint": str(tmp_path / "shared")}
    said = {"name": "shop", "sql": ["shop.sql"], "targets": {"spark": {"engine": "spark", "spark": spark}}}
    Path("flowql.yaml").write_text(json.dumps(said))
    Path("shop.sql").write_text(SQL)
    put(tmp_path / "shared" / "shop", replace(BEAT, at_ms=SystemClock().wall_ms() - age_ms))
    shown = flowql("status", "-t", "spark")
    found: dict[str, Any] = json.loads(flowql("status", "-t", "spark", "-o", "json").out)
    if age_ms < TIMEOUT_MS:
        assert re.search(r"process 4711 on node-3, \d+ s ago: Spark on spark://m:7077, log embedded", shown.err)
        assert found["instance"]["host"] == "node-3"
    else:
        assert "no instance is running here; the last heartbeat of process 4711 on node-3 is 4,00" in shown.err
        assert (found["instance"]["pid"], found["queries"][0]["rate"]) == (None, 0.0)
    monkeypatch.setattr(spark_heartbeat.socket, "gethostname", lambda: "node-3")
    assert flowql("status", "-t", "spark").err.startswith("no instance is running; start it"), "it was killed"
    state = "running" if age_ms < TIMEOUT_MS else "stopped"
    assert shown.out.splitlines()[-1].split()[:4] == ["CTAS_SPENT", state, "normal", "7"]

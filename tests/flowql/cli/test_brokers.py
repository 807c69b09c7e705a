"""An instance that starts while brokers are away waits for them; a command that ends by itself fails."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flowql.cli import run
from flowql.kafka.broker import Broker
from flowql.runtime.log.kafka import admin as admins
from tests.flowql.cli.program import Program
from tests.kafka_broker import QUICK

PATIENCE_S = 60.0


def project(folder: Path, bootstrap: str, instances: str = "one") -> None:
    kafka = f"{{bootstrap: '{bootstrap}', instances: {instances}}}"
    (folder / "flowql.yaml").write_text(
        f"name: waits\nsql: waits.sql\ntargets:\n  default: {{log: kafka, kafka: {kafka}}}\n"
    )
    (folder / "waits.sql").write_text(
        "CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, VALUE_FORMAT = 'JSON');\n"
        "CREATE TABLE A AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;\n"
    )


@pytest.mark.parametrize("command", [("deploy",), ("run", "--until-caught-up"), ("topic", "ls")])
def test_commands_that_end_by_themselves_fail_without_brokers(
    flowql: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(admins, "TIMEOUT_S", 0.5)
    project(tmp_path, "127.0.0.1:1")
    failed = flowql(*command, "-p", str(tmp_path))
    assert failed.code == 1
    assert "error[FQ4041]" in failed.err
    assert "brokers cannot be reached" in failed.err


@pytest.mark.parametrize("command", ["serve", "run"])
def test_an_instance_waits_for_brokers_until_it_is_stopped(
    flowql: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(run, "LOOK_S", 0.1)
    monkeypatch.setattr(run, "TOLD_S", 0.2)
    monkeypatch.setattr(admins, "GREET_S", 0.1)
    project(tmp_path, "127.0.0.1:1")
    with _interrupted_after(1.5):
        stopped = flowql(command, "-p", str(tmp_path))
    said = stopped.err.splitlines()
    assert (stopped.code, "the instance starts when brokers at 127.0.0.1:1 answer" in said[0]) == (
        0 if command == "serve" else 130,
        True,
    )
    assert "have not answered for" in said[1]


@contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background process ignores Ctrl-C
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)


@pytest.mark.turns("kafka")
@pytest.mark.kafka
@pytest.mark.parametrize("instances", ["one", "many"])
def test_an_instance_starts_when_brokers_return(kafka: str, tmp_path: Path, instances: str) -> None:
    del kafka  # skips where no broker can be started
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    project(tmp_path, f"127.0.0.1:{port}", instances)
    said = tmp_path / "said"
    with said.open("w") as log:
        serving = subprocess.Popen([sys.executable, "-m", "flowql", "run", "-p", str(tmp_path)], stderr=log)
    broker = Broker(tmp_path / "broker")
    try:
        _until(lambda: "the instance starts when brokers at" in said.read_text())
        broker.start(port=port, java_options=QUICK)
        _until(lambda: "waits: 1 query on" in said.read_text())
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(PATIENCE_S) == 0, said.read_text()
    finally:
        serving.kill()
        serving.wait()
        broker.kill()


def _until(happened) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < limit
        time.sleep(0.1)

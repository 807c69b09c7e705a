"""Heartbeats of a Spark target: `status.json` beside its checkpoints, for machines that do not see the process of its instance.

The instance replaces the file every HEARTBEAT_MS. A reader takes it for the present status until it is TIMEOUT_MS old.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from flowql.runtime.clock import Clock
from flowql.runtime.events import INFO, WARNING, say
from flowql.runtime.spark.engine.thread import StepThread
from flowql.runtime.spark.folders import Folder, HadoopPath
from flowql.runtime.spark.storage import ends_within
from flowql.server.address import is_alive

FILE = "status.json"
HEARTBEAT_MS, TIMEOUT_MS = 5_000, 30_000
WRITE_S = 10.0  # object stores may let a writer wait for minutes
_FORMAT = 1
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The status of an instance at a time. at_ms: wall clock of the host that wrote it. running: it had not been stopped.

    started: when the process was, which tells it from a later one with the same number.
    """

    at_ms: int
    host: str
    pid: int
    started: float
    running: bool
    status: Document
    format: int = _FORMAT

    def is_current(self, now_ms: int) -> bool:
        """Whether the instance runs, as far as can be known. A process of this host is looked for; of others the age decides."""
        if not self.running:
            return False
        return is_alive(self.pid, self.started) if self.is_of_this_host else now_ms - self.at_ms < TIMEOUT_MS

    @property
    def is_of_this_host(self) -> bool:
        return self.host == socket.gethostname()


def read_heartbeat(root: Folder) -> Heartbeat | None:
    """The last heartbeat; None without one, or for a file of another version. Raises StorageFailed if an address does not answer."""
    for _ in range(2):  # once more where it was being replaced
        with suppress(ValueError, TypeError):
            try:
                found = Heartbeat(**json.loads((root / FILE).read_bytes()))
            except FileNotFoundError:
                return None
            return found if found.format == _FORMAT else None
    return None


class HeartbeatWriter:
    """Writes heartbeats of a running instance, in a thread of its own, from `start` to `stop`. A store that fails delays no query."""

    def __init__(self, root: Callable[[], Folder], status: Callable[[], Document], clock: Clock) -> None:
        """root: asked for when the session is there."""
        self._root, self._status, self._clock = root, status, clock
        self._started = psutil.Process().create_time()
        self._thread = StepThread(lambda _now_ms: self.write_once(), clock, lambda _error: None, "spark-heartbeat")
        self._is_writing = self._failing = False

    def start(self) -> None:
        self._thread.start()
        self._is_writing = True

    def stop(self) -> None:
        """The last heartbeat says that the instance has stopped. One that never started leaves that of another machine as it is."""
        if self._is_writing:
            self._thread.stop()
            self._write(running=False)

    def write_once(self) -> int:
        """Returns the time until the next heartbeat, in ms."""
        failure = self._write(running=True)
        if failure and not self._failing:
            say(WARNING, "status.trouble", f"other machines do not see the status of this instance: {failure}")
        elif self._failing and not failure:
            say(INFO, "status.published", "other machines see the status of this instance again")
        self._failing = bool(failure)
        return HEARTBEAT_MS

    def _write(self, *, running: bool) -> str:
        """Why it was not written; empty if it was."""
        failures: list[str] = []

        def write() -> None:
            try:
                _replace(self._root() / FILE, data)
            except Exception as error:  # of Java, of every kind
                failures.append(_first_line(error))

        try:
            host, now_ms = socket.gethostname(), self._clock.wall_ms()
            data = json.dumps(
                asdict(Heartbeat(now_ms, host, os.getpid(), self._started, running, self._status()))
            ).encode()
        except Exception as error:  # of brokers and of Java
            return _first_line(error)
        if not ends_within(WRITE_S, write):
            return f"{FILE} was not written within {WRITE_S:.0f} s"
        return "".join(failures)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _replace(file: Folder, data: bytes) -> None:
    if isinstance(file, HadoopPath):
        file.write_bytes(data)
        return
    assert isinstance(file, Path)
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.new")
    new.write_bytes(data)
    new.replace(file)

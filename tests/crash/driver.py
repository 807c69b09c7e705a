"""A process that drives Spark, to be killed: itself with its Java and its Python workers, or one of the workers alone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

WAIT_S = 600.0  # a loaded machine starts Spark in minutes
_WORKERS = (b"pyspark.daemon", b"spark.worker_daemon")  # the second of sessions that FlowQL starts itself


class Driver:
    """`python -m module words...`, with what it says in `folder/driver.log`. Its Java goes with it: the pipe it waits on is closed."""

    def __init__(self, folder: Path, module: str, *words: str) -> None:
        self._folder = folder
        self._said = (folder / "driver.log").open("ab")
        command = [sys.executable, "-m", module, *words]
        self.process = subprocess.Popen(command, stdout=self._said, stderr=self._said, start_new_session=True)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        self._said.close()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + WAIT_S
        while not condition():
            ended = self.process.poll()
            assert ended in (None, 0), f"the driver ended with {ended}: {self.said()}"
            assert time.monotonic() < limit, self.said()
            time.sleep(0.5)  # each look opens a client of the log

    def ended(self) -> None:
        """Waits for its end, which must be a good one."""
        self.wait_for(lambda: self.process.poll() is not None)
        assert self.process.returncode == 0, self.said()

    def kill(self) -> None:
        """The whole session at once: driver, Java and Python workers."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_worker(self, rng: random.Random) -> None:
        """One of the Python workers that there are, and if there is none, whatever of them comes first."""
        self.wait_for(lambda: bool(self._workers()))
        worker = rng.choice(self._workers() or [0])
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)

    def said(self) -> str:
        return (self._folder / "driver.log").read_text(errors="replace")[-4000:]

    def _workers(self) -> list[int]:
        """Processes of the driver's session that were forked by a daemon of PySpark."""
        parents = {
            pid: parent for pid, parent in map(_daemon, _processes()) if parent and _session(pid) == self.process.pid
        }
        return sorted(pid for pid, parent in parents.items() if parent in parents)


def processes_of(program: bytes) -> list[int]:
    """Processes whose command line has this text."""
    found = []
    for pid in _processes():
        with suppress(OSError):
            if program in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def _processes() -> list[int]:
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]


def _daemon(pid: int) -> tuple[int, int]:
    """A process and its parent; 0 for a process that is no daemon of PySpark nor forked by one, or is gone."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if not any(w in command for w in _WORKERS):
            return pid, 0
        return pid, int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return pid, 0


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0

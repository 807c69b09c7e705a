"""A fault at the n-th I/O of the log or of the state, for n = 1, 2, ... until the run passes without meeting it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults import shim

WHATS = ("log", "state")
HOUR_S, DAY_S = 3_600, 86_400
JUMPS_S = (HOUR_S, -DAY_S - HOUR_S, DAY_S, DAY_S)  # after the parts of the input


@dataclass(frozen=True, slots=True)
class Fault:
    """The n-th I/O below the folder of the log or the state, and `times` in all. jumps_s: of the wall clock, after each part of the input."""

    what: str
    kind: str
    at: int
    times: int = 1
    jumps_s: tuple[int, ...] = ()


@dataclass(slots=True)
class Found:
    """What came of a fault. met: the call that failed, empty if none did. seen: calls in all."""

    fault: Fault
    met: str = ""
    seen: int = 0
    starts: int = 0
    jumped_s: int = 0
    events: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)


class Nursery:
    """A process that lives a life for each fault."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        command = [sys.executable, "-m", "tests.faults.child"]
        environment = shim.environment(shim.build(folder))
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._answer() == "ready"

    def close(self) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.wait()
        self._child.stdout.close()

    def strike(self, fault: Fault) -> Found:
        """A life with the fault; where the process is killed by it, another one on what it left."""
        folder = self._folder / "life"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        told = self._live(folder, fault)
        if told.get("killed") == signal.SIGKILL and fault.kind == "torn":
            after = self._live(folder, Fault(fault.what, "none", 0))
            told = {**after, "met": "killed"}
        if "killed" in told:
            return Found(fault, "ended", wrong=[f"the process ended: {told['killed']}"])
        known = {
            name: told[name]
            for name in ("met", "seen", "starts", "jumped_s", "events", "wrong", "said", "trouble")
            if name in told
        }
        return Found(fault, **known)

    def _live(self, folder: Path, fault: Fault) -> dict[str, Any]:
        assert self._child.stdin is not None
        print(
            json.dumps([str(folder), fault.what, fault.kind, fault.at, fault.times, fault.jumps_s]),
            file=self._child.stdin,
            flush=True,
        )
        answer = self._answer()
        assert isinstance(answer, dict)
        return answer

    def _answer(self) -> Any:
        assert self._child.stdout is not None
        return json.loads(self._child.stdout.readline())


@contextmanager
def nursery() -> Iterator[Nursery]:
    """In a folder of its own; in memory where the system has one there, as a life waits for a disk most of its time."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(
        prefix="flowql-faults-", dir=memory if os.access(memory, os.W_OK) else None
    ) as name:
        made = Nursery(Path(name))
        try:
            yield made
        finally:
            made.close()


def sweep(
    made: Nursery,
    what: str,
    kind: str,
    first: int,
    last: int | None,
    *,
    times: int = 1,
    step: int = 1,
    jumps_s: tuple[int, ...] = (),
) -> Iterator[Found]:
    """Until a run does not meet the fault."""
    at = first
    while last is None or at <= last:
        found = made.strike(Fault(what, kind, at, times, jumps_s))
        yield found
        if not found.met:
            return
        at += step

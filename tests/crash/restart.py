"""How long a killed instance takes from its start to its first commit on a long log."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flowql.runtime.log.embedded.log import EmbeddedLog
from tests.crash.kills import Shape, command, prepare
from tests.crash.project import append, orders

PER_TRANSACTION = 10_000
CATCH_UP_S = 600.0


@dataclass(frozen=True, slots=True)
class Restart:
    """process_s: from the start of the process; engine_s: from the opening of the log, imports done."""

    process_s: float
    engine_s: float


def measure(folder: Path, records: int, times: int, say: Callable[[str], None]) -> list[Restart]:
    """Fill a log, process it, kill -9; then start and kill `times` times, with a new record each."""
    shape = Shape(records, 0, 0, 1)
    prepare(folder)
    log = EmbeddedLog(folder / "log")
    for parts in orders(records, 1, PER_TRANSACTION):
        append(log, parts)
    say(f"{records:,} records are in the log")
    child = _start(folder, shape)
    _first_commit(child)
    _catch_up(folder, log, say)
    _kill(child)
    figures = []
    for n in range(times):
        append(log, next(orders(10, n, 10)))
        started = time.monotonic()
        child = _start(folder, shape)
        engine_s = _first_commit(child)
        figures.append(Restart(round(time.monotonic() - started, 3), engine_s))
        say(f"first commit {figures[-1].process_s} s after the process started, {engine_s} s after imports")
        _kill(child)
    log.close()
    return figures


def _start(folder: Path, shape: Shape) -> subprocess.Popen[str]:
    return subprocess.Popen(command(folder, shape), stdout=subprocess.PIPE, text=True)


def _first_commit(child: subprocess.Popen[str]) -> float:
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("commit "):
            return float(line.split()[2])
    raise AssertionError("the process ended before its first commit")


def _catch_up(folder: Path, log: EmbeddedLog, say: Callable[[str], None]) -> None:
    """Until the engine's positions are at the ends of the input."""
    limit = time.monotonic() + CATCH_UP_S
    while time.monotonic() < limit:
        positions = log.committed("flowql")
        left = sum(log.end_offset(tp) - p.offset for tp, p in positions.items())
        if positions and left == 0:
            return
        say(f"{left:,} records to process")
        time.sleep(2)
    raise AssertionError("never caught up")


def _kill(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.wait()
    assert child.stdout is not None
    child.stdout.close()

"""Ends the instance of a data directory: it is asked, then told by SIGTERM, then, if that is wanted, killed.

Nobody is told that an instance has stopped before its process is gone.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from flowql.errors import CommandError
from flowql.server.running import NotAnswering, RunningProcess, connect, process_of

ASKED_S = 60.0  # from the request: the last commit may take as long
TOLD_S = 15.0  # from SIGTERM
KILLED_S = 30.0  # from SIGKILL: a process that waits for a disk ends when the disk answers
STILL_RUNS = "FQ5313"
_STEP_S = 0.02


@dataclass(frozen=True, slots=True)
class Ended:
    """killed: by SIGKILL, so that it did not commit what it had processed."""

    pid: int
    killed: bool = False


def end_instance(data_dir: Path, *, force: bool = False) -> Ended | None:
    """None if no instance runs. Raises CommandError if its process goes on. force: kill it if nothing else ends it."""
    process = process_of(data_dir)
    if process is None:
        return None
    if process.pid == os.getpid():
        raise CommandError("the instance runs in this process, which cannot end itself so", code=STILL_RUNS)
    if _asked(data_dir) and _is_gone(process, ASKED_S):
        return Ended(process.pid)
    _signal(process, signal.SIGTERM)
    if _is_gone(process, TOLD_S):
        return Ended(process.pid)
    if not force:
        doing = process.doing()
        title = f"process {process.pid} still runs: it did not end within {TOLD_S:.0f} s of SIGTERM"
        help_ = "flowql stop --force   # kills it; nothing committed is lost"
        raise CommandError(f"{title}; {doing}" if doing else title, code=STILL_RUNS, help=help_)
    _signal(process, signal.SIGKILL)
    if not _is_gone(process, KILLED_S):
        title = f"process {process.pid} still runs, although it was killed: it waits for the system, such as for a disk"
        raise CommandError(title, code=STILL_RUNS, help="flowql status")
    return Ended(process.pid, killed=True)


def _asked(data_dir: Path) -> bool:
    """Whether the instance has taken the request to end, or has ended."""
    try:
        client = connect(data_dir)
        if client is not None:
            with closing(client):
                client.request_stop()
    except NotAnswering:
        return False
    except CommandError:  # it stopped to answer meanwhile
        return False
    return True


def _signal(process: RunningProcess, number: signal.Signals) -> None:
    """Sends a signal, unless the process has ended and its number may be that of another one."""
    if process.is_alive:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _is_gone(process: RunningProcess, within_s: float) -> bool:
    limit = time.monotonic() + within_s
    while process.is_alive:
        if time.monotonic() > limit:
            return False
        time.sleep(_STEP_S)
    return True

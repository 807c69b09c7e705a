"""The running instance of a data directory, if any. Light: where none runs, no client is loaded.

Whether one runs is told by its process and the files that it keeps, never by whether it answers: an instance that is frozen, suspended or
crowded runs. Commands that find one that does not answer fail with `NotAnswering`; they do not go on as if none ran.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flowql.errors import CommandError
from flowql.runtime.app.beat_file import ENDED, STARTING, STOPPING, Snapshot, process_times, read
from flowql.server.address import NOT_RUNNING, is_alive, read_address

if TYPE_CHECKING:
    from flowql.server.client import Client

HEALTH_S = 5.0  # within which an instance says that it is there
BEGINS_S = 10.0  # so long an instance is waited for that starts or stops just now
FREEZE_S = 30.0  # in which a watchdog process ends a frozen instance, also on a busy machine
SILENT = "FQ5312"
_STEP_S = 0.05


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process that runs an instance. started: by `process_times`; None: only its address is known. seen: what its file tells."""

    pid: int
    started: float | None
    seen: Snapshot | None

    @property
    def is_alive(self) -> bool:
        times = process_times(self.pid)
        return times is not None and self.started in (None, times.started)

    @property
    def is_suspended(self) -> bool:
        """By a signal or a debugger: it does nothing until it is continued."""
        times = process_times(self.pid)
        return times is not None and times.is_stopped

    def doing(self) -> str:
        """The known reason why it does not answer; else empty."""
        if self.is_suspended:
            return f"it is suspended by a signal (kill -CONT {self.pid} continues it)"
        if limit := _full_of_files(self.pid):
            return f"all of its {limit:,} file descriptors are in use (ulimit -n, before it starts, allows more)"
        if self.seen is None:
            return ""
        if self.seen.frozen_s:
            return f"it is frozen for {self.seen.silent_s:,.0f} s"
        return f"it is {self.seen.state}" if self.seen.state in (STARTING, STOPPING) else ""


def _full_of_files(pid: int) -> int:
    """The limit of a process that has no descriptor left; 0 if it has some, or if the system does not tell."""
    import psutil

    try:
        process = psutil.Process(pid)
        limit = int(process.rlimit(psutil.RLIMIT_NOFILE)[0])
        return limit if 0 < limit <= process.num_fds() else 0
    except (AttributeError, psutil.Error):
        return 0


class NotAnswering(CommandError):
    """An instance runs in the directory, and does not answer."""

    def __init__(self, process: RunningProcess) -> None:
        self.process = process
        doing = process.doing()
        title = f"process {process.pid} runs the instance and does not answer{f': {doing}' if doing else ''}"
        super().__init__(title, code=SILENT, help="flowql status   # shows what it does;  flowql stop  ends it")


def process_of(data_dir: Path) -> RunningProcess | None:
    """The process that runs an instance on a directory, also one that has just begun or is about to end."""
    seen = read(data_dir)
    if seen is not None and seen.is_alive and seen.state != ENDED:
        return RunningProcess(seen.pid, seen.started, seen)
    address = read_address(data_dir)  # without the file: the disk was full
    return None if address is None or not is_alive(address.pid) else RunningProcess(address.pid, None, None)


def connect(data_dir: Path) -> Client | None:
    """The live instance of a directory; None where none runs. Raises NotAnswering. Waits a moment for one that starts or stops."""
    limit = time.monotonic() + BEGINS_S
    while (process := process_of(data_dir)) is not None:
        address = read_address(data_dir)
        if address is not None:
            from flowql.server.client import Client  # the plan's data types and HTTP: 0.05 s

            client = Client(address)
            if client.answers(HEALTH_S):
                return client
            client.close()
            if read_address(data_dir) == address and not _begins_or_ends(data_dir):
                raise NotAnswering(process_of(data_dir) or process)
        if time.monotonic() > limit:
            raise NotAnswering(process)
        time.sleep(_STEP_S)
    return None


def connect_past_freeze(data_dir: Path) -> Client | None:
    """As `connect`. A frozen instance is ended and started again by its watchdog process, and this waits for it."""
    try:
        return connect(data_dir)
    except NotAnswering as error:
        frozen = error.process
        if frozen.seen is None or not frozen.seen.frozen_s:
            raise
        _until(lambda: not frozen.is_alive, FREEZE_S)
        if frozen.is_alive:  # it has no watchdog process
            raise
    _until(lambda: process_of(data_dir) is not None, BEGINS_S)
    return connect(data_dir)


def _until(holds: Callable[[], bool], within_s: float) -> None:
    limit = time.monotonic() + within_s
    while not holds() and time.monotonic() < limit:
        time.sleep(_STEP_S)


def _begins_or_ends(data_dir: Path) -> bool:
    seen = read(data_dir)
    return seen is not None and (not seen.is_alive or seen.state in (STARTING, STOPPING, ENDED)) and not seen.is_stopped


def connect_running(data_dir: Path) -> Client:
    """The live instance of a directory. Raises CommandError if none runs, NotAnswering if it does not answer."""
    client = connect(data_dir)
    if client is None:
        raise CommandError("no instance of this project is running", code=NOT_RUNNING, help="flowql deploy")
    return client

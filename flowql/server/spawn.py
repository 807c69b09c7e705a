"""Starts a background instance and waits until it answers. `daemon`, the instance itself, is a module of its own: commands that find a
running instance need not load the engine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait  # select(2) takes no descriptor above 1,023
from pathlib import Path

from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.runtime.app.watchdog_process import command_of
from flowql.runtime.errors import InstanceRunning
from flowql.server.client import Client
from flowql.server.running import connect

ERRORS_FILE = "instance.err"  # what its process itself writes: nothing, unless it breaks
READY_S = 120.0  # recovery of a large state included
OTHER_S = 10.0  # so long an instance is waited for that another command starts at the same moment
NOT_STARTED = "FQ5305"


def spawn(settings: Settings, started: Callable[[Client], None] = lambda client: None) -> Client:
    """Starts an instance that outlives this process, or connects to one that another command has just started. Raises CommandError with the
    reason if it does not start. started: called with the client of an instance that this call has started.
    """
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    read_fd, write_fd = os.pipe()
    try:
        with (settings.data_dir / ERRORS_FILE).open("ab") as log:
            process = subprocess.Popen(
                command_of([sys.executable, "-m", "flowql.server.daemon", str(write_fd)], write_fd),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(write_fd,),
                start_new_session=True,
            )
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:  # not as an argument: it may hold passwords
            process.stdin.write(settings.dumps().encode())
    finally:
        os.close(write_fd)
    try:
        answer = _await_ready(read_fd)
    finally:
        os.close(read_fd)
    process.returncode = 0  # it is not ours to wait for: no complaint when this object goes
    if answer and (answer.get("ready") or answer.get("code") == InstanceRunning.code):
        client = _connected(settings.data_dir, 0.0 if answer.get("ready") else OTHER_S)
        if client is not None:
            if answer.get("ready"):
                started(client)
            return client
    log_path = settings.data_dir / ERRORS_FILE
    if answer is None:
        title = f"the instance is still starting after {READY_S:g} s, and continues to start"
        raise CommandError(title, code=NOT_STARTED, help="flowql status   # repeat the command when the instance runs")
    title = answer.get("title") or f"the instance did not start: {_last_line(log_path)}"
    raise CommandError(title, code=answer.get("code", NOT_STARTED), help=answer.get("help") or f"see {log_path}")


def _connected(data_dir: Path, wait_s: float) -> Client | None:
    """The instance that runs there. One that another command has just started may not answer yet."""
    limit = time.monotonic() + wait_s
    while (client := connect(data_dir)) is None and time.monotonic() < limit:
        time.sleep(0.1)
    return client


def _await_ready(fd: int) -> dict[str, str] | None:
    """The message of the new process: empty if the process ends without one, None if nothing has come in time."""
    limit = time.monotonic() + READY_S
    said = b""
    while (left_s := limit - time.monotonic()) > 0:
        if wait([fd], left_s):
            part = os.read(fd, 65536)
            said += part
            if not part:
                answer: dict[str, str] = json.loads(said) if said else {}
                return answer
    return None


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "it said nothing"

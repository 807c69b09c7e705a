"""The process that speaks PostgreSQL's protocol for an instance (`flowql.pg`): its start, and a new one where it has ended.

The socket stays open here, so that clients that connect meanwhile wait for the next process.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

from flowql.deploy.settings import Settings
from flowql.runtime.events import WARNING, say

PROGRAM = "flowql.pg.child"
AGAIN_S, AGAIN_S_MAX = 0.2, 10.0  # before the next process, doubled while they end at once
STEADY_S = 30.0  # a process that lived so long did not end at once
START_S, END_S = 60.0, 5.0


class PgProcess:
    """From `begin` to `end`. Its thread outlives each process that it starts, which the operating system ends with that thread."""

    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        """listener: bound; `end` closes it."""
        self._settings, self._listener = settings, listener
        self._ending, self._ready = threading.Event(), threading.Event()
        self._lock = threading.Lock()  # guards the process
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._keep, name="pg", daemon=True)

    @property
    def pid(self) -> int | None:
        """The number of the process, while there is one."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def begin(self) -> None:
        """Clients may connect from now on; they are answered as soon as the process has loaded."""
        self._listener.listen(1_024)
        self._thread.start()

    def end(self) -> None:
        """Ends the process, and with it all sessions."""
        self._ending.set()
        with self._lock:
            if self._process is not None:
                self._process.kill()
        if self._thread.ident is not None:
            self._thread.join(END_S)
        self._listener.close()

    def _keep(self) -> None:
        wait_s = AGAIN_S
        while not self._ending.is_set():
            begun = time.monotonic()
            try:
                said = self._run()
            except OSError as error:  # no memory for a process, say
                said = str(error)
            if self._ending.is_set():
                return
            wait_s = AGAIN_S if time.monotonic() - begun > STEADY_S else min(2 * wait_s, AGAIN_S_MAX)
            say(
                WARNING,
                "pg.ended",
                f"the process for PostgreSQL's protocol ended ({said}); all of its sessions ended, and another one starts in {wait_s:g} s",
            )
            self._ending.wait(wait_s)

    def _run(self) -> str:
        """One process, until it ends; how it ended."""
        fd = self._listener.fileno()
        with self._lock:
            if self._ending.is_set():
                return ""
            self._process = process = subprocess.Popen(
                [sys.executable, "-P", "-m", PROGRAM, str(fd)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[fd],
                start_new_session=True,
                text=True,
            )
        assert process.stdin is not None
        with suppress(BrokenPipeError, ValueError), process.stdin:  # not as an argument: it may hold passwords
            process.stdin.write(self._settings.dumps() + "\n")
            process.stdin.flush()
            status = process.wait()
        status = process.wait()
        return f"signal {-status}" if status < 0 else f"status {status}"

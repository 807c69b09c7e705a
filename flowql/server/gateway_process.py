"""The process that serves the ports of `api` and `pg` for an instance (`flowql.gateway`): its start, and a new one where it has ended.

The sockets stay open here, so that clients that connect meanwhile wait for the next process.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from flowql.deploy.settings import Settings
from flowql.runtime.events import WARNING, say
from flowql.server.access import Tokens
from flowql.server.ports import bound, port_config, unusable
from flowql.server.routes import routed

PROGRAM = "flowql.gateway.child"
AGAIN_S, AGAIN_S_MAX = 0.2, 10.0  # before the next process, doubled while they end at once
STEADY_S = 30.0  # a process that lived so long did not end at once
END_S = 10.0  # for answers that are on their way


@dataclass(frozen=True, slots=True)
class GatewayStart:
    """What the process gets besides the settings. port, token: of the instance's local port. sockets: descriptors, by the key of the target that names the port."""

    port: int
    token: str
    sockets: Mapping[str, int]

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> GatewayStart:
        return cls(**json.loads(text))


class GatewayProcess:
    """From `begin` to `end`. Its thread outlives each process that it starts, which the operating system ends with that thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._listeners = dict[str, socket.socket]()  # by the key of the target that names the port
        self._ending = threading.Event()
        self._lock = threading.Lock()  # guards the process
        self._process: subprocess.Popen[str] | None = None
        self._is_serving = False
        self._restarts = 0  # since the start of the instance
        self._figures = dict[str, int]()  # of the running process
        self._thread = threading.Thread(target=self._keep, name="gateway", daemon=True)

    def bind(self) -> None:
        """Listens on the sockets, so that clients may connect from now on. Raises CommandError for settings with which the process could not serve."""
        if (api := self._settings.api) is not None:
            Tokens.of(api)
            api.revealed_webhooks()
            port_config(routed, key="api", tls=(api.certificate, api.key))
            self._listeners["api"] = bound(api.address, api.port, "api")
        if (pg := self._settings.pg) is not None:
            try:
                pg.tls()
            except OSError as error:  # SSLError is one
                raise unusable(pg.certificate, pg.key, "pg", error) from error
            self._listeners["pg"] = bound(pg.address, pg.port, "pg")

    @property
    def pid(self) -> int | None:
        """The number of the process; None while none runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def status(self) -> dict[str, int | None]:
        """Its part of the status. memory_bytes: private memory, and its limit. connections, requests: see `Gateway.figures`. They are a few seconds old."""
        pid = self.pid
        try:
            pages = None if pid is None else psutil.Process(pid).memory_info()
            memory = 0 if pages is None else int(pages.rss - pages.shared)
        except psutil.Error:  # it has just ended
            memory = 0
        figures = {"connections": 0, "requests": 0, **(self._figures if pid is not None else {})}
        limit = self._settings.budget.gateway_bytes
        return {"pid": pid, "memory_bytes": memory, "memory_bytes_max": limit, "restarts": self._restarts, **figures}

    def begin(self, port: int, token: str) -> None:
        """Clients are answered as soon as the process has loaded. port, token: of the instance's local port."""
        sockets = {key: listener.fileno() for key, listener in self._listeners.items()}
        self._start = GatewayStart(port, token, sockets)
        self._thread.start()

    def ask_end(self) -> None:
        """The process takes no more requests, and ends when it has answered those that it has. Returns at once."""
        self._ending.set()
        with self._lock:
            process = self._process
            if process is None or process.stdin is None:
                return
            if not self._is_serving:  # it would load first
                process.kill()
            with suppress(OSError):
                process.stdin.close()

    def end(self) -> None:
        """Ends the process, and with it all connections."""
        self.ask_end()
        if self._thread.ident is not None:
            self._thread.join(END_S)
            with self._lock:
                if self._process is not None:
                    self._process.kill()
            self._thread.join(END_S)
        for listener in self._listeners.values():
            listener.close()

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
                "gateway.ended",
                f"the process for the ports of `api` and `pg` ended ({said}); its connections ended, and another one starts in {wait_s:g} s",
            )
            self._restarts, self._figures = self._restarts + 1, {}
            self._ending.wait(wait_s)

    def _hear(self, told: dict[str, Any]) -> None:
        """told: figures of the process, or an event for the log of the instance."""
        if "event" in told:
            say(told["level"], told["event"], told["message"])
        else:
            self._figures = told

    def _run(self) -> str:
        """Runs one process until it ends. Returns how it ended."""
        with self._lock:
            if self._ending.is_set():
                return ""
            self._is_serving = False
            self._process = process = subprocess.Popen(
                [sys.executable, "-P", "-m", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=list(self._start.sockets.values()),
                start_new_session=True,
                text=True,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError, ValueError), process.stdout:  # not as arguments: they hold passwords
            process.stdin.write(f"{self._settings.dumps()}\n{self._start.dumps()}\n")
            process.stdin.flush()
            self._is_serving = process.stdout.readline() != ""
            for line in process.stdout:
                with suppress(ValueError):  # a killed process may have written a part of a line
                    self._hear(json.loads(line))
        status = process.wait()
        with suppress(OSError):
            process.stdin.close()
        return f"signal {-status}" if status < 0 else f"status {status}"

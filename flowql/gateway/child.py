"""The process of the gateway: `python -P -m flowql.gateway.child`, with settings and a `GatewayStart` as two lines on its standard input.

It writes a line when it serves, and then figures and events as JSON. It ends with the instance: its standard input ends then.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import TextIO

from flowql.deploy.settings import Settings
from flowql.gateway.gateway import Gateway
from flowql.query.query_worker import TENTH, killed_first, killed_with_parent
from flowql.runtime.app.allocator import UnusedMemory, keep_memory, private_bytes
from flowql.runtime.app.without_pandas import leave_pandas_out
from flowql.runtime.events import EVENT, LOGGER, WARNING
from flowql.server.gateway_process import GatewayStart

FIGURES_S = 2.0
HEAPS = 2  # each thread that answered a query would keep memory in a heap of its own
# Switch interval of the interpreter. The loop may wait this long for a computing thread after each of the ten system calls of a request.
SWITCH_S = 0.0001


def main() -> int:
    killed_with_parent()
    killed_first()
    os.nice(TENTH)
    leave_pandas_out()
    keep_memory(HEAPS)
    sys.setswitchinterval(SWITCH_S)
    settings, start = Settings.loads(sys.stdin.readline()), GatewayStart.loads(sys.stdin.readline())
    gateway = Gateway(settings, (start.port, start.token))
    threading.Thread(target=_await_end, args=(gateway,), name="parent", daemon=True).start()
    unused = UnusedMemory(settings.budget.gateway_bytes, private_bytes)
    threading.Thread(target=_give_back, args=(unused,), name="memory", daemon=True).start()
    if settings.api is not None:
        gateway.serve_api(settings.api, socket.socket(fileno=start.sockets["api"]))
    told = os.fdopen(os.dup(1), "w", buffering=1)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 1)  # functions and libraries may write to it
    told.write("serving\n")
    LOGGER.addHandler(Told(told))
    threading.Thread(target=_tell, args=(gateway, told), name="figures", daemon=True).start()
    if settings.pg is not None:
        asyncio.run(gateway.serve_pg(settings.pg, socket.socket(fileno=start.sockets["pg"])))
    else:
        threading.Event().wait()
    return 0


class Told(logging.Handler):
    """Tells the instance events of the process, for its log."""

    def __init__(self, to: TextIO) -> None:
        super().__init__(WARNING)
        self._to = to

    def emit(self, record: logging.LogRecord) -> None:
        told = {"event": getattr(record, EVENT)["event"], "level": record.levelno, "message": record.getMessage()}
        with suppress(OSError):  # the instance ends
            self._to.write(json.dumps(told) + "\n")


def _tell(gateway: Gateway, told: TextIO) -> None:
    """Tells the instance figures of the process, until the instance ends."""
    with suppress(OSError):
        while True:
            told.write(json.dumps(gateway.figures()) + "\n")
            time.sleep(FIGURES_S)


def _give_back(unused: UnusedMemory) -> None:
    while True:
        time.sleep(unused.run_once(0) / 1000)


def _await_end(gateway: Gateway) -> None:
    sys.stdin.read()
    gateway.end()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())

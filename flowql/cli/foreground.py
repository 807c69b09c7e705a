"""An instance in the process of a command: Ctrl-C and SIGTERM end it after a commit."""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from flowql.cli.brokers import BrokerWait
from flowql.deploy.settings import Settings
from flowql.runtime.errors import LogUnavailable
from flowql.server.engine import Mode
from flowql.server.host import Host

FILES_WANTED = 65_536  # of state and log that stay open; systems give a process 256 or 1,024 until it asks for more


@contextmanager
def hosting(settings: Settings, mode: Mode = "continuous") -> Iterator[Host]:
    """A started host; closed, with everything processed committed, when the block ends. Main thread only."""
    permit_open_files()
    stopping = threading.Event()
    before = {n: signal.signal(n, lambda *_: stopping.set()) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        host = _started(settings, mode, stopping)
        try:
            yield host
        finally:
            host.close()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _started(settings: Settings, mode: Mode, stopping: threading.Event) -> Host:
    """One that runs until it is stopped waits for brokers; one that ends by itself fails without them."""
    waits = BrokerWait(settings, stopping.wait)
    while True:
        if mode == "continuous":
            waits.until_they_answer()
        host = Host(settings, mode, stopping)
        try:
            host.start()
            return host
        except LogUnavailable as error:  # they went away again, or only some of them are there
            if mode != "continuous":
                raise
            waits.again(error)


def permit_open_files() -> None:
    """As many as the system lets a process of this user open, if it lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS has a limit of its own below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

"""An instance in the process of a command: Ctrl-C and SIGTERM end it after a commit."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from flowql.cli.brokers import BrokerWait
from flowql.deploy.settings import Settings
from flowql.runtime.errors import LogUnavailable
from flowql.server.engine import Mode
from flowql.server.host import Host


@contextmanager
def hosting(settings: Settings, mode: Mode = "continuous") -> Iterator[Host]:
    """A started host; closed, with everything processed committed, when the block ends. Main thread only."""
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

"""An instance in the process of a command: Ctrl-C and SIGTERM end it after a commit."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from flowql.deploy.settings import Settings
from flowql.server.engine import Mode
from flowql.server.host import Host


@contextmanager
def hosting(settings: Settings, mode: Mode = "continuous") -> Iterator[Host]:
    """A started host; closed, with everything processed committed, when the block ends. Main thread only."""
    host = Host(settings, mode)
    before = {n: signal.signal(n, lambda *_: host.request_stop()) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        host.start()
        try:
            yield host
        finally:
            host.close()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

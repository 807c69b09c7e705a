"""File descriptors of an instance: it raises its limit, and keeps a few in reserve so that `flowql status` can still connect.

The default limit is 256 (macOS) or 1,024; the JVM and Go raise it as well. RocksDB, log segments and connections need some hundreds. When none is
left, the server cannot accept a connection, and asyncio reports this thousands of times a second.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from flowql.runtime.events import ERROR, say

WANTED = 65_536
RESERVED = 4
AGAIN_S = 10.0  # between two sentences about the same, and until the reserve is taken again
_NONE_LEFT = {errno.EMFILE, errno.ENFILE}


def raise_limit() -> None:
    """Raises the soft limit to the hard one, at most to `WANTED`."""
    try:
        import resource  # not on Windows
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # macOS allows less than its own limit says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Reserve:
    """Descriptors that are closed when `accept` finds none left. The thread of one event loop owns it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._held: list[int] = []
        self._given_up_at_s: float | None = None
        self._take()

    def handle(self, loop: Any, context: dict[str, Any]) -> None:
        """The exception handler of the loop."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _NONE_LEFT:
            self._give_up(error)
        else:
            loop.default_exception_handler(context)

    def look(self) -> None:
        """Opens the reserve again, `AGAIN_S` after it was given up. Called at each tick of the server."""
        if self._given_up_at_s is not None and self._clock() - self._given_up_at_s >= AGAIN_S:
            self._given_up_at_s = None
            self._take()

    def close(self) -> None:
        for fd in self._held:
            os.close(fd)
        self._held.clear()

    def _give_up(self, error: OSError) -> None:
        if self._given_up_at_s is not None:
            return
        self._given_up_at_s = self._clock()
        self.close()
        say(ERROR, "http.refused", f"connections wait: {error.strerror}; raise the limit (ulimit -n) and start again")

    def _take(self) -> None:
        with suppress(OSError):
            while len(self._held) < RESERVED:
                self._held.append(os.open(os.devnull, os.O_RDONLY))

"""Whether a statement that its client no longer waits for has begun to write.

A thread that carries out a statement cannot be ended. Before it writes it passes the commit point. A statement that was abandoned before that writes
nothing, and its client is told that it was cancelled. Afterwards it may be written, whatever its client does.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar

from flowql.pg.errors import PgError


class CommitPoint:
    """The commit point of one statement. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._is_abandoned = self._is_passed = False

    def enter(self) -> None:
        """From now on something may be written. Raises PgError 57014 if the statement was abandoned."""
        with self._lock:
            if self._is_abandoned:
                raise PgError("57014", "the statement was abandoned before it wrote anything")
            self._is_passed = True

    def abandon(self) -> bool:
        """The client no longer waits. True if nothing was written, and nothing will be."""
        with self._lock:
            self._is_abandoned = True
            return not self._is_passed


_current: ContextVar[CommitPoint] = ContextVar("commit point")


def begin(point: CommitPoint) -> None:
    """Sets the commit point of the statement that this context carries out."""
    _current.set(point)


def about_to_write() -> None:
    """Passes the commit point. Raises PgError 57014 if the statement was abandoned."""
    point = _current.get(None)
    if point is not None:
        point.enter()

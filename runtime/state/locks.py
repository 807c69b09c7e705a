"""A lock that knows its name and its owner, so that code can assert it is held (rule R16)."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType


class NamedLock:
    """A mutex, not reentrant. `guards` says in words what may only be touched by its owner."""

    __slots__ = ("_lock", "_owner", "guards", "name")

    def __init__(self, name: str, *, guards: str) -> None:
        self.name, self.guards = name, guards
        self._lock = threading.Lock()
        self._owner: int | None = None

    def __enter__(self) -> NamedLock:
        assert self._owner != threading.get_ident(), f"{self.name} is held by this thread already"
        self._lock.acquire()
        self._owner = threading.get_ident()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owner = None
        self._lock.release()

    @property
    def held(self) -> bool:
        """Whether the calling thread owns it."""
        return self._owner == threading.get_ident()

    def join(self) -> AbstractContextManager[object]:
        """Enter it, or go on inside it if this thread owns it already (for steps that run alone or as part of another)."""
        return nullcontext() if self.held else self

    def assert_held(self) -> None:
        assert self._owner == threading.get_ident(), f"{self.name} must be held: it guards {self.guards}"

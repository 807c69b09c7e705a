"""Outcomes of statements that other threads carry out, for the loop of the sessions."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Outcomes(Generic[T]):
    """Hands outcomes to a loop. Statements that were carried out together wake the loop once, because a loop that wakes competes with the
    thread that carries out the next statements.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """loop: the running loop of the calling thread."""
        self._loop, self._thread = loop, threading.get_ident()
        self._known = deque[tuple[asyncio.Future[T], Future[T]]]()

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller runs in the loop's thread."""
        return threading.get_ident() == self._thread

    def add(self, waiting: asyncio.Future[T], done: Future[T]) -> None:
        """Stores an outcome until the next `wake`. Any thread."""
        self._known.append((waiting, done))

    def wake(self) -> None:
        """Has the loop hand on all stored outcomes. Any thread."""
        if self._known:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        while self._known:
            waiting, done = self._known.popleft()
            error = done.exception()
            if waiting.done():  # its session has ended
                continue
            if error is not None:
                waiting.set_exception(error)
            else:
                waiting.set_result(done.result())

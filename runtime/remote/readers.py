"""Calls to a store of objects beside each other: each waits for the network or the disk most of its time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

READERS = 16  # requests side by side: 20 ms of latency and blocks of 8 KB


class Readers:
    """A base of stores, with threads that are started by the first call."""

    _pool: ThreadPoolExecutor | None = None

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Runs a call beside others, at most `READERS` at a time."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(READERS, "remote")
        return self._pool.submit(call, *args, **kwargs)

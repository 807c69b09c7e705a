"""What calls of user-defined functions have cost since this process started.

Kept by the names of functions in plans, so a version that is loaded again goes on counting.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from flowql.compiler.functions.user import module_name, plain_name


@dataclass(slots=True)
class Counts:
    """calls: for rows. failures: of rows. seconds: of all calls together, with the messages to processes. lost: processes that ended in a call."""

    calls: int = 0
    failures: int = 0
    seconds: float = 0.0
    lost: int = 0

    def add(self, calls: int, seconds: float, *, failures: int = 0, lost: int = 0) -> None:
        self.calls += calls
        self.seconds += seconds
        self.failures += failures
        self.lost += lost


class FunctionFigures:
    """Of one version, as each thread counts them."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._of_threads: list[Counts] = []

    def here(self) -> Counts:
        """The counts of the calling thread. Other threads only read them."""
        try:
            return self._local.counts
        except AttributeError:
            counts = self._local.counts = Counts()
            self._of_threads.append(counts)
            return counts

    def total(self) -> Counts:
        total = Counts()
        for c in list(self._of_threads):
            total.add(c.calls, c.seconds, failures=c.failures, lost=c.lost)
        return total


_all: dict[str, FunctionFigures] = {}


def figures_of(name: str) -> FunctionFigures:
    """name: as in plans."""
    return _all.setdefault(name, FunctionFigures())


def function_figures(names: Collection[str]) -> list[dict[str, Any]]:
    """As `status` shows them. names: as in plans; those that were never called here are left out."""
    found = [(name, _all[name].total()) for name in sorted(names) if name in _all]
    return [
        {
            "function": plain_name(name),
            "module": module_name(name),
            "calls": f.calls,
            "failures": f.failures,
            "seconds": round(f.seconds, 6),
            "lost_processes": f.lost,
        }
        for name, f in found
        if f.calls
    ]

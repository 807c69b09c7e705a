"""The costs of calls of user-defined functions since this process started.

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


class FunctionMetrics:
    """The counts of one version, by thread."""

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


PARTS = ("calls", "failures", "micros", "lost")

_all: dict[str, FunctionMetrics] = {}
_asking = threading.Lock()  # guards the next one
_asked: dict[str, Counts] = {}  # what `counts_since` has given


def metrics_of(name: str) -> FunctionMetrics:
    """name: as in plans."""
    return _all.setdefault(name, FunctionMetrics())


def counts_since(modules: Collection[str]) -> dict[str, list[int]]:
    """The counts of these modules' functions since the last call, by their names in SQL: a number for each of `PARTS`."""
    found: dict[str, list[int]] = {}
    with _asking:
        for name, metrics in list(_all.items()):
            if module_name(name) not in modules:
                continue
            now, before = metrics.total(), _asked.get(name, Counts())
            _asked[name] = now
            counts = [now.calls - before.calls, now.failures - before.failures]
            counts += [round(1e6 * (now.seconds - before.seconds)), now.lost - before.lost]
            if any(counts):
                sums = found.get(plain_name(name), [0] * len(PARTS))
                found[plain_name(name)] = [a + b for a, b in zip(sums, counts, strict=True)]
    return found


def function_metrics(names: Collection[str]) -> list[dict[str, Any]]:
    """As `status` shows them. names: as in plans; those that were never called here are left out."""
    found = [(name, _all[name].total()) for name in sorted(names) if name in _all]
    return [metrics_data(name, f.calls, f.failures, f.seconds, f.lost) for name, f in found if f.calls]


def metrics_data(name: str, calls: int, failures: int, seconds: float, lost: int) -> dict[str, Any]:
    """name: as in plans."""
    return {
        "function": plain_name(name),
        "module": module_name(name),
        "calls": calls,
        "failures": failures,
        "seconds": round(seconds, 6),
        "lost_processes": lost,
    }

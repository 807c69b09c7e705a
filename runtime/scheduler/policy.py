"""Scheduling policies as pure functions of task facts, so that they can be simulated.

`weighted_fair` is a simplified EEVDF (Stoica and Abdel-Wahab 1995, earliest eligible virtual deadline first): each query
has a virtual runtime that grows by time received / weight; it is eligible while that is not ahead of virtual time; among the
eligible the least virtual deadline (virtual runtime + requested slice / weight) runs. Of its tasks it takes the one with the greatest
difference between its buffered input rows and its output rows that other tasks have not taken (back-pressure scheduling: Tassiulas
and Ephremides 1992). By input rows alone, one of several tasks that feed a merge could wait for long while the
others run ahead, and all of their rows would wait for it. `most_buffered` is the example policy of the runtime's source design:
the task with the most buffered rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple


class TaskFacts(NamedTuple):
    """A task that could run now: unlocked, with input, not held back. rows_ahead: made by it, and not taken by those after it."""

    task: str
    query: str
    buffered_rows: int
    rows_ahead: int

    @property
    def precedence(self) -> tuple[int, str]:
        """The order of the tasks of a query: the greatest runs first. Names end ties, so that replay is the same."""
        return self.buffered_rows - self.rows_ahead, self.task


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """A query's account. Virtual times are nanoseconds per unit of weight."""

    weight: int
    slice_ns: int
    virtual_runtime: float = 0.0

    @property
    def virtual_deadline(self) -> float:
        return self.virtual_runtime + self.slice_ns / self.weight


def most_buffered(
    tasks: Sequence[TaskFacts], queries: Mapping[str, QueryFacts], virtual_time: float
) -> TaskFacts | None:
    """The task with most buffered rows; ties by name, so that replay is the same."""
    return max(tasks, key=lambda t: (t.buffered_rows, t.task), default=None)


def weighted_fair(
    tasks: Sequence[TaskFacts], queries: Mapping[str, QueryFacts], virtual_time: float
) -> TaskFacts | None:
    """Chooses the eligible query with the least virtual deadline, and its task with the greatest difference of rows; ties by name.

    When no runnable query is eligible (all that are lag behind are running on other threads), the least virtual runtime
    goes on: a processor never idles while something can run.
    """
    if not tasks:
        return None
    names = sorted({t.query for t in tasks})
    eligible = [q for q in names if queries[q].virtual_runtime <= virtual_time]
    if eligible:
        chosen = min(eligible, key=lambda q: (queries[q].virtual_deadline, q))
    else:
        chosen = min(names, key=lambda q: (queries[q].virtual_runtime, q))
    mine = (t for t in tasks if t.query == chosen)
    return max(mine, key=lambda t: t.precedence)


POLICIES = {"weighted_fair": weighted_fair, "most_buffered": most_buffered}


class FairClock:
    """The accounts behind `weighted_fair`: virtual runtimes and virtual time. Callers hold the task manager's lock.

    A slice is charged at its expected length when it starts (so that other threads see it) and corrected when it ends.
    A query that had nothing to do comes back at most one slice behind virtual time: idle queries hoard no credit.
    """

    def __init__(self) -> None:
        self.entitled_ns: dict[str, float] = {}  # time that each query's weight entitled it to while it had work
        self.queries: dict[str, QueryFacts] = {}  # others only read it
        self._backlogged: set[str] = set()
        self.virtual_time = 0.0

    def set_query(self, query: str, weight: int, slice_ns: int) -> None:
        """Add a query, or change its weight or slice; its account stays."""
        old = self.queries.get(query)
        runtime = old.virtual_runtime if old else self.virtual_time
        self.queries[query] = QueryFacts(weight, slice_ns, runtime)

    def remove(self, query: str) -> None:
        self.queries.pop(query, None)
        self.entitled_ns.pop(query, None)
        self._backlogged.discard(query)

    def set_backlogged(self, backlogged: Set[str]) -> None:
        """Which queries have work; all others have nothing to do."""
        now = backlogged & self.queries.keys()
        for query in now - self._backlogged:
            f = self.queries[query]
            floor = self.virtual_time - f.slice_ns / f.weight
            if f.virtual_runtime < floor:
                self.queries[query] = QueryFacts(f.weight, f.slice_ns, floor)
        self._backlogged = now

    def start(self, query: str) -> int:
        """Charge the expected slice; returns it (ns) for `end`."""
        f = self.queries[query]
        self._charge(query, f.slice_ns)
        return f.slice_ns

    def end(self, query: str, expected_ns: int, actual_ns: int) -> None:
        """Correct the charge to what the slice really cost and let virtual time pass."""
        if query in self.queries:
            self._charge(query, actual_ns - expected_ns)
        with_work = [(q, self.queries[q]) for q in self._backlogged if q in self.queries]
        total = sum(f.weight for _, f in with_work)
        if total:
            self.virtual_time += actual_ns / total
        for q, f in with_work:
            self.entitled_ns[q] = self.entitled_ns.get(q, 0.0) + actual_ns * f.weight / total
        runtimes = [f.virtual_runtime for _, f in with_work]
        # Virtual time never falls behind that of all queries: then none would be eligible, and the time owed to each would be lost.
        self.virtual_time = max(self.virtual_time, min(runtimes, default=self.virtual_time))

    def _charge(self, query: str, ns: int) -> None:
        f = self.queries[query]
        self.queries[query] = QueryFacts(f.weight, f.slice_ns, f.virtual_runtime + ns / f.weight)

"""A simulated processor pool under a scheduling policy: no threads, no clock, one seed."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

from flowql.runtime.scheduler.policy import POLICIES, FairClock, TaskFacts


@dataclass(slots=True)
class Workload:
    """A query: weight, requested slice (ns), tasks; `overrun`: how much longer a slice may really take.

    arrivals: None = backlogged throughout; else times (ns) at which one slice of work arrives.
    """

    name: str
    weight: int
    slice_ns: int = 5_000_000
    tasks: int = 4
    overrun: float = 0.2
    arrivals: list[int] | None = None


@dataclass(slots=True)
class Account:
    """What a query got. waits: from arrival (or being runnable) to the start of its slice, ns."""

    received_ns: int = 0
    slices: int = 0
    longest_slice_ns: int = 0
    waits_ns: list[int] = field(default_factory=list)
    last_start_ns: int = 0
    longest_gap_ns: int = 0


def simulate(
    workloads: list[Workload],
    *,
    seed: int,
    workers: int = 1,
    duration_ns: int = 20_000_000_000,
    policy: str = "weighted_fair",
) -> tuple[dict[str, Account], list[dict[str, int]]]:
    """Accounts at the end, and samples of received time after every slice."""
    rnd = random.Random(seed)
    clock, pick = FairClock(), POLICIES[policy]
    accounts = {w.name: Account() for w in workloads}
    by_name = {w.name: w for w in workloads}
    pending = {w.name: list(w.arrivals or []) for w in workloads}
    busy: dict[str, int] = {w.name: 0 for w in workloads}
    for w in workloads:
        clock.set_query(w.name, w.weight, w.slice_ns)
    samples: list[dict[str, int]] = []
    ends: list[tuple[int, int, str, int, int]] = []  # (end, worker, query, expected, actual)
    free, now = list(range(workers)), 0

    def ready(name: str) -> int:
        w = by_name[name]
        if w.arrivals is None:
            return w.tasks - busy[name]
        return min(w.tasks - busy[name], sum(1 for a in pending[name] if a <= now))

    while now < duration_ns:
        while free:
            facts = []
            clock.set_backlogged({w.name for w in workloads if ready(w.name) or busy[w.name]})
            for w in workloads:
                n = ready(w.name)
                facts += [TaskFacts(f"{w.name}-{i}", w.name, rnd.randrange(1, 1000), 0) for i in range(n)]
            chosen = pick(facts, clock.queries, clock.virtual_time)
            if chosen is None:
                break
            w, account = by_name[chosen.query], accounts[chosen.query]
            if w.arrivals is not None:
                account.waits_ns.append(now - pending[w.name].pop(0))
            account.longest_gap_ns = max(account.longest_gap_ns, now - account.last_start_ns)
            account.last_start_ns = now
            busy[w.name] += 1
            expected = clock.start(w.name)
            actual = max(1, int(w.slice_ns * (1 + rnd.uniform(-w.overrun, w.overrun))))
            heapq.heappush(ends, (now + actual, free.pop(), w.name, expected, actual))
        upcoming = [a for n in pending for a in pending[n][:1] if a > now]
        if not ends and not upcoming:
            break
        if ends and (not upcoming or not free or ends[0][0] <= min(upcoming)):
            now, worker, name, expected, actual = heapq.heappop(ends)
            clock.end(name, expected, actual)
            busy[name] -= 1
            free.append(worker)
            account = accounts[name]
            account.received_ns += actual
            account.slices += 1
            account.longest_slice_ns = max(account.longest_slice_ns, actual)
            samples.append({n: a.received_ns for n, a in accounts.items()})
        else:
            now = min(upcoming)
    return accounts, samples

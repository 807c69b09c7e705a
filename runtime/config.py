"""The knobs of an instance: all of them. Everything else is derived from these."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flowql.runtime.budget import MIB, RUN_ROWS_MIN, MemoryBudget

COMMIT_INTERVAL_MS_DEFAULT = 100
COMMIT_INTERVAL_MS_MIN, COMMIT_INTERVAL_MS_MAX = 10, 1000
# Without a target a commit waits until the last one is an eighth of the time, but not longer than this. Over 32 partitions a commit of Nexmark's q5
# takes 32 to 40 ms of processor time, and q5 over 300,000 bids took 9.6 to 10.3 s every 100 ms, and 4.8 to 5.7 s so.
COMMIT_SHARE, COMMIT_INTERVAL_MS_HEAVY = 8, 500
# Shorter slices make runs too small for vector kernels: the quickstart takes 10 s with 5 ms, 48 s with 2 ms.
SLICE_NS_DEFAULT = 5_000_000
ROWS_PER_RUN_MIN, ROWS_PER_RUN_MAX = 256, 30_000


@dataclass(frozen=True, slots=True)
class LetterRetention:
    """How long dead letters are kept, from the moment at which they were written. -1: without limit."""

    age_ms: int = 7 * 86_400_000
    size_bytes: int = 1024 * MIB


@dataclass(frozen=True, slots=True)
class InstanceConfig:
    """How one instance runs.

    memory_bytes: what the process and its gateway should stay within; `budget` divides it. has_gateway: whether there is one.
    changelogs: write changelog topics although the embedded log's redo makes them unnecessary (tests, Kafka).
    rows_per_run: fixed run size for tests; None lets measured cost decide.
    vector: None = choose by size; True/False forces a kernel form (differential tests).
    run_rows_min: as of how many rows of a store a commit writes a run; few in tests.
    coalesce: one update per key and run on table edges (rule R13); off in conformance.
    shared: other instances of the application may run at the same time and share its partitions, as members of one group. Then
    repartitions are topics. process_id: which member this is, the same after a restart; part of its transactional id.
    standbys: how many other members keep a copy of each task's state. rack: where this one runs; copies are kept in other racks.
    remote_state: URL of an object store that gets checkpoints of the state; empty for none.
    dead_letters: how long they are kept; the topic is made so, and altered when an instance starts with something else.
    ticks: whether tasks run when a timer by the wall clock is due and no rows come, which those inside Spark do not.
    latency_target_ms: how soon results are wanted, of all queries; those that have a target of their own may want them sooner.
    without: ids of queries that are paused before they begin.
    """

    application_id: str = "flowql"
    data_dir: Path | None = None
    threads: int = 2
    memory_bytes: int = 1024 * MIB
    has_gateway: bool = False
    guarantee: Literal["exactly_once", "at_least_once"] = "exactly_once"
    policy: Literal["weighted_fair", "most_buffered"] = "weighted_fair"
    changelogs: bool = False
    rows_per_run: int | None = None
    vector: bool | None = None
    run_rows_min: int = RUN_ROWS_MIN
    coalesce: bool = True
    shared: bool = False
    process_id: str = ""
    standbys: int = 0
    rack: str = ""
    remote_state: str = ""
    ticks: bool = True
    latency_target_ms: int | None = None
    dead_letters: LetterRetention = LetterRetention()
    without: tuple[str, ...] = ()

    @property
    def transactional_id(self) -> str:
        """The id of this instance's producer; two that run at the same time never have the same."""
        return self.transactional_id_of(self.process_id) if self.shared else self.application_id

    def transactional_id_of(self, process_id: str) -> str:
        """The id of a member's producer."""
        return f"{self.application_id}-{process_id}"

    @property
    def budget(self) -> MemoryBudget:
        return MemoryBudget(self.memory_bytes, self.has_gateway)


def commit_interval_ms(latency_targets_ms: list[int], commit_cpu_ns: int = 0) -> int:
    """Half of the smallest latency target, within 10-1000 ms; without a target 100 ms, and up to 500 ms where commits would else take more than
    an eighth of a processor.

    commit_cpu_ns: processor time of the last commit, which grows with the number of partitions; 0 where results are wanted soon.
    """
    if not latency_targets_ms:
        longer = COMMIT_SHARE * commit_cpu_ns // 1_000_000
        return max(COMMIT_INTERVAL_MS_DEFAULT, min(longer, COMMIT_INTERVAL_MS_HEAVY))
    return max(COMMIT_INTERVAL_MS_MIN, min(COMMIT_INTERVAL_MS_MAX, min(latency_targets_ms) // 2))


def slice_ns(latency_target_ms: int | None) -> int:
    """How long a query may work at a time: a twentieth of its latency target, within 1-5 ms."""
    wanted = SLICE_NS_DEFAULT if not latency_target_ms else latency_target_ms * 1_000_000 // 20
    return max(1_000_000, min(SLICE_NS_DEFAULT, wanted))

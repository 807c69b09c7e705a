"""Counters of an instance: plain integers that status, benchmarks and tests read. Names follow Kafka Streams' where one exists."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field

from flowql.runtime.latency import Latencies


@dataclass(slots=True)
class QueryMetrics:
    """Counters of one query since its start."""

    records_in: int = 0
    records_out: int = 0
    dead_letters: int = 0
    late_records: int = 0
    rows_by_row: dict[str, int] = field(default_factory=dict)  # by operator
    errors: int = 0
    last_error: str = ""
    cpu_ns: int = 0  # of processor time
    turn_ns: int = 0  # that it held a processing thread: what the scheduler shares out
    slices: int = 0
    slowest_slice_ns: int = 0
    slow_slices: int = 0  # more than ten times as long as planned: a function that blocks (rule R18)
    # From when the instance saw that a record is in the log to the commit of all that follows from it.
    latency: Latencies = field(default_factory=Latencies)


@dataclass(slots=True)
class Metrics:
    """All counters. Adding takes the lock; reading a number does not. queries: of those that `query` was asked for."""

    queries: dict[str, QueryMetrics] = field(default_factory=dict)
    # topic -> records: each is counted once however many queries read it (shared fetch, shared decode)
    fetched: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    decoded: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    commits: int = 0
    cut_to_commit_ms: float = 0.0
    commit_latency: Latencies = field(default_factory=Latencies)  # from cut to commit
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add_fetched(self, topic: str, records: int) -> None:
        with self.lock:
            self.fetched[topic] += records

    def add_decoded(self, topic: str, records: int) -> None:
        with self.lock:
            self.decoded[topic] += records

    def query(self, query_id: str) -> QueryMetrics:
        """The counters of a query, the same ones for all threads."""
        with self.lock:
            if query_id not in self.queries:
                self.queries[query_id] = QueryMetrics()
            return self.queries[query_id]

"""The current rates of each query: counters sampled once a second, and the difference to some seconds ago.

The working threads count per micro-batch and per commit, never per record (`flowql.runtime.metrics`); this step only copies the counters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from flowql.runtime.clock import Clock
from flowql.runtime.latency import CLASSES, percentile
from flowql.runtime.metrics import Metrics
from flowql.runtime.scheduler.manager import TaskManager

SAMPLE_MS = 1_000
RATE_MS = 10_000  # rates and shares look back as far
LATENCY_MS = 30_000  # percentiles need more
_NOTHING = (0,) * CLASSES


@dataclass(frozen=True, slots=True)
class Counters:
    """One query's counters at a moment."""

    records_in: int = 0
    records_out: int = 0
    cpu_ns: int = 0
    turn_ns: int = 0
    entitled_ns: float = 0.0
    latency: tuple[int, ...] = _NOTHING


@dataclass(frozen=True, slots=True)
class Sample:
    """All queries' counters at a moment."""

    ms: int
    queries: Mapping[str, Counters]


@dataclass(frozen=True, slots=True)
class QueryRates:
    """rate_in, rate_out: records per second. cpu: processors in use (1.0 is one). share: of the time that all queries together
    got, entitled: what its weight entitled it to beside the others that had work; None while no query worked. p50_ms, p99_ms: None
    while nothing was committed.
    """

    rate_in: float = 0.0
    rate_out: float = 0.0
    cpu: float = 0.0
    share: float | None = None
    entitled: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None


class RateSampler:
    """A step: `run_once` takes a sample. `read` may be called by any thread."""

    def __init__(
        self, metrics: Metrics, manager: TaskManager, queries: Callable[[], Iterable[str]], clock: Clock
    ) -> None:
        self._metrics, self._manager, self._queries, self._clock = metrics, manager, queries, clock
        self._samples: deque[Sample] = deque(
            maxlen=LATENCY_MS // SAMPLE_MS + 1
        )  # replaced from the left, never changed
        self._next_ms = 0

    def run_once(self, now_ms: int) -> int:
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + SAMPLE_MS
            self._samples.append(self._sample())
        return self._next_ms - now_ms

    def read(self) -> dict[str, QueryRates]:
        """The current rates of every query."""
        now, before = self._sample(), list(self._samples)
        recent = [s for s in before if s.ms >= now.ms - RATE_MS - SAMPLE_MS // 2]
        turn_ns = sum(c.turn_ns - _first(recent, q, now)[1].turn_ns for q, c in now.queries.items())
        return {q: _rates(q, now, recent, before, turn_ns) for q in now.queries}

    def _sample(self) -> Sample:
        entitled = self._manager.entitled_ns()
        found = {}
        for query in list(self._queries()):
            m = self._metrics.query(query)
            found[query] = Counters(
                m.records_in, m.records_out, m.cpu_ns, m.turn_ns, entitled.get(query, 0.0), tuple(m.latency.counts)
            )
        return Sample(self._clock.timer_ms(), found)


def _first(samples: Sequence[Sample], query: str, now: Sample) -> tuple[int, Counters]:
    """The oldest sample; a query that is not in it came later and had counted nothing then."""
    return (samples[0].ms, samples[0].queries.get(query, Counters())) if samples else (now.ms, now.queries[query])


def _rates(query: str, now: Sample, recent: Sequence[Sample], before: Sequence[Sample], turn_ns: int) -> QueryRates:
    new = now.queries[query]
    at_ms, old = _first(recent, query, now)
    seconds = (now.ms - at_ms) / 1000
    _, oldest = _first(before, query, now)
    taken = [n - o for n, o in zip(new.latency, oldest.latency, strict=True)]
    return QueryRates(
        rate_in=(new.records_in - old.records_in) / seconds if seconds else 0.0,
        rate_out=(new.records_out - old.records_out) / seconds if seconds else 0.0,
        cpu=(new.cpu_ns - old.cpu_ns) / seconds / 1e9 if seconds else 0.0,
        share=(new.turn_ns - old.turn_ns) / turn_ns if turn_ns else None,
        entitled=(new.entitled_ns - old.entitled_ns) / turn_ns if turn_ns else None,
        p50_ms=percentile(taken, 0.5),
        p99_ms=percentile(taken, 0.99),
    )

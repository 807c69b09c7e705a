"""Starts the queries of an instance, looks after them and brings back those that fail, each alone. No pyspark.

A step like the runtime's: `run_once` is repeated by one thread. It blocks while Spark starts a stream or computes a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.events import INFO, say
from flowql.runtime.spark.engine.feeders import is_feeder
from flowql.runtime.spark.engine.order import feeds_of, is_circle, levels, topics_read
from flowql.runtime.spark.engine.streams import RunningQuery, Stream
from flowql.runtime.spark.history import topics_written
from flowql.runtime.spark.log_offsets import Offsets
from flowql.runtime.topology.upstream import merges, upstream_of

ASK_MS = 250  # brokers are asked


def awaited(query: QueryPlan, plan: Plan) -> list[str]:
    """The queries that it waits for, in their order: first those that read files. plan: with its feeders."""
    if not merges(query):
        return []
    own = Plan(queries=tuple(q for q in plan.queries if not is_feeder(q)))
    upstream = upstream_of(query, own)
    read = {t for q in (query, *upstream) for t in topics_read(q)}
    feeders = [q for q in plan.queries if is_feeder(q) and read & {*topics_written(q)}]
    return [q.id for q in (*feeders, *upstream)]


def is_held(query: RunningQuery, queries: Mapping[str, RunningQuery], asked: Launcher, now_ms: int) -> bool:
    """Whether a query that would be started now waits for another one. queries: all of the instance."""
    if query.waits_for is None:
        query.waits_for = awaited(query.plan, Plan(queries=tuple(q.plan for q in queries.values())))
        if query.waits_for:
            say(
                INFO,
                "query.waits",
                f"until the existing records have been read by {', '.join(query.waits_for)}",
                query=query.plan.id,
            )
    if not query.waits_for or now_ms < query.look_at_ms:
        return bool(query.waits_for)
    query.look_at_ms = now_ms + ASK_MS
    try:
        while query.waits_for and _is_done(query, queries.get(query.waits_for[0]), asked):
            query.waits_for, query.ends = query.waits_for[1:], None
    except RuntimeFailure:  # brokers are away
        return True
    return bool(query.waits_for)


def _is_done(query: RunningQuery, other: RunningQuery | None, asked: Launcher) -> bool:
    """Whether the query whose turn it is has read up to the ends, or does not go on by itself. One that has read something
    before does not wait for one that fails.
    """
    if other is None or other.paused or other.state == "error":
        return True
    if other.state == "failed" and asked.epoch(query) >= 0:
        return True
    if is_feeder(other.plan):
        return other.is_idle
    if query.ends is None:
        query.ends = asked.ends(other)
    return not asked.lacks(other, query.ends)


TRIES_MAX = 3  # of a query in a run that is to end
LOOK_MS = 50
Pace = Literal["continuous", "available now"]


class Launcher(Protocol):
    """The requests to Spark."""

    def stream(self, query: RunningQuery, pace: Pace) -> Stream:
        """Start the stream of a query on its checkpoint."""
        ...

    def batch(self, query: RunningQuery) -> None:
        """Compute a query as a batch; returns when its results are in the log."""
        ...

    def epoch(self, query: RunningQuery) -> int:
        """The last epoch of the query in the log, -1 for none."""
        ...

    def behind(self, query: RunningQuery) -> int:
        """Records it has not processed of topics that queries here write."""
        ...

    def ends(self, query: RunningQuery) -> Offsets:
        """Where the topics that it reads end now."""
        ...

    def lacks(self, query: RunningQuery, ends: Offsets) -> bool:
        """Whether results of records below `ends` are not in the log yet."""
        ...


class Supervisor:
    """Decides about the next step of the queries, and takes it. One thread repeats `run_once`; `queries` is replaced, never changed.

    at_once: how many streams start at the same time, and of a run that is to end run; None for all of them. Each starts Python processes,
    and Spark fails a query whose process does not answer within 10 s: more of them than cores gain nothing and start too slowly.
    """

    def __init__(self, launcher: Launcher, at_once: int | None = None) -> None:
        self._launcher, self._at_once = launcher, at_once
        self._rounds: Sequence[Sequence[RunningQuery]] = ()
        self._feeds: Mapping[str, set[str]] = {}
        self._awaited: Mapping[str, list[str]] = {}
        self.queries: Mapping[str, RunningQuery] = {}
        self.doing: Literal["nothing", "continuous", "available now", "batch"] = "nothing"

    def run_continuously(self) -> None:
        """Every query has a stream that does not end."""
        self.doing = "continuous"

    def run_once_over(self, plan: Plan, *, batch: bool) -> None:
        """Every query processes what there is, in the order in which they read each other; then nothing is done."""
        self._rounds = [[self.queries[q.id] for q in level] for level in levels(plan.queries)]
        self._feeds = feeds_of(plan.queries)
        self._awaited = {q.id: awaited(q, plan) for q in plan.queries}
        for query in self.queries.values():
            query.again()
        self.doing = "batch" if batch else "available now"

    @property
    def finished(self) -> bool:
        """Whether all that had to end has ended."""
        return self.doing == "nothing"

    def run_once(self, now_ms: int) -> int:
        for query in self.queries.values():
            self._look(query, now_ms)
        if self.doing == "continuous":
            for query in self.queries.values():
                self._start(query, now_ms)
        elif self.doing != "nothing":
            self._next_round(now_ms)
        return LOOK_MS

    def _next_round(self, now_ms: int) -> None:
        """Work on the first queries that are not through."""
        for queries in self._rounds:
            if not all(q.finished for q in queries):
                for query in queries:
                    if not self._is_cut_off(query):
                        self._start(query, now_ms)
                return
            if self.doing == "available now" and is_circle([q.plan for q in queries]):
                behind = [q for q in queries if q.state == "done" and self._launcher.behind(q)]
                for query in behind:  # what one of them wrote meanwhile
                    query.again()
                if behind:
                    return
        self.doing = "nothing"

    def _is_full(self, now_ms: int) -> bool:
        if self._at_once is None:
            return False
        starting = self.doing == "continuous"
        busy = (q.is_starting(now_ms) if starting else q.state == "running" for q in self.queries.values())
        return sum(busy) >= self._at_once

    def _is_cut_off(self, query: RunningQuery) -> bool:
        """A batch whose input is not there, as a query that feeds it was given up: it would take that for the whole input. So would a stream that joins by time."""
        is_batch = self.doing == "batch"
        feeds = sorted(self._feeds.get(query.plan.id, ())) if is_batch else self._awaited[query.plan.id]
        failed = [f for f in feeds if f in self.queries and self.queries[f].state == "error"]
        if failed and query.state == "waiting":
            said = "not computed" if is_batch else "it reads no more"
            query.given_up(RuntimeFailure(f"{said}, because {', '.join(failed)} failed; its earlier results stay"))
        return bool(failed)

    def _look(self, query: RunningQuery, now_ms: int) -> None:
        stream = query.stream
        if stream is None or stream.isActive:
            return
        error = stream.exception()
        if error is not None:
            self._failed(query, error, now_ms)
        elif self.doing == "continuous":
            query.again()  # somebody stopped it
        else:
            query.ended()

    def _start(self, query: RunningQuery, now_ms: int) -> None:
        if not query.due(now_ms) or self._is_full(now_ms):
            return
        if (
            self.doing == "continuous"
            and query.state == "waiting"
            and is_held(query, self.queries, self._launcher, now_ms)
        ):
            return
        query.started(None, now_ms)
        try:
            if self.doing == "batch":
                self._launcher.batch(query)
                query.ended()
            else:
                pace: Pace = "continuous" if self.doing == "continuous" else "available now"
                query.started(self._launcher.stream(query, pace), now_ms)
        except Exception as error:  # of this query alone; its status tells
            self._failed(query, error, now_ms)

    def _failed(self, query: RunningQuery, error: BaseException, now_ms: int) -> None:
        tries = None if self.doing == "continuous" else TRIES_MAX
        query.failed(error, now_ms, self._epoch(query), tries_max=tries)

    def _epoch(self, query: RunningQuery) -> int:
        """The last epoch that is known. Brokers that do not answer fail queries, each for itself, and must not end their supervisor."""
        try:
            return self._launcher.epoch(query)
        except RuntimeFailure:
            return query.epoch

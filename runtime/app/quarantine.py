"""Queries whose results the log refuses: each stops alone and is made anew from the last commit, later and later (rule R1).

What refuses may be mended while the instance runs: a topic is made again, its limit is raised, a right is given. Then the query
goes on by itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from compiler.plan.topology import Plan
from runtime.app.backoff import Backoff
from runtime.app.exchanges import Exchanges
from runtime.app.procedures import Keepers, Procedure, Running, handed_over, stopped
from runtime.app.running import RunningQuery
from runtime.build.query import BuiltQuery, Environment, build_query, check_outputs
from runtime.errors import LogDenied, LogError, RuntimeFailure, TopicMissing
from runtime.events import ERROR, INFO, say
from runtime.log.base import TopicPartition
from runtime.metrics import Metrics
from runtime.state.changelog import changelog_topic
from runtime.state.locks import NamedLock

LOOK_MS = 50
WAITING_MS = 5


@dataclass(slots=True)
class Refusal(Backoff):
    """apart: nobody has its tasks any more. missing: the changelog that brokers said does not exist."""

    apart: bool = False
    missing: str = ""


class Host(Keepers, Environment, Protocol):
    """The instance, as seen from here."""

    plan: Plan
    queries: dict[str, RunningQuery]
    quarantine: Quarantine
    metrics: Metrics
    exchanges: Exchanges

    def is_paused(self, query: str) -> bool: ...

    def stop_broken(self, name: str, running: RunningQuery, error: LogError) -> None: ...

    def begin(self, built: BuiltQuery) -> None:
        """Positions of new tasks are resolved once, at deploy (rule R3)."""
        ...


class Quarantine:
    """Which queries are held, and until when; and whose turn it is to make queries or take them away. Any thread."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lock = NamedLock("quarantine lock", guards="refusals and whose turn it is")
        self._refusals: dict[str, Refusal] = {}
        self._taken = False

    def take_turn(self) -> bool:
        """False if somebody else is about it: a deployment, or the restart of a query. Ends with `end_turn`."""
        with self._lock:
            taken, self._taken = self._taken, True
            return not taken

    def end_turn(self) -> None:
        with self._lock:
            self._taken = False

    def refuse(self, queries: Collection[str], error: Exception) -> dict[TopicPartition, int]:
        """The log does not take what these queries have made. They are as of the last commit; the commit thread, at a cut.

        Where they will begin again.
        """
        positions: dict[TopicPartition, int] = {}
        for name in sorted(queries & self._host.queries.keys()):
            running = self._host.queries[name]
            self._host.manager.hold(name)
            self._host.exchanges.put_aside(x for task in running.built.tasks for x in task.exchanges.values())
            self.set_aside(name, error)
            if isinstance(error, TopicMissing) and self._is_changelog(error.partition):
                assert error.partition is not None
                with self._lock:
                    self._refusals[name].missing = error.partition[0]
            denied = error.partition[0] if isinstance(error, LogDenied) and error.partition is not None else ""
            running.refused_at = {tp: o for tp, o in running.committed_positions().items() if tp.topic != denied}
            for tp, position in running.refused_at.items():
                positions[tp] = min(position, positions.get(tp, position))
        return positions

    def set_aside(self, name: str, error: Exception) -> None:
        """A query that is held is tried again after a while."""
        running, m = self._host.queries[name], self._host.metrics.query(name)
        running.refused = m.last_error = f"{type(error).__name__}: {error}"
        m.errors += 1
        retry_ms = self._hold(name, self._host.clock.now_ms())
        say(ERROR, "query.refused", running.refused, query=name, retry_ms=retry_ms)

    def _is_changelog(self, tp: tuple[str, int] | None) -> bool:
        """Rows that are gone from there cannot be made again by trying again."""
        app = self._host.config.application_id
        return tp is not None and tp[0] in {changelog_topic(app, spec.name) for spec in self._host.state.stores()}

    def stopped_for_good(self, query: str) -> bool:
        """Whether a changelog of it is gone indeed, which a broker also says that has just come back. LogError without brokers."""
        with self._lock:
            missing = self._refusals[query].missing
        if not missing:
            return False
        gone = missing not in self._host.admin.topics()
        with self._lock:
            self._refusals[query].missing = ""
        if gone:
            self.release(query)
            error = TopicMissing(f"there is no topic {missing}, which held rows of {query}")
            self._host.stop_broken(query, self._host.queries[query], error)
        return gone

    def postpone(self, query: str, now_ms: int) -> None:
        """It could not be made anew just now."""
        self._hold(query, now_ms)
        self.take_apart(query)

    def _hold(self, query: str, now_ms: int) -> int:
        """In how many ms it is tried again."""
        with self._lock:
            refusal = self._refusals.setdefault(query, Refusal())
            wait, refusal.apart = refusal.hold(now_ms), False
            return wait

    @property
    def held(self) -> list[str]:
        with self._lock:
            return sorted(q for q, r in self._refusals.items() if r.held)

    def due(self, now_ms: int) -> list[str]:
        """Those whose time to be tried again has come."""
        with self._lock:
            return sorted(q for q, r in self._refusals.items() if r.held and now_ms >= r.resume_at_ms)

    def take_apart(self, query: str) -> bool:
        """True once for each time it is held: its tasks are to be stopped."""
        with self._lock:
            refusal = self._refusals.get(query)
            if refusal is None or not refusal.held or refusal.apart:
                return False
            refusal.apart = True
            return True

    def release(self, query: str) -> None:
        """It may go on."""
        with self._lock:
            self._refusals[query].held = False
        self._host.queries[query].refused = ""
        say(INFO, "query.restarted", query=query)
        if not self._host.is_paused(query):
            self._host.manager.resume(query)

    def forget(self, query: str) -> None:
        """It is gone; one that comes back under its name starts without its failures."""
        with self._lock:
            self._refusals.pop(query, None)


class QuarantineStep:
    """Stops and restarts refused queries of an instance that is no member of a group (there the group step does it)."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._running = Running()

    def run_once(self, now_ms: int) -> int:
        if self._running.idle:
            if not self._host.quarantine.take_turn():
                return WAITING_MS
            procedure = self._next(now_ms)
            if procedure is None:
                self._host.quarantine.end_turn()
                return LOOK_MS
            self._running.begin(procedure)
        try:
            if not self._running.advance():
                return WAITING_MS
        except (LogError, RuntimeFailure) as error:
            self._failed(error, now_ms)
        self._host.quarantine.end_turn()
        return 0

    def _next(self, now_ms: int) -> Procedure | None:
        quarantine = self._host.quarantine
        for query in quarantine.held:
            if quarantine.take_apart(query):
                return self._take_apart(query)
        return next((self._restart(query) for query in quarantine.due(now_ms)), None)

    def _failed(self, error: Exception, now_ms: int) -> None:
        """Brokers are away, perhaps."""
        for query in self._host.quarantine.due(now_ms):
            self._host.quarantine.postpone(query, now_ms)

    def _take_apart(self, query: str) -> Procedure:
        tasks = self._host.queries[query].built.tasks
        yield from stopped(self._host, tasks)
        for task in tasks:
            positions = task.state.metadata.get("positions", {})
            for i in task.logs.values():
                i.reset(positions.get(i.name, i.position))

    def _restart(self, query: str) -> Procedure:
        """New tasks, as of the last commit."""
        host, running = self._host, self._host.queries[query]
        if host.quarantine.stopped_for_good(query):
            return
        try:
            check_outputs(running.plan, host.admin)
        except TopicMissing as error:
            host.quarantine.set_aside(query, error)
            return
        for task in host.state.open_tasks():  # also those of an attempt that failed halfway
            if task.rpartition("/")[0] == query:
                host.state.close_task(task)
        try:
            built = build_query(running.plan, host.plan, host)
        except LogDenied as error:
            host.quarantine.set_aside(query, error)
            return
        except TopicMissing as error:
            host.quarantine.release(query)
            host.stop_broken(query, running, error)
            return
        host.begin(built)
        running.built, running.refused_at = built, {}
        yield from handed_over(host, built.tasks, host.state.restoring())
        host.quarantine.release(query)

"""Decides whether a query runs. No other module decides it or tells the task manager.

A query runs while its state is RUNNING, it is not paused, its function did not hang on a member and its tasks are not being
removed. Pausing is kept apart from the state, so that a paused query may fail and a failed one be paused without losing either.
The mark that a function hung is kept apart from both: a retry does not remove it, `flowql resume` does.

The style of the table of transitions is that of `MemberState` in Apache Kafka's consumer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from flowql.compiler.plan.generations import MARK
from flowql.runtime.app.backoff import HEALTHY, Backoff
from flowql.runtime.clock import Clock
from flowql.runtime.errors import LogDenied, LogError, RuntimeFailure
from flowql.runtime.events import ERROR, INFO, say
from flowql.runtime.functions.failures import reason_of
from flowql.runtime.metrics import Metrics
from flowql.runtime.scheduler.manager import TaskManager
from flowql.runtime.state.locks import NamedLock
from flowql.runtime.task.id import TaskId


class QueryState(Enum):
    """RUNNING: as far as the query itself goes. FAILED: its code failed, or it may not read its input; its tasks stay and go on
    from where they are at the retry. SUSPENDED: the log refused its results, or a right to make its tasks is missing; its tasks
    are taken apart and made anew from the last commit at the retry. STOPPED: it cannot go on before it is deployed anew.
    """

    RUNNING = "running"
    FAILED = "failed"
    SUSPENDED = "suspended"
    STOPPED = "stopped"

    def to(self, next_state: QueryState) -> QueryState:
        """The next state, which must be one that may follow."""
        assert self in _PREVIOUS[next_state], f"a {self.value} query cannot become {next_state.value}"
        return next_state


RUNNING, FAILED, SUSPENDED, STOPPED = QueryState
_PREVIOUS = {
    RUNNING: frozenset({FAILED, SUSPENDED}),  # by a retry alone
    FAILED: frozenset({RUNNING, FAILED, STOPPED}),  # from STOPPED: in a member that starts over
    SUSPENDED: frozenset({RUNNING, FAILED, SUSPENDED}),
    STOPPED: frozenset({RUNNING, FAILED, SUSPENDED}),
}


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """The record of a query at one moment. paused: by the user. ending: its tasks are being removed, or the instance stops.
    swapping: one of its generations is about to replace another.

    waits_for: the query upstream that has to come first (`flowql.runtime.app.upstream`); empty for none.
    awaits_trial: a member died in its micro-batch, and another suspected query is tried first (`flowql.runtime.app.trials`).
    reason: why it does not run; empty while RUNNING. hung: where and when its function did not return (`flowql.runtime.app.hung`).
    """

    state: QueryState = RUNNING
    paused: bool = False
    ending: bool = False
    swapping: bool = False
    reason: str = ""
    backoff: Backoff = HEALTHY
    hung: str = ""
    waits_for: str = ""
    awaits_trial: bool = False

    @property
    def may_run(self) -> bool:
        held = self.paused or self.ending or self.swapping or self.hung or self.waits_for or self.awaits_trial
        return self.state is RUNNING and not held

    @property
    def stands_still(self) -> bool:
        """It does not go on by itself."""
        return self.state is STOPPED or self.paused or self.ending or bool(self.hung)

    @property
    def keeps_tasks(self) -> bool:
        """Its tasks go on from where they are, so their positions are the query's."""
        return self.state in (RUNNING, FAILED)


_ABSENT = QueryRecord(STOPPED, reason="it is not deployed")


class QueryStates:
    """The records of all queries of an instance, by name.

    `of` and the other readers may be called by any thread and take no lock: records are replaced, never changed. These methods
    change something:

    - `add`, `set_paused`, `end`, `forget`: the thread that deploys; of a member, the group step.
    - `pauses_are_recorded`: the thread that starts the instance.
    - `set_awaiting_trial`: the reconciler.
    - `set_hung`: the group step; of an instance alone, the reconciler.
    - `fail`, `resume` from FAILED: the polling thread.
    - `suspend`: also the commit thread, under the epoch lock. `stop`: also the polling thread.
    - `postpone`, `resume` from SUSPENDED, `reinstate`: the reconciler; of a member, the group step.

    Calls for a query that does not exist (any more) are ignored: its tasks may fail while they are removed.
    """

    def __init__(self, manager: TaskManager, metrics: Metrics, clock: Clock, without: Collection[str] = ()) -> None:
        """without: ids, as people use them, of queries that are paused although no record says so yet."""
        self._manager, self._metrics, self._clock = manager, metrics, clock
        self._lock = NamedLock(
            "query states lock", guards="changes of records, and what the task manager is told of them"
        )
        self._records: dict[str, QueryRecord] = {}
        self._hung: Mapping[str, str] = {}  # also of queries that are still to be added
        self._without = frozenset(without)

    # -- readers

    def of(self, query: str) -> QueryRecord:
        """One that is not there counts as stopped."""
        return self._records.get(query, _ABSENT)

    def knows(self, query: str) -> bool:
        """Whether it has a record: not before its tasks are made, nor between the tasks of two generations."""
        return query in self._records

    def having(self, state: QueryState) -> list[str]:
        """Queries in a state, sorted."""
        return sorted(query for query, record in list(self._records.items()) if record.state is state)

    def due(self, state: QueryState) -> list[str]:
        """Queries in this state whose back-off has elapsed."""
        waiting = self.having(state)
        now_ms = self._clock.timer_ms() if waiting else 0
        return [query for query in waiting if now_ms >= self.of(query).backoff.retry_at_ms]

    # -- deployment

    def add(self, query: str, *, paused: bool = False) -> None:
        """A new query, without failures. Before it has tasks."""
        with self._lock:
            paused = paused or self._begins_paused(query)
            hung = self._hung.get(query, "")
            self._put(query, QueryRecord(paused=paused, hung=hung))
        if paused:
            say(INFO, "query.paused", query=query)
        if hung:
            say(ERROR, "query.hung", hung, query=query)

    def set_paused(self, paused: Collection[str]) -> None:
        """Pauses exactly these queries. One that is resumed runs unless another reason stops it."""
        with self._lock:
            wanted = {q for q in self._records if q in paused or self._begins_paused(q)}
            changed = [q for q, record in self._records.items() if record.paused != (q in wanted)]
            for query in changed:
                self._put(query, replace(self._records[query], paused=query in wanted))
        for query in changed:
            say(INFO, "query.paused" if query in wanted else "query.resumed", query=query)

    def pauses_are_recorded(self) -> None:
        """The record of the deployment names the queries that began paused: from now on it alone decides."""
        with self._lock:
            self._without = frozenset()

    def _begins_paused(self, query: str) -> bool:
        return query.partition(MARK)[0] in self._without

    def set_hung(self, hung: Mapping[str, str]) -> None:
        """Marks exactly these queries as stopped because their function hung. By query, the reason."""
        with self._lock:
            self._hung = dict(hung)
            changed = [q for q, record in self._records.items() if record.hung != hung.get(q, "")]
            for query in changed:
                self._put(query, replace(self._records[query], hung=hung.get(query, "")))
        for query in changed:
            if query in hung:
                say(ERROR, "query.hung", hung[query], query=query)
            else:
                say(INFO, "query.resumed", query=query)

    def end(self, queries: Iterable[str]) -> None:
        """These get no more slices, whatever happens to them: their tasks are removed, or the instance stops."""
        self._mark(queries, ending=True)

    def hold_for_swap(self, queries: Iterable[str]) -> None:
        """Holds these queries while one generation replaces another. Called by the reconciler."""
        self._mark(queries, swapping=True)

    def release_after_swap(self, queries: Iterable[str]) -> None:
        """The swap did not come off: they go on."""
        self._mark(queries, swapping=False)

    def wait_for(self, query: str, upstream: str) -> None:
        """Holds this query until the one upstream has come further; with an empty name it goes on."""
        self._mark([query], waits_for=upstream)

    def set_awaiting_trial(self, queries: Collection[str]) -> None:
        """Exactly these queries wait for their trial."""
        waiting = [q for q, record in list(self._records.items()) if record.awaits_trial]
        self._mark([q for q in waiting if q not in queries], awaits_trial=False)
        self._mark([q for q in queries if q not in waiting], awaits_trial=True)

    def _mark(self, queries: Iterable[str], **marks: Any) -> None:
        with self._lock:
            for query in queries:
                if query in self._records:
                    self._put(query, replace(self._records[query], **marks))

    def forget(self, query: str) -> None:
        """Forgets a removed query; a later query with its name starts without its failures."""
        with self._lock:
            self._records.pop(query, None)
            self._manager.forget_query(query)

    # -- failures and retries

    def fail(self, query: str, said: str, *, task: TaskId | None = None) -> None:
        """Its code failed, or it may not read its input. Until the retry is due, more of it is the same failure.

        A suspended query stays so: its tasks are made anew anyway, and once more if they failed just after they were.
        """
        now_ms = self._clock.timer_ms()
        with self._lock:
            record = self.of(query)
            if record.state is STOPPED:
                return
            reason = said if task is None else f"{said} (task {task})"
            self.count_error(query, reason)
            if record.state is not RUNNING and now_ms < record.backoff.retry_at_ms:
                return
            state, backoff = SUSPENDED if record.state is SUSPENDED else FAILED, record.backoff.after_failure(now_ms)
            self._move(query, state, reason=reason, backoff=backoff)
        retry = {"retry_ms": backoff.retry_at_ms - now_ms, "failures": backoff.failures}
        say(ERROR, "query.failed", said, query=query, task=task, **retry)

    def suspend(self, query: str, error: Exception, *, at_once: bool = False) -> None:
        """Its results cannot be committed, or its tasks not be made. Each time it waits for longer.

        at_once: the record that is to blame is looked for (`flowql.runtime.app.careful`), which is no reason to wait.
        """
        now_ms = self._clock.timer_ms()
        with self._lock:
            record = self.of(query)
            if record.state is STOPPED:
                return
            reason = reason_of(error)
            self.count_error(query, reason)
            backoff = Backoff(record.backoff.failures, now_ms) if at_once else record.backoff.after_failure(now_ms)
            self._move(query, SUSPENDED, reason=reason, backoff=backoff)
        say(ERROR, "query.refused", reason, query=query, retry_ms=backoff.retry_at_ms - now_ms)

    def postpone(self, query: str) -> None:
        """A suspended query could not be made anew just now."""
        with self._lock:
            record = self.of(query)
            if record.state is SUSPENDED:
                self._move(query, SUSPENDED, backoff=record.backoff.after_failure(self._clock.timer_ms()))

    def stop(self, query: str, error: RuntimeFailure) -> None:
        """It cannot go on before it is deployed anew: what it needs is gone, and another one in its place would be another."""
        with self._lock:
            if self.of(query).state is STOPPED:
                return
            reason = reason_of(error)
            self.count_error(query, reason)
            self._move(query, STOPPED, reason=reason)
        say(ERROR, "query.broken", reason, query=query)

    def cannot_read(self, query: str, error: LogError) -> None:
        """Called when tasks of the query cannot be built. A missing right suspends it, as it may be granted again; a topic that is missing or another stops it."""
        if isinstance(error, LogDenied):
            self.suspend(query, error)
        else:
            self.stop(query, error)

    def resume(self, query: str, state: QueryState) -> None:
        """It was tried again from this state, and nothing came in between; else that decides."""
        with self._lock:
            record = self.of(query)
            if record.state is not state or self._clock.timer_ms() < record.backoff.retry_at_ms:
                return
            after = self._move(query, RUNNING, reason="")
        if after.may_run:
            say(INFO, "query.restarted", query=query)

    def reinstate(self) -> None:
        """Stopped queries are tried again: what a member found unreadable that others had replaced means nothing.

        At once, or when the time comes that they waited for as they were stopped.
        """
        with self._lock:
            for query in self.having(STOPPED):
                self._move(query, FAILED)

    # -- under the lock

    def _move(self, query: str, state: QueryState, **changes: Any) -> QueryRecord:
        """To another state, or to the same one again where that is a transition."""
        before = self._records[query]
        return self._put(query, replace(before, state=before.state.to(state), **changes))

    def _put(self, query: str, record: QueryRecord) -> QueryRecord:
        """The manager is told exactly what the record says."""
        self._lock.assert_held()
        before, self._records[query] = self._records.get(query), record
        if not record.may_run:
            self._manager.hold(query)
        elif before is not None and not before.may_run:
            self._manager.resume(query)
        return record

    def count_error(self, query: str, reason: str) -> None:
        m = self._metrics.query(query)
        m.errors += 1
        m.last_error = reason

"""Queries in whose micro-batch a member died: the next owner of the task tries them one at a time, so that a second death tells which it was.

A suspected query passes its trial when the task has committed beyond the place of the death. The record of the death is then deleted, and the
next query has its turn. In a group a trial begins after GRACE_MS: the last owner may have died of it as well, before it knew of the first death,
and may say so only when it has started again. All other queries go on meanwhile. Deaths and records: `flowql.runtime.app.hung`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from flowql.compiler.plan.topology import Plan
from flowql.runtime.app.hung_topic import HungMicroBatch, forget
from flowql.runtime.app.query_state import QueryStates
from flowql.runtime.app.running import RunningQuery
from flowql.runtime.clock import Clock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.events import INFO, say
from flowql.runtime.log.base import Admin, Log, TopicPartition
from flowql.runtime.scheduler.manager import TaskManager
from flowql.runtime.state.manager import StateManager
from flowql.runtime.task.position_names import topic_named

BATCH_ROWS = 1_024  # behind the first record of the micro-batch that died: usually all that it had gathered
GRACE_MS = 8_000  # an instance starts in less
TURN_MS = 10_000  # a query that does not get on (a pause, a restoration) keeps the next one waiting no longer


class TrialHost(Protocol):
    """The instance, as far as it is needed here."""

    log: Log
    admin: Admin
    clock: Clock
    config: InstanceConfig
    manager: TaskManager
    query_states: QueryStates
    state: StateManager
    running: Plan
    queries: dict[str, RunningQuery]


@dataclass(slots=True)
class _Turn:
    """since_ms: when it began. goals: by task, the committed positions with which it has passed."""

    since_ms: int
    goals: dict[str, Mapping[str, int]] = field(default_factory=dict)


class Trials:
    """Owned by the reconciler's thread."""

    def __init__(self, host: TrialHost) -> None:
        self._host = host
        self._suspects: dict[str, list[HungMicroBatch]] = {}  # by query, those whose tasks are here
        self._since: dict[str, int] = {}  # when they were first suspected here
        self._turns: dict[str, _Turn] = {}

    def suspect(self, runs: Sequence[HungMicroBatch]) -> None:
        """Exactly these are suspected, on whichever member. All but one of those here wait from now on."""
        if not runs and not self._suspects:
            return
        here = {str(task.id) for q in self._host.queries.values() for task in q.built.tasks}
        self._suspects = {}
        for run in runs:
            if run.task in here:
                self._suspects.setdefault(run.query, []).append(run)
        now_ms = self._host.clock.timer_ms()
        self._since = {query: self._since.get(query, now_ms) for query in self._suspects}
        self._turns = {query: turn for query, turn in self._turns.items() if query in self._suspects}
        self._grant()

    def look(self) -> None:
        """The next query has its turn once the last one has passed. LogError: another time."""
        if not self._suspects:
            return
        for query in [query for query, turn in self._turns.items() if self._has_passed(query, turn)]:
            host, runs = self._host, self._suspects[query]
            forget(host.log, host.config.application_id, host.config.process_id, runs, host.clock.wall_ms())
            say(INFO, "query.trial.passed", query=query)
            del self._suspects[query], self._since[query], self._turns[query]
        self._grant()

    def _grant(self) -> None:
        """The most urgent of the others has its turn, if none has it now; the rest wait."""
        host = self._host
        now_ms, weights = host.clock.timer_ms(), host.running.by_id
        waiting = sorted(self._suspects.keys() - self._turns.keys(), key=lambda q: (-weights[q].weight, q))
        grace_ms = GRACE_MS if host.config.shared else 0
        due = [query for query in waiting if now_ms - self._since[query] >= grace_ms]
        if due and all(now_ms - turn.since_ms >= TURN_MS for turn in self._turns.values()):
            waiting.remove(query := due[0])
            self._turns[query] = _Turn(now_ms)
            one = self._suspects[query][0]
            say(INFO, "query.trial", f"a member died in its micro-batch ({one.position})", query=query, task=one.task)
        host.manager.run_alone(self._suspects)  # so that a second death tells which task it was
        host.query_states.set_awaiting_trial(waiting)

    def _has_passed(self, query: str, turn: _Turn) -> bool:
        return all(self._is_beyond(run, turn) for run in self._suspects[query])

    def _is_beyond(self, run: HungMicroBatch, turn: _Turn) -> bool:
        record = self._host.state.local_record(run.task)
        if record is None:
            return False
        positions = record.read().get("positions", {})
        committed = {f"{topic_named(name)}-{record.partition}": offset for name, offset in positions.items()}
        if run.task not in turn.goals:
            turn.goals[run.task] = {
                name: min(offset + BATCH_ROWS, self._host.admin.end_offset(_partition(name)))
                for name, offset in run.at.items()
                if name in committed
            }
        return all(committed[name] >= goal for name, goal in turn.goals[run.task].items())


def _partition(name: str) -> TopicPartition:
    """The partition of an input, from its name `topic-partition`.

    >>> _partition("a-b-3")
    TopicPartition(topic='a-b', partition=3)
    """
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))

"""Queries and tasks of an instance that is a member of a group: what `runtime.app.group` decides is done to them here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from compiler.plan.diff import diff_plans
from compiler.plan.topology import Plan, QueryPlan
from runtime.app.polling import PollingStep
from runtime.app.quarantine import Quarantine
from runtime.app.running import RunningQuery, positions_of
from runtime.app.threads import share_interpreter
from runtime.build.query import BuiltQuery, Environment, all_tasks, build_query, check_outputs
from runtime.commit.coordinator import CommitStep
from runtime.errors import LogDenied, LogError, TopicMissing
from runtime.log.base import TopicPartition
from runtime.scheduler.manager import TaskManager
from runtime.state.changelog import WrittenTask
from runtime.task.id import TaskId
from runtime.task.input_buffer import topic_named
from runtime.task.task import Task


class Owner(Environment, Protocol):
    """The instance."""

    plan: Plan
    queries: dict[str, RunningQuery]
    manager: TaskManager
    polling: PollingStep
    commit: CommitStep
    quarantine: Quarantine

    def set_account(self, q: QueryPlan) -> None: ...

    def hold_paused(self, plan: Plan) -> None: ...

    def allow_coalescing(self, plan: Plan) -> None: ...

    def stop_broken(self, name: str, running: RunningQuery, error: LogError) -> None: ...


class MemberTasks:
    """Owned by the group step's thread, but for `positions`, which the commit thread calls."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._parting: dict[str, list[Task]] = {}  # by query, tasks that leave with the next cut
        self._cut: dict[TopicPartition, int] = {}

    def gone(self, plan: Plan) -> list[str]:
        """Queries that a newer plan changes or has no more."""
        return [c.query for c in diff_plans(self._owner.plan, plan) if c.action in ("change", "remove")]

    def forget_query(self, query: str) -> None:
        """Its tasks are closed."""
        self._owner.manager.forget_query(query)
        self._owner.quarantine.forget(query)
        self._owner.polling.command(partial(self._owner.polling.forget_query, query))
        del self._owner.queries[query]
        self._owner.scans.release(query)

    def take_over(self, plan: Plan) -> None:
        """Run the queries of a newer plan, those that are new or changed without tasks as yet."""
        for q in plan.queries:
            running = self._owner.queries.setdefault(q.id, RunningQuery(q, BuiltQuery()))
            running.plan = q
            self._owner.set_account(q)
        self._owner.plan = plan
        self._owner.hold_paused(plan)
        share_interpreter(len(self._owner.queries))
        self._owner.allow_coalescing(plan)

    def tasks_of(self, q: QueryPlan) -> list[TaskId]:
        """Wherever they run. None of a query that reads what is gone, or is not even to be known of."""
        if self.is_broken(q.id):
            return []
        try:
            return all_tasks(q, self._owner.admin)
        except (LogDenied, TopicMissing) as error:
            return self._without(q.id, error)

    def build(self, wanted: Collection[TaskId]) -> list[Task]:
        """Make tasks; they are not running. Queries whose topics are gone are stopped. If it fails, nothing is made."""
        made: dict[str, list[Task]] = {}
        try:
            for name in sorted({t.query for t in wanted}):
                made[name] = self._build(name, wanted)
        except Exception:  # brokers may be away for a moment
            for task in (task for tasks in made.values() for task in tasks):
                self._owner.state.close_task(str(task.id))
            raise
        with self._owner.state.epoch_lock:
            for name, tasks in made.items():
                for task in tasks:
                    if not task.state.metadata:  # resolved once, by its first owner (rule R3)
                        task.state.publish({**task.progress, "stream_times": {}})
                        self._owner.commit.dirty = True
                running = self._owner.queries[name]
                running.built = BuiltQuery([*running.built.tasks, *tasks])
                self.forget_positions({i.tp for task in tasks for i in task.logs.values()}, [running])
        self._owner.allow_coalescing(self._owner.plan)
        return [task for tasks in made.values() for task in tasks]

    def _build(self, name: str, wanted: Collection[TaskId]) -> list[Task]:
        running = self._owner.queries[name]
        mine = {t for t in wanted if t.query == name}
        try:
            check_outputs(running.plan, self._owner.admin)
        except TopicMissing as error:
            self._owner.quarantine.set_aside(name, error)
            return []
        try:
            return build_query(running.plan, self._owner.plan, self._owner, mine.__contains__).tasks
        except (LogDenied, TopicMissing) as error:
            return self._without(name, error)

    def _without(self, name: str, error: LogError) -> list[Any]:
        """A query that cannot read its topics has no tasks: a right may come back, a topic would be another."""
        if isinstance(error, LogDenied):
            self._owner.quarantine.set_aside(name, error)
        else:
            self._owner.stop_broken(name, self._owner.queries[name], error)
        return []

    def leave(self, tasks: Iterable[Task], *, committed: bool) -> None:
        """Tasks belong to their queries no more. committed: their positions are in this cut once more. The epoch lock is held."""
        gone = {id(task) for task in tasks}
        for name, running in self._owner.queries.items():
            leaving = [task for task in running.built.tasks if id(task) in gone]
            if leaving:
                running.built = BuiltQuery([task for task in running.built.tasks if id(task) not in gone])
            if committed:
                self._parting.setdefault(name, []).extend(leaving)

    def keep_back(self, held: Mapping[TaskId, Collection[TopicPartition]], written: Mapping[str, WrittenTask]) -> None:
        """The partitions of these tasks do not move on without them, though they are not made yet: new ones begin at the start."""
        with self._owner.state.epoch_lock:
            for task_id, tps in held.items():
                there, at = written.get(str(task_id)), self._owner.queries[task_id.query].refused_at
                known: dict[TopicPartition, int] = {}
                for name, position in (there.record.read().get("positions", {}) if there is not None else {}).items():
                    tp = TopicPartition(topic_named(name), task_id.partition)
                    known[tp] = min(position, known.get(tp, position))
                for tp in tps:
                    position = known.get(tp, 0)
                    at[tp] = min(position, at.get(tp, position))

    def forget_positions(self, tps: Collection[TopicPartition], queries: Iterable[RunningQuery] | None = None) -> None:
        """Of refused queries: they have tasks again, or others own the partitions. The epoch lock is held."""
        for running in self._owner.queries.values() if queries is None else queries:
            running.refused_at = {tp: o for tp, o in running.refused_at.items() if tp not in tps}

    def positions(self) -> dict[TopicPartition, int]:
        """At a cut: of tasks that are here, and of those that leave with it. The epoch lock is held."""
        for name, running in self._owner.queries.items():
            running.parting = self._parting.get(name, [])
        self._parting = {}
        self._cut = positions_of(self._owner.queries.values())
        return self._cut

    def commits(self, tps: Collection[TopicPartition]) -> bool:
        """Whether the last cut, whose commit may be under way, or the next one says where these partitions are."""
        with self._owner.state.epoch_lock:
            refused = [tp for running in self._owner.queries.values() for tp in running.refused_at]
            return any(tp in tps for tp in (*self._cut, *refused))

    def moved(self) -> bool:
        """Whether positions have moved since the last cut."""
        return positions_of(self._owner.queries.values()) != self._cut

    def forgive(self) -> None:
        """What a member found unreadable that others had replaced means nothing: they may have processed and deleted it."""
        for name, running in self._owner.queries.items():
            if running.broken:
                running.broken = ""
                backoff = self._owner.polling.backoff.get(name)
                if not (running.paused or running.refused) and not (backoff is not None and backoff.held):
                    self._owner.manager.resume(name)

    def is_broken(self, query: str) -> bool:
        """Or not there."""
        running = self._owner.queries.get(query)
        return running is None or bool(running.broken)

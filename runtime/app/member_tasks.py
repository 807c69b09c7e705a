"""Queries and tasks of an instance that is a member of a group: what `flowql.runtime.app.group` decides is done to them here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from flowql.compiler.plan.deployed import Deployed, running_plan
from flowql.compiler.plan.generations import runtime_name
from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.app.hosts import DeploymentHost
from flowql.runtime.app.missed_deletions import note
from flowql.runtime.app.planned_tasks import tasks_as_begun
from flowql.runtime.app.query_state import STOPPED
from flowql.runtime.app.running import RunningQuery, positions_of
from flowql.runtime.app.suspension import build
from flowql.runtime.app.swapping import group_of_swap
from flowql.runtime.app.threads import share_interpreter
from flowql.runtime.commit.positions import ReaderPosition
from flowql.runtime.errors import LogDenied, PartitionsUneven, TopicMissing
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.state.changelog import WrittenTask
from flowql.runtime.state.task_state import ManagedTask
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.position_names import topic_named
from flowql.runtime.task.task import Task
from flowql.runtime.topology.log_facts import LogFacts
from flowql.runtime.topology.query import BuiltQuery


class MemberTasks:
    """Owned by the group step's thread, but for `positions`, which the commit thread calls."""

    def __init__(self, owner: DeploymentHost) -> None:
        self._owner = owner
        self._parting: dict[str, list[Task]] = {}  # by query, tasks that leave with the next cut
        self._cut: dict[TopicPartition, ReaderPosition] = {}

    def take_over(self, deployed: Deployed) -> None:
        """Run the queries of a newer record, those that are new without tasks as yet; the tasks of those that it has no more are closed."""
        plan = running_plan(deployed)
        for query in sorted(name for name in self._owner.queries if name not in plan.by_id):
            del self._owner.queries[query]
            self._owner.query_states.forget(query)
            self._owner.scans.release(query)
        for q in plan.queries:
            if q.id not in self._owner.queries:
                self._owner.query_states.add(q.id, paused=q.id in plan.paused)
            running = self._owner.queries.setdefault(q.id, RunningQuery(q, BuiltQuery()))
            running.plan = q
            self._owner.set_account(q)
        self._owner.serve(deployed, 0)
        self._owner.query_states.set_paused(plan.paused)
        share_interpreter(len(self._owner.queries))
        self._owner.allow_coalescing()

    def tasks_of(self, q: QueryPlan, facts: LogFacts, written: Callable[[], Mapping[str, WrittenTask]]) -> list[TaskId]:
        """Wherever they run. Empty if a source topic of the query is missing or unauthorized; of one that is stopped only
        while they are to be parked: those that it has, as is `written`.
        """
        group = group_of_swap(self._owner.deployed)
        leaves = group is not None and any(runtime_name(g) == q.id for g in group.gone)
        if self._owner.query_states.of(q.id).state is STOPPED and not leaves:
            return []
        try:
            return tasks_as_begun(q, facts, written()) if leaves else facts.tasks(q)
        except (LogDenied, PartitionsUneven, TopicMissing) as error:
            self._owner.query_states.cannot_read(q.id, error)
            return []

    def state_of(self, task: TaskId) -> ManagedTask:
        """The state of a task that is not made, opened; with what is on record of a task that has begun."""
        query = self._owner.running.by_id.get(task.query)
        assert query is not None, f"{task.query} is not in the plan"
        sub = next(s for s in query.subtopologies if s.number == task.subtopology)
        state = self._owner.state.open_task(str(task), task.partition, [s for op in sub.operators for s in op.stores])
        if not state.metadata:
            with self._owner.state.epoch_lock:
                state.publish({"query": query.definition, "positions": {}, "stream_times": {}})
        return state

    def build(self, wanted: Collection[TaskId]) -> list[Task]:
        """Make tasks; they are not running. Queries whose topics are gone are stopped. If it fails, nothing is made."""
        owner, names = self._owner, sorted({t.query for t in wanted})
        found = build(owner, [owner.queries[n].plan for n in names], owner.running, set(wanted).__contains__)
        made = {name: found.get(name) or BuiltQuery() for name in names}
        with self._owner.state.epoch_lock:
            for name, built in made.items():
                self._owner.begin(built)  # positions are resolved by the first owner of a task
                running = self._owner.queries[name]
                running.built = BuiltQuery([*running.built.tasks, *built.tasks])
                reads = {i.tp for task in built.tasks for i in task.logs.values()}
                self.forget_positions(reads, [running])
                # Another member may have committed the same positions meanwhile, for tasks of its own.
                self._cut = {tp: at for tp, at in self._cut.items() if tp not in reads}
        self._owner.allow_coalescing()
        return [task for built in made.values() for task in built.tasks]

    def leave(self, tasks: Sequence[Task], *, committed: bool, noting: bool = False) -> None:
        """Tasks belong to their queries no more. committed: their positions are in this cut once more. noting: their metadata says
        since when they are overdue. The epoch lock is held.
        """
        if noting:
            note(tasks)
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
                there, at = written.get(str(task_id)), self._owner.queries[task_id.query].restart_positions
                known: dict[TopicPartition, int] = {}
                for name, position in (there.record.read().get("positions", {}) if there is not None else {}).items():
                    tp = TopicPartition(topic_named(name), task_id.partition)
                    known[tp] = min(position, known.get(tp, position))
                for tp in tps:
                    position = known.get(tp, 0)
                    at[tp] = min(position, at.get(tp, position))

    def forget_positions(self, tps: Collection[TopicPartition], queries: Iterable[RunningQuery] | None = None) -> None:
        """Forgets restart positions of refused queries: they have tasks again, or others own the partitions. Needs the epoch lock."""
        for running in self._owner.queries.values() if queries is None else queries:
            running.restart_positions = {tp: o for tp, o in running.restart_positions.items() if tp not in tps}

    def positions(self) -> dict[TopicPartition, ReaderPosition]:
        """At a cut: of tasks that are here, and of those that leave with it. The epoch lock is held."""
        for name, running in self._owner.queries.items():
            running.parting = self._parting.get(name, [])
        self._parting = {}
        self._cut = positions_of(self._owner.queries, self._owner.query_states)
        return self._cut

    def commits(self, tps: Collection[TopicPartition]) -> bool:
        """Whether the last cut, whose commit may be under way, or the next one says where these partitions are."""
        with self._owner.state.epoch_lock:
            refused = [tp for running in self._owner.queries.values() for tp in running.restart_positions]
            return any(tp in tps for tp in (*self._cut, *refused))

    def moved(self) -> bool:
        """Whether positions have moved since the last cut, or are of other tasks than those of then."""
        return positions_of(self._owner.queries, self._owner.query_states) != self._cut

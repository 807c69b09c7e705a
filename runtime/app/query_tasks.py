"""The queries of an instance and their tasks: whoever decides what runs has them added, built, handed over, closed and dropped here.

A single instance and a member of a group use it in the same way. Only a member has tasks that leave, and positions of tasks that it cannot make.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from flowql.compiler.plan.deployed import Deployed, running_plan
from flowql.compiler.plan.generations import runtime_name
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.app.coroutines import Coroutine, handed_over
from flowql.runtime.app.hosts import DeploymentHost
from flowql.runtime.app.missed_deletions import note
from flowql.runtime.app.planned_tasks import tasks_as_begun
from flowql.runtime.app.query_state import STOPPED
from flowql.runtime.app.running import RunningQuery, positions_of
from flowql.runtime.app.suspension import build
from flowql.runtime.app.swapping import group_of_swap
from flowql.runtime.app.threads import share_interpreter
from flowql.runtime.app.upstream import UpstreamWaits
from flowql.runtime.commit.positions import ReaderPosition
from flowql.runtime.errors import LogDenied, PartitionsUneven, TopicMissing
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.state.changelog import WrittenTask
from flowql.runtime.state.task_state import ManagedTask
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.position_names import topic_named
from flowql.runtime.task.status import TaskStatus
from flowql.runtime.task.task import Task
from flowql.runtime.topology.log_facts import LogFacts
from flowql.runtime.topology.query import BuiltQuery


class QueryTasks:
    """Owned by the reconciler's thread, but for `positions`, which the commit thread calls."""

    def __init__(self, host: DeploymentHost) -> None:
        self._host = host
        self._parting: dict[str, list[Task]] = {}  # by query, tasks that leave with the next cut
        self._cut: dict[TopicPartition, ReaderPosition] = {}

    # -- queries

    def add(self, queries: Iterable[QueryPlan], paused: Collection[str]) -> None:
        """Queries that begin, without tasks as yet."""
        for q in queries:
            self._host.query_states.add(q.id, paused=q.id in paused)
            self._host.queries[q.id] = RunningQuery(q, BuiltQuery())

    def refresh(self, plan: Plan) -> None:
        """Gives the known queries the options that a plan has for them."""
        for q in plan.queries:
            if q.id in self._host.queries:
                self._host.queries[q.id].plan = q
                self._host.set_account(q)
        share_interpreter(len(self._host.queries))
        self._host.allow_coalescing()

    def forget(self, queries: Iterable[str]) -> None:
        """Removes queries whose tasks have stopped. A query whose state was lost may be unknown."""
        for name in queries:
            if self._host.queries.pop(name, None) is not None:
                self._host.query_states.forget(name)
                self._host.scans.release(name)

    def take_over(self, deployed: Deployed) -> None:
        """Changes the queries to those of a newer record, the new ones without tasks as yet. The tasks of removed queries are closed."""
        plan = running_plan(deployed)
        self.forget(sorted(name for name in self._host.queries if name not in plan.by_id))
        self.add([q for q in plan.queries if q.id not in self._host.queries], plan.paused)
        self._host.serve(deployed, 0)
        self._host.query_states.set_paused(plan.paused)
        self.refresh(plan)

    def tasks_of(self, q: QueryPlan, facts: LogFacts, written: Callable[[], Mapping[str, WrittenTask]]) -> list[TaskId]:
        """Wherever they run. Empty if a source topic of the query is missing or unauthorized; of one that is stopped only
        while they are to be parked: those that it has, as is `written`.
        """
        group = group_of_swap(self._host.deployed)
        leaves = group is not None and any(runtime_name(g) == q.id for g in group.gone)
        if self._host.query_states.of(q.id).state is STOPPED and not leaves:
            return []
        try:
            return tasks_as_begun(q, facts, written()) if leaves else facts.tasks(q)
        except (LogDenied, PartitionsUneven, TopicMissing) as error:
            self._host.query_states.cannot_read(q.id, error)
            return []

    def state_of(self, task: TaskId) -> ManagedTask:
        """The state of a task that is not made, opened; with what is on record of a task that has begun."""
        query = self._host.running.by_id.get(task.query)
        assert query is not None, f"{task.query} is not in the plan"
        sub = next(s for s in query.subtopologies if s.number == task.subtopology)
        state = self._host.state.open_task(str(task), task.partition, [s for op in sub.operators for s in op.stores])
        if not state.metadata:
            with self._host.state.epoch_lock:
                state.publish({"query": query.definition, "positions": {}, "stream_times": {}})
        return state

    # -- tasks

    def build(
        self,
        queries: Sequence[str],
        only: Callable[[TaskId], bool] = lambda _: True,
        *,
        retried: bool = False,
    ) -> list[Task]:
        """Makes tasks as of the last commit, in the place of closed ones. They do not run yet. If it fails, nothing is made. See `suspension.build`."""
        host, running = self._host, [self._host.queries[name] for name in queries]
        for query in running:
            query.lacks_tasks = False  # before the topics are looked at: more partitions may come meanwhile
        made = build(host, [query.plan for query in running], host.running, only, retried=retried)
        for name, built in made.items():
            with host.state.epoch_lock:  # for one query at a time: commits wait for the lock
                host.begin(built)  # positions are resolved by the first owner of a task
                query = host.queries[name]
                here = [task for task in query.built.tasks if task.status is not TaskStatus.CLOSED]
                query.built = BuiltQuery((*here, *built.tasks))
                reads = {i.tp for task in built.tasks for i in task.logs.values()}
                self.forget_positions(reads, [query])
                # Another member may have committed the same positions meanwhile, for tasks of its own.
                self._cut = {tp: at for tp, at in self._cut.items() if tp not in reads}
        host.allow_coalescing()
        return [task for built in made.values() for task in built.tasks]

    def start(self, tasks: Sequence[Task], upstream: UpstreamWaits) -> Coroutine:
        """Runs built tasks. Their queries wait for queries upstream first, and for a trial if they are suspected of hanging."""
        for name in dict.fromkeys(task.id.query for task in tasks):
            upstream.begin(self._host.queries[name].plan)
        self._host.hung.apply()
        yield from self.run(tasks)

    def run(self, tasks: Sequence[Task]) -> Coroutine:
        """Hands built tasks over to the steps that restore and run them."""
        yield from handed_over(self._host, tasks, self._host.state.restoring())

    def close(
        self, tasks: Iterable[Task], *, dropped: Iterable[str] = (), standing: Collection[str] = (), owned: bool = False
    ) -> None:
        """Closes the state of stopped tasks. At a cut it also drops the state of tasks with that commit.

        dropped: ids of tasks, which need not be open. standing: queries that will never run again and whose state stays. owned: no other
        member runs the tasks.
        """
        state, gone = self._host.state, set(dropped)
        still_open = set(state.open_tasks())
        for task in tasks:
            if str(task.id) in still_open:
                state.close_task(str(task.id), owned=owned)
            if str(task.id) in gone or task.id.query in standing:
                for channel in task.exchanges.values():
                    self._host.exchanges.close(channel)
        for name in sorted(gone):
            state.drop_task(name)

    def close_for_others(self, tasks: Sequence[Task]) -> None:
        """Closes tasks whose places others will take: their state stays. The epoch lock is held."""
        self._host.exchanges.put_aside(channel for task in tasks for channel in task.exchanges.values())
        self.close(tasks)

    def leave(self, tasks: Sequence[Task], *, committed: bool, noting: bool = False) -> None:
        """Tasks belong to their queries no more. committed: their positions are in this cut once more. noting: their metadata says
        since when they are overdue. The epoch lock is held.
        """
        if noting:
            note(tasks)
        gone = {id(task) for task in tasks}
        for name, running in self._host.queries.items():
            leaving = [task for task in running.built.tasks if id(task) in gone]
            if leaving:
                running.built = BuiltQuery(tuple(task for task in running.built.tasks if id(task) not in gone))
            if committed:
                self._parting.setdefault(name, []).extend(leaving)

    def keep_back(self, held: Mapping[TaskId, Collection[TopicPartition]], written: Mapping[str, WrittenTask]) -> None:
        """The partitions of these tasks do not move on without them, though they are not made yet: new ones begin at the start."""
        with self._host.state.epoch_lock:
            for task_id, tps in held.items():
                there, at = written.get(str(task_id)), self._host.queries[task_id.query].restart_positions
                known: dict[TopicPartition, int] = {}
                for name, position in (there.record.read().get("positions", {}) if there is not None else {}).items():
                    tp = TopicPartition(topic_named(name), task_id.partition)
                    known[tp] = min(position, known.get(tp, position))
                for tp in tps:
                    position = known.get(tp, 0)
                    at[tp] = min(position, at.get(tp, position))

    def forget_positions(self, tps: Collection[TopicPartition], queries: Iterable[RunningQuery] | None = None) -> None:
        """Forgets restart positions of refused queries: they have tasks again, or others own the partitions. Needs the epoch lock."""
        for running in self._host.queries.values() if queries is None else queries:
            running.restart_positions = {tp: o for tp, o in running.restart_positions.items() if tp not in tps}

    def positions(self) -> dict[TopicPartition, ReaderPosition]:
        """At a cut: of tasks that are here, and of those that leave with it. The epoch lock is held."""
        for name, running in list(self._host.queries.items()):
            running.parting = self._parting.get(name, [])
        self._parting = {}
        self._cut = positions_of(self._host.queries, self._host.query_states)
        return self._cut

    def commits(self, tps: Collection[TopicPartition]) -> bool:
        """Whether the last cut, whose commit may be under way, or the next one says where these partitions are."""
        with self._host.state.epoch_lock:
            refused = [tp for running in self._host.queries.values() for tp in running.restart_positions]
            return any(tp in tps for tp in (*self._cut, *refused))

    def moved(self) -> bool:
        """Whether positions have moved since the last cut, or are of other tasks than those of then."""
        return positions_of(self._host.queries, self._host.query_states) != self._cut

"""The steps of an instance that is no member of a group: it builds suspended queries again and swaps generations in."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from typing import Any

from flowql.runtime.app.coroutines import Coroutine, stopped
from flowql.runtime.app.deployment import Deployment
from flowql.runtime.app.hosts import DeploymentHost
from flowql.runtime.app.missed_deletions import note, unnoted
from flowql.runtime.app.plan_topic import read_deployed, topic_name
from flowql.runtime.app.query_state import RUNNING, STOPPED, SUSPENDED
from flowql.runtime.app.query_tasks import QueryTasks
from flowql.runtime.app.rebuilding import Rebuilding
from flowql.runtime.app.reconciler import Reconciler
from flowql.runtime.app.suspension import changelog_is_gone
from flowql.runtime.app.upstream import UpstreamWaits
from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.state.changelog import metadata_topic
from flowql.runtime.task.status import TaskStatus
from flowql.runtime.task.task import Task


class SingleInstanceReconciler(Reconciler):
    """Takes the tasks of suspended queries apart, and makes them anew when their time has come; swaps generations in.

    Deployments are asked for.
    """

    look_ms = 50

    def __init__(
        self,
        host: DeploymentHost,
        tasks: QueryTasks,
        deployment: Deployment,
        rebuilding: Rebuilding,
        upstream: UpstreamWaits,
        withdraw: Callable[[Future[Any]], bool],
    ) -> None:
        super().__init__(withdraw)
        self._host, self._tasks, self._deployment = host, tasks, deployment
        self._rebuilding, self._upstream = rebuilding, upstream

    def next(self, now_ms: int) -> Coroutine | None:
        if self._lost:
            return self._start_over()
        self._host.hung.look(now_ms)
        for query in self._host.query_states.having(SUSPENDED):
            if not self._is_apart(query):
                return self._take_apart(self._host.queries[query].built.tasks)
        if tasks := unnoted(self._host):
            return self._note(tasks)
        for task in self._host.state.incomplete():
            query = task.rpartition("/")[0]
            if query in self._host.queries and self._host.query_states.of(query).state not in (STOPPED, SUSPENDED):
                return self._restore_anew(query)
        for query, running in self._host.queries.items():
            if running.lacks_tasks and self._host.query_states.of(query).state is RUNNING:
                return self._add_tasks(query)
        for query in self._host.query_states.due(SUSPENDED):
            if self._is_apart(query):  # a commit may have suspended it since it was looked at above
                return self._restart(query)
        return self._upstream.next() or self._rebuilding.next(now_ms)

    def _is_apart(self, query: str) -> bool:
        return all(task.status is TaskStatus.CLOSED for task in self._host.queries[query].built.tasks)

    def failed(self, error: Exception) -> int:
        """Brokers are away, perhaps."""
        for query in self._host.query_states.due(SUSPENDED):
            self._host.query_states.postpone(query)
        return 0

    def _start_over(self) -> Coroutine:
        """The state is opened again as of an older commit, and the log has no redo: everything begins as at a start."""
        host = self._host
        self._lost = False
        try:
            host.commit.lose("it starts over")
            yield from stopped(host, [task for running in host.queries.values() for task in running.built.tasks])
            yield host.commit.start_over(self._recover)
            self._tasks.forget(list(host.queries))
            if (stored := read_deployed(host.log, host.config.application_id)) is not None:
                yield from self._deployment.begun(stored)
        except Exception:
            self._lost = True
            raise

    def _recover(self) -> None:
        """The state as of the last commit, without tasks. The commit thread."""
        host, app = self._host, self._host.config.application_id
        for topic in (metadata_topic(app), topic_name(app)):
            tp = TopicPartition(topic, 0)
            if topic in host.admin.topics() and host.admin.end_offset(tp) < host.admin.written_offset(tp):
                raise LogUnavailable(f"not all of {topic} is to be seen yet")
        for task in host.state.open_tasks():
            host.state.close_task(task)
        host.recover()
        host.exchanges.begin(host.state)

    def _take_apart(self, tasks: Sequence[Task]) -> Coroutine:
        yield from stopped(self._host, tasks)
        for task in tasks:  # what `status` says of its lag
            positions = task.state.metadata.get("positions", {})
            for i in task.logs.values():
                i.reset(i.position_in(positions, i.position))

    def _note(self, tasks: Sequence[Task]) -> Coroutine:
        """Queries that may have missed deletions: after a restart their tasks would not be known to have been away."""
        yield from stopped(self._host, tasks)

        def at_the_cut() -> None:
            note(tasks)

        yield self._host.commit.request(at_the_cut)

    def _add_tasks(self, query: str) -> Coroutine:
        """For partitions that its topics have got. Those that run go on."""
        running = self._host.queries[query]
        here = {task.id for task in running.built.tasks}
        try:
            made = self._tasks.build([query], lambda task: task not in here)
        except Exception:  # brokers may be away: the next look tries again
            running.lacks_tasks = True
            raise
        yield from self._tasks.run(made)

    def _restore_anew(self, query: str) -> Coroutine:
        """Restores a query whose rows the remote store has lost. Local rows of its tasks are dropped."""
        host, running = self._host, self._host.queries[query]
        tasks = running.built.tasks
        yield from stopped(host, tasks)
        yield host.commit.request()
        with host.state.epoch_lock:
            host.exchanges.put_aside(channel for task in tasks for channel in task.exchanges.values())
        yield from self._made_anew(query)

    def _restart(self, query: str) -> Coroutine:
        """New tasks, as of the last commit."""
        if (yield from self._made_anew(query)):
            self._host.query_states.resume(query, SUSPENDED)

    def _made_anew(self, query: str) -> Generator[Future[Any] | None, Any, bool]:
        """New tasks in the place of those that were taken apart; False if the query was stopped instead."""
        host = self._host
        if changelog_is_gone(host, query):
            return False
        incomplete = {t: r for t, r in host.state.incomplete().items() if t.rpartition("/")[0] == query}
        for task in host.state.open_tasks():  # also those of an attempt that failed halfway
            if task.rpartition("/")[0] == query:
                host.state.close_task(task)
        host.state.rebuild(incomplete)
        if not (made := self._tasks.build([query])):
            return False
        yield from self._tasks.run(made)
        return True

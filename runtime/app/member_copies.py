"""Copies of tasks that other members run, as the placement wants them: standbys, and warm-ups of tasks that this member is to take over.

A task with state moves when its next owner has a copy near the end of its changelogs; the present owner goes on until then. Source: KIP-441.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.app.coroutines import Coroutine
from flowql.runtime.app.hosts import DeploymentHost
from flowql.runtime.app.planned_tasks import PlannedTasks
from flowql.runtime.placement.balance import units_of
from flowql.runtime.state.changelog import WrittenTask
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.task.id import TaskId

LAG_MAX = 10_000  # offsets that a copy may be behind to count as warm; as `acceptable.recovery.lag` of Kafka Streams
LOOK_MS = 500  # between two attempts to follow what has nothing on record yet


class MemberCopies:
    """Owned by the group step's thread. written: tasks as of the log. rebuild: clears what is here of them, but for rows whose changelogs can be read on."""

    def __init__(
        self,
        host: DeploymentHost,
        planned: Callable[[], PlannedTasks],
        written: Callable[[], Mapping[str, WrittenTask]],
        rebuild: Callable[[Mapping[str, TaskRecord]], None],
    ) -> None:
        self._host, self._planned, self._written, self._rebuild = host, planned, written, rebuild
        self._look_at_ms = 0
        self.are_cold = False  # some are not near the end yet

    def next(self) -> Coroutine | None:
        """Begins and ends copies, as the newest placement says. Called when all tasks of this member run."""
        copied, standbys = self._host.placement.copied, self._host.restoration.standbys
        followed = standbys.followed
        if not copied and not followed:
            self.are_cold = False
            return None
        reads = {t: of for t, of in self._planned().reads.items() if of <= copied}
        wanted = {str(t): t for t in reads if self.stores_of(t)}
        cold = {of for name, t in wanted.items() if not self._is_warm(name) for of in reads[t]}
        self.are_cold = bool(cold)
        self._host.placement.tell_warm(min(unit) for unit in units_of(reads.values()) if unit.isdisjoint(cold))
        now_ms = self._host.clock.timer_ms()
        if ended := (followed - wanted.keys()) | (followed & self._host.state.incomplete().keys()):
            return self.stop(ended)
        if wanted.keys() - followed and now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + LOOK_MS
            return self._follow({name: wanted[name] for name in wanted.keys() - followed})
        return None

    def stop(self, tasks: set[str] | None = None) -> Coroutine:
        """Ends copies, all by default. Their rows stay, with their positions."""
        standbys = self._host.restoration.standbys
        for task in sorted(standbys.followed if tasks is None else tasks):
            stopped = standbys.stop_following(task)
            if not stopped.done():
                yield stopped

    def stores_of(self, task: TaskId) -> list[StoreSpec]:
        query = self._host.running.by_id.get(task.query)
        subs = query.subtopologies if query is not None else ()
        return [s for sub in subs if sub.number == task.subtopology for op in sub.operators for s in op.stores]

    def _is_warm(self, task: str) -> bool:
        lag = self._host.restoration.standbys.lag(task)
        return lag is not None and lag <= LAG_MAX if self._has_rows(task) else True

    def _has_rows(self, task: str) -> bool:
        """Whether the log has something of its state."""
        there = self._written().get(task)
        return there is not None and bool(there.record.stores)

    def _follow(self, tasks: Mapping[str, TaskId]) -> Coroutine:
        yield from ()
        written = self._written()
        records = {name: written[name].record for name in tasks if self._has_rows(name)}
        mine = {name: record for name, record in records.items() if self._is_same_query(tasks[name], record)}
        if not mine:
            return
        self._rebuild(mine)
        for name, record in sorted(mine.items()):
            specs = [s for s in self.stores_of(tasks[name]) if s.name in record.stores]
            self._host.restoration.standbys.follow(name, record, specs)

    def _is_same_query(self, task: TaskId, record: TaskRecord) -> bool:
        """Its state is of the definition that runs."""
        query = self._host.running.by_id.get(task.query)
        return query is not None and record.read().get("query") == query.definition

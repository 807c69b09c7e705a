"""A swap that the members of a group carry out together. Its records, and why they are safe: `flowql.runtime.app.swapping`.

To compare generations that wait for promotion (`flowql.runtime.app.comparing`), their tasks are parked in the same way; no moves follow.

Every member decides which of its tasks must not start and which have to be parked. One member, the *leader*, begins the swap when the new
generation is close enough to the serving one, records the moves when all tasks are parked, or takes the swap back when that takes too long, and
carries out the moves. The leader is the owner of the first of all partitions that tasks read; if two members take themselves for the leader, one
fences the other, and no step is done twice.

New tasks are parked in the order in which they read each other, each once it has read the results of the tasks before it, so that
the new generation is not behind the old one. That may take at most DRAIN_MS: the rest is read from the topic itself, as positions are
translated exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from flowql.compiler.plan.deployed import Deployed, SwapGroup, is_held
from flowql.compiler.plan.generations import runtime_name, user_id
from flowql.compiler.plan.logical import Sink
from flowql.compiler.plan.topology import ExchangeSink, Plan, SubTopology
from flowql.runtime.app.coroutines import Coroutine
from flowql.runtime.app.hosts import QueryHost
from flowql.runtime.app.plan_writer import write_after
from flowql.runtime.app.planned_tasks import tasks_as_begun
from flowql.runtime.app.swap_turns import SwapTurns
from flowql.runtime.app.swapping import (
    SwapExecutor,
    begun,
    group_of_swap,
    let_delete,
    missing_topics,
    taken_back,
    with_moves,
)
from flowql.runtime.errors import LogDenied, PartitionsUneven, RuntimeFailure, TopicMissing
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.state.changelog import WrittenTask
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.task.position_names import topic_named
from flowql.runtime.task.repartition import topic_of
from flowql.runtime.task.task import Task
from flowql.runtime.topology.log_facts import LogFacts
from flowql.runtime.topology.query import input_topics

PARKED = "parked"  # in a task's metadata: the id of the swap for which it has stopped
TOGETHER_MS = 15_000  # the serving generation is held up for at most this long, then the swap is taken back
DRAIN_MS = 2_000  # time for a task to read the results of the tasks before it
FAR_MS = 200  # between two looks how far the new generation is


class GroupSwap:
    """Owned by the group step's thread, but for `why`."""

    def __init__(self, host: QueryHost) -> None:
        self._host, self._app = host, host.config.application_id
        self._group: SwapGroup | None = None  # that swaps in
        self._old: frozenset[str] = frozenset()  # names of its queries as they run
        self._new: frozenset[str] = frozenset()
        self._tasks: dict[str, list[TaskId]] = {}  # of those, wherever they are
        self._before: dict[tuple[str, int], frozenset[tuple[str, int]]] = {}  # whose results a sub-topology reads
        self._written: Mapping[str, WrittenTask] = {}
        self._parked: Mapping[str, WrittenTask] = {}
        # Positions of the old generation, once all of it is parked.
        self._goals: dict[TopicPartition, int] | None = None
        self._ready: list[TaskId] = []
        self._all_parked = False
        # The id of a swap whose tasks are all parked, and how many records only the new generation has read.
        self.ahead = (0, 0)
        self._since_ms = 0  # of the swap
        self._goals_ms = 0
        self._far_at_ms = 0
        self._near: SwapGroup | None = None
        self._turns = SwapTurns(host)
        self._executor = SwapExecutor(host)
        self.release = self._executor.release
        # The record in force here, once a newer one is written that this member has not read.
        self._outdated: Deployed | None = None
        self.why = self._turns.why

    # -- every member

    def learn(self) -> None:
        """Another record is in force."""
        host, swap = self._host, self._host.deployed.swap
        before, self._old = self._old, frozenset()
        self._group = group_of_swap(host.deployed)
        self._new, self._tasks, self._parked, self._ready, self._near = frozenset(), {}, {}, [], None
        self._goals, self._all_parked, self._since_ms = None, False, host.clock.timer_ms()
        if self._group is not None:
            self._old = frozenset(map(runtime_name, self._group.gone))
            self._new = frozenset(map(runtime_name, self._group.queries))
            self._before = _before(host.running, self._old | self._new, self._app)
        if not self._compares:
            host.query_states.hold_for_swap(sorted(self._old))
        host.query_states.release_after_swap(sorted(before if self._compares else before - self._old))
        if swap is None or swap.moves is None:
            self.release()

    def forbids(self, task: TaskId) -> bool:
        """Whether it is not to be begun: it is parked, as far as is known."""
        swap = self._host.deployed.swap
        if swap is None or task.query not in self._old | self._new:
            return False
        return swap.moves is not None or str(task) in self._parked

    @property
    def id(self) -> int:
        """Id of the swap that tasks are parked for."""
        swap = self._host.deployed.swap
        assert swap is not None, "nothing swaps in"
        return swap.id

    def to_park(self, tasks: Mapping[TaskId, Task]) -> list[Task]:
        """Tasks of this member that have to stop now."""
        swap = self._host.deployed.swap
        if swap is None or swap.moves is not None:
            return []
        old = frozenset[str]() if self._compares else self._old
        return [task for t, task in sorted(tasks.items()) if t.query in old or t in self._ready]

    @property
    def _compares(self) -> bool:
        """Whether tasks are parked to be compared alone: then the old ones, too, have read what those before them have made."""
        return self._group is not None and is_held(self._host.deployed, self._group)

    def parks(self, task: TaskId) -> bool:
        """Whether a task of the old generation is not parked, as far as is known, and has to be."""
        swap = self._host.deployed.swap
        return swap is not None and swap.moves is None and task.query in self._old and not self._is_parked(task)

    def read(self, written: Mapping[str, WrittenTask]) -> None:
        """Which tasks are parked on record."""
        swap, names = self._host.deployed.swap, self._old | self._new
        self._written = written
        if swap is not None:
            of = ((n, w) for n, w in written.items() if n.rpartition("/")[0] in names)
            self._parked = {n: w for n, w in of if w.record.read().get(PARKED) == swap.id}

    def look(self, written: Mapping[str, WrittenTask], tasks: Mapping[TaskId, Task], now_ms: int) -> None:
        """Takes the next step of the swap that is possible. After a LogError the caller looks again."""
        self.read(written)
        swap = self._host.deployed.swap
        if swap is None:
            self._look_how_far(written, now_ms)
        elif swap.moves is None:
            self._look_who_is_ready(tasks, now_ms)

    def _look_who_is_ready(self, tasks: Mapping[TaskId, Task], now_ms: int) -> None:
        if self._goals is None:
            if not all(self._is_parked(t) for t in self._tasks_of(self._old)):
                if self._compares:
                    self._ready = [
                        t for t, task in sorted(tasks.items()) if t.query in self._old and self._has_read(task)
                    ]
                return
            self._goals, self._goals_ms = self._highest(self._parked, self._old), now_ms
        self._ready = [t for t, task in sorted(tasks.items()) if t.query in self._new and self._is_ready(task, now_ms)]
        self._all_parked = all(self._is_parked(t) for t in self._tasks_of(self._new))
        if self._all_parked:
            new = self._highest(self._parked, self._new)
            self.ahead = self.id, sum(max(0, new[tp] - at) for tp, at in self._goals.items() if tp in new)

    def _is_ready(self, task: Task, now_ms: int) -> bool:
        """It stands where the old generation does or beyond, and has read what comes from those before it, if that does not take long."""
        assert self._goals is not None
        if any(i.position < self._goals.get(i.tp, 0) for i in task.logs.values() if not self._is_inside(i)):
            return False
        if now_ms > self._goals_ms + DRAIN_MS and not self._compares:
            return True
        return self._has_read(task)

    def _is_inside(self, i: LogInput) -> bool:
        """Whether others of the same generation write what is read here."""
        assert self._group is not None
        return i.channel is not None or i.tp.topic in self._group.all_topics

    def _has_read(self, task: Task) -> bool:
        """Whether those before it are parked, and all is read that they have made."""
        before = self._before[task.id.query, task.id.subtopology]
        if not all(
            self._is_parked(t) for t in self._tasks_of(q for q, _ in before) if (t.query, t.subtopology) in before
        ):
            return False
        inside = (i for i in task.logs.values() if self._is_inside(i))
        return all(i.position >= self._host.admin.written_offset(i.tp) for i in inside)

    def _is_parked(self, task: TaskId) -> bool:
        return str(task) in self._parked

    def _tasks_of(self, names: Iterable[str]) -> list[TaskId]:
        """Wherever they run. TopicMissing: one reads what is gone."""
        found, facts = list[TaskId](), LogFacts(self._host.admin, self._app, self._host.running.queries)
        for name in sorted(set(names)):
            if name not in self._tasks:
                query = self._host.running.by_id.get(name)
                assert query is not None, f"{name} is to swap and does not run"
                self._tasks[name] = tasks_as_begun(query, facts, self._written)
            found += self._tasks[name]
        return found

    def _highest(self, written: Mapping[str, WrittenTask], names: Iterable[str]) -> dict[TopicPartition, int]:
        return {tp: max(at) for tp, at in _positions(written, names, self._host.deployed).items()}

    # -- the leader

    def _look_how_far(self, written: Mapping[str, WrittenTask], now_ms: int) -> None:
        if now_ms < self._far_at_ms:
            return
        self._far_at_ms = now_ms + FAR_MS
        self._near = None
        for group in self._turns.due(now_ms):
            if self._turns.is_ready(group, self._far(group, written)) and self._near is None:
                self._near = group

    def _far(self, group: SwapGroup, written: Mapping[str, WrittenTask]) -> str:
        """Why a group is not to be swapped yet, or nothing: by what is committed, wherever that was done."""
        host = self._host
        old, new = [{runtime_name(q) for q in queries} for queries in (group.gone, group.queries)]
        if missing := missing_topics(host.admin, group):
            return f"there is no topic {missing[0]}"
        facts = LogFacts(host.admin, self._app, host.running.queries)
        for query in (q for q in host.running.queries if q.id in old):
            try:
                facts.counts(query)
            except (LogDenied, PartitionsUneven, TopicMissing) as error:
                return f"{user_id(query.id, query.generation)}, which serves, cannot stop: {error}"
        if paused := sorted(new & set(host.running.paused)):
            return f"{paused[0]}: paused"
        if hung := [q for q in sorted(new) if host.query_states.of(q).hung]:
            return f"{hung[0]}: {host.query_states.of(hung[0]).hung}"
        queries = [q for q in host.running.queries if q.id in new]
        tasks = {str(t) for q in queries for t in facts.tasks(q)}
        if missing := sorted(tasks - written.keys()):
            return f"{missing[0]}: not started"
        built = {tp: min(at) for tp, at in _positions(written, new, host.deployed).items()}
        # Records of tasks do not move over markers of transactions, positions of the group do.
        return self._turns.lag(group, self._highest(written, old), built, self._passed)

    def _passed(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: at.offset for tp, at in self._host.admin.stable_positions(self._app, tps).items()}

    def lead(self) -> Coroutine | None:
        """The coroutine that the leader has to run, if any."""
        swap = self._host.deployed.swap
        if self._host.deployed is self._outdated:
            return None
        if swap is None:
            return None if self._near is None else self._begin(self._near)
        if swap.moves is not None:
            return self._carry_out()
        assert self._group is not None
        if self._all_parked and not self._compares:
            return self._record(self._group)
        late = self._host.clock.timer_ms() > self._since_ms + TOGETHER_MS
        return self._take_back(self._group) if late else None

    def _begin(self, group: SwapGroup) -> Coroutine:
        yield from ()
        self._near = None
        self._write(begun(self._host.deployed, group))

    def _take_back(self, group: SwapGroup) -> Coroutine:
        yield from ()
        self._since_ms = self._host.clock.timer_ms()  # should it not come through
        if not self._compares:
            self._turns.postpone(group, f"{self._waiting()} did not stop within {TOGETHER_MS // 1000} s")
        self._write(taken_back(self._host.deployed))

    def _waiting(self) -> str:
        """Tasks that are not parked, a few of them."""
        try:
            waiting = sorted(str(t) for t in self._tasks_of(self._old | self._new) if not self._is_parked(t))
        except (LogDenied, TopicMissing) as error:  # since the swap has begun
            return f"tasks, whose number is not known ({error})"
        return ", ".join(waiting[:3])

    def _record(self, group: SwapGroup) -> Coroutine:
        yield from ()
        before = self._host.deployed
        tasks = [
            (t.query, t.partition, self._parked[str(t)].record.read()["positions"]) for t in self._tasks_of(self._new)
        ]
        after = with_moves(before, group, self._host.admin, self._app, tasks)
        self._all_parked = False  # until it is looked at again
        self._write(after, lambda: let_delete(before, group, self._host.admin))

    def _write(self, after: Deployed, prepare: Callable[[], None] = lambda: None) -> None:
        """Only if nothing else has been written in between; this member learns of it as all others."""
        write_after(self._host, self._host.deployed, after, prepare=prepare)
        self._outdated = self._host.deployed

    def _carry_out(self) -> Coroutine:
        """Carries out one transaction of the swap, so that partitions can be revoked between two of them."""
        yield from ()
        assert self._group is not None
        try:
            if self._executor.step() is None:
                return
        except RuntimeFailure as error:
            self.why[self._group.name] = str(error)
            raise
        self._outdated = self._host.deployed
        self._turns.done(self._group)


def _before(plan: Plan, names: Iterable[str], app: str) -> dict[tuple[str, int], frozenset[tuple[str, int]]]:
    """For each sub-topology of these queries, the others whose results it reads, through staging topics or repartitions."""
    subs = {(q.id, s.number): s for q in plan.queries if q.id in set(names) for s in q.subtopologies}
    writes = {key: _written_by(sub, app) for key, sub in subs.items()}
    return {
        key: frozenset(other for other, topics in writes.items() if topics & set(input_topics(sub, app)))
        for key, sub in subs.items()
    }


def _written_by(sub: SubTopology, app: str) -> set[str]:
    sinks = {op.spec.topic for op in sub.operators if isinstance(op.spec, Sink)}
    return sinks | {topic_of(app, op.spec.topic) for op in sub.operators if isinstance(op.spec, ExchangeSink)}


def _positions(
    written: Mapping[str, WrittenTask], names: Iterable[str], deployed: Deployed
) -> dict[TopicPartition, list[int]]:
    """Positions of all tasks of these queries, by partition. A task that has read nothing since a swap is still in its staging topic."""
    wanted, found = set(names), dict[TopicPartition, list[int]]()
    moved = {TopicPartition(m.staging, m.partition): m for m in deployed.moved}
    for task, w in written.items():
        query, _, place = task.rpartition("/")
        if query not in wanted:
            continue
        partition = int(place.partition("_")[2])
        for name, position in w.record.read().get("positions", {}).items():
            tp = TopicPartition(topic_named(name), partition)
            if tp in moved:
                tp, position = TopicPartition(moved[tp].topic, partition), dict(moved[tp].places)[position]
            found.setdefault(tp, []).append(position)
    return found

"""Brings generations that are being built to their swap, in an instance that is alone.

A group of queries is computed beside the serving generation, on staging topics, as any queries are. When it stands close to the
serving one, this happens, as one coroutine of the reconciler:

1. The serving queries of the group are held; the new ones come to the same positions or beyond.
2. The new queries are held in the order in which they read each other, each when it has read all of its staging topics: then
   nothing of the new generation is on its way any more.
3. One commit replaces the records of the topics, moves the positions of the new tasks from staging topics to topics, drops the
   state of the old tasks and records the plan. Before it everything is as it was, after it everything is new.
4. The new queries go on, on the topics themselves; staging topics are deleted.

Whatever fails before step 3 lets everything go on as it was, to be tried again later.

On a log whose commits cannot replace records (Kafka) step 3 is a procedure that is recorded, so that it can be gone on with
(`flowql.runtime.app.swapping`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

from flowql.compiler.plan.deployed import SwapGroup, swapped, takes_difference
from flowql.compiler.plan.generations import runtime_name, topics_read, under_own_name
from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.app.comparing import TOGETHER_MS, ComparisonUnavailable
from flowql.runtime.app.coroutines import Coroutine, stopped
from flowql.runtime.app.deployment import Deployment, delete_leftovers
from flowql.runtime.app.draining import at_rest, drained, task_set
from flowql.runtime.app.hosts import DeploymentHost
from flowql.runtime.app.plan_topic import write_deployed
from flowql.runtime.app.query_state import STOPPED
from flowql.runtime.app.query_tasks import QueryTasks
from flowql.runtime.app.replacing import begun_anew, records_of, replacement
from flowql.runtime.app.swap_turns import SwapTurns
from flowql.runtime.app.swapping import (
    SwapExecutor,
    begun,
    compact_tables,
    group_of_swap,
    let_delete,
    missing_topics,
    results_are_seen,
    with_moves,
)
from flowql.runtime.commit.replacement import PartitionChange, Replacement
from flowql.runtime.errors import GenerationDamaged, LogError, RuntimeFailure
from flowql.runtime.events import INFO, WARNING, say
from flowql.runtime.log.base import Admin, TopicPartition
from flowql.runtime.log.embedded.log import incomplete, left_out
from flowql.runtime.task import dead_letters
from flowql.runtime.task.task import Task
from flowql.runtime.topology.partitions import first_offset


class Rebuilding:
    """Only the reconciler's thread calls it, except for `why`."""

    def __init__(self, host: DeploymentHost, tasks: QueryTasks, deployment: Deployment) -> None:
        self._host, self._tasks, self._deployment = host, tasks, deployment
        self._turns, self._executor = SwapTurns(host), SwapExecutor(host)
        self.why, self.release = self._turns.why, self._executor.release

    def next(self, now_ms: int) -> Coroutine | None:
        """The swap of a group that is near enough, if there is one."""
        if (swap := self._host.deployed.swap) is not None:
            return self._carry_out() if self._turns.is_due(swap.group, now_ms) else None
        for group in self._turns.due(now_ms):
            # Each commit would fail to link a segment that is gone.
            if self._turns.is_ready(group, self.far(group), partial(self._damaged, group, incomplete)):
                return self._swap(group)
        return None

    def far(self, group: SwapGroup) -> str:
        """Why a group is not to be swapped yet, or nothing."""
        if missing := missing_topics(self._host.admin, group):
            return f"there is no topic {missing[0]}"
        if damaged := self._damaged(group, left_out):
            return str(damaged)
        for query in map(runtime_name, group.queries):
            record = self._host.query_states.of(query)
            trouble = self._host.trouble(query) if query in self._host.queries else "not started"
            if record.state is STOPPED:
                trouble = record.reason or trouble
            if trouble:
                return f"{query}: {trouble}"
        return self._turns.lag(group, self._lowest(group.gone), self._lowest(group.queries))

    def _damaged(self, group: SwapGroup, look: Callable[[Admin, Collection[str]], str]) -> GenerationDamaged | None:
        """The error that stops a generation whose results lack records: its topics would lose those rows with the swap."""
        letters = [dead_letters.staging_topic(self._host.config.application_id, runtime_name(q)) for q in group.queries]
        problem = look(self._host.admin, [*group.staging.values(), *letters])
        if not problem:
            return None
        error = GenerationDamaged(problem, [q.id for q in group.queries])
        for query in group.queries:
            self._host.query_states.stop(runtime_name(query), error)
        return error

    def side_by_side(self, group: SwapGroup, look: Callable[[], None]) -> Coroutine:
        """Both generations at one place, everything committed that follows from what they have read; `look` is called there.

        Then both go on. ComparisonUnavailable if they do not come together.
        """
        host = self._host
        lost = {name for name, _ in host.deployed.lost}
        if still := next((q.id for q in group.gone if runtime_name(q) in lost), ""):
            raise ComparisonUnavailable(
                f"{still} stopped where its state was lost, and the new generation continues beyond it"
            )
        if far := self.far(group):
            raise ComparisonUnavailable(far)
        both = [*map(runtime_name, group.gone), *map(runtime_name, group.queries)]
        try:
            limit_ms = host.clock.timer_ms() + TOGETHER_MS
            yield from self._together(group, limit_ms, exact=True)
            while not results_are_seen(host.admin, group):
                self._check_time(limit_ms, "results are not to be seen yet")
                yield None
            look()
        finally:
            host.query_states.release_after_swap(both)

    def _unread(self, names: Sequence[str], group: SwapGroup) -> bool:
        """Whether these queries have not read all records that are committed to the topics of a group, visible or not."""
        topics, written = group.all_topics, self._host.admin.written_offset
        inputs = [i for task in self._tasks_of(names) for i in task.logs.values() if i.tp.topic in topics]
        return any(i.position < written(i.tp) for i in inputs)

    # -- the swap

    def _swap(self, group: SwapGroup) -> Coroutine:
        host = self._host
        old, new = [runtime_name(q) for q in group.gone], [runtime_name(q) for q in group.queries]
        recorded = not host.log.drops_with_commits
        try:
            if recorded:  # first: a process that may not write the plan topic holds no query up
                self._executor.open()
            yield from self._together(group, host.clock.timer_ms() + TOGETHER_MS)
        except Exception as error:
            self._executor.release()
            self._turns.postpone(group, str(error))
            host.query_states.release_after_swap([*old, *new])
            if isinstance(error, ComparisonUnavailable):
                return
            raise
        old_tasks, new_tasks = list(self._tasks_of(old)), list(self._tasks_of(new))
        try:
            yield from stopped(host, [*old_tasks, *new_tasks])
            yield from self._record(group, new_tasks) if recorded else self._commit(group, old_tasks, new_tasks)
        except Exception as error:  # as it was: tasks as of the last commit
            self._executor.release()
            self._turns.postpone(group, str(error))
            with host.state.epoch_lock:
                self._tasks.close([*old_tasks, *new_tasks])
            if host.deployed.swap is None:
                yield from self._begin_again([*old, *new])
            raise
        with host.state.epoch_lock:
            self._tasks.close([*old_tasks, *new_tasks])
        yield from self._carry_out() if recorded else self._begin_new(group)

    def _begin_new(self, group: SwapGroup) -> Coroutine:
        """Starts the tasks of a new generation that is recorded as serving."""
        old, new = [runtime_name(q) for q in group.gone], [runtime_name(q) for q in group.queries]
        self._turns.done(group)
        self._tasks.forget([*old, *new])
        yield from self._deployment.started([under_own_name(q) for q in group.queries], retried=True)
        delete_leftovers(self._host)

    def _begin_again(self, queries: Sequence[str]) -> Coroutine:
        plans = [self._host.queries[q].plan for q in queries]
        self._tasks.forget(queries)
        yield from self._deployment.started(plans, retried=True)

    def _together(self, group: SwapGroup, limit_ms: int, *, exact: bool = False) -> Coroutine:
        """The new generation at the positions of the old one or beyond, everything of it read and committed, and held.

        exact: both have read the same of topics outside the group, and all of those inside. A swap has no need to wait for that.
        """
        host, ids = self._host, {q.id for q in group.queries}
        resting = [runtime_name(q) for q in group.gone if not exact or q.id not in ids]  # others have no counterpart
        host.query_states.hold_for_swap(resting)
        yield from at_rest(host, resting, lambda: self._check_time(limit_ms, "a slice takes too long"))
        yield host.commit.request(withdrawable=True)
        for level in _levels(group):
            of = {q.id for q in level}
            names = [runtime_name(q) for q in (*(q for q in group.gone if exact and q.id in of), *level)]
            while self._unread(names, group) or (not exact and self._are_short(level, group)):
                self._check(names, limit_ms)
                yield None
            yield from self._drained(names, limit_ms)
            yield host.commit.request(withdrawable=True)
        if self._unread([runtime_name(q) for q in (*(group.gone if exact else ()), *group.queries)], group):
            raise ComparisonUnavailable("a topic of it has got more records")

    def _are_short(self, level: Iterable[QueryPlan], group: SwapGroup) -> bool:
        """Whether one of these new queries has read less of a partition than it must.

        It must read as much as its serving query, which has stopped. Where that query does not read the partition, it must reach the
        target in `SwapTurns`.
        """
        serving = {q.id: self._lowest([q]) for q in group.gone}
        targets = self._turns.targets[group.name]
        return any(
            at < serving.get(q.id, targets).get(tp, targets.get(tp, 0))
            for q in level
            for tp, at in self._lowest([q]).items()
        )

    def _lowest(self, queries: Iterable[QueryPlan]) -> dict[TopicPartition, int]:
        """The lowest position of their tasks in each partition."""
        found: dict[TopicPartition, int] = {}
        for task in self._tasks_of(map(runtime_name, queries)):
            for i in task.logs.values():
                found[i.tp] = min(i.position, found.get(i.tp, i.position))
        return found

    def _drained(self, names: Sequence[str], limit_ms: int) -> Coroutine:
        return drained(
            self._host,
            names,
            lambda: task_set({name: list(self._tasks_of([name])) for name in names}),
            running=lambda: self._check(names, limit_ms),
            held=lambda: self._check_time(limit_ms, "a slice takes too long"),
        )

    def _check(self, names: Iterable[str], limit_ms: int) -> None:
        for name in names:
            if trouble := self._host.trouble(name):
                raise ComparisonUnavailable(f"{name}: {trouble}")
        self._check_time(limit_ms, f"not at the positions of the serving generation within {TOGETHER_MS // 1000} s")

    def _check_time(self, limit_ms: int, why: str) -> None:
        if self._host.clock.timer_ms() > limit_ms:
            raise ComparisonUnavailable(why)

    def _commit(self, group: SwapGroup, old_tasks: Sequence[Task], new_tasks: Sequence[Task]) -> Coroutine:
        """The commit that makes the new generation serve."""
        host = self._host
        replacements, reshapes, mixed = self._replacements(group)
        before = host.deployed
        if damaged := self._damaged(group, left_out) or self._damaged(group, incomplete):  # since the swap has begun
            raise damaged
        let_delete(before, group, host.admin)
        after = swapped(host.deployed, group, mixed)
        app = host.config.application_id
        record = write_deployed(after, host.admin, app, host.clock.wall_ms())
        letters = [
            b for q in group.queries for b in records_of(host.log, dead_letters.staging_topic(app, runtime_name(q)))
        ]
        ends = {_staging_tp(group, r.tp): (r.tp, r.new_end) for r in replacements}
        old = {runtime_name(q) for q in group.gone}
        dropped = [t for t in host.state.committed_tasks() if t.rpartition("/")[0] in old]

        def at_the_cut() -> None:
            for task in new_tasks:
                task.state.publish(_moved(task, ends))
            self._tasks.close(old_tasks, dropped=dropped)
            host.commit.reshapes += reshapes
            host.commit.replacements += replacements
            host.serve(after, host.commit.next_sequence)
            host.collector.add(*record)
            for batch in letters:
                host.collector.add(TopicPartition(dead_letters.topic_name(app), 0), batch)

        yield host.commit.request(at_the_cut)
        try:
            compact_tables(before, group, host.admin)
        except LogError as error:  # it serves: nothing must be taken back any more
            say(WARNING, "topic.policy", f"cleanup.policy of {', '.join(sorted(group.topics))} may be wrong: {error}")
        for query in group.queries:
            say(INFO, "query.swapped", query=query.id, generation=query.generation)

    # -- where a commit cannot replace records

    def _record(self, group: SwapGroup, new_tasks: Sequence[Task]) -> Coroutine:
        """From here on there is no way back. If it raises with a swap in `deployed`, the swap may or may not be on record."""
        host = self._host
        yield host.commit.request()
        places = [(t.id.query, t.id.partition, t.state.metadata["positions"]) for t in new_tasks]
        let_delete(host.deployed, group, host.admin)
        after = begun(host.deployed, group)
        host.deployed = with_moves(after, group, host.admin, host.config.application_id, places)
        self._executor.open().write(host.deployed, host.clock.wall_ms())

    def _carry_out(self) -> Coroutine:
        """A swap that may be on record, to its end. No task of its group runs."""
        host = self._host
        group = group_of_swap(host.deployed)
        assert group is not None
        assert host.deployed.swap is not None
        try:
            while (after := self._executor.step()) is None:
                yield None
        except RuntimeFailure as error:
            self._turns.postpone(group, str(error))
            raise
        if after.swaps < host.deployed.swap.id:  # it is not on record: as it was
            host.deployed = after
            yield from self._begin_again([runtime_name(q) for q in (*group.gone, *group.queries)])
            return
        old = {runtime_name(q) for q in group.gone}
        dropped = [t for t in host.state.committed_tasks() if t.rpartition("/")[0] in old]
        old_tasks = list(self._tasks_of(old))

        def at_the_cut() -> None:
            self._tasks.close(old_tasks, dropped=dropped)
            host.serve(after, host.commit.next_sequence)

        yield host.commit.request(at_the_cut)
        yield from self._begin_new(group)

    def _replacements(self, group: SwapGroup) -> tuple[list[Replacement], list[PartitionChange], set[str]]:
        """The writes, topics that get as many partitions as their staging topics have, and tables that get their difference."""
        host, found, reshapes, mixed = self._host, list[Replacement](), list[PartitionChange](), set[str]()
        topics = host.admin.topics()
        for topic, staging in group.staging.items():
            tps = [TopicPartition(topic, p) for p in range(topics[topic].partitions)]
            count = topics[staging].partitions
            if count != len(tps):  # there is no difference between tables whose keys lie in other partitions
                begin = first_offset(host.log, topic, len(tps))
                reshapes.append(
                    PartitionChange(topic, count, begin, ends=tuple((tp, host.admin.end_offset(tp)) for tp in tps))
                )
                of_staging = [TopicPartition(staging, p) for p in range(count)]
                found += [begun_anew(host.log, s, TopicPartition(topic, s.partition), begin) for s in of_staging]
                continue
            holds = any(host.admin.end_offset(tp) > host.admin.begin_offset(tp) for tp in tps)
            difference = holds and takes_difference(host.deployed, group, topic)
            if difference:
                mixed.add(topic)
            found += [
                replacement(host.log, TopicPartition(staging, tp.partition), tp, difference=difference) for tp in tps
            ]
        return found, reshapes, mixed

    def _tasks_of(self, queries: Iterable[str]) -> Iterator[Task]:
        for name in queries:
            if name in self._host.queries:
                yield from self._host.queries[name].built.tasks


def _staging_tp(group: SwapGroup, tp: TopicPartition) -> TopicPartition:
    return TopicPartition(group.staging[tp.topic], tp.partition)


def _moved(task: Task, ends: dict[TopicPartition, tuple[TopicPartition, int]]) -> dict[str, object]:
    """The task's metadata with its positions in staging topics, which it has read to their ends, as those in the topics."""
    metadata = task.state.metadata
    positions = dict(metadata["positions"])
    for i in task.logs.values():
        if i.tp in ends:
            tp, end = ends[i.tp]
            positions.pop(i.name, None)
            positions[i.name_in(tp.topic)] = end
    return {**metadata, "positions": positions}


def _levels(group: SwapGroup) -> list[list[QueryPlan]]:
    """The queries so that each comes after those whose topics it reads; queries in a circle come together, last."""
    left, levels = list(group.queries), list[list[QueryPlan]]()
    while left:
        writing = {q.topic for q in left}
        level = [q for q in left if not writing & set(topics_read(q))] or left
        levels.append(level)
        left = [q for q in left if q not in level]
    return levels

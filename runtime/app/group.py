"""The reconciler of a member of the application's group: which tasks run here, and of which plan (rules R7 to R11).

The wanted tasks follow from the owned partitions and the newest plan: every task all of whose input partitions are owned. They are
compared with the existing tasks. Revoked tasks are cut, committed and closed before the revocation is acknowledged; lost tasks are dropped
without a commit; new tasks begin at the positions that their last owner committed, with local state if it is exactly the state of that
commit, else with state from the changelogs. A failed attempt is repeated.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial

from flowql.compiler.plan.deployed import Deployed, running_plan
from flowql.compiler.plan.topology import Plan
from flowql.runtime.app.coroutines import Coroutine, stopped
from flowql.runtime.app.deployment import delete_leftovers
from flowql.runtime.app.frontier import Frontier, RepartitionCleanup
from flowql.runtime.app.group_swap import PARKED, GroupSwap
from flowql.runtime.app.hosts import DeploymentHost
from flowql.runtime.app.kept_rows import kept_rows
from flowql.runtime.app.lost_rows import LostRows
from flowql.runtime.app.member_copies import MemberCopies
from flowql.runtime.app.member_plans import MemberPlans
from flowql.runtime.app.planned_tasks import PlannedTasks
from flowql.runtime.app.query_state import STOPPED, SUSPENDED
from flowql.runtime.app.query_tasks import QueryTasks
from flowql.runtime.app.reconciler import Reconciler
from flowql.runtime.app.suspension import changelog_is_gone
from flowql.runtime.app.upstream import CommittedProgress, UpstreamWaits
from flowql.runtime.app.watchdog import StuckStep
from flowql.runtime.errors import LogError, LogUnavailable, PartitionsChanged
from flowql.runtime.events import INFO, say
from flowql.runtime.log.base import TopicDescription, TopicPartition
from flowql.runtime.placement.record import PlacementChange, PlacementEvent
from flowql.runtime.state.changelog import (
    WrittenTask,
    WrittenTasks,
)
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.positions import StorePartition
from flowql.runtime.state.task_state import ManagedTask
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.task import Task
from flowql.runtime.topology.log_facts import LogFacts
from flowql.runtime.topology.query import check_tasks, input_topics

RETRY_MS = 200
PLAN_MS = 300  # between two looks for a newer plan
MORE_MS = 5_000  # between two looks whether topics have more partitions
# Between two looks at what comes next: while tasks wait for channels, a generation is built or swapped in, or copies warm up, and else. Events and
# requests wake the step.
BUSY_MS, QUIET_MS = 30, 200
FRONTIER_MS = 30  # interval of polling the upstream tasks of channels that are still incomplete
STALE_MS = 100  # positions that moved without a record (over markers of transactions) are committed after so long
TIDY_MS = 5_000  # after a plan, until unused topics are deleted
AGAIN_MS = 5_000  # where some of them are left
SILENT_MS = 120_000  # by then a member has told which plan it has, or its session is over
PURGE_MS = 30_000  # between two times that what is processed of repartitions is deleted
WAITERS_MAX = 1_000


class GroupStep(Reconciler):
    """Owned by its thread, but for `applied`, `lose` and the properties."""

    def __init__(self, host: DeploymentHost, tasks: QueryTasks) -> None:
        super().__init__(host.commit.withdraw)
        self._host, self.mine = host, tasks
        self._group = host.config.application_id
        self._owned: set[TopicPartition] = set()
        self._leaving: set[TopicPartition] = set()
        self._revoking = False
        self._tasks: dict[TaskId, Task] = {}  # from when they are built until their state is closed
        self._begun: set[TaskId] = set()  # of those, which were handed over, and not taken back
        self._unmade: list[ManagedTask] = []  # state of tasks that are being parked without being made
        self.planned = PlannedTasks()  # replaced as a whole; any thread may read it
        self._written: WrittenTasks | None = None
        self._frontier = Frontier(host.admin, self._group)
        self._look_at_ms = 0
        self.plans = MemberPlans(host.plan_reader, host.placement)
        self._next_plan: Deployed | None = None
        self._plan_at_ms = self._topics_at_ms = 0
        self._asked_topics: tuple[Counter[str], Future[dict[str, TopicDescription]]] | None = None
        self._stale_at_ms = 0
        self._purge_at_ms = 0
        self._repartitions = RepartitionCleanup(host.admin, host.state)
        self._tidy_at_ms: int | None = None
        # The deployment whose queries run here. This member writes nothing for queries that it has removed.
        self.applied_id = 0
        self._applied_at_ms = 0
        self._keep_topics: Sequence[str] = ()  # members for which topics of removed queries are kept
        self.swap = GroupSwap(host)
        self._lost_rows = LostRows(host)
        self._copies = MemberCopies(
            host,
            lambda: self.planned,
            lambda: self._read_written().tasks,
            lambda r: host.state.rebuild(r, self._kept_rows(r)),
        )
        progress = CommittedProgress(host, lambda: self.planned, lambda: self._read_written().tasks)
        self._waits = UpstreamWaits(host, progress)
        self.hung = host.hung
        self._waiters: deque[tuple[int, Future[None]]] = deque()
        self.trouble = ""  # why the last attempt failed, for status
        self.stay_away = self.plans.stay_away
        host.commit.confirm = host.placement.confirm

    # -- any thread

    def tell_hung(self, stuck: Sequence[StuckStep]) -> bool:
        """Reports runs that do not end, if their tasks are this member's. See `HungQueries.tell`."""
        owns = {str(t) for t in self.planned.within(self._owned)}
        return self.hung.tell(stuck, owns.__contains__, self._host.placement.confirm)

    def applied(self, offset: int) -> Future[None]:
        """Done when everything before this offset of the plan topic runs here."""
        done: Future[None] = Future()
        assert len(self._waiters) < WAITERS_MAX
        self._waiters.append((offset, done))
        self.wake()
        return done

    @property
    def others_ms(self) -> int:
        """When another member last committed, as far as is known; by the wall clock."""
        known = {} if self._written is None else self._written.committed_ms
        return max((ms for writer, ms in known.items() if writer != self._host.config.transactional_id), default=0)

    @property
    def owned(self) -> int:
        """How many partitions of the planned tasks are this member's."""
        return len(self._owned & self.planned.partitions)

    # -- the step

    look_ms = BUSY_MS

    def observe(self, now_ms: int) -> None:
        for event in self._host.placement.events():
            self._take(event)
        self._advance_frontier(now_ms)

    def next(self, now_ms: int) -> Coroutine | None:
        self._look(now_ms)
        coroutine = self._next()
        if coroutine is None and self._next_plan is None:
            self._answer_waiters()
        return coroutine

    def failed(self, error: Exception) -> int:
        self.trouble = f"{type(error).__name__}: {error}"
        self._host.commit.look_at_state(error)
        return RETRY_MS

    def succeeded(self) -> None:
        self.trouble = ""

    def _advance_frontier(self, now_ms: int) -> None:
        """Tasks that wait for empty channels learn whether they must."""
        if now_ms < self._look_at_ms:
            return
        self._look_at_ms = now_ms + FRONTIER_MS
        channels = [i for task in list(self._tasks.values()) for i in task.logs.values() if i.channel is not None]
        deployed = self._host.deployed
        changes = deployed.wanted is not None or deployed.swap is not None or self._copies.are_cold
        self.look_ms = BUSY_MS if channels or changes else QUIET_MS
        with self._another_time():
            if self._frontier.probe(channels):
                self._host.manager.signal()

    @contextmanager
    def _another_time(self) -> Iterator[None]:
        """Skips a periodic action while brokers are unreachable; the next attempt does it."""
        try:
            yield
        except LogError as error:
            self.trouble = str(error)

    def _take(self, event: PlacementEvent) -> None:
        tps = set(event.partitions)
        if event.change is PlacementChange.LOST:
            self._owned, self._leaving, self._revoking = set(), set(), False
            self._host.commit.lose("the other members have declared this instance dead: it was silent for too long")
            self._lost = True
        elif event.change is PlacementChange.ASSIGN:
            self._owned |= tps
        elif event.change is PlacementChange.REVOKE:
            self._leaving |= tps
            self._revoking = True

    def _next(self) -> Coroutine | None:
        """The most urgent coroutine to run, if any."""
        if self._lost:
            return self._start_over()
        wanted, incomplete = self._wanted(), self._host.state.incomplete()
        surplus = [
            t for i, t in sorted(self._tasks.items()) if i not in wanted or i not in self._begun or str(i) in incomplete
        ]
        if surplus or self._revoking:
            return self._give_up(surplus)
        if self._next_plan is not None:
            return self._apply_plan(self._next_plan)
        if recomputing := self._lost_rows.next():
            return recomputing
        if parking := self.swap.to_park(self._tasks):
            return self._park(parking)
        if standing := self._standing_still():
            return self._park_standing(standing)
        for query in self._host.query_states.due(SUSPENDED):
            if all(t.query != query for t in self._tasks):
                return self._try_again(query)
        with self._another_time():
            if (waiting := self._waits.next()) is not None:
                return waiting
        missing = sorted(wanted - self._tasks.keys())
        if not missing:
            return self._copies.next() or self._lead()
        # Tasks that cannot begin now do not keep a swap from going on, nor from being taken back.
        return (self._lead() if self.trouble else None) or self._begin(missing)

    def _lead(self) -> Coroutine | None:
        """One member has to do something for all."""
        if min(self.planned.partitions, default=None) not in self._owned - self._leaving:
            self.swap.release()
            return None
        if self._tidy_at_ms is not None and self._host.clock.timer_ms() >= self._tidy_at_ms:
            return self._tidy()
        return self.swap.lead()

    def _tidy(self) -> Coroutine:
        yield from ()
        self._tidy_at_ms = self._host.clock.timer_ms() + AGAIN_MS  # should it fail, or something be left
        waiting = delete_leftovers(self._host, self._without_plan)
        if waiting and waiting != self._keep_topics:
            say(
                INFO,
                "topics.kept",
                f"topics of removed queries are deleted once these have the plan: {', '.join(waiting)}",
            )
        self._keep_topics = waiting
        if not waiting:
            self._tidy_at_ms = None

    def _without_plan(self) -> list[str]:
        """Members that may still write to topics of what the plan no longer has, by their transactional ids."""
        if self._host.clock.timer_ms() - self._applied_at_ms >= SILENT_MS:
            return []
        written, me = self._read_written(), self._host.config.transactional_id
        return sorted(w for w in written.sequences if w != me and written.applied.get(w, 0) < self.applied_id)

    def _try_again(self, query: str) -> Coroutine:
        """Retries a query whose results the log rejected. It is a coroutine because it waits for answers of brokers."""
        yield from ()
        if changelog_is_gone(self._host, query):
            return
        if not self.planned.has(query):
            self._learn_plan(self._host.running)  # its topics were not to be known of
            if not self.planned.has(query):
                return
        self._host.query_states.resume(query, SUSPENDED)

    def _look(self, now_ms: int) -> None:
        """Reads a newer plan, reports of hung functions and progress of swaps; marks positions as to be committed, and purges repartitions."""
        if not self._lost:
            self._look_at_topics(now_ms)
        if now_ms >= self._stale_at_ms:
            self._stale_at_ms = now_ms + STALE_MS
            if self.mine.moved():
                self._host.commit.dirty = True
        if now_ms >= self._purge_at_ms:
            self._purge_at_ms = now_ms + PURGE_MS
            with self._another_time():
                self._repartitions.delete_processed([task for _, task in sorted(self._tasks.items())])

    def _look_at_topics(self, now_ms: int) -> None:
        if now_ms >= self._plan_at_ms:
            self._plan_at_ms = now_ms + PLAN_MS
            with self._another_time():
                self._next_plan = self.plans.newer(arrived=True) or self._next_plan
            if now_ms >= self._topics_at_ms:
                self._topics_at_ms = now_ms + (MORE_MS if self._asked_topics is not None else 0)
                with self._another_time():
                    self._plan_for_more_partitions()
        with self._another_time():
            self.hung.look(now_ms)
        if self._host.deployed.wanted is not None and self._next_plan is None:  # else it may be half applied
            with self._another_time():
                self.swap.look(self._read_written().tasks, self._tasks, now_ms)

    def _plan_for_more_partitions(self) -> None:
        """Partitions that were added to a topic have tasks too."""
        asked = self._asked_topics
        if asked is None:
            known = Counter(tp.topic for tp in self.planned.partitions)
            self._asked_topics = known, self._host.admin.describe_topics(known)
        elif asked[1].done():
            self._asked_topics = None
            if any(topic.partitions > asked[0][name] for name, topic in asked[1].result().items()):
                self._learn_plan(self._host.running)

    def _answer_waiters(self) -> None:
        for _ in range(len(self._waiters)):
            offset, done = self._waiters.popleft()
            if self.plans.seen >= offset:
                done.set_result(None)
            else:
                self._waiters.append((offset, done))

    # -- what is wanted

    def _wanted(self) -> set[TaskId]:
        """Tasks all of whose partitions are owned and stay (rule R9)."""
        of = self._host.query_states.of
        return {
            t
            for t in self.planned.within(self._owned - self._leaving)
            if of(t.query).keeps_tasks and (t in self._tasks or not self.swap.forbids(t))
        }

    def _learn_plan(self, plan: Plan) -> None:
        facts = LogFacts(self._host.admin, self._group, plan.queries)
        tasks_of = partial(self.mine.tasks_of, facts=facts, written=lambda: self._read_written().tasks)
        self.planned = PlannedTasks.of(plan, self._group, tasks_of)
        self._frontier.set_plan(self.planned.upstream(), self.planned.writers)
        topics = {t for q in plan.queries for sub in q.subtopologies for t in input_topics(sub, self._group)}
        reads = self.planned.reads
        stateful = {tp for t, of in reads.items() if self._copies.stores_of(t) for tp in of}
        standbys = self._host.config.standbys
        self._host.placement.want(self._host.deployed.id, reads.values(), topics, stateful, standbys)

    # -- coroutines

    def _start_over(self) -> Coroutine:
        """Lost or fenced: nothing is committed; what is owned begins anew from what the log has."""
        self._lost = False
        self._host.commit.lose("it starts over")
        tasks = [task for _, task in sorted(self._tasks.items())]
        yield from self._stop(tasks)
        with self._host.state.epoch_lock:  # first: the next cut may come as soon as commits begin anew
            self.mine.leave(tasks, committed=False)
            self.mine.forget_positions(self.planned.partitions)
        yield self._host.commit.start_over()
        self._close(tasks)
        self._close_unmade()
        self._host.state.disown([str(t) for t in self.planned.reads])
        self._host.query_states.reinstate()
        self._host.placement.acknowledge()

    def _give_up(self, tasks: Sequence[Task]) -> Coroutine:
        """Cut, commit, close, acknowledge. Refused queries have nothing to commit."""
        leaving, held = set(self._leaving), self._host.query_states.having(SUSPENDED)
        refused = [task for task in tasks if task.id.query in held]
        tasks = [task for task in tasks if task.id.query not in held]
        if refused:
            yield from self._stop(refused)
            # Where a right to read is missing, and not one to write, what they made is good.
            if any(isinstance(task.state, ManagedTask) and task.state.is_dirty for task in refused):
                yield self._host.commit.request()
            with self._host.state.epoch_lock:
                self.mine.leave(refused, committed=False)
            self._close(refused, owned=True)
        if tasks:
            yield from self._stop(tasks)
            yield self._host.commit.request(lambda: self.mine.leave(tasks, committed=True, noting=True))
            self._close(tasks)
        elif self._revoking and self.mine.commits(leaving):  # without tasks: where refused queries will begin
            yield self._host.commit.request(lambda: self.mine.forget_positions(leaving))
        if self._revoking and leaving == self._leaving:
            with self._host.state.epoch_lock:
                self.mine.forget_positions(leaving)
            self._host.state.disown(str(t) for t, reads in self.planned.reads.items() if reads & leaving)
            self._owned -= leaving
            self._leaving, self._revoking = set(), False
            self._host.placement.acknowledge()

    def _park(self, tasks: Sequence[Task]) -> Coroutine:
        """Stops tasks for a swap and marks them as parked in their last commit."""
        swap = self.swap.id
        yield from self._stop(tasks)

        def at_the_cut() -> None:
            for task in tasks:
                task.state.publish({**task.state.metadata, PARKED: swap})
            self.mine.leave(tasks, committed=True)

        yield self._host.commit.request(at_the_cut)
        self._close(tasks, owned=True)  # no member continues a parked task: queries are answered from its state

    def _standing_still(self) -> list[TaskId]:
        """Tasks that would have to be parked, and cannot be made: the log refuses what they write, or what they need is gone."""
        of = self._host.query_states.of
        found = (t for t in self.planned.within(self._owned - self._leaving) if self.swap.parks(t))
        return sorted(t for t in found if t not in self._tasks and not of(t.query).keeps_tasks)

    def _park_standing(self, standing: Sequence[TaskId]) -> Coroutine:
        """Their last commit is all that they have made, and the next one says that they have stopped for a swap."""
        host, swap = self._host, self.swap.id
        written = self._last_written(standing)
        if self._next_plan is not None:
            return
        standing = [t for t in standing if self.swap.parks(t)]
        host.state.rebuild(self._compare(standing, written)[0])
        opened = self._unmade
        for task_id in standing:  # one by one: those that are open are known, should one fail
            opened.append(self.mine.state_of(task_id))

        def at_the_cut() -> None:
            for task in opened:
                task.publish({**task.metadata, PARKED: swap})

        yield host.commit.request(at_the_cut)
        self._close_unmade()

    def _close_unmade(self) -> None:
        for task in self._unmade:
            self._host.state.close_task(task.id, owned=True)
        self._unmade = []

    def _apply_plan(self, plan: Deployed) -> Coroutine:
        """At a cut: tasks of queries that change are closed, and their state goes."""
        host = self._host
        yield from self._copies.stop()
        host.repaired.repairs.read_on()
        known = {q.id for q in running_plan(plan).queries}
        gone = host.running.by_id.keys() - known
        tasks = [task for task_id, task in sorted(self._tasks.items()) if task_id.query not in known]
        if tasks:
            yield from self._stop(tasks)
            yield host.commit.request(lambda: self.mine.leave(tasks, committed=True))
            self._close(tasks)
        # Some may have gone while this member was away, and parked ones are not made.
        here = [t for t in host.state.committed_tasks() if "/" in t and t.rpartition("/")[0] not in known]
        owned = {str(t) for t in self.planned.within(self._owned - self._leaving)}
        mine = [str(task.id) for task in tasks]
        mine += [t for t in here if t in owned and t not in mine]
        # Only here: the owner of a task drops its state for all members.
        host.state.rebuild({t: None for t in here if t not in mine})
        self.mine.take_over(plan)  # before state goes: no interactive query is answered from half of it
        self.hung.apply()
        if mine:
            host.state.disown(mine)
            yield host.commit.request(lambda: self.mine.close((), dropped=mine))
        self._learn_plan(host.running)
        self.swap.learn()
        self._applied_at_ms = host.clock.timer_ms()
        self._next_plan, self._tidy_at_ms = None, self._applied_at_ms + TIDY_MS
        self.applied_id = plan.id
        if gone:
            host.commit.dirty = True  # the next commit tells the others

    def _begin(self, wanted: Sequence[TaskId]) -> Coroutine:
        """New tasks, where their last owner stopped."""
        host = self._host
        self.hung.learn()
        for stopped_following in map(host.restoration.standbys.stop_following, map(str, wanted)):
            if not stopped_following.done():  # what is here of the task is restored from its position on
                yield stopped_following
        written = self._last_written(wanted)
        if self._next_plan is not None or any(self.swap.forbids(t) for t in wanted):
            return
        rebuild, drop = self._compare(wanted, written)
        if self._lost_rows.stop({t: r for t, r in rebuild.items() if r is not None and t not in drop}):
            return  # the next step begins the others
        if self._stop_of_other_partitions({t.query for t in wanted}, written):
            self._learn_plan(host.running)  # without them: partitions of their repartitions may not exist
            return
        host.state.rebuild(
            rebuild, self._kept_rows({t: r for t, r in rebuild.items() if r is not None and t not in drop})
        )
        if drop:
            yield host.commit.request(lambda: self.mine.close((), dropped=drop))
            host.state.rebuild(dict.fromkeys(drop))
        self.mine.keep_back(self._held_with(wanted), written)
        tasks = self.mine.build(sorted({t.query for t in wanted}), set(wanted).__contains__)
        if any(host.query_states.of(t.query).state is STOPPED for t in wanted):
            self._learn_plan(host.running)  # without the stopped queries: to be caught up does not need their tasks
        self._tasks |= {task.id: task for task in tasks}
        for task in tasks:
            inputs = list(task.logs.values())
            for i in inputs if any(i.channel is not None for i in inputs) else ():
                i.probes, i.siblings = self._frontier.probes, inputs
        yield from self.mine.start(tasks, self._waits)
        self._begun.update(task.id for task in tasks)

    # -- parts of them

    def _last_written(self, tasks: Sequence[TaskId]) -> dict[str, WrittenTask]:
        """Records of tasks as of the last commits of the partitions of `tasks`. LogUnavailable until those are all to be seen (rule R3).

        Looks for a newer plan after that: their last owner may have parked them for a swap that is not known here yet.
        """
        tps = sorted({tp for t in tasks for tp in self.planned.reads[t]})
        positions = self._host.admin.stable_positions(self._group, tps)
        written = self._read_written()
        for position in positions.values():
            commit = position.commit
            if commit is not None and written.sequences.get(commit[0], 0) < commit[1]:
                raise LogUnavailable(f"commit {commit[1]} of {commit[0]} is not to be seen yet")
        self._next_plan = self.plans.newer() or self._next_plan
        self.swap.read(written.tasks)
        return written.tasks

    def _read_written(self) -> WrittenTasks:
        if self._written is None:
            self._written = WrittenTasks(self._host.log, self._group)
        self._written.read_on()
        return self._written

    def _held_with(self, wanted: Sequence[TaskId]) -> dict[TaskId, frozenset[TopicPartition]]:
        """Tasks of suspended queries, which no member runs, that read partitions of the wanted tasks."""
        tps = {tp for t in wanted for tp in self.planned.reads[t]}
        held = self._host.query_states.having(SUSPENDED)
        return {t: reads & tps for t, reads in self.planned.reads.items() if t.query in held and reads & tps}

    def _compare(
        self, wanted: Sequence[TaskId], written: dict[str, WrittenTask]
    ) -> tuple[dict[str, TaskRecord | None], list[str]]:
        """Tasks whose local state differs from the log, with their record in the log; and tasks whose state is of another definition of the query."""
        rebuild: dict[str, TaskRecord | None] = {}
        drop: list[str] = []
        for task_id in wanted:
            name = str(task_id)
            query = self._host.running.by_id.get(task_id.query)
            assert query is not None, f"{task_id.query} is not in the plan"
            there = written[name].record if name in written else None
            if there is not None and there.read().get("query") != query.definition:
                drop.append(name)
                rebuild[name] = there  # its stores are known by it
            elif self._host.state.local_record(name) != there or name in self._host.state.restoring():
                rebuild[name] = there
        return rebuild, drop

    def _kept_rows(self, restored: Mapping[str, TaskRecord]) -> set[StorePartition]:
        """Rows here from whose position the restoration of a task can go on."""
        host, known = self._host, self._read_written()
        now_ms = max(
            host.clock.wall_ms(), *known.committed_ms.values(), 0
        )  # a clock that was set back lets nothing look young
        sequences = known.sequences
        return kept_rows(host.admin, host.state, self._group, restored, sequences=sequences, now_ms=now_ms)

    def _stop_of_other_partitions(self, queries: Collection[str], written: Mapping[str, WrittenTask]) -> bool:
        """Stops those whose tasks, on whichever member, were of another number than there are partitions now; True if there are any."""
        counts = Counter((t.query, t.subtopology) for t in self.planned.reads)
        stopped = False
        for task, there in written.items():
            name, _, place = task.rpartition("/")
            query = self._host.running.by_id.get(name) if name in queries else None
            if query is None or there.record.read().get("query") != query.definition:
                continue
            number = int(place.partition("_")[0])
            try:
                check_tasks(query, number, there.record.read(), counts[name, number])
            except PartitionsChanged as error:
                self._host.query_states.stop(name, error)
                stopped = True
        return stopped

    def _stop(self, tasks: Sequence[Task]) -> Coroutine:
        self._begun.difference_update(task.id for task in tasks)
        yield from stopped(self._host, tasks)

    def _close(self, tasks: Sequence[Task], *, owned: bool = False) -> None:
        """Closes tasks; their state stays on disk for when they come back. owned: no other member runs them."""
        self.mine.close(tasks, owned=owned)
        for task in tasks:
            del self._tasks[task.id]

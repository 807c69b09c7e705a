"""The task manager: every active task, its exclusive lock, and which thread gets which task next.

One lock and one condition guard all fields; tasks run without the lock. Code that makes a task runnable (new input, a freed
exchange, resume, unlock) calls `signal`. A signal between a thread's look for work and its wait is not missed: signals are counted,
and a thread only waits while the count is the one it saw before the look.

An instance may have thousands of tasks, of which most have nothing to do. A look for work asks only those that are awake: a task that cannot
run before it gets rows (`Task.sleeps`) is left out until whoever adds rows to one of its inputs has noted its name. The rows
are added before the name, and the name is taken before the task is asked, so that no row is missed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from flowql.runtime.clock import Clock
from flowql.runtime.config import SLICE_NS_DEFAULT
from flowql.runtime.scheduler.policy import POLICIES, FairClock, TaskFacts, weighted_fair
from flowql.runtime.task.channels import Known
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.task import Task

# While no other query waits, a query gets longer slices: large micro-batches cost less per row, above all with several threads, since every
# kernel call hands over the interpreter lock. A query of no more weight that gets work meanwhile waits once for the end of such a slice.
ALONE_NS = 25_000_000
SLOW_NS = 50_000_000  # a slice longer than this is reported (rule R18), and its query counts as slow
# Queries of far less weight than one that had work lately leave a thread to it. On two processors all that a critical record passes through
# (reading, handing out, its slice, the process that appends) took twice as long while batch queries kept both busy.
# They lose little, as two threads share one interpreter lock. A commit counts as one of their threads: most of
# what is in it is theirs. With 5 M records rebuilt, p99 from durable to output was 22 ms before and 18 ms after, and the rebuild took as long.
FAR_LESS = 16  # times: batch against high, normal against critical
LATELY_NS = 5_000_000_000


@dataclass(slots=True)
class Entry:
    """A task under the manager's care. owner: name of the thread that holds it, or None; since_ns: when it took it."""

    task: Task
    owner: str | None = None
    since_ns: int = 0
    failed: bool = False
    removal: Future[Task] | None = None

    @property
    def is_free(self) -> bool:
        return self.owner is None and not self.failed and self.removal is None


@dataclass(frozen=True, slots=True)
class Slice:
    """A grant: this thread may run this task for about `limit_ns`; `budget_ns` of it are charged already. weight: of its query.

    others: tasks that it may process together with this one (`flowql.runtime.task.cohort`). known: tasks that the look for work has asked.
    """

    task: Task
    owner: str
    budget_ns: int
    limit_ns: int
    weight: int
    others: tuple[Task, ...] = ()
    known: Known = field(default_factory=Known)


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """An exception that left a task; its query is held until someone decides."""

    task_id: TaskId
    error: BaseException


@dataclass(slots=True)
class Look:
    """One look for work. ready: by query, a task that could run; backlogged: queries that have work, also those that have to wait.

    known: tasks that were asked whether they are idle: with many partitions most tasks ask the same ones. after: tasks of the chosen query that come
    after the chosen one by precedence; None if they were not sorted.
    """

    backlogged: set[str]
    ready: dict[str, TaskFacts] = field(default_factory=dict)
    known: Known = field(default_factory=Known)
    after: list[TaskFacts] | None = None


class TaskManager:
    """Grants tasks to processing threads. A task is held by at most one thread (asserted).

    A slice cannot be interrupted, so a function that blocks keeps its thread. A query that may do so leaves one thread to the
    others, if there are any: blocked in all its tasks at once it would hold up everybody. Queries of far less weight than an active one
    leave one thread together, and half of the room for what is not committed: all queries wait while there is none.
    """

    def __init__(
        self,
        clock: Clock,
        policy: str = "weighted_fair",
        may_run: Callable[[], bool] = lambda: True,
        threads: int = 1,
        has_reserve: Callable[[], bool] = lambda: True,
        is_committing: Callable[[], bool] = lambda: False,
    ) -> None:
        """may_run: whether there is room for uncommitted results. has_reserve: whether there is enough that queries of far less weight may use it, too.
        is_committing: whether a commit is in progress, which needs a processor; `signal` is called at its end.
        """
        self._clock = clock
        self._threads = threads
        self._pick = POLICIES[policy]
        self._may_run, self._has_reserve, self._is_committing = may_run, has_reserve, is_committing
        self._lock = threading.Lock()  # guards all fields below
        self._changed = threading.Condition(self._lock)
        self._preempting = threading.Condition(self._lock)  # for the preemption worker
        self._preempting_task: str | None = None  # the task it holds
        self._entries: dict[str, Entry] = {}
        self._awake: dict[str, dict[str, Entry]] = {}  # by query, those that may be runnable
        self._held: dict[str, Entry] = {}  # by threads
        self._woken: set[str] = set()  # names that any thread adds, without the lock
        self._held_queries: set[str] = set()
        self._alone: frozenset[str] = frozenset()  # queries that have no joint micro-batches
        self._prompt: dict[
            str, bool
        ] = {}  # query -> whether its last slice kept to its budget; absent: it has not run yet
        self._worked_ns: dict[str, int] = {}  # query -> when it last processed rows
        self._signals = 0
        self._seen: dict[str, int] = {}  # thread -> signals when it last looked for work
        self._failures: list[TaskFailure] = []
        self.quiet = False  # at the last look no task could run, and none was running
        self.accounts = FairClock()

    # -- called by the polling thread

    def set_query(self, query: str, weight: int, slice_ns: int = SLICE_NS_DEFAULT) -> None:
        """Add a query to the accounts or change its weight; takes effect at the next grant."""
        with self._changed:
            self.accounts.set_query(query, weight, slice_ns)
            self._notify()

    def forget_query(self, query: str) -> None:
        with self._changed:
            self.accounts.remove(query)
            self._prompt.pop(query, None)
            self._worked_ns.pop(query, None)
            self._failures = [f for f in self._failures if f.task_id.query != query]
            self._held_queries.discard(query)

    def add(self, task: Task) -> None:
        with self._changed:
            name = str(task.id)
            assert name not in self._entries, f"task {name} is already here"
            self._entries[name] = Entry(task)
            self._woken.add(name)
            task.on_rows(partial(self._woken.add, name))
            self._notify()

    def remove(self, task_id: TaskId) -> Future[Task]:
        """Take a task out; the future completes when no thread holds it."""
        future: Future[Task] = Future()
        with self._changed:
            entry = self._entries[str(task_id)]
            if entry.owner is None:
                self._forget(str(task_id))
                future.set_result(entry.task)
            else:
                entry.removal = future
        return future

    def has(self, task_id: TaskId) -> bool:
        """Whether a task is in this manager's care."""
        with self._lock:
            return str(task_id) in self._entries

    def hold(self, query: str) -> None:
        """Grant no more slices to a query (paused, or failed and waiting for its restart)."""
        with self._changed:
            self._held_queries.add(query)

    def run_alone(self, queries: Collection[str]) -> None:
        """The tasks of exactly these queries run alone from their next slice on."""
        with self._lock:
            self._alone = frozenset(queries)

    def resume(self, query: str) -> None:
        with self._changed:
            self._held_queries.discard(query)
            for e in self._entries.values():
                if e.task.id.query == query:
                    e.failed = False
            self._notify()

    def drain_failures(self) -> list[TaskFailure]:
        with self._lock:
            out, self._failures = self._failures, []
        return out

    def tasks(self) -> list[Task]:
        with self._lock:
            return [e.task for e in self._entries.values()]

    def running(self) -> dict[str, str]:
        """Task -> thread, for tasks held now."""
        with self._lock:
            return {n: e.owner for n, e in self._held.items() if e.owner is not None}

    # -- called by anyone

    def at_work(self) -> list[str]:
        """Queries that a thread works on now."""
        with self._lock:
            return sorted({e.task.id.query for e in self._held.values()})

    def awaits_commit(self, query: str) -> bool:
        """A query gets no slice before a commit makes room."""
        with self._lock:
            return not self._may_run() or (not self._has_reserve() and query in self._far_lighter())

    def has_work_of_far_more(self, weight: int) -> bool:
        """Whether a query of far more weight has a task that runs or could run now."""
        with self._lock:
            self._wake()
            queries = self.accounts.queries
            for query in self._awake.keys() - self._held_queries:
                if query in queries and queries[query].weight >= FAR_LESS * max(1, weight):
                    tasks = self._awake[query].values()
                    if any(not e.failed and (e.owner is not None or e.task.runnable) for e in tasks):
                        return True
            return False

    def entitled_ns(self) -> dict[str, float]:
        """Time that each query's weight has entitled it to while it had work."""
        with self._lock:
            return dict(self.accounts.entitled_ns)

    def signal(self) -> None:
        with self._changed:
            self._notify()

    def signal_preempting(self) -> None:
        """Wakes the preemption worker, whether there is work for it or not: the instance ends."""
        with self._preempting:
            self._preempting.notify()

    # -- called by processing threads

    def acquire(self, owner: str) -> Slice | None:
        """The next task by policy, locked for `owner`; None when nothing can run."""
        with self._lock:
            self._seen[owner] = self._signals
            look = self._look()
            self.quiet = not look.ready and not self._held
            if not look.ready or not self._may_run():
                return None
            return self._grant(look, self._chosen(look), owner)

    def acquire_preempting(self, owner: str) -> Slice | None:
        """A task for the preemption worker: the next by policy, if all other threads are held by queries of less weight.

        A slice cannot be interrupted, but the system and the interpreter lock take turns between threads within a
        fraction of one: the query of more weight then waits for neither a slice nor a processor.
        """
        with self._lock:
            if not self._held_by_less() or not self._may_run():
                return None
            look = self._look()
            if not look.ready:
                return None
            chosen = self._chosen(look)
            if self.accounts.queries[chosen.query].weight <= self._weight_held():
                return None
            self._preempting_task = chosen.task
            return self._grant(look, chosen, owner)

    def _chosen(self, look: Look) -> TaskFacts:
        """By policy. `weighted_fair` compares queries first, so it needs the facts of one query's tasks only, and asks until one can run."""
        found = list(look.ready.values())
        if self._pick is not weighted_fair:
            return self._picked([t for q in list(look.ready) for t in self._runnable(q, look.known)] or found)
        chosen = self._picked(found)
        order, tasks = self._in_order(chosen.query), self._awake[chosen.query]
        for n, facts in enumerate(order):
            if tasks[facts.task].task.runnable_with(look.known):
                look.after = order[n + 1 :]
                return facts
        return chosen  # another thread has stopped an input since the look: the slice ends without rows

    def _picked(self, tasks: Sequence[TaskFacts]) -> TaskFacts:
        chosen = self._pick(tasks, self.accounts.queries, self.accounts.virtual_time)
        assert chosen is not None
        return chosen

    def _grant(self, look: Look, chosen: TaskFacts, owner: str) -> Slice:
        entry = self._entries[chosen.task]
        assert entry.owner is None, f"{chosen.task} is held by {entry.owner}"
        entry.owner, entry.since_ns = owner, self._clock.cost_ns()
        self._held[chosen.task] = entry
        alone = look.backlogged <= {chosen.query}
        budget_ns = self.accounts.start(chosen.query)
        weight = self.accounts.queries[chosen.query].weight
        others = self._join(entry, look)
        limit_ns = max(budget_ns, ALONE_NS) if alone else budget_ns
        return Slice(entry.task, owner, budget_ns, limit_ns, weight, others, look.known)

    def _join(self, lead: Entry, look: Look) -> tuple[Task, ...]:
        """Tasks of the same sub-topology that run now as well, granted to the same thread. Each thread gets its share of the partitions."""
        task, found = lead.task, list[Task]()
        if not task.joins or task.id.query in self._alone:
            return ()

        most = task.sizer.tasks - 1
        for facts in self._in_order(task.id.query) if look.after is None else look.after:
            if len(found) >= most:
                break
            entry, other = self._entries[facts.task], self._entries[facts.task].task.id
            mine = (
                other.subtopology == task.id.subtopology and (other.partition - task.id.partition) % self._threads == 0
            )
            if mine and entry.is_free and entry.task.joins and entry.task.runnable_with(look.known):
                entry.owner, entry.since_ns = lead.owner, lead.since_ns
                found.append(entry.task)
        return tuple(found)

    def _weight_held(self) -> int:
        """The most weight of the queries that threads work on; there are some."""
        queries = self.accounts.queries
        return max(queries[e.task.id.query].weight for e in self._held.values())

    def _held_by_less(self) -> bool:
        """Whether all threads except the preemption worker are at work, and a task of more weight than theirs could run."""
        if self._preempting_task is not None or len(self._held) < self._threads:
            return False
        most, queries = self._weight_held(), self.accounts.queries
        self._wake()
        heavier = (tasks for q, tasks in self._awake.items() if q in queries and queries[q].weight > most)
        return any(e.owner is None and e.task.runnable for tasks in heavier for e in tasks.values())

    def release(
        self,
        grant: Slice,
        cost_ns: int,
        error: BaseException | None = None,
        rows: int = 1,
        failed: Task | None = None,
    ) -> None:
        """Give the tasks back; an error holds their query until the polling thread has looked at it. rows: processed in the slice. failed: the task
        that raised the error; the first one if it is not given.
        """
        with self._changed:
            name = str(grant.task.id)
            entries = {str(task.id): self._entries[str(task.id)] for task in (grant.task, *grant.others)}
            for held, entry in entries.items():
                assert entry.owner == grant.owner, f"{held} is held by {entry.owner}, not by {grant.owner}"
                entry.owner = None
            del self._held[name]
            if self._preempting_task == name:
                self._preempting_task = None
            self.accounts.end(grant.task.id.query, grant.budget_ns, cost_ns)
            if rows and error is None and grant.task.id.query in self.accounts.queries:  # else nothing is learned of it
                self._prompt[grant.task.id.query] = cost_ns <= SLOW_NS
                self._worked_ns[grant.task.id.query] = self._clock.cost_ns()
            if error is not None:
                culprit = failed or grant.task
                entries[str(culprit.id)].failed = True
                self._failures.append(TaskFailure(culprit.id, error))
            for held, entry in entries.items():
                if entry.removal is not None:
                    self._forget(held)
                    entry.removal.set_result(entry.task)
            self._notify()

    def wait(self, owner: str, timeout_s: float) -> None:
        """Until something has changed since `owner` last looked for work."""
        with self._changed:
            self._changed.wait_for(lambda: self._signals != self._seen.get(owner), timeout_s)

    def wait_preempting(self, owner: str, timeout_s: float) -> None:
        """Until another thread may have to step in, or `signal_preempting`."""
        with self._preempting:
            if not self._held_by_less():
                self._preempting.wait(timeout_s)

    def _notify(self) -> None:
        self._signals += 1
        self._changed.notify_all()
        if self._held_by_less():
            self._preempting.notify()

    def _look(self) -> Look:
        """The tasks that could run now; wakes and puts to sleep the accounts of queries."""
        self._wake()
        look = Look(backlogged={e.task.id.query for e in self._held.values()})
        for query in self._awake.keys() - self._held_queries:
            found = next(self._runnable(query, look.known), None)
            if found is not None:
                look.ready[query] = found
        look.backlogged |= look.ready.keys()
        if look.ready:
            light = self._far_lighter()
            held_back = self._held_back(light) | (frozenset() if self._has_reserve() else light)
            look.ready = {q: found for q, found in look.ready.items() if q not in held_back}
        self.accounts.set_backlogged(look.backlogged)
        return look

    def _runnable(self, query: str, known: Known) -> Iterator[TaskFacts]:
        """Its tasks that could run. Those asked that cannot are asked last next time, or before they get rows not at all."""
        tasks = self._awake[query]
        for name, e in list(tasks.items()):
            if not e.is_free:
                continue
            if e.task.runnable_with(known):
                yield TaskFacts(name, query, e.task.buffered_rows, e.task.rows_ahead)
            else:
                del tasks[name]
                if not e.task.sleeps:
                    tasks[name] = e

    def _in_order(self, query: str) -> list[TaskFacts]:
        """Its tasks that may be runnable, by precedence. Facts cost far less than asking whether a task can run: it asks those upstream."""
        tasks, found = self._awake[query], list[TaskFacts]()
        for name, e in list(tasks.items()):
            if e.is_free:
                if not (rows := e.task.buffered_rows) and e.task.sleeps:
                    del tasks[name]
                else:
                    found.append(TaskFacts(name, query, rows, e.task.rows_ahead))
        found.sort(key=lambda t: t.precedence, reverse=True)
        return found

    def _wake(self) -> None:
        """Lets tasks be asked that got rows since the last look."""
        while self._woken:
            name = self._woken.pop()
            if (entry := self._entries.get(name)) is not None:
                self._awake.setdefault(entry.task.id.query, {})[name] = entry

    def _forget(self, name: str) -> None:
        query = self._entries.pop(name).task.id.query
        if (tasks := self._awake.get(query)) is not None:
            tasks.pop(name, None)
            if not tasks:
                del self._awake[query]

    def _held_back(self, light: frozenset[str]) -> set[str]:
        """Queries that must not get another thread now: their slices may be far too long, and they hold all threads but one.

        These are queries that have never finished a slice, whose last slice was far too long, or that are in such a slice now. And of the light
        ones (`_far_lighter`) all, where they would get the last thread.
        """
        if self._threads == 1:
            return set()
        now, holding = self._clock.cost_ns(), dict.fromkeys(self.accounts.queries, 0)
        stuck: set[str] = set()
        for e in self._held.values():
            if e.task.id.query in holding:
                holding[e.task.id.query] += 1
                if now - e.since_ns > SLOW_NS:
                    stuck.add(e.task.id.query)
        doubtful = {q for q in holding if q in stuck or not self._prompt.get(q, False)}
        others = {q for q in holding if q not in self._held_queries}
        busy = sum(holding[q] for q in light) + self._is_committing()
        enough = light if busy >= self._threads - 1 else frozenset()
        return {q for q in doubtful if holding[q] >= self._threads - 1 and others - {q}} | enough

    def _far_lighter(self) -> frozenset[str]:
        """Queries of far less weight than one that had work lately: together they get neither the last thread nor the last room."""
        queries, now = self.accounts.queries, self._clock.cost_ns()
        active = [q for q, at in self._worked_ns.items() if now - at < LATELY_NS]
        most = max((queries[q].weight for q in active if q in queries), default=0)
        return frozenset(q for q, facts in queries.items() if FAR_LESS * facts.weight <= most)

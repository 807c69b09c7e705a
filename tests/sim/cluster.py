"""Instances of one group on a simulated cluster, and what happens to them: everything from one seed, in one thread.

Every step of every instance is on one heap by virtual time. A call to the brokers, or a function, may take its time: then the rest
of the world goes on inside of that call (`interlude`), and its process may be killed, frozen or given up meanwhile.
"""

from __future__ import annotations

import heapq
import random
import traceback
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType

from flowql.compiler.plan.topology import Plan
from flowql.runtime.app import checkpoints, group_swap, swap_turns, swapping
from flowql.runtime.app import group as group_step
from flowql.runtime.app.group import GroupStep
from flowql.runtime.app.hung_topic import release
from flowql.runtime.app.instance import Instance
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import LogDenied, LogUnavailable, StaleMember, Superseded
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.placement import step as placement_step
from flowql.runtime.placement.heartbeats import MISSED_MAX
from flowql.runtime.scheduler.executor import IDLE_MS, ProcessingStep
from flowql.runtime.state.remote import copying, manifest, pace, upload
from flowql.runtime.state.runs import merging, run
from flowql.runtime.state.runs import objects as run_objects
from tests.crash.simulated import IN_COLUMNS, LossyPhysical, MeteredClock
from tests.objects import MemoryObjects
from tests.sim import project
from tests.sim.broker import Broker
from tests.sim.checks import APP, Watch, is_done, judge, one_owner, one_process
from tests.sim.faults import Disturbed, Faults, Killed, Link, come_back, strike
from tests.sim.groups import Violation
from tests.sim.log import SimulatedLog
from tests.sim.objects import SimulatedObjects, url_of

Step = Callable[[int], int]
BEGIN_MS = 1_000_000
TICK_MS, LOOK_MS = 20, 30
BEAT_MS = 100
SILENT_MS = MISSED_MAX * BEAT_MS  # so long a member is silent before it is given up, at least
CHAOS_MS = 2_000
QUIET_MS = 60_000  # everything is done within so long after the last fault
PURGE_MS = 400  # of repartitions, every 30 s in earnest
# Constants of modules that simulations shorten; `tests/sim/conftest.py` gives other tests of the process the real ones.
SHORTENED: Sequence[tuple[ModuleType, str, int]] = (
    (group_step, "PURGE_MS", PURGE_MS),
    (group_step, "TIDY_MS", 300),  # 5 s in earnest
    (group_swap, "TOGETHER_MS", 1_500),
    (group_swap, "DRAIN_MS", 150),
    (swap_turns, "AGAIN_MS_MAX", 1_000),
    (swapping, "CHUNK_ROWS", 4),
    (placement_step, "BEAT_MS", BEAT_MS),
    (placement_step, "AGAIN_MS", 100),
    (checkpoints, "INTERVAL_MS", 60),
    (checkpoints, "IDLE_MS", 20),
    (checkpoints, "LOOK_MS", 30),
    (checkpoints, "COLLECT_MS", 600),
    (checkpoints, "KEPT_MS", 900),
    (checkpoints, "LEASE_RENEWED_MS", 200),
    (pace, "RETRY_MS", 50),
    (pace, "RETRY_MS_MAX", 400),
    (checkpoints, "FOLD_ROWS", 3),
    (checkpoints, "FOLD_WAIT_MS", 400),
    (manifest, "LEASE_MS", 900),
    (upload, "INLINE_BYTES", 60),
    (upload, "WHOLE_BYTES", 400),
    (upload, "PART_BLOCKS", 2),
    (copying, "RANGE_BLOCKS", 2),
    (run_objects, "_AHEAD", 2),
    (run, "BLOCK_BYTES", 100),
    (merging, "FAN_IN", 3),
    (merging, "ROWS_LEAST", 8),
)
SLOW_MS = 30  # so long wait threads of a slow machine at most, unless they want to wait longer
DEPTH_MAX = 2  # interludes within interludes
TRACE = 80


@dataclass(eq=False)
class Process:
    """One instance and its log. Its threads are steps; `busy` are those that wait inside of a call."""

    name: str
    log: SimulatedLog
    link: Link
    instance: Instance
    disk: LossyPhysical
    pace: int = 1  # a slow machine waits longer than it was asked to
    steps: dict[str, Step] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    dead: bool = False
    frozen_ms: int = 0  # until then
    unreachable_ms: int = 0
    last_commit: Future[int] | None = None  # it leaves when that is done

    @property
    def group(self) -> GroupStep:
        assert self.instance.group is not None
        return self.instance.group


class SimulatedCluster:
    """A cluster, its processes, and a heap of what comes next.

    >>> SimulatedCluster(7).run()
    []
    """

    def __init__(
        self, seed: int, faults: Faults | None = None, *, orders: int = 36, change: tuple[int, int] | None = None
    ) -> None:
        """change: of `project.CHANGES`, if queries are changed: what is wanted now."""
        self.rng = random.Random(f"world {seed}")
        self.faults = faults or Faults()
        self.clock = MeteredClock()
        self.clock.advance(BEGIN_MS)
        self.broker = Broker(self.clock, self._marker_delay_ms)
        self.outside = SimulatedLog(self.broker)  # of who puts records in and reads results
        self.processes: list[Process] = []
        self.disks: dict[str, LossyPhysical] = {}
        self.calm = True  # no faults by chance
        self.moving_ms = 0  # until then the coordinator is moving
        self.refusing: dict[str, int] = {}  # until then brokers take nothing for these topics
        self.denied: dict[str, int] = {}  # until then nobody may read these
        self.stack: list[tuple[Process, str]] = []  # steps that are under way, the innermost last
        self.turns = self.digest = 0
        self.trace: deque[str] = deque(maxlen=TRACE)
        self.happened: dict[str, int] = {}
        self.store_away_ms = 0  # until then the remote store does not answer
        self.remote = random.Random(f"remote {seed}").random() < self.faults.remote
        self.objects = MemoryObjects("simulated://all", wall_ms=lambda: self.now)
        self.objects_of: dict[str, object] = {}  # which life of a process has written each
        self.rotten: set[str] = set()
        self.wrong: list[str] = []  # what was found meanwhile
        self.standbys = random.Random(f"standbys {seed}").choice((0, 0, 1))
        self.change = change
        self.later = False  # the later plan is, or will be, deployed
        self.input = project.orders(orders, self.rng, self.rng.choice((4, 6, 10)))
        self._heap: list[tuple[int, float, Callable[[], object]]] = []
        self._depth = 0
        self._names = iter(f"p{n}" for n in range(10_000))
        self._sources = iter(f"source {n}" for n in range(10_000))
        self.watch = Watch(self.broker)
        for topic in ("orders", "customers"):
            self.outside.create_topic(topic, project.PARTITIONS)
        self.append(project.customers(), "customers")
        self._tick()

    @property
    def now(self) -> int:
        return self.clock.timer_ms()

    def lucky(self, chance: float) -> bool:
        return not self.calm and self.rng.random() < chance

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now - BEGIN_MS:6d} {text}")

    # -- a life

    def run(self) -> list[str]:
        """From the first process to the end of all input; sentences about what is wrong then. Violation as soon as something is."""
        self.begin()
        self.calm = False
        begin, until = self.now, self.now + CHAOS_MS * (self.faults.longer if self.change is None else 3)
        for n in range(len(self.input)):
            self.at(self.rng.randrange(begin, until), partial(self.feed, n))
        for _ in range(self.faults.count):
            self.at(self.rng.randrange(begin, until), partial(strike, self))
        self.run_until(lambda: self.now >= until)
        self.settle()
        return self.judge()

    def judge(self) -> list[str]:
        return judge(self)

    def begin(self) -> Process:
        """One process, and the plan."""
        for module, name, value in SHORTENED:
            setattr(module, name, value)
        first = self.start()
        assert first is not None
        self.deploy(first, self.first_plan())
        return first

    def first_plan(self) -> Plan:
        return project.plan()

    def settle(self) -> None:
        """No more faults, until everything is processed and committed."""
        self.note("calm")
        self.calm, self.moving_ms, self.store_away_ms = True, 0, 0
        self.refusing.clear()
        self.denied.clear()
        for process in self.processes:
            process.unreachable_ms = 0
        look = self.now

        def done() -> bool:
            nonlocal look
            if self.now < look:
                return False
            look = self.now + LOOK_MS
            if not self.processes:  # the last one has left
                come_back(self)
            self.resume_hung()
            return is_done(self)

        self.run_until(done)

    def resume_hung(self) -> None:
        """As a user does it: queries of which members say that their functions hung are tried again."""
        hung = {q for p in self.processes for q in p.instance.queries if p.instance.query_states.of(q).hung}
        if hung:
            release(self.outside, APP, "a user", {q.partition("@")[0] for q in hung}, self.now)

    def run_for(self, ms: int) -> None:
        until = self.now + ms
        self.run_until(lambda: self.now >= until)

    def run_until(self, done: Callable[[], bool]) -> None:
        """Violation if that is never so."""
        limit = self.now + QUIET_MS
        while not done():
            if self.now > limit:
                raise Violation("it never gets there: " + "; ".join(map(_state, self.processes)))
            self.turn()

    # -- the heap

    def at(self, ms: int, action: Callable[[], object]) -> None:
        heapq.heappush(self._heap, (ms, self.rng.random(), action))

    def turn(self) -> None:
        """What is due next."""
        due, _, action = heapq.heappop(self._heap)
        if due > self.now:
            self.clock.advance(due - self.now)
        self.turns += 1
        action()

    def interlude(self, process: Process, ms: int, *, freeze: bool) -> bool:
        """A call of `process` takes so long: the world goes on, the process' other threads too if it is not frozen.

        False if there are too many of them already. Killed if the process is dead then.
        """
        if self._depth >= DEPTH_MAX:
            return False
        until = self.now + ms
        if freeze:
            process.frozen_ms = max(process.frozen_ms, until)
            self.note(f"{process.name} frozen for {ms} ms within {sorted(process.busy)}")
        stack, self.stack = self.stack, []
        self._depth += 1
        try:
            while not process.dead and (self._heap[0][0] <= until or process.frozen_ms > self.now):
                self.turn()
        finally:
            self._depth -= 1
            self.stack = stack
        if process.dead:
            raise Killed
        self.clock.advance(max(0, until - self.now))
        return True

    def _step(self, process: Process, name: str) -> None:
        if process.dead:
            return
        if process.frozen_ms > self.now:
            self.at(process.frozen_ms, partial(self._step, process, name))
            return
        process.busy.add(name)
        self.stack.append((process, name))
        process.instance.watchdog.rounds[name] = self.now
        try:
            wait = process.steps[name](self.now)
        except Killed:
            return
        except Exception as error:
            raise Violation(f"{process.name} {name}: {_told(error)}") from error
        finally:
            self.stack.pop()
            process.busy.discard(name)
            process.instance.watchdog.rounds.pop(name, None)
        if process.dead:
            return
        self.digest = zlib.crc32(f"{self.now} {process.name} {name} {wait}".encode(), self.digest)
        one_owner(process)
        if name in ("reconciler", "placement"):
            one_process(self)
        stall = self.rng.choice((30, 150, 500)) if self.lucky(self.faults.stalls) else 0
        self.at(
            self.now + max(1, min(wait * process.pace, max(wait, SLOW_MS))) + stall, partial(self._step, process, name)
        )

    def _tick(self) -> None:
        if self.change is not None and (doubled := project.twice(self.outside)):
            raise Violation("; ".join(doubled))
        if self.moving_ms <= self.now:
            self.broker.tick()
        self.at(self.now + TICK_MS, self._tick)

    def _marker_delay_ms(self, place: TopicPartition | str) -> int:
        return self.rng.choice((10, 60, 400, 1_400)) if self.lucky(self.faults.late_markers) else 0

    # -- processes

    def start(self, name: str | None = None) -> Process | None:
        """None if it runs already, or brokers cannot be reached just now: it is tried again."""
        name = name or next(self._names)
        if any(p.name == name for p in self.processes):
            return None
        log = SimulatedLog(self.broker, link := Link(self, name))
        disk = self.disks.setdefault(name, LossyPhysical())
        rows = self.rng.choice((3, 8, 20))
        config = InstanceConfig(
            APP, changelogs=True, shared=True, process_id=name, rows_per_run=rows, standbys=self.standbys
        )
        if self.faults.in_columns and self.rng.random() < self.faults.in_columns:
            config = replace(config, **IN_COLUMNS)
        if self.remote:
            SimulatedObjects(self, self.objects, name)
            config = replace(config, remote_state=url_of(name), run_rows_min=self.rng.choice((1, 2, 5)))
        try:
            instance = Instance(log, disk, self.clock, config)
        except LogUnavailable:
            self.at(self.now + 100, partial(self.start, name))
            return None
        self.note(f"{name} starts")
        process = link.process = Process(name, log, link, instance, disk, self.rng.choice(self.faults.paces))
        process.steps = _steps_of(process)
        self.processes.append(process)
        for step in process.steps:
            self.at(self.now + self.rng.randrange(20), partial(self._step, process, step))
        return process

    def kill(self, process: Process, *, wiped: bool = False) -> None:
        """Its memory is gone, and of its disk what was not flushed, or all."""
        self.note(f"{process.name} killed" + (", its disk lost" if wiped else ""))
        process.dead = True
        self.processes.remove(process)
        kept = self.rng.randrange(process.disk.unflushed + 1)
        self.disks[process.name] = LossyPhysical() if wiped else process.disk.after_crash(kept)

    def leave(self, process: Process) -> None:
        """As `Instance.stop` does it: what is published is committed, then it goes."""
        self.note(f"{process.name} leaves")
        process.instance.query_states.end(process.instance.queries)
        process.last_commit = process.instance.commit.request()
        self.at(self.now + 10, partial(self._leave, process, self.now + 2_000))

    def _leave(self, process: Process, until_ms: int) -> None:
        if process.dead:
            return
        assert process.last_commit is not None
        under_way = process.busy or process.frozen_ms > self.now
        if under_way or (not process.last_commit.done() and self.now < until_ms):
            self.at(self.now + 10, partial(self._leave, process, until_ms))
            return
        process.instance.commit.lose("the instance stops")
        calm, self.calm = self.calm, True  # while it closes nothing else happens
        with suppress(LogUnavailable):
            process.instance.close()
        self.calm = calm
        process.dead = True
        self.processes.remove(process)
        self.note(f"{process.name} has left")

    def deploy(self, process: Process, plan: Plan) -> None:
        """As a user does it, who tries again elsewhere if it fails. Not within a call: its own step may be what is waited for."""
        if self._depth or process.instance.await_step is not None:
            self.at(self.now + 100, partial(self._deploy_again, plan))
            return
        self.note(f"{process.name} deploys")
        limit = self.now + QUIET_MS

        def step() -> None:
            if self.now > limit:
                raise Violation(f"never deployed: {_state(process)}")
            self.turn()
            if process.dead or process.last_commit is not None:
                raise Killed

        process.instance.await_step = step
        try:
            process.instance.deploy(plan)
            self.note(f"{process.name} has deployed")
            if self.change is not None and plan is not project.changed_plan(self.change):
                self._deploy_again(plan)  # it was overtaken by a newer wish
        except (LogUnavailable, LogDenied, StaleMember, Superseded, Killed) as error:
            self.note(f"{process.name} has not deployed: {error}")
            self.at(self.now + 200, partial(self._deploy_again, plan))
        finally:
            process.instance.await_step = None

    def _deploy_again(self, plan: Plan) -> None:
        if self.change is not None:
            plan = project.changed_plan(self.change)
        awake = [p for p in self.processes if p.last_commit is None and p.instance.await_step is None]
        if awake:
            self.deploy(awake[0], plan)
        else:
            self.at(self.now + 200, partial(self._deploy_again, plan))

    def freeze(self, process: Process, ms: int) -> None:
        self.note(f"{process.name} frozen for {ms} ms")
        process.frozen_ms = self.now + ms

    def cut_off(self, process: Process, ms: int) -> None:
        self.note(f"{process.name} cut off for {ms} ms")
        process.unreachable_ms = self.now + ms

    def stall(self, process: Process, name: str, ms: int) -> None:
        """One of its threads gets no time."""
        self.note(f"{process.name} {name} stalls for {ms} ms")
        step, until = process.steps[name], self.now + ms
        process.steps[name] = lambda now_ms: step(now_ms) if now_ms >= until else until - now_ms

    # -- input

    def feed(self, number: int) -> None:
        """A part of the input, as one transaction that may stay open for a while; or after one that is aborted."""
        writer = next(self._sources)  # the same part may be fed again while its transaction is open
        if self.lucky(0.1):
            epoch = self.broker.init(writer)
            for tp, records in self.input[number]:
                self.broker.write(writer, epoch, tp, records)
            self.broker.end(writer, epoch, commit=False)
        self.append(self.input[number], writer, self.rng.choice((0, 0, 0, 40, 300)))

    def append(self, parts: list[project.Part], writer: str, after_ms: int = 0) -> None:
        """From outside; committed after so long."""
        epoch = self.broker.init(writer)
        for tp, records in parts:
            self.broker.write(writer, epoch, tp, records)
        if after_ms:
            self.at(self.now + after_ms, partial(self.broker.end, writer, epoch, commit=True))
        else:
            self.broker.end(writer, epoch, commit=True)


def _steps_of(process: Process) -> dict[str, Step]:
    """What its threads repeat."""
    instance = process.instance
    tasks = instance.tasks
    build = tasks.build

    def disturbed(*wanted):
        made = build(*wanted)
        for task in made:
            task.program = Disturbed(task.program, process.link)
        return made

    def processing(step: ProcessingStep, now_ms: int) -> int:
        """It waits for a signal and for the timers of tasks, and for nothing else: every change that lets a task run must give one."""
        due = any(task.is_due for task in instance.manager.tasks())
        if instance.manager._seen.get(step.name) == instance.manager._signals and not due:
            return IDLE_MS
        return step.run_once(now_ms)

    def woken(step: Step, ms: int) -> Step:
        """What it waits for wakes its thread, after up to so long."""
        return lambda now_ms: min(step(now_ms), ms)

    tasks.build = disturbed  # type: ignore[method-assign]
    return {
        "main": woken(instance.main.loop.run_once, 5),
        "placement": woken(instance.placement.run_once, 20),
        "restore": woken(instance.restore.loop.run_once, 5),
        "restoration": woken(instance.restoration.run_once, 20),
        "polling": woken(instance.polling.run_once, 5),
        "reconciler": process.group.run_once,
        "commit": instance.commit.run_once,
        "watchdog": instance.watchdog.run_once,
        **{p.name: partial(processing, p) for p in instance.processing},
        **(
            {}
            if instance.checkpoints is None
            else {"remote": instance.checkpoints.run_once, "merger": instance.merger.run_once}
        ),
    }


def _state(process: Process) -> str:
    instance, group = process.instance, process.group
    tasks = {str(t): task.status.value for t, task in sorted(group._tasks.items())}
    errors = {q: m.last_error for q, m in instance.metrics.queries.items() if m.last_error}
    return (
        f"{process.name}: {group.trouble or 'no trouble'}, {instance.commit.blocked or 'not blocked'}, "
        f"{group.swap.why} idle={instance.commit.idle} owned={group.owned} tasks={tasks} errors={errors} busy={sorted(process.busy)}"
    )


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error, limit=-6))

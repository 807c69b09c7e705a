"""What happens to processes, to their calls and to the functions they run; how often is a matter of `Faults`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from flowql.runtime.errors import LogDenied, LogUnavailable
from flowql.runtime.log.base import TopicPartition
from tests.sim import project
from tests.sim.groups import Violation

if TYPE_CHECKING:
    from tests.sim.cluster import Process, SimulatedCluster

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
COORDINATED = {"init", "init answered", "last sequence", "positions", "end", "abort", "stable positions", "committed"}
PRODUCING = {"send", "positions", "end", "abort"}


class Killed(BaseException):
    """The process of this step is gone. Not an Exception: no code may handle it."""


@dataclass(frozen=True, slots=True)
class Faults:
    """paces: of machines, how much longer than asked their threads wait. slow, fails: shares of the calls to brokers. unknown: of the commits, that get no answer. late_markers: of the markers.
    slow_runs, failing_runs: of the runs of tasks. stalls: of the steps. in_columns: of the processes, that write runs of few rows. kinds: what happens to processes, `count` times in all.
    remote: of the worlds, whose processes have a remote store. slow_objects, failing_objects, unanswered_objects: of the requests to it. processes: at a time, at most. longer: than others a life is.
    """

    paces: tuple[int, ...] = (1, 2, 4, 6)
    slow: float = 0.003
    fails: float = 0.002
    unknown: float = 0.04
    late_markers: float = 0.3
    slow_runs: float = 0.01
    failing_runs: float = 0.004
    stalls: float = 0.003
    in_columns: float = 0.5
    remote: float = 0.25
    slow_objects: float = 0.3
    failing_objects: float = 0.01
    unanswered_objects: float = 0.02
    processes: int = 3
    longer: int = 1
    count: int = 7
    kinds: tuple[str, ...] = (
        "kill",
        "kill",
        "join",
        "join",
        "leave",
        "freeze",
        "freeze",
        "outage",
        "coordinator",
        "stall",
        "deploy",
        "refuse",
        "deny",
        "clock",
        "clock",
    )


DISKS = Faults(count=14, kinds=(*Faults().kinds, *["clock"] * 4, *["disk"] * 8))
REBUILDS = Faults(count=12, kinds=(*Faults().kinds, *["rebuild"] * 6))
LOST = Faults(
    remote=1.0,
    longer=3,
    in_columns=1.0,
    count=16,
    kinds=(*Faults().kinds, *["lost"] * 12, *["store"] * 3, *["rot"] * 2),
)
LOST_ALONE = replace(LOST, processes=1)
CALM = Faults(
    paces=(1,),
    slow=0,
    fails=0,
    unknown=0,
    late_markers=0,
    slow_runs=0,
    failing_runs=0,
    stalls=0,
    in_columns=0,
    count=0,
    remote=0,
    slow_objects=0,
    failing_objects=0,
    unanswered_objects=0,
)


class Link:
    """The network of one process (`tests.sim.log.Network`), and what its functions meet."""

    def __init__(self, world: SimulatedCluster, name: str) -> None:
        self.world, self.name = world, name
        self.process: Process | None = None  # None while it starts
        self.broken: Callable[[str], None] = lambda what: None  # of scenarios: may raise for a call

    def call(self, what: str) -> None:
        world, process = self.world, self.process
        if process is None:
            self._reach(what)
            return
        if process.dead:
            raise Killed
        self._right_thread(process, what)
        self._reach(what)
        self.broken(what)
        if world.lucky(world.faults.fails):
            raise LogUnavailable(f"brokers do not answer: {what}")
        if world.lucky(world.faults.slow):
            freeze = world.rng.random() < 0.3
            world.interlude(process, world.rng.choice((20, 100, 600, 1_200)), freeze=freeze)
            self._reach(what)

    def commit(self, send: Callable[[], None], send_later: Callable[[int], None]) -> None:
        world = self.world
        if world.lucky(world.faults.unknown):
            fate = world.rng.choice(("lost", "late", "done"))
            world.note(f"{self.name} a commit gets no answer: {fate}")
            if fate == "late":
                send_later(world.rng.choice((30, 300)))
            elif fate == "done":
                send()
            raise LogUnavailable("no answer to a commit")
        send()
        if self.process is not None and world.lucky(world.faults.slow * 5):
            world.interlude(self.process, world.rng.choice((50, 700)), freeze=False)

    def takes(self, topic: str) -> bool:
        return self.world.now >= self.world.refusing.get(topic, 0)

    def check_read(self, tps: Iterable[TopicPartition]) -> None:
        for tp in sorted(tps):
            if self.world.now < self.world.denied.get(tp.topic, 0):
                error = LogDenied(f"{tp} is not for you")
                error.partition = tp
                raise error

    def wait(self, done: Callable[[], bool], ms: int) -> None:
        until = self.world.now + ms
        while self.process is not None and not done() and self.world.now < until:
            if not self.world.interlude(self.process, 15, freeze=False):
                return

    def work(self) -> None:
        """In the middle of a run."""
        world = self.world
        if self.process is not None and world.lucky(world.faults.slow_runs):
            world.interlude(self.process, world.rng.choice((20, 200, 800)), freeze=False)
        if world.lucky(world.faults.failing_runs):
            raise RuntimeError("a function failed")

    def _reach(self, what: str) -> None:
        if self.process is not None and self.world.now < self.process.unreachable_ms:
            raise LogUnavailable(f"brokers cannot be reached: {what}")
        if self.world.now < self.world.moving_ms and what in COORDINATED:
            raise LogUnavailable(f"the coordinator is moving: {what}")

    def _right_thread(self, process: Process, what: str) -> None:
        """Clients belong to threads: tasks call none of them, and producers are the commit step's, that of the plan the reconciler's, that of
        the placement its own, and that of what hangs the watchdog's."""
        if self.world.stack and self.world.stack[-1][0] is process:
            step = self.world.stack[-1][1]
            if step.startswith("processing") or (
                what in PRODUCING and step not in ("commit", "reconciler", "placement", "watchdog")
            ):
                raise Violation(f"{process.name} {step} calls the log: {what}")


class Disturbed:
    """A task's program whose runs take their time or fail."""

    def __init__(self, program: Any, link: Link) -> None:
        self.__dict__.update(program=program, link=link)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.program, name, value)

    def execute(self, batches: Mapping[str, Any], run: Any) -> Any:
        self.link.work()
        return self.program.execute(batches, run)

    def execute_raw(self, raw: Any, run: Any) -> Any:
        self.link.work()
        return self.program.execute_raw(raw, run)


def strike(world: SimulatedCluster) -> None:
    """One fault of a process, chosen by the world's seed."""
    kind = world.rng.choice(world.faults.kinds)
    world.happened[kind] = world.happened.get(kind, 0) + 1
    if kind == "join":
        if len(world.processes) < world.faults.processes:
            world.start()
    elif kind == "refuse":
        topic = world.rng.choice(("big", "named", "totals", "items"))
        world.note(f"nothing is taken for {topic}")
        world.refusing[topic] = world.now + world.rng.choice((400, 1_000, 1_600))
    elif kind == "deny":
        topic = world.rng.choice(("orders", "customers", "big"))
        world.note(f"nobody may read {topic}")
        world.denied[topic] = world.now + world.rng.choice((400, 1_000, 1_600))
    elif kind == "clock":
        by_ms = world.rng.choice((-DAY_MS, -HOUR_MS, HOUR_MS, DAY_MS))
        world.note(f"the wall clock is set by {by_ms} ms")
        world.clock.set_wall(by_ms)
    elif kind == "store":
        ms = world.rng.choice((300, 1_500))
        world.note(f"the remote store is away for {ms} ms")
        world.store_away_ms = world.now + ms
    elif kind == "rot":
        rot(world)
    elif kind == "coordinator":
        world.note("the coordinator moves")
        world.moving_ms = world.now + world.rng.choice((50, 200, 600))
    elif awake := [p for p in world.processes if p.frozen_ms <= world.now and p.last_commit is None]:
        _HAPPEN[kind](world, world.rng.choice(awake))


def rot(world: SimulatedCluster) -> None:
    """An object of the remote store is gone, or has other bytes."""
    data = world.objects.data
    if not (names := sorted(n for n in data if "/runs/" in n or "/rows/" in n or "/manifests/" in n)):
        return
    name = world.rng.choice(names)
    whole, ms = data[name]
    world.rotten.add(name)
    at = world.rng.randrange(2 * len(whole))
    if at < len(whole):
        data[name] = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], ms
    else:
        del data[name]
    world.note(f"{name} is {'damaged' if name in data else 'gone'}")


def _kill(world: SimulatedCluster, process: Process) -> None:
    world.kill(process, wiped=world.rng.random() < 0.4)
    if world.rng.random() < 0.8 or not world.processes:
        world.at(world.now + world.rng.choice((10, 200, 700)), partial(world.start, process.name))


def _lost(world: SimulatedCluster, process: Process) -> None:
    """Its machine: a new one takes its place, or others do."""
    world.kill(process, wiped=True)
    if world.rng.random() < 0.7 or not world.processes:
        world.at(world.now + world.rng.choice((10, 200, 700)), partial(world.start, process.name))


def _leave(world: SimulatedCluster, process: Process) -> None:
    world.leave(process)
    world.at(world.now + world.rng.choice((300, 900)), partial(come_back, world))


def come_back(world: SimulatedCluster) -> None:
    """A process that has left, with its disk, or a new one."""
    if len(world.processes) < world.faults.processes:
        known = sorted(set(world.disks) - {p.name for p in world.processes})
        world.start(world.rng.choice(known) if known else None)


def _freeze(world: SimulatedCluster, process: Process) -> None:
    world.freeze(process, world.rng.choice((100, 600, 1_200)))


def _outage(world: SimulatedCluster, process: Process) -> None:
    world.cut_off(process, world.rng.choice((100, 600, 1_200)))


def _stall(world: SimulatedCluster, process: Process) -> None:
    world.stall(process, world.rng.choice(sorted(process.steps)), world.rng.choice((200, 900)))


def _deploy(world: SimulatedCluster, process: Process) -> None:
    if not world.later and world.change is None:
        world.later = world.watch.rereads = True
        world.deploy(process, project.later_plan())


def _rebuild(world: SimulatedCluster, process: Process) -> None:
    """To something else than what was wanted last; that may be what serves."""
    others = [c for c in project.CHANGES if c != world.change]
    world.change, world.watch.rereads = world.rng.choice(others), True
    world.deploy(process, project.changed_plan(world.change))


def _disk(world: SimulatedCluster, process: Process) -> None:
    """Its disk fails: nothing can be written any more, nor after that, until the state is opened again."""
    disk, ms = process.disk, world.rng.choice((0, 0, 50, 400, 1_500))
    world.note(f"{process.name} an I/O error, the disk takes nothing for {ms} ms")
    disk.break_down()
    disk.is_full = True
    world.at(world.now + ms, partial(setattr, disk, "is_full", False))


_HAPPEN = {"kill": _kill, "leave": _leave, "freeze": _freeze, "outage": _outage, "stall": _stall, "deploy": _deploy}
_HAPPEN |= {"disk": _disk, "lost": _lost}
_HAPPEN |= {"rebuild": _rebuild}

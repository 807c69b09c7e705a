"""The engine under test: one instance on a machine that outlives it, stepped by the driver."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any
from unittest.mock import patch

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.deployed import Deployed
from flowql.compiler.plan.partitions import as_wanted
from flowql.compiler.plan.priorities import Priority
from flowql.compiler.plan.topology import Plan
from flowql.deploy.control import NewPriority, with_paused, with_priority
from flowql.deploy.decision import decide
from flowql.deploy.request import DeployRequest
from flowql.runtime.app import group, group_swap, rebuilding, swap_turns
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.exchanges import ChannelKey
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.task.channels import ExchangeInput
from flowql.server.on_runtime import RuntimeEngine
from flowql.server.service import Service
from tests.change.machine import Disk, Life, Machine, Memory, MortalPhysical
from tests.change.places import State, of_query, of_relation, partitions_of

APP = "flowql"
ROUND_MS = 15
SLOW_NS = 1_500_000
LEFTOVER_ROUNDS = 10  # it is not waited for
ROUNDS_MAX = 6_000  # of one act; a rest takes some dozens
WALL_MS = 1_800_000_000_000  # what the clock says; no result depends on it


@contextmanager
def swaps(*, near_records: int, together_ms: int) -> Iterator[None]:
    """What is built anew swaps in when it is so many records behind, if it comes together with what serves in that time."""
    members_ms = max(together_ms, 2_000)  # they look at the plan every 300 ms
    with ExitStack() as patched:
        patched.enter_context(patch.object(swap_turns, "NEAR_RECORDS", near_records))
        for module, ms in ((rebuilding, together_ms), (group_swap, members_ms)):
            patched.enter_context(patch.object(module, "TOGETHER_MS", ms))
        patched.enter_context(patch.object(group, "TIDY_MS", 0))
        yield


class MeteredClock(VirtualClock):
    """Work takes time, so that slices end in the middle of what is buffered."""

    def __init__(self, now_ms: int, reading_ns: int) -> None:
        super().__init__(now_ms)
        self._reading_ns = reading_ns

    def cost_ns(self) -> int:
        self.spend(self._reading_ns)
        return super().cost_ns()

    @contextmanager
    def slow(self) -> Iterator[None]:
        """Work takes longer within."""
        before, self._reading_ns = self._reading_ns, SLOW_NS
        try:
            yield
        finally:
            self._reading_ns = before


class Engine:
    """One life after the other. kafka: the log can do what brokers can; `member`: of a group, else alone. rounds: how many driver rounds there were in all; look: called after each of them."""

    def __init__(self, rng: random.Random, *, on_disk: bool, kafka: str = "") -> None:
        self.rng, self.kafka = rng, kafka
        self.life = Life()
        self.machine: Machine = Disk(self.life) if on_disk else Memory(self.life, kafka=bool(kafka))
        self.clock = MeteredClock(WALL_MS, rng.choice((0, 0, SLOW_NS)))
        self.look: Callable[[], None] = lambda: None
        self.rounds = 0
        self._rounds_max = ROUNDS_MAX
        self.deaths = 0
        self._open()

    @property
    def log(self) -> MemoryLog | EmbeddedLog:
        return self.machine.log

    def _open(self) -> None:
        config = InstanceConfig(threads=2, rows_per_run=self.rng.choice((3, 20, None)), data_dir=Path(gettempdir()))
        if self.kafka:
            member = self.kafka == "member"
            config = replace(config, changelogs=True, shared=member, process_id="one" if member else "")
        self.instance = Instance(self.log, self.machine.physical, self.clock, config)
        seed = self.rng.choice((None, self.rng.randrange(1 << 30)))
        self.driver = Driver(self.instance, seed=seed, tick=self._tick)

    def _tick(self) -> None:
        self.clock.advance(ROUND_MS)
        self.rounds += 1
        assert self.rounds < self._rounds_max, "it does not come to rest"
        self.life.full = max(0, self.life.full - 1)
        self.life.moment()
        armed, self.life.armed = self.life.armed, False
        self.look()
        self.life.armed = armed

    @property
    def plan(self) -> Plan:
        """What interactive queries are about."""
        return self.instance.plan

    @property
    def deployed(self) -> Plan:
        """What is to run in the end; while something is built anew another plan may serve."""
        return self.record.plan

    @property
    def front(self) -> RuntimeEngine:
        """What interactive queries are asked of."""
        return RuntimeEngine(self.instance)

    def rows(self, name: str) -> State:
        """What an interactive query about a result is answered from."""
        return of_relation(self.front, name)

    def rows_of(self, front: RuntimeEngine, name: str) -> State:
        """The same of another engine."""
        return of_relation(front, name)

    def queried(self, name: str) -> State:
        return of_query(self.front, name)

    def partitions(self) -> Mapping[str, int]:
        """Of topics, as a project is compiled for them."""
        return as_wanted(self.record, {name: info.partitions for name, info in self.log.topics().items()})

    @property
    def service(self) -> Service:
        """What commands are given to."""
        return Service(RuntimeEngine(self.instance))

    @property
    def record(self) -> Deployed:
        """What is on record."""
        return self.instance.deployed

    def deploy(self, wanted: Plan, asked: DeployRequest, *, served: bool) -> None:
        """served: by the service, as a command asks for it; else by the engine itself."""
        with self.life.running():
            if served:
                self.service.deploy(wanted, asked)
            else:
                partitions = {name: info.partitions for name, info in self.log.topics().items()}
                self.instance.deploy(decide(self.record, wanted, asked, partitions=partitions).plan)

    def settle(self, *, promote: bool) -> None:
        """What is built and held back serves, or is dropped; nothing if there is none (any more)."""
        with self.life.running():
            if self.record.held:
                (self.service.promote if promote else self.service.abandon)(None)

    def diff(self, name: str) -> dict[str, Any]:
        """What `flowql diff` says of a result."""
        with self.life.running():
            return self.service.diff(name)

    def set_priority(self, query: str, priority: Priority, *, served: bool) -> None:
        new = NewPriority(query, priority)
        with self.life.running():
            if served:
                self.service.set_priority(new)
            else:
                self.instance.deploy(with_priority(self.deployed, new))

    def pause(self, query: str, *, paused: bool, served: bool) -> None:
        with self.life.running():
            if served:
                self.service.pause([query], paused=paused)
            else:
                self.instance.deploy(with_paused(self.deployed, [query], paused=paused)[0])

    def rest(self) -> None:
        """Until all input is processed, and every change is whole."""
        self._rounds_max = self.rounds + ROUNDS_MAX
        with self.life.running():
            self.driver.run_until_caught_up()
            while not self._answers():
                self.driver.round()

    def _answers(self) -> bool:
        """A member that has just begun caught up before, by what is committed; its tasks come after that."""
        group = self.instance.group
        return group is None or not (group.planned.reads.keys() - group._begun or self.instance.state.restoring())

    def turn(self, rounds: int) -> None:
        with self.life.running():
            for _ in range(rounds):
                self.driver.round()

    @property
    def channels(self) -> dict[ChannelKey, ExchangeInput]:
        """Between the tasks of queries, as they are now."""
        return dict(self.instance.exchanges._inputs)

    def has_rows_between(self, known: Mapping[ChannelKey, ExchangeInput]) -> bool:
        """Whether the last commit holds rows of channels that have been opened since they were `known`."""
        stored, channels = self.instance.exchanges._stored.items(), self.channels
        saved = [(topic, *channel) for topic, s in stored for channel, batches in s.batches.items() if batches]
        return any(channels.get(channel) is not known.get(channel) for channel in saved)

    def leftovers(self) -> list[str]:
        """What a change should have taken away with it, soon after."""
        for _ in range(LEFTOVER_ROUNDS):
            self.driver.round()
        topics = sorted(t for t in self.log.topics() if "@" in t or "-staging" in t or "-letters-of-" in t)
        if (
            self.kafka == "member"
        ):  # made for a deployment that failed: another member may just have made them, and the next one uses them
            topics = [t for t in topics if any(self.log.end_offset(tp) for tp in partitions_of(self.log, t))]
        known = set(self.instance.queries)
        tasks = sorted(
            t
            for t in self.instance.state.committed_tasks()
            if not t.startswith("__") and t.rpartition("/")[0] not in known
        )
        return [f"left over: topics {topics}, tasks {tasks}"] if topics or tasks else []

    def kill(self, *, loses_state: bool = False) -> None:
        """Everything in memory is gone, perhaps the state with it."""
        self.deaths += 1
        self.machine.die(self.rng)
        if loses_state:
            self.machine.physical = MortalPhysical(self.life)

    def restart(self) -> None:
        """Stopped in order, and started again."""
        with self.life.running():
            self.instance.close()
        self.machine.restart()
        self.reopen()

    def reopen(self) -> None:
        """May be killed again."""
        with self.life.running():
            self._open()
            self.instance.resume()


class Fresh:
    """An engine in a fresh folder."""

    def __init__(self, log: MemoryLog, *, seed: int) -> None:
        rng = random.Random(seed)
        self.log = log
        self.clock = VirtualClock(WALL_MS)
        config = InstanceConfig(threads=2, rows_per_run=rng.choice((7, None, None)))
        self.instance = Instance(log, MemoryPhysical(), self.clock, config)
        self.driver = Driver(self.instance, seed=rng.choice((None, seed)), tick=lambda: self.clock.advance(ROUND_MS))

    @property
    def front(self) -> RuntimeEngine:
        return RuntimeEngine(self.instance)

    def run(self, plan: Plan) -> None:
        self.instance.deploy(plan)
        self.driver.run_until_caught_up()

    def close(self) -> None:
        self.instance.close()


def compiled(sql: str, partitions: Mapping[str, int], previous: Plan | None) -> Plan | str:
    """The plan, or why there is none."""
    found = compile_project([SourceText("project.sql", sql)], previous=previous, topic_partitions=partitions)
    if found.ok:
        return found.plan
    return "; ".join(f"{d.code} {d.title}" for d in found.diagnostics if d.severity == "error")

"""A machine in one thread whose engine dies at moments chosen by a seed, over a log and a state that lose what they may lose."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from flowql.compiler.plan.topology import Plan
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import StateError
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.transaction import Transaction
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.physical import ByteRange
from tests.crash.contents import CommittedContents, contents_of
from tests.crash.project import append, compiled, create_topics, customers, orders

APP = "flowql"
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
JUMPS_MS = (HOUR_MS, -HOUR_MS, DAY_MS, -DAY_MS)
ROUND_MS, SLICE_COST_NS = 25, 1_500_000


class Killed(BaseException):
    """The process is gone: nothing of it runs on."""


class LossyPhysical(MemoryPhysical):
    """Like RocksDB without its own log: a crash loses a suffix of what was written since the last flush.

    kill_at: the write batch (from 1) that finds the process gone. `break_down`: an I/O error, after which it takes no more writes
    until it is opened again; for as long as `is_full` it cannot be.
    """

    def __init__(self, rows: dict[bytes, bytes] | None = None) -> None:
        super().__init__()
        self.kill_at: int | None = None
        self.broken = self.is_full = False
        self.reopened = 0
        self._flushed = dict(rows or {})
        self._since: list[tuple[Sequence[bytes], Sequence[bytes | None], Sequence[ByteRange]]] = []
        if rows:
            self._load(rows)

    @property
    def unflushed(self) -> int:
        """Write batches that a crash may lose."""
        return len(self._since)

    def write_batch(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], ranges: Sequence[ByteRange] = ()
    ) -> None:
        if self.kill_at is not None:
            self.kill_at -= 1
            if not self.kill_at:
                raise Killed
        self._work()
        self._since.append((keys, values, ranges))
        super().write_batch(keys, values, ranges)

    def break_down(self) -> None:
        self.broken = True

    def _work(self) -> None:
        if self.broken:
            raise StateError("Input/output error")

    def accepts_files(self) -> bool:
        return not self.is_full

    def reopen(self, bring_forward: Callable[[], None]) -> None:
        """What is not flushed is gone."""
        assert self.broken, "nothing was wrong with it"
        if self.is_full:
            raise StateError("No space left on device")
        with self._lock:
            for key in self._rows.keys() | self._flushed.keys():
                self._set(key, self._flushed.get(key))
        self._since, self.broken = [], False
        self.reopened += 1
        try:
            bring_forward()
        except BaseException:
            self.broken = True  # it stays closed
            raise

    def flush(self) -> None:
        self._work()
        self._flushed = dict(self._rows)
        self._since = []

    def after_crash(self, kept: int) -> LossyPhysical:
        """What is on disk when the first `kept` batches since the flush had reached it."""
        survivor = LossyPhysical(self._flushed)
        for batch in self._since[:kept]:
            MemoryPhysical.write_batch(survivor, *batch)
        return LossyPhysical(survivor._rows)

    def _load(self, rows: dict[bytes, bytes]) -> None:
        for key, value in rows.items():
            self._set(key, value)


class MortalLog(MemoryLog):
    """kill_before, kill_after: the commit (from 1) of the engine that finds the process gone, without or with effect."""

    kill_before: int | None = None
    kill_after: int | None = None

    def commit(self, transactional_id: str, epoch: int, transaction: Transaction) -> int:
        if transactional_id != APP:
            return super().commit(transactional_id, epoch, transaction)
        if self.kill_before is not None:
            self.kill_before -= 1
            if not self.kill_before:
                raise Killed
        sequence = super().commit(transactional_id, epoch, transaction)
        if self.kill_after is not None:
            self.kill_after -= 1
            if not self.kill_after:
                raise Killed
        return sequence


class MeteredClock(VirtualClock):
    """Every reading of the cost meter costs something, so that slices end in the middle of what is buffered."""

    def cost_ns(self) -> int:
        self.spend(SLICE_COST_NS)
        return super().cost_ns()


@cache
def plan() -> Plan:
    return compiled()


@cache
def expected() -> CommittedContents:
    """What every machine must come to."""
    return Machine(0).run(0)


IN_COLUMNS: dict[str, Any] = {"vector": True, "run_rows_min": 2}  # each batch by columns, and runs of few rows


class Machine:
    """One log and one state, and the engine that runs on them until it is killed. Checks at every round what may never happen."""

    def __init__(self, seed: int, *, count: int = 160, faults: bool = False) -> None:
        """faults: I/O errors of the state, after some of which its disk is full for a while, and jumps of the wall clock."""
        self.rng, self._faults = random.Random(f"machine {seed}"), faults
        self.log, self.physical = MortalLog(), LossyPhysical()
        self.clock = MeteredClock()
        self.crashes = self.errors = 0
        self._input = list(orders(count, 1, 10))
        self._watch = Watch(self.log)
        create_topics(self.log.admin())
        append(self.log, customers())

    def open(self) -> Driver:
        """Start the engine as after a boot."""
        config = InstanceConfig(
            threads=2, rows_per_run=self.rng.choice((5, 15, 40)), **self.rng.choice(({}, IN_COLUMNS))
        )
        instance = Instance(self.log, self.physical, self.clock, config)
        driver = Driver(instance, seed=self.rng.randrange(1 << 30), tick=lambda: self.clock.advance(ROUND_MS))
        if not instance.resume().queries:
            instance.deploy(plan())
        return driver

    def live(self) -> Instance:
        """Until all input is processed and committed, or Killed."""
        driver = self.open()
        while self._input:
            if self.rng.random() < 0.5:
                append(self.log, self._input.pop(0))
            if self._faults:
                self._strike()
            driver.round()
            self._watch.check()
        self.physical.is_full = False
        driver.run_until_caught_up()
        self._watch.check()
        return driver.instance

    def _strike(self) -> None:
        self.physical.is_full &= self.rng.random() > 0.2
        if self.rng.random() < 0.25:
            self.physical.break_down()
            self.physical.is_full = self.rng.random() < 0.5
            self.errors += 1
        if self.rng.random() < 0.1:
            self.clock.set_wall(self.rng.choice(JUMPS_MS))

    def boot(self) -> None:
        """What is left after the engine was killed."""
        self.crashes += 1
        self.log.crash()
        self.physical = self.physical.after_crash(self.rng.randrange(self.physical.unflushed + 1))

    def run(self, crashes: int) -> CommittedContents:
        """To the end of the input, killed `crashes` times on the way."""
        while True:
            if self.crashes < crashes:
                self._plan_death()
            try:
                instance = self.live()
            except Killed:
                self.log.kill_before = self.log.kill_after = None
                self.boot()
                self._watch.check()
                continue
            found = contents_of(self.log, instance.snapshot())
            instance.close()
            return found

    def _plan_death(self) -> None:
        n = self.rng.randrange(1, 6)
        kind = self.rng.randrange(3)
        if kind == 0:
            self.log.kill_before = n
        elif kind == 1:
            self.log.kill_after = n
        else:
            self.physical.kill_at = n


class Watch:
    """Commits are numbered without gaps and positions never go back, over all lives."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._sequence = 0
        self._positions: dict[TopicPartition, int] = {}

    def check(self) -> None:
        sequence = self._log.last_sequence(APP)
        assert sequence >= self._sequence, f"commit {self._sequence} was followed by {sequence}"
        positions = {tp: p.offset for tp, p in self._log.admin().committed(APP).items()}
        for tp, offset in self._positions.items():
            assert positions.get(tp, -1) >= offset, f"{tp} went back from {offset} to {positions.get(tp)}"
        self._sequence, self._positions = sequence, positions

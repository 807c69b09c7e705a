"""Power loss at every I/O call of an instance: what was not fsynced is gone or torn, the state is at an older flush."""

from __future__ import annotations

import random
from functools import cache

from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.query_state import STOPPED
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import LogError
from flowql.runtime.log.embedded.log import EmbeddedLog
from tests.crash.contents import CommittedContents, contents_of, differences
from tests.crash.project import append, create_topics, customers, orders
from tests.crash.simulated import LossyPhysical, Watch, plan
from tests.simulated_disk import Keep, PowerLoss, SimulatedDisk

PARTS = 4
KEEPS: tuple[Keep, ...] = ("none", "some", "all")


class Computer:
    """A disk with the log, a state, and an engine that processes the input while it arrives."""

    def __init__(self, disk: SimulatedDisk, physical: LossyPhysical) -> None:
        self.disk, self.physical = disk, physical

    def work(self) -> CommittedContents:
        """Whatever is missing of the input is appended, everything is processed. PowerLoss when the disk says so."""
        log = EmbeddedLog("/log", self.disk)
        create_topics(log)
        watch = Watch(log)
        instance, clock = None, VirtualClock()
        clock_step = 50
        sources = [customers(), *orders(60, 1, 15)]
        assert len(sources) == PARTS + 1
        for n, parts in enumerate(sources):
            if log.last_sequence(f"source {n}") == 0:
                append(log, parts, f"source {n}")
            if instance is None:
                instance = Instance(log, self.physical, clock, InstanceConfig(rows_per_run=8))
                driver = Driver(instance, tick=lambda: clock.advance(clock_step))
                if not instance.resume().queries:
                    instance.deploy(plan())
            for _ in range(6):
                driver.round()
            if n == 2:
                instance.commit.flush()
            watch.check()
        assert instance is not None
        driver.run_until_caught_up()
        watch.check()
        assert not instance.query_states.having(STOPPED), instance.query_states.having(STOPPED)
        return contents_of(log, instance.snapshot())

    def after_power_loss(self, keep: Keep, seed: int) -> Computer:
        rng = random.Random(seed)
        survivor = self.physical.after_crash(rng.randrange(self.physical.unflushed + 1))
        return Computer(self.disk.after_power_loss(keep, seed), survivor)


@cache
def undisturbed() -> tuple[CommittedContents, int]:
    """What it comes to, and with how many I/O calls."""
    computer = Computer(SimulatedDisk(), LossyPhysical())
    return computer.work(), computer.disk.calls


def lose_power(n: int, keep: Keep) -> bool:
    """Work until call `n`, reboot, work to the end; checked against `undisturbed`. False if there was no such call."""
    computer = Computer(SimulatedDisk(fail_at=n), LossyPhysical())
    try:
        computer.work()
    except PowerLoss:
        rebooted = computer.after_power_loss(keep, n)
        found = differences(undisturbed()[0], rebooted.work())
        assert not found, f"power lost at call {n} ({computer.disk.trace[-1]}), keep={keep}: {found}"
        return True
    return False


def everywhere(step: int, first: int = 1) -> tuple[int, int]:
    """Each call from `first` in steps of `step`, each kind of loss in turn (all kinds if step is 1); calls and reboots."""
    losses = 0
    calls = undisturbed()[1]
    for n in range(first, calls + 1, step):
        for keep in KEEPS if step == 1 else (KEEPS[n // step % 3],):
            losses += lose_power(n, keep)
    return calls, losses


def trouble(disk: SimulatedDisk) -> int:
    """Work on a disk that runs full or fails for a while; an engine or source that gives up starts again. How often they did."""
    computer, starts = Computer(disk, LossyPhysical()), 0
    while True:
        try:
            found = differences(undisturbed()[0], computer.work())
            assert not found, f"{disk.trace[-3:]}: {found}"
            return starts
        except LogError:
            starts += 1
            assert starts < 20, disk.trace[-3:]
            disk.process_killed()
            computer = Computer(disk, computer.physical.after_crash(0))

"""A machine whose log keeps no redo: what its disk loses comes back from changelogs or not at all."""

from __future__ import annotations

from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.config import InstanceConfig
from tests.crash.simulated import ROUND_MS, LossyPhysical, Machine, plan

MENDED_ROUNDS = 40


class ForgetfulMachine(Machine):
    """Loses its whole disk at half of the crashes, else a suffix of what was written to it."""

    def __init__(self, seed: int, *, count: int = 160, faults: bool = False) -> None:
        super().__init__(seed, count=count, faults=faults)
        self.log.supports_redo = False
        self.died_restoring = 0
        self._running: Instance | None = None
        self._driver: Driver | None = None

    def open(self) -> Driver:
        config = InstanceConfig(threads=2, rows_per_run=self.rng.choice((5, 15, 40)), changelogs=True)
        instance = Instance(self.log, self.physical, self.clock, config)
        driver = Driver(instance, seed=self.rng.randrange(1 << 30), tick=lambda: self.clock.advance(ROUND_MS))
        self._running, self._driver = instance, driver
        if not instance.resume().queries:
            instance.deploy(plan())
        return driver

    def _strike(self) -> None:
        """Half of the errors are mended before the next one: until all tasks begin anew takes some rounds."""
        super()._strike()
        if self.physical.broken and self.rng.random() < 0.5:
            assert self._driver is not None
            self.physical.is_full = False
            for _ in range(MENDED_ROUNDS):
                self._driver.round()

    def boot(self) -> None:
        running, self._running = self._running, None
        self.died_restoring += running is not None and bool(running.state.restoring())
        super().boot()
        if self.rng.random() < 0.5:
            self.physical = LossyPhysical()

"""What an engine runs on and outlives it: a log and a state; and the moments at which it may die."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from flowql.runtime.errors import LogFull
from flowql.runtime.log.base import TopicInfo, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.transaction import Transaction
from tests.change.feed import FEEDER
from tests.crash.simulated import LossyPhysical
from tests.simulated_disk import SimulatedDisk


class Killed(BaseException):
    """The process is gone: nothing of it runs on."""


class Life:
    """Counts the moments at which an engine may die. at: the one at which it does; None for never. full: for so many rounds of its
    driver the log takes no commit.
    """

    def __init__(self) -> None:
        self.moments = self.full = 0
        self.at: int | None = None
        self.armed = False

    def moment(self) -> None:
        if self.armed:
            self.moments += 1
            if self.at is not None and self.moments >= self.at:
                self.at = None
                raise Killed

    @contextmanager
    def running(self) -> Iterator[None]:
        """Only what the engine does counts."""
        self.armed = True
        try:
            yield
        finally:
            self.armed = False


class MortalLog(MemoryLog):
    """The engine may die before and after each change it makes."""

    def __init__(self, life: Life) -> None:
        super().__init__()
        self._life = life

    def commit(self, transactional_id: str, epoch: int, transaction: Transaction) -> int:
        if transactional_id == FEEDER:
            return super().commit(transactional_id, epoch, transaction)
        self._life.moment()
        if self._life.full:
            raise LogFull("no space left on device")
        sequence = super().commit(transactional_id, epoch, transaction)
        self._life.moment()
        return sequence

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> TopicInfo:
        made = super().create_topic(name, partitions, config)
        self._life.moment()
        return made

    def delete_topic(self, name: str) -> None:
        self._life.moment()
        super().delete_topic(name)
        self._life.moment()

    def trim_redo(self, transactional_id: str, sequence: int) -> None:
        super().trim_redo(transactional_id, sequence)
        self._life.moment()


class LikeKafka(MortalLog):
    """No redo, and no commit takes records away: that is a request of its own. Its names are those that brokers take."""

    supports_redo = False
    drops_with_commits = False

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> TopicInfo:
        assert "@" not in name, f"no name for brokers: {name}"
        return super().create_topic(name, partitions, config)

    def drop_before(self, tp: TopicPartition, offset: int) -> None:
        self._life.moment()
        super().drop_before(tp, offset)
        self._life.moment()


class MortalPhysical(LossyPhysical):
    """The engine may die before each write."""

    def __init__(self, life: Life, rows: dict[bytes, bytes] | None = None) -> None:
        super().__init__(rows)
        self._life = life

    def write_batch(self, keys: Any, values: Any, ranges: Any = ()) -> None:
        self._life.moment()
        super().write_batch(keys, values, ranges)


class Machine(Protocol):
    """The log, opened; the state, with what a death has left of it."""

    physical: LossyPhysical

    @property
    def log(self) -> MemoryLog | EmbeddedLog: ...

    def die(self, rng: random.Random) -> None:
        """What was in memory is gone, and of what was written since the last flush any part at the end."""
        ...

    def restart(self) -> None:
        """The engine has ended in order."""
        ...


class Memory:
    """The log in memory: of a commit everything is there or nothing. kafka: it can do what brokers can."""

    def __init__(self, life: Life, *, kafka: bool = False) -> None:
        self._life = life
        self.log = LikeKafka(life) if kafka else MortalLog(life)
        self.physical: LossyPhysical = MortalPhysical(life)

    def die(self, rng: random.Random) -> None:
        self.log.crash()
        self.physical = _survivor(self.physical, self._life, rng)

    def restart(self) -> None:
        self.physical.flush()


class MortalDisk(SimulatedDisk):
    """The engine may die before each I/O call."""

    def __init__(self, life: Life) -> None:
        super().__init__()
        self._life = life

    def step(self, what: str, path: str) -> None:
        self._life.moment()
        super().step(what, path)


class Disk:
    """The embedded log on a disk. A death is that of the process, or a loss of power that takes or tears what was not fsynced."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._disk = MortalDisk(life)
        self.log = EmbeddedLog("/log", self._disk)
        self.physical: LossyPhysical = MortalPhysical(life)

    def die(self, rng: random.Random) -> None:
        if rng.random() < 0.4:
            self._disk.process_killed()
        else:
            left = self._disk.after_power_loss(rng.choice(("none", "some", "all")), rng.randrange(1 << 30))
            self._disk = MortalDisk(self._life)
            self._disk._nodes, self._disk._durable_names, self._disk._dirs = (
                left._nodes,
                left._durable_names,
                left._dirs,
            )
        self.physical = _survivor(self.physical, self._life, rng)
        self.log = EmbeddedLog("/log", self._disk)

    def restart(self) -> None:
        self.physical.flush()
        self.log = EmbeddedLog("/log", self._disk)


def _survivor(physical: LossyPhysical, life: Life, rng: random.Random) -> LossyPhysical:
    return MortalPhysical(life, physical.after_crash(rng.randrange(physical.unflushed + 1))._rows)

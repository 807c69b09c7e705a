"""One instance on the embedded log whose machine is lost, again and again: what its store has is restored, and must be a prefix of what was.

Log and links are real files in a folder in memory. The state is a simulated store that may lose what it has not flushed. Everything comes from one
seed, in one thread. The oracle is a fold over the records that were fed, up to the positions of the restored commit.
"""

from __future__ import annotations

import heapq
import pickle
import random
import shutil
import tempfile
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import ParamSpec, TypeVar
from unittest.mock import patch

from flowql.backup.lay import Restored, restore_backup
from flowql.backup.places import NOT_MADE, TORN
from flowql.compiler.plan.topology import Plan
from flowql.config.sections import StateSettings
from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.runtime.app import uploads
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.backup import collecting, pieces
from flowql.runtime.backup.place import Place
from flowql.runtime.commit import coordinator
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded import ledger, writer
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.remote.objects import OPENED, RemoteError
from flowql.runtime.state.remote import pace
from tests.crash.simulated import IN_COLUMNS, JUMPS_MS, LossyPhysical, MeteredClock
from tests.flowql.backup.world import APP, PARTITIONS, SQL, Feed, expected, found_in, settings_in
from tests.flowql.query.harness import plan_of
from tests.objects import MemoryObjects
from tests.sim.faults import Faults, Killed, rot
from tests.sim.groups import Violation
from tests.sim.objects import SimulatedObjects, named_by, url_of

P = ParamSpec("P")
T = TypeVar("T")

ROUND_MS = 10
KEYS, FED = 25, 40  # different keys; records of a transaction, at most
QUIET_ROUNDS = 1_500
REQUESTS = 60  # a machine is lost within so many requests to the store
TRACE = 80
SHORTENED: Sequence[tuple[ModuleType, str, int]] = (
    (uploads, "INTERVAL_MS", 150),
    (pace, "RETRY_MS", 50),
    (pace, "RETRY_MS_MAX", 300),
    (uploads, "COLLECT_MS", 300),
    (collecting, "KEPT", 3),
    (collecting, "GRACE_MS", 400),
    (collecting, "COMMAND_GRACE_MS", 1_000),
    (pieces, "PIECE_BYTES", 20_000),
    (pieces, "MERGED_BYTES", 8_000),
    (ledger, "ROLL_BYTES", 8_000),
    (writer, "REDO_FILE_BYTES", 2_000),
    (coordinator, "REDO_FLUSH_BYTES", 4_000),
)
EMBEDDED = Faults(
    slow_objects=0.04,
    failing_objects=0.003,
    unanswered_objects=0.01,
    count=30,
    kinds=(
        *["lost"] * 8,
        *["zombie"] * 3,
        *["kill"] * 2,
        *["stop"] * 2,
        *["store"] * 4,
        *["rot"] * 2,
        "clock",
        "command",
    ),
)


class FiledPhysical(LossyPhysical):
    """A simulated state whose copies are files, as RocksDB's are: those of rows that have not changed have the same name."""

    ROWS = 40

    def checkpoint(self, path: Path) -> None:
        path.mkdir(parents=True)
        rows, names = sorted(self._rows.items()), []
        for begin in range(0, len(rows), self.ROWS):
            data = pickle.dumps(rows[begin : begin + self.ROWS])
            names.append(f"{zlib.crc32(data):08x}.sst")
            (path / names[-1]).write_bytes(data)
        (path / "FILES").write_text("\n".join(names))

    @classmethod
    def in_folder(cls, path: Path) -> FiledPhysical:
        """Empty if there is none."""
        if not (path / "FILES").exists():
            return cls()
        names = (path / "FILES").read_text().split()
        return cls(dict(row for name in names for row in pickle.loads((path / name).read_bytes())))


class MachineObjects(SimulatedObjects):
    """The store as one machine sees it. feed: of the machine. left: requests until the machine is lost; None: it is not."""

    dead = False
    left: int | None = None

    def __init__(self, world: EmbeddedWorld, shared: MemoryObjects, name: str, feed: Feed) -> None:
        super().__init__(world, shared, name)
        self._histories, self._feed = world.histories, feed

    def put_new(self, name: str, data: bytes) -> bool:
        if "/manifests/" in name:
            self._histories[name] = self._feed
        return super().put_new(name, data)

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        def unless_dead() -> T:
            if self.dead:
                raise RemoteError("nobody waits for it")
            return call(*args, **kwargs)

        return super().submit(unless_dead)

    def _reach(self, request: str, name: str) -> None:
        self._die()
        super()._reach(request, name)

    def _answer(self, request: str, name: str) -> None:
        self._die()
        super()._answer(request, name)

    def _die(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                raise Killed


@dataclass(eq=False)
class Machine:
    """A process on a data directory of its own. fed: the records that its log was given."""

    name: str
    settings: Settings
    objects: MachineObjects
    log: EmbeddedLog
    physical: FiledPhysical
    instance: Instance
    driver: Driver
    feed: Feed


@cache
def plan() -> Plan:
    return plan_of(SQL)


class EmbeddedWorld:
    """Implements `StoreWorld`. The life of an application whose machines are lost."""

    def __init__(self, seed: int, faults: Faults = EMBEDDED, *, rounds: int = 400) -> None:
        self.rng, self.faults, self.rounds = random.Random(f"embedded {seed}"), faults, rounds
        self.clock, self.calm, self.turns = MeteredClock(1_000_000), False, 0
        self.objects = MemoryObjects("memory://of all", wall_ms=self.clock.timer_ms)
        self.objects_of: dict[str, object] = {}
        self.rotten: set[str] = set()
        self._whole: dict[str, tuple[bytes, int]] = {}  # objects before they were damaged
        self.wrong: list[str] = []
        self.store_away_ms = 0
        self.trace: list[str] = []
        self.happened: dict[str, int] = {}
        self.lost = 0  # machines
        self.restored: list[int] = []  # commits
        self.histories: dict[str, Feed] = {}  # by manifest, the records that its log was given
        self._heap: list[tuple[int, float, Callable[[], object]]] = []
        self._number = 0
        self._zombie: tuple[Machine, int] | None = None  # and for how many rounds it goes on
        shm = Path("/dev/shm")
        self._folder = Path(tempfile.mkdtemp(prefix="flowql-embedded-", dir=shm if shm.is_dir() else None))
        self._operator = SimulatedObjects(self, self.objects, "operator")

    @property
    def now(self) -> int:
        return self.clock.timer_ms()

    def lucky(self, chance: float) -> bool:
        return not self.calm and self.rng.random() < chance

    def at(self, ms: int, action: Callable[[], object]) -> None:
        heapq.heappush(self._heap, (ms, self.rng.random(), action))

    def note(self, text: str) -> None:
        self.trace = [*self.trace[-TRACE:], f"{self.now - 1_000_000:6d} {text}"]

    # -- a life

    def run(self) -> list[str]:
        """From an empty machine to the end of all faults; sentences about what is wrong then. Violation as soon as something is."""
        try:
            with shortened():
                return self._live()
        except Violation:
            raise
        except Exception as error:  # of a thread of the instance, or of its start
            raise Violation("".join(traceback.format_exception(error, limit=-6))) from error
        finally:
            for machine in (self._machine, self._zombie and self._zombie[0]) if hasattr(self, "_machine") else ():
                if machine:
                    self._drop(machine)
            shutil.rmtree(self._folder, ignore_errors=True)
            for name in [u for u in OPENED if u.startswith("simulated://")]:
                del OPENED[name]

    def _live(self) -> list[str]:
        self._machine = self._start(self._settings(), Feed(seed=self.rng.randrange(1 << 20), keys=KEYS))
        due = sorted(self.rng.randrange(50, self.rounds) for _ in range(self.faults.count))
        for n in range(self.rounds):
            while due and due[0] <= n:
                due.pop(0)
                self._strike()
            if self.rng.random() < 0.1:
                self._machine.feed.send(self._machine.log, self.rng.randrange(1, FED))
            self._go_on()
            if self.wrong:
                return self.wrong
        return self._settle()

    def _go_on(self) -> None:
        """One round of the machine, and of one that was given up and does not know it."""
        self.turns += 1
        machine = self._machine
        try:
            machine.driver.round()
            if self.turns % 16 == 0:
                machine.log.maintain(self.clock.wall_ms())
        except Killed:
            self._lose()
        if self._zombie is not None:
            zombie, left = self._zombie
            with suppress(Killed):
                zombie.driver.round()
            self._zombie = (zombie, left - 1)
            if left <= 0:
                self._drop(zombie)
                self._zombie = None
        gives_up = self._machine.instance.uploads
        if gives_up is not None and gives_up._given_up:  # the user is told so, and does what the message says
            self.note(f"{self._machine.name} is given up: {gives_up.status()['away'][:60]}")
            self._lose()

    def _tick(self) -> None:
        self.clock.advance(ROUND_MS)
        while self._heap and self._heap[0][0] <= self.now:
            heapq.heappop(self._heap)[2]()

    def _settle(self) -> list[str]:
        """No more faults. Everything is processed, uploaded and restored once more."""
        self.note("calm")
        self.calm, self.store_away_ms = True, 0
        self._machine.objects.left = None
        self._repair()
        if self._zombie is not None:
            self._zombie = (self._zombie[0], 0)
        for n in range(QUIET_ROUNDS):
            self._go_on()
            if n % 20 == 19 and self._is_uploaded():
                break
        else:
            return [*self.wrong, f"it is never uploaded: {self._uploads().status()}"]
        for _ in range(3 * (collecting.GRACE_MS + uploads.COLLECT_MS + collecting.COMMAND_GRACE_MS) // ROUND_MS):
            self._go_on()
        self._machine.driver.run_until_caught_up()
        self._uploads().finish()
        commit, fed = self._machine.log.last_sequence(APP), self._machine.feed.fed
        self.wrong += self._superfluous()
        self._lose()
        if self.restored[-1] != commit or self._machine.feed.fed != fed:
            self.wrong.append(f"commit {commit} was uploaded at the stop, and {self.restored[-1]} came back")
        self.wrong += self._differences(whole=True)
        return self.wrong

    def _is_uploaded(self) -> bool:
        status = self._uploads().status()
        return status["away"] is None and status["commit"] == self._machine.log.last_sequence(APP)

    def _uploads(self) -> uploads.InstanceUploads:
        assert self._machine.instance.uploads is not None
        return self._machine.instance.uploads

    def _superfluous(self) -> list[str]:
        """Objects that stay although nothing needs them."""
        manifests = [n for n in self.objects.data if "/manifests/" in n]
        needed = {name for manifest in manifests for name in named_by(self.objects, manifest)}
        left = sorted(n for n in self.objects.data.keys() - needed if "/files/" in n)
        return [f"{len(left)} objects that nothing needs stay: {left[:3]}"] if left else []

    # -- machines

    def _settings(self) -> Settings:
        self._number += 1
        return settings_in(self._folder / f"m{self._number}", state=StateSettings(self._operator.url))

    def _start(self, settings: Settings, feed: Feed, physical: FiledPhysical | None = None) -> Machine:
        name = settings.data_dir.name
        objects = MachineObjects(self, self.objects, name, feed)
        physical = physical or FiledPhysical.in_folder(settings.state_dir)
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        log = EmbeddedLog(settings.log_dir)
        for topic in {"s"} - log.topics().keys():
            log.create_topic(topic, PARTITIONS)
        config = InstanceConfig(
            APP,
            data_dir=settings.data_dir,
            rows_per_run=self.rng.choice((8, 20, 60)),
            remote_state=url_of(name),
            **self.rng.choice(({}, IN_COLUMNS)),
        )
        instance = Instance(log, physical, self.clock, config)
        if instance.state_lost:
            raise Violation(f"{name} has to make its state anew: {instance.state_lost}")
        driver = Driver(instance, seed=self.rng.randrange(1 << 30), tick=self._tick)
        machine = Machine(name, settings, objects, log, physical, instance, driver, feed)
        self.note(f"{name} starts at commit {log.last_sequence(APP)}")
        if not instance.resume().queries:
            instance.deploy(plan())
        return machine

    def _drop(self, machine: Machine) -> None:
        """It is gone, with its directory."""
        machine.objects.dead = True
        self._close(machine)
        shutil.rmtree(machine.settings.data_dir, ignore_errors=True)

    def _close(self, machine: Machine) -> None:
        """A process ends without a word: its locks are free. Its round ends now, and not when Python collects it: it would remove links of the next process."""
        if (upload := machine.instance.uploads) is not None and upload._round is not None:
            upload._round.close()  # type: ignore[attr-defined]
        for closing in (machine.log, machine.instance.restore.loop, machine.instance.main.loop):
            with suppress(RuntimeFailure, AssertionError):
                closing.close()

    def _lose(self) -> None:
        """The machine and its disk are gone. A user restores what the store has, and starts there."""
        lost = self._machine
        if self.rng.random() < 0.5:  # a request that was on its way arrives all the same
            with suppress(Killed):
                lost.objects.left = 1 if self.rng.random() < 0.5 else None
                while self._heap:
                    heapq.heappop(self._heap)[2]()
        self._heap.clear()
        self._drop(lost)
        self.note(f"{lost.name} is lost")
        self.lost += 1
        self._machine = self._restored()

    def _restored(self) -> Machine:
        settings = self._settings()
        if self.lucky(0.15):
            self._start_empty(replace(settings))
        wanted = self._newest_whole()
        done = self._restore(settings, wanted)
        if done is None:
            return self._start(settings, Feed(seed=self.rng.randrange(1 << 20), keys=KEYS))
        log = EmbeddedLog(settings.log_dir)
        ends = [log.end_offset(TopicPartition("s", p)) for p in range(PARTITIONS)]
        commit = log.last_sequence(APP)
        log.close()
        history = list(zip(self.histories[done.object].fed, ends, strict=True))
        fed = [rows[:end] for rows, end in history]
        if any(end > len(rows) for rows, end in history):
            raise Violation(f"{done.object} has records that nobody has written: {ends}")
        if done.manifest.commit != commit:
            raise Violation(f"{done.object} says commit {done.manifest.commit}, and the log has {commit}")
        self.restored.append(commit)
        self._machine = self._start(settings, Feed(seed=self.rng.randrange(1 << 20), keys=KEYS, fed=fed))
        if wrong := self._differences():
            raise Violation(f"{done.object}: {wrong}")
        return self._machine

    def _restore(self, settings: Settings, wanted: str | None) -> Restored | None:
        """As a user does it, who tries again while the store is away. None if there is nothing to restore."""
        for _ in range(QUIET_ROUNDS):
            try:
                done = restore_backup(settings, settings.state.remote, replace=True)
            except CommandError as error:
                if error.code == NOT_MADE:
                    self._tick()
                    continue
                if error.code == TORN and wanted is None:
                    if not any("/instance/manifests/" in n for n in (*self.objects.data, *self._whole)):
                        return None
                    self.note(f"nothing is whole: {error}")
                    self._repair()
                    wanted = self._newest_whole()
                    continue
                raise Violation(f"{wanted} is not restored: {error}") from error
            if done.object != wanted:
                raise Violation(f"{done.object} is restored, and {wanted} is whole")
            self.note(f"commit {done.manifest.commit} is restored from {done.object}")
            for aside in self._folder.glob("*.replaced-*"):
                shutil.rmtree(aside)
            return done
        raise Violation("it is never restored")

    def _newest_whole(self) -> str | None:
        """The manifest that a restore must take."""
        data = self.objects.data
        names = sorted((n for n in data if "/instance/manifests/" in n), reverse=True)
        for name in names:
            needs = set() if name in self.rotten else named_by(self.objects, name)
            if name == names[0] and (missing := needs - data.keys() - self.rotten):
                raise Violation(f"{name} needs {sorted(missing)}")
            if name not in self.rotten and not needs - (data.keys() - self.rotten):
                return name
        return None

    def _differences(self, *, whole: bool = False) -> list[str]:
        """Results of the machine's last commit against the fold. whole: everything has been read."""
        machine = self._machine
        with machine.instance.snapshot() as snapshot:
            results, ends = found_in(snapshot, machine.log)
        wanted = expected(machine.feed.fed, ends)
        if whole:
            everything = {query: [len(rows) for rows in machine.feed.fed] for query in ends}
            return [] if results == expected(machine.feed.fed, everything) else ["results are not those of all records"]
        return (
            [] if results.without_b() == wanted.without_b() else [f"results are not those of the records up to {ends}"]
        )

    def _start_empty(self, settings: Settings) -> None:
        """Somebody starts an instance in an empty directory before the restore."""
        if not self._newest_whole():
            return
        self.note("an instance starts in an empty directory")
        before = {n for n in self.objects.data if "/manifests/" in n}
        machine = self._start(settings, Feed(keys=KEYS))
        for _ in range(40):
            machine.driver.round()
        machine.objects.dead = True
        self._heap.clear()
        self._close(machine)
        if hidden := {n for n in self.objects.data if "/manifests/" in n} - before:
            raise Violation(f"an empty directory has hidden what was there: {sorted(hidden)}")

    # -- faults

    def _strike(self) -> None:
        kind = self.rng.choice(self.faults.kinds)
        self.happened[kind] = self.happened.get(kind, 0) + 1
        machine = self._machine
        if kind == "lost":
            machine.objects.left = self.rng.randrange(1, REQUESTS)
            if self.rng.random() < 0.4:
                self._lose()
        elif kind == "zombie":
            if self._zombie is None:
                self.note(f"{machine.name} is given up and goes on")
                self._zombie = (machine, self.rng.randrange(5, 80))
                self._machine = self._restored()
        elif kind in ("kill", "stop"):
            self._restart(graceful=kind == "stop")
        elif kind == "store":
            ms = self.rng.choice((300, 1_500))
            self.note(f"the remote store is away for {ms} ms")
            self.store_away_ms = self.now + ms
        elif kind == "rot":
            before = dict(self.objects.data)
            rot(self)
            self._whole |= {n: before[n] for n in self.rotten if n in before and n not in self._whole}
        elif kind == "clock":
            self.clock.set_wall(self.rng.choice(JUMPS_MS))
        elif kind == "command":
            with suppress(RemoteError):
                Place(self._operator, APP).take_term("command")

    def _restart(self, *, graceful: bool) -> None:
        """The process alone is gone, and its directory stays."""
        old, upload = self._machine, self._uploads()
        physical = old.physical
        if graceful:
            with suppress(Killed):
                old.driver.commit()
                upload.finish()
            old.instance.commit.flush()
        else:
            kept = physical.after_crash(self.rng.randrange(physical.unflushed + 1))
            physical = FiledPhysical(kept._rows)
        old.objects.dead = True
        self._heap.clear()
        self._close(old)
        self.note(f"{old.name} {'stops' if graceful else 'is killed'}")
        self._machine = self._start(old.settings, old.feed, FiledPhysical(dict(physical._rows)))

    def _repair(self) -> None:
        """A user brings back what was damaged, from versions that the bucket keeps."""
        for name, whole in self._whole.items():
            self.objects.data[name] = whole
        self._whole.clear()
        self.rotten.clear()


@contextmanager
def shortened() -> Iterator[None]:
    """Intervals and files of a simulation."""
    with ExitStack() as patched:
        for module, name, value in SHORTENED:
            patched.enter_context(patch.object(module, name, value))
        yield

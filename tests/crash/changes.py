"""Queries of instances on Kafka are changed, again and again, while input comes and instances are killed; to the same end.

`python -m tests.crash.changes --seeds 20` (its own broker for each); a process of it is `... run DIR BOOTSTRAP NAME MODE`. At the end
topics hold what DuckDB makes of the input with the last change; at no moment a stream holds a row of two generations.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from flowql.kafka.broker import Broker
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.app.status import instance_metrics, statuses
from flowql.runtime.clock import SystemClock
from flowql.runtime.commit.positions import readers_in
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import LogError, LogUnavailable, RuntimeFailure
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.state.rocks import open_rocks
from tests.crash.kafka import END_S
from tests.kafka_broker import QUICK
from tests.sim import project

APP = "flowql"


def run(folder: Path, bootstrap: str, name: str, mode: str) -> None:
    """An instance: it deploys what is wanted if that is its turn, until input has ended and everything is processed."""
    shared = mode == "many"
    config = InstanceConfig(APP, threads=2, changelogs=True, shared=shared, process_id=name if shared else "")
    log = KafkaLog(Connection(bootstrap, shared=shared), APP)
    instance = Instance(log, open_rocks(folder / name), SystemClock(), config)
    asked: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _frame: asked.append(number))
    faulthandler.register(signal.SIGUSR2)
    instance.start()
    instance.resume()
    print("ready", flush=True)
    while True:
        if instance.fatal is not None:
            raise instance.fatal
        change, deployer = json.loads((folder / "wanted").read_text())
        wanted = project.changed_plan(tuple(change))
        if asked:
            asked.clear()
            _say_where(instance, as_wanted=_same(instance.deployed.plan, wanted))
        if not _same(instance.deployed.plan, wanted):
            # One that was frozen as it deployed what was wanted then may do so after the other has deployed the last change, and ended.
            if deployer == name or (folder / "ended").exists():
                _deploy(instance, wanted)
        elif (folder / "ended").exists() and _caught_up(instance):
            break
        time.sleep(0.05)
    stuck = instance.stop()
    assert not stuck, stuck


def _say_where(instance: Instance, *, as_wanted: bool) -> None:
    """What keeps it from the end."""
    found: dict[str, object] = {
        "instance": instance_metrics(instance),
        "queries": statuses(instance),
        "running": [q.id for q in instance.running.queries],
        "swap": instance.deployed.swap is not None,
        "at rest": instance.deployer.at_rest,
        "as wanted": as_wanted,
    }
    if instance.group is not None:
        of, ends = instance.group.planned.readers, source_ends(instance)
        positions = instance.admin.stable_positions(instance.config.application_id, sorted(of))
        found["short"] = {
            str(tp): f"{positions[tp].offset if tp in positions else None} of {end}, "
            + ("" if tp in positions and readers_in(positions[tp].metadata) == of[tp] else "of other tasks")
            for tp, end in ((tp, ends.get(tp, instance.admin.written_offset(tp))) for tp in sorted(of))
        }
    print(json.dumps(found, indent=1, default=str), file=sys.stderr, flush=True)


def _same(plan, wanted) -> bool:
    one, other = ({q.id: q.definition for q in p.queries} for p in (plan, wanted))
    return one == other


def _deploy(instance: Instance, wanted) -> None:
    try:
        instance.deploy(wanted)
        print(f"deployed {[q.id for q in instance.running.queries]}", file=sys.stderr, flush=True)
    except (RuntimeFailure, TimeoutError) as error:
        print(f"not deployed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def _caught_up(instance: Instance) -> bool:
    try:
        return caught_up(instance, source_ends(instance))
    except LogUnavailable:
        return False


class ChangesRun:
    """Of one seed. mode: `many` instances, or `one`."""

    def __init__(self, broker: Broker, folder: Path, seed: int, mode: str, say: Callable[[str], None]) -> None:
        self.rng = random.Random(f"changes {seed}")
        self.broker, self.folder, self.mode, self.say = broker, folder, mode, say
        self.bootstrap = broker.start(java_options=QUICK).bootstrap
        self.log = KafkaLog(Connection(self.bootstrap), "outside")
        self.names = ["m0", "m1"] if mode == "many" else ["m0"]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.change = project.CHANGES[0]
        self.wrong: list[str] = []
        self.samples = 0

    def life(self, orders: int, seconds: float, events: int) -> list[str]:
        """What is wrong at the end, or was at some moment."""
        for topic in ("orders", "customers"):
            self.log.admin().create_topic(topic, project.PARTITIONS)
        self._append(project.customers())
        self._want(self.change)
        for name in self.names:
            self._start(name)
        parts = project.orders(orders, self.rng, 10)
        source = threading.Thread(target=self._feed, args=(parts, seconds))
        source.start()
        for _ in range(events):
            self._watch(self.rng.uniform(0.5, 4.0))
            self._strike()
        source.join()
        (self.folder / "ended").touch()
        limit = time.monotonic() + END_S
        while any(p.poll() is None for p in self.processes.values()):
            self._watch(0.3)
            if time.monotonic() > limit:
                return [*self.wrong, *self._stand_still()]
        failed = [
            f"{n} ended with {p.returncode}: {self._last_words(n)}" for n, p in self.processes.items() if p.returncode
        ]
        left = [t for t in self.log.admin().topics() if "staging" in t]
        self.say(f"{self.samples} samples, left: {left}")
        return [*self.wrong, *failed, *project.differences(self.log, change=self.change)]

    def _stand_still(self) -> list[str]:
        """Who has not come to the end, and what each says of why."""
        left = {n: p for n, p in self.processes.items() if p.poll() is None}
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            for process in left.values():
                process.send_signal(number)
            time.sleep(5)
        return [f"{name} never gets there: {self._last_words(name)}" for name in left]

    def _last_words(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text(errors="replace")[-20_000:]

    def _start(self, name: str) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.crash.changes",
            "run",
            str(self.folder),
            self.bootstrap,
            name,
            self.mode,
        ]
        with (self.folder / f"{name}.out").open("ab") as out:
            self.processes[name] = subprocess.Popen(command, stdout=out, stderr=out)

    def _strike(self) -> None:
        kind = self.rng.choice(("change", "change", "change", "kill", "kill", "wipe", "freeze"))
        name = self.rng.choice(self.names)
        self.say(f"{kind} {name}" if kind != "change" else kind)
        if kind == "change":
            self._want(self.rng.choice([c for c in project.CHANGES if c != self.change]))
        elif kind == "freeze":
            self.processes[name].send_signal(signal.SIGSTOP)
            self._watch(self.rng.choice((1.0, 12.0)))  # with the second its session has ended
            self.processes[name].send_signal(signal.SIGCONT)
        else:
            self.processes[name].kill()
            self.processes[name].wait()
            if kind == "wipe":
                shutil.rmtree(self.folder / name, ignore_errors=True)
            if self.mode == "many":  # the other one goes on alone for a while
                self._want(self.change, next(n for n in self.names if n != name))
                self._watch(self.rng.choice((0.0, 2.0, 8.0)))
            self._start(name)

    def _want(self, change: tuple[int, int], deployer: str | None = None) -> None:
        self.change = change
        part = self.folder / "wanted.part"
        part.write_text(json.dumps([change, deployer or self.rng.choice(self.names)]))
        os.replace(part, self.folder / "wanted")

    def _append(self, parts: list[project.Part]) -> None:
        producer = self.log.producer("source")
        producer.begin()
        for tp, records in parts:
            producer.send(tp, records)
        producer.commit()
        producer.close()

    def _feed(self, parts: list[list[project.Part]], seconds: float) -> None:
        log = KafkaLog(Connection(self.bootstrap), "feeding")
        producer, begin = log.producer("feeding-source"), time.monotonic()
        for n, part in enumerate(parts):
            time.sleep(max(0.0, begin + n * seconds / len(parts) - time.monotonic()))
            producer.begin()
            for tp, records in part:
                producer.send(tp, records)
            producer.commit()
        producer.close()
        log.close()

    def _watch(self, seconds: float) -> None:
        """Look at streams for so long. A look during which records were deleted may have seen some from before and after."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                before, found = self._begins(), project.twice(self.log)
                if before == self._begins():
                    self.samples += 1
                    self.wrong += found
            except LogError as error:
                self.say(f"no look: {error}")
            time.sleep(0.2)

    def _begins(self) -> list[int]:
        topics = [t for t in ("big", "named") if t in self.log.admin().topics()]
        return [self.log.admin().begin_offset(TopicPartition(t, p)) for t in topics for p in range(project.PARTITIONS)]


def check(
    broker: Broker,
    folder: Path,
    seed: int,
    *,
    mode: str,
    orders: int = 2000,
    seconds: float = 40.0,
    events: int = 10,
    say: Callable[[str], None] = lambda text: None,
) -> list[str]:
    """Sentences about what is wrong."""
    run = ChangesRun(broker, folder, seed, mode, say)
    try:
        return run.life(orders, seconds, events)
    finally:
        for process in run.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        run.log.close()
        broker.kill()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.changes", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    parser.add_argument("--mode", choices=("many", "one"), default="many")
    parser.add_argument("--orders", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--events", type=int, default=10)
    parser.add_argument("--keep", type=Path, help="a directory for what processes say")
    given = parser.parse_args()
    for seed in range(given.seed, given.seed + given.seeds):
        with tempfile.TemporaryDirectory() as scratch:
            folder, begin = Path(scratch), time.monotonic()
            wrong = check(
                Broker(folder / "broker"),
                folder,
                seed,
                mode=given.mode,
                orders=given.orders,
                seconds=given.seconds,
                events=given.events,
                say=lambda text: print(text, end="; ", flush=True),
            )
            print(
                f"\nseed {seed}: {time.monotonic() - begin:.0f} s, " + ("; ".join(wrong) or "as DuckDB says"),
                flush=True,
            )
            if given.keep is not None:
                given.keep.mkdir(parents=True, exist_ok=True)
                for out in folder.glob("m*.out"):
                    shutil.copy(out, given.keep / f"{seed}-{out.name}")
            if wrong:
                return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(Path(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5])
    else:
        raise SystemExit(main())

"""Several instances of one application on Kafka: they join, leave, are killed and frozen at random moments, to the same end.

`python -m tests.crash.members --events 12` (its own broker); a process of it is `... run DIR BOOTSTRAP NAME`.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from flowql.kafka.broker import Broker
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.clock import SystemClock, VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.kafka.connection import LOGGER, Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.rocks import open_rocks
from tests.crash.contents import DEAD_LETTERS, CommittedContents, contents_of, differences, records_of
from tests.crash.kafka import APP, END_S, PER_TRANSACTION, connect, prepare
from tests.crash.kills import Shape
from tests.crash.project import append, compiled, create_topics, customers, orders
from tests.kafka_broker import QUICK

SILENT_S = 5.0  # by then the others have given a member up


@dataclass(slots=True)
class Member:
    """A process of the application."""

    name: str
    process: subprocess.Popen[str]
    frozen: bool = False

    def end(self, how: int) -> str:
        self.process.send_signal(how)
        if how != signal.SIGKILL and self.frozen:
            self.process.send_signal(signal.SIGCONT)
        return self.process.communicate(timeout=END_S)[1]


def run(folder: Path, bootstrap: str, name: str) -> None:
    """A member: until told to leave (SIGTERM), or until input has ended and everything is processed by whoever has it."""
    leaving: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: leaving.append(number))
    config = InstanceConfig(APP, threads=2, changelogs=True, shared=True, process_id=name)
    log = KafkaLog(Connection(bootstrap, shared=True), APP)
    instance = Instance(log, open_rocks(folder / name), SystemClock(), config)
    instance.start()
    instance.resume()
    instance.deploy(compiled())
    print("ready", flush=True)
    while not leaving and not ((folder / "ended").exists() and _caught_up(instance)):
        if instance.fatal is not None:
            raise instance.fatal
        time.sleep(0.05)
    stuck = instance.stop()
    assert not stuck, stuck


def _caught_up(instance) -> bool:
    try:
        return caught_up(instance, source_ends(instance))
    except LogUnavailable:
        return False


@contextmanager
def source(bootstrap: str, shape: Shape) -> Iterator[None]:
    """Append the orders over `shape.seconds` from a thread; ends with all of them appended, each once, whatever brokers do."""
    client = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": int(END_S * 1000)},
        logger=LOGGER,
    )
    refused: list[object] = []

    def produce() -> None:
        parts = list(orders(shape.orders, shape.seed, PER_TRANSACTION))
        begin = time.monotonic()
        for n, part in enumerate(parts):
            while (wait := begin + n * shape.seconds / len(parts) - time.monotonic()) > 0:
                client.poll(wait)
            for tp, records in part:
                for r in records.to_pylist():
                    client.produce(
                        tp.topic,
                        r["value"],
                        r["key"],
                        tp.partition,
                        timestamp=r["timestamp"],
                        on_delivery=lambda error, _: refused.append(error) if error else None,
                    )
        refused.extend([client.flush(END_S)] if client.flush(END_S) else [])

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert not refused, refused


def start(folder: Path, bootstrap: str, name: str) -> Member:
    command = [sys.executable, "-m", "tests.crash.members", "run", str(folder), bootstrap, name]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return Member(name, process)


def ready(member: Member) -> None:
    assert member.process.stdout is not None
    line = member.process.stdout.readline()
    assert line == "ready\n", f"{member.name}: {line} {member.process.communicate(timeout=END_S)[1]}"


def disturbed(
    broker: Broker, folder: Path, shape: Shape, events: Sequence[str], say: Callable[[str], None] = lambda text: None
) -> CommittedContents:
    """One member works; what `events` say happens to it and others while input comes. Stores are not compared: they are spread.

    join, leave, kill; restart: killed and started again, wipe: without its state; freeze: until others have its partitions, thaw; broker.
    """
    rng = random.Random(f"members {shape.moments}")
    bootstrap = broker.start(java_options=QUICK).bootstrap
    prepare(bootstrap)
    members: list[Member] = []
    numbers = iter(range(10_000))

    def join(name: str | None = None) -> None:
        members.append(start(folder, bootstrap, name or f"m{next(numbers)}"))
        ready(members[-1])

    with source(bootstrap, shape):
        join()
        for event in events:
            time.sleep(rng.uniform(0.5, 3.0))
            for member in members:
                assert member.frozen or member.process.poll() is None, (
                    f"seed {shape.seed}: {member.end(signal.SIGKILL)}"
                )
            awake = [m for m in members if not m.frozen]
            if event == "join":
                join()
            elif event == "broker":
                broker.kill()
                broker.start(java_options=QUICK)
            elif event == "thaw":
                for member in (m for m in members if m.frozen):
                    member.process.send_signal(signal.SIGCONT)
                    member.frozen = False
            else:
                chosen = rng.choice(awake)
                if event == "freeze":
                    chosen.process.send_signal(signal.SIGSTOP)
                    chosen.frozen = True
                    time.sleep(SILENT_S)  # others have what it had
                else:
                    said = chosen.end(signal.SIGTERM if event == "leave" else signal.SIGKILL)
                    assert event != "leave" or chosen.process.returncode == 0, f"seed {shape.seed}: {said}"
                    members.remove(chosen)
                    if event == "wipe":
                        shutil.rmtree(folder / chosen.name, ignore_errors=True)
                    if event in ("restart", "wipe"):
                        join(chosen.name)
                    elif not members:
                        join()
            say(event)
    (folder / "ended").touch()
    for member in members:
        if member.frozen:
            member.process.send_signal(signal.SIGCONT)
        said = member.process.communicate(timeout=END_S)[1]
        assert member.process.returncode == 0, f"seed {shape.seed}: {member.name}: {said}"
    return read_topics(bootstrap)


def read_topics(bootstrap: str) -> CommittedContents:
    log = connect(bootstrap)
    try:
        found = contents_of(log, StateManager(MemoryPhysical()).snapshot())
        found.appended["orders"] = Counter((p, r["key"], r["value"]) for p, r in records_of(log, "orders"))
        return without_stores(found)
    finally:
        log.close()


def undisturbed(shape: Shape) -> CommittedContents:
    """The same input to an instance that is alone, in memory, with local exchanges."""
    log = MemoryLog()
    create_topics(log.admin())
    append(log, customers())
    instance = Instance(log, MemoryPhysical(), VirtualClock(), InstanceConfig(APP, threads=1))
    driver = Driver(instance)
    instance.deploy(compiled())
    for part in orders(shape.orders, shape.seed, 500):
        append(log, part)
    driver.run_until_caught_up()
    found = contents_of(log, instance.snapshot())
    found.appended["orders"] = Counter((p, r["key"], r["value"]) for p, r in records_of(log, "orders"))
    return without_stores(found)


def without_stores(found: CommittedContents) -> CommittedContents:
    """Stores are spread over members; dead letters name offsets, which depend on how many transactions there were."""
    found.stores = {}
    dead = Counter(re.sub(rb'"OFFSET":\d+', b"", letter[3]) for letter in found.appended[DEAD_LETTERS].elements())
    found.appended[DEAD_LETTERS] = dead
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", default="join,leave,join,kill,join,freeze,thaw,leave")
    parser.add_argument("--orders", type=int, default=4000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        shape = Shape(given.orders, given.seconds, 0, given.seed, moments=given.seed)
        wrong = check(
            Broker(Path(scratch) / "broker"),
            Path(scratch),
            shape,
            given.events.split(","),
            lambda text: print(text, end=" ", flush=True),
        )
    print("\n" + ("\n".join(wrong) or "no difference"))
    return 1 if wrong else 0


def check(
    broker: Broker, folder: Path, shape: Shape, events: Sequence[str], say: Callable[[str], None] = lambda text: None
) -> list[str]:
    """Sentences about what differs between members with these events and one undisturbed instance."""
    try:
        seen = disturbed(broker, folder, shape, events, say)
    finally:
        broker.kill()
    return differences(undisturbed(shape), seen)


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(Path(sys.argv[2]), sys.argv[3], sys.argv[4])
    else:
        raise SystemExit(main())

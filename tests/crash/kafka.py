"""The same kills on Kafka: the process, its state directory and the broker go at random moments, to the same end.

`python -m tests.crash.kafka --kills 30 --restarts 5` (its own broker); a process of it is `... run DIR BOOTSTRAP`.
A broker that dies between the preparation of a commit and its markers: `python -m tests.crash.markers`.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flowql.deploy.engine import open_on
from flowql.kafka.broker import Broker
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import Fenced, LogUnavailable, TransactionAborted
from flowql.runtime.log.base import Log
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.state.changelog import metadata_topic
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.rocks import open_rocks
from tests.crash.contents import DEAD_LETTERS, CommittedContents, contents_of, differences
from tests.crash.kills import Shape
from tests.crash.project import APPENDED, UPSERTED, compiled, create_topics, customers, orders
from tests.kafka_broker import QUICK

PER_TRANSACTION = 10
END_S = 300.0
APP = "flowql"


@dataclass(frozen=True, slots=True)
class Plan:
    """kills: of the process; wipes: how many of them take its state directory along; restarts: of the broker, killed as well.

    at_least_once: the process does without transactions.
    """

    kills: int
    wipes: int
    restarts: int
    at_least_once: bool = False


def connect(bootstrap: str, *, at_least_once: bool = False) -> KafkaLog:
    return KafkaLog(Connection(bootstrap), APP, at_least_once=metadata_topic(APP) if at_least_once else None)


def undisturbed(broker: Broker, folder: Path, shape: Shape) -> CommittedContents:
    """The same input, nobody killed. Leaves the broker without topics."""
    bootstrap = broker.start(java_options=QUICK).bootstrap
    prepare(bootstrap)
    with _source(bootstrap, Shape(shape.orders, 0.0, 0, shape.seed)):
        pass
    _finish(folder, bootstrap, Plan(0, 0, 0))
    found = read_outcome(folder, bootstrap)
    _clear(bootstrap)
    return found


def disturbed(
    broker: Broker, folder: Path, shape: Shape, plan: Plan, say: Callable[[str], None] = lambda text: None
) -> CommittedContents:
    """Kill until the source has ended and all is done that was planned; then let it finish."""
    rng = random.Random(f"kafka {shape.moments}")
    bootstrap = broker.start(java_options=QUICK).bootstrap
    prepare(bootstrap)
    events = ["wipe"] * plan.wipes + ["kill"] * (plan.kills - plan.wipes) + ["broker"] * plan.restarts
    rng.shuffle(events)
    with _source(bootstrap, shape):
        child: subprocess.Popen[str] | None = None
        for event in events:
            if child is None:
                wait = rng.random() > 0.25  # some are hit while they start
                child = _started(folder, bootstrap, plan, wait=wait)
            time.sleep(rng.uniform(0.0, 2.0))
            ended = child.poll()
            assert ended is None, f"seed {shape.seed}: ended with {ended}: {_said(child)}"
            if event == "broker":
                broker.kill()
                broker.start(java_options=QUICK)
            else:
                child.kill()
                _said(child)
                child = None
                if event == "wipe":
                    shutil.rmtree(folder / "state", ignore_errors=True)  # one that was just starting made none
            say(event)
        if child is not None:
            child.kill()
            _said(child)
    _finish(folder, bootstrap, plan)
    return read_outcome(folder, bootstrap)


def prepare(bootstrap: str) -> None:
    log = connect(bootstrap)
    create_topics(log.admin())
    for topic in (*APPENDED, *UPSERTED):
        log.create_topic(topic, 2)
    with _appending(log) as append:
        append(customers())
    log.close()


def read_outcome(folder: Path, bootstrap: str) -> CommittedContents:
    log = connect(bootstrap)
    state = StateManager(open_rocks(folder / "state"))
    try:
        found = contents_of(log, state.snapshot())
        dead = found.appended[DEAD_LETTERS]  # offsets depend on how many transactions there were
        found.appended[DEAD_LETTERS] = Counter(
            {(*k[:3], re.sub(rb'"OFFSET":\d+', b"", k[3])): n for k, n in dead.items()}
        )
        return found
    finally:
        state.close()
        log.close()


def run(folder: Path, bootstrap: str, *, at_least_once: bool) -> None:
    """The process that is killed: until told that input has ended, then until everything is processed and committed."""
    config = InstanceConfig(APP, threads=2, changelogs=True)
    instance = open_on(connect(bootstrap, at_least_once=at_least_once), folder / "state", config)
    instance.start()
    instance.resume()
    instance.deploy(compiled())
    print("ready", flush=True)
    while not (folder / "ended").exists() or not _caught_up(instance):
        if instance.fatal is not None:
            raise instance.fatal
        time.sleep(0.01)
    stuck = instance.stop()
    assert not stuck, stuck


def _caught_up(instance) -> bool:
    try:
        return caught_up(instance, source_ends(instance))
    except LogUnavailable:
        return False


def _finish(folder: Path, bootstrap: str, plan: Plan) -> None:
    (folder / "ended").touch()
    done = subprocess.run(_command(folder, bootstrap, plan), timeout=END_S, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _command(folder: Path, bootstrap: str, plan: Plan) -> list[str]:
    how = ["at_least_once"] if plan.at_least_once else []
    return [sys.executable, "-m", "tests.crash.kafka", "run", str(folder), bootstrap, *how]


def _started(folder: Path, bootstrap: str, plan: Plan, *, wait: bool) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        _command(folder, bootstrap, plan), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    if wait:
        assert child.stdout.readline() == "ready\n", _said(child)
    return child


def _said(child: subprocess.Popen[str]) -> str:
    return child.communicate(timeout=END_S)[1]


@contextmanager
def _appending(log: Log) -> Iterator[Callable[[list], None]]:
    """Transactions from outside; one that fails is made again, unless it turns out to be there.

    Nobody else writes as `source`: if it is fenced, a broker was slow. It aborts what takes longer than the timeout, and a request
    for an epoch that the client has sent twice may count twice.
    """
    producer, sequence = log.producer("source"), log.last_sequence("source")

    def append(parts: list) -> None:
        nonlocal producer, sequence
        limit = time.monotonic() + END_S
        while True:
            try:
                producer.begin()
                for tp, records in parts:
                    producer.send(tp, records)
                producer.commit()
                sequence += 1
                return
            except (LogUnavailable, TransactionAborted, Fenced):
                producer = _again(log, limit)
                if log.last_sequence("source") == sequence + 1:
                    sequence += 1
                    return

    try:
        yield append
    finally:
        producer.close()


def _again(log: Log, limit: float):
    while True:
        try:
            return log.producer("source")
        except LogUnavailable:
            if time.monotonic() > limit:
                raise


@contextmanager
def _source(bootstrap: str, shape: Shape) -> Iterator[None]:
    """Append the orders over `shape.seconds` from a thread; ends with all of them appended."""
    failures: list[BaseException] = []

    def produce() -> None:
        try:
            log = connect(bootstrap)
            parts = list(orders(shape.orders, shape.seed, PER_TRANSACTION if shape.seconds else 500))
            start = time.monotonic()
            with _appending(log) as append:
                for n, part in enumerate(parts):
                    time.sleep(max(0.0, start + n * shape.seconds / len(parts) - time.monotonic()))
                    append(part)
            log.close()
        except BaseException as error:  # belongs to the run, which must not pass without its input
            failures.append(error)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failures:
        raise failures[0]


def _clear(bootstrap: str) -> None:
    log = connect(bootstrap)
    for topic in log.topics():
        log.delete_topic(topic)
    log.close()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--wipes", type=int, default=5)
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--orders", type=int, default=4000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        wrong = check(
            Broker(Path(scratch) / "broker"),
            Path(scratch),
            Shape(given.orders, given.seconds, given.kills, given.seed, moments=given.seed),
            Plan(given.kills, given.wipes, given.restarts),
            lambda text: print(text, end=" ", flush=True),
        )
    print("\n" + ("\n".join(wrong) or "no difference"))
    return 1 if wrong else 0


def check(
    broker: Broker, folder: Path, shape: Shape, plan: Plan, say: Callable[[str], None] = lambda text: None
) -> list[str]:
    """Sentences about what differs between a run that was disturbed and one that was not."""
    try:
        for name in ("undisturbed", "disturbed"):
            (folder / name).mkdir()
        expected = undisturbed(broker, folder / "undisturbed", shape)
        seen = disturbed(broker, folder / "disturbed", shape, plan, say)
    finally:
        broker.kill()
    return differences(expected, seen)


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(Path(sys.argv[2]), sys.argv[3], at_least_once="at_least_once" in sys.argv[4:])
    else:
        raise SystemExit(main())

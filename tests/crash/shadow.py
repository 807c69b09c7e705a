"""Generations that are held back, on real brokers: two members of a group compare, abandon and promote them while input comes.

`python -m tests.crash.shadow --rounds 3` (with a broker of its own). The members are two instances in one process. Each comparison has
to say of the two generations what their texts say; at the end topics hold what DuckDB makes of the input with what was promoted.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flowql.deploy.request import DeployRequest
from flowql.errors import CommandError
from flowql.kafka.broker import Broker
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.state.rocks import open_rocks
from flowql.server.on_runtime import RuntimeEngine
from flowql.server.service import Service
from tests.kafka_broker import QUICK
from tests.sim import project

APP, NAMES = "flowql", ("m0", "m1")
PATIENCE_S, TRY_AGAIN_S, PAUSE_S = 120.0, 0.3, 0.1


class Members:
    """Two instances, and a thread that appends orders until it is stopped."""

    def __init__(self, folder: Path, bootstrap: str, seed: int) -> None:
        self.rng = random.Random(f"shadow {seed}")
        self.bootstrap, self.log = bootstrap, KafkaLog(Connection(bootstrap), "outside")
        for topic in ("orders", "customers"):
            self.log.admin().create_topic(topic, project.PARTITIONS)
        self._append(self.log, [project.customers()])
        self.instances = [self._started(folder / name, name) for name in NAMES]
        self._ended = threading.Event()
        self._source = threading.Thread(target=self._feed)
        self._source.start()

    def _started(self, folder: Path, name: str) -> Instance:
        config = InstanceConfig(APP, threads=2, changelogs=True, shared=True, process_id=name, data_dir=folder)
        log = KafkaLog(Connection(self.bootstrap, shared=True), APP)
        instance = Instance(log, open_rocks(folder), SystemClock(), config)
        instance.start()
        instance.resume()
        return instance

    def _feed(self) -> None:
        log = KafkaLog(Connection(self.bootstrap), "feeding")
        for part in project.orders(100_000, self.rng, 10):
            if self._ended.wait(PAUSE_S):
                break
            self._append(log, [part])
        log.close()

    def _append(self, log: KafkaLog, parts: list[list[project.Part]]) -> None:
        producer = log.producer("source")
        for part in parts:
            producer.begin()
            for tp, records in part:
                producer.send(tp, records)
            producer.commit()
        producer.close()

    @property
    def service(self) -> Service:
        """Of one of them."""
        return Service(RuntimeEngine(self.rng.choice(self.instances)))

    def deploy(self, change: tuple[int, int], **asked: Any) -> None:
        self.service.deploy(project.changed_plan(change), DeployRequest(**asked))
        wait(lambda: all(i.deployer.rebuilt or self._built(i) for i in self.instances), "a rebuild does not end")

    def _built(self, instance: Instance) -> bool:
        queries = Service(RuntimeEngine(instance)).status()["queries"]
        building = [q["building"] for q in queries if q["building"] is not None]
        return bool(building) and all("waits for promote" in b["why"] for b in building)

    def diff(self, name: str) -> dict[str, Any]:
        """A comparison that comes too early is asked for again."""
        limit = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.service.diff(name)
            except CommandError as error:
                if "cannot be compared yet" not in str(error) or time.monotonic() > limit:
                    raise
                print(f"({error})", flush=True)
                time.sleep(TRY_AGAIN_S)

    def end(self) -> None:
        self._ended.set()
        self._source.join()
        wait(lambda: all(map(_at_the_end, self.instances)), "not everything is processed")

    def close(self) -> None:
        self._ended.set()
        self._source.join()
        for instance in self.instances:
            instance.stop()
        self.log.close()


def _at_the_end(instance: Instance) -> bool:
    try:
        return caught_up(instance, source_ends(instance))
    except LogUnavailable:
        return False


def wait(done: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < limit, what
        time.sleep(0.1)


def round_of(members: Members, served: tuple[int, int], change: tuple[int, int]) -> None:
    """A generation is held back, compared and abandoned, then built again, compared and promoted."""
    for promotes in (False, True):
        members.deploy(change, shadow=True)
        for name in ("BIG", "TOTALS", "NAMED"):
            if name == "TOTALS" and served[1] == change[1]:
                continue
            if name != "TOTALS" and served[0] == change[0]:
                continue
            found = members.diff(name)
            print({k: v for k, v in found.items() if k != "examples"}, flush=True)
            check(found, served, change)
        before = project.seen(members.log)
        (members.service.promote if promotes else members.service.abandon)(None)
        wait(lambda: all(i.deployer.rebuilt for i in members.instances), "it does not swap in, or does not go")
        if not promotes:
            lost = before["big"] - project.seen(members.log)["big"]
            assert not lost, f"abandoned, and rows are gone: {lost}"


def check(found: dict[str, Any], served: tuple[int, int], change: tuple[int, int]) -> None:
    """Of orders above a limit one generation has those that the other has, and more; totals differ in each row."""
    ahead = found["ahead"]
    assert found["built"] == found["serving"] - found["missing"] + found["extra"], found
    if found["result"] == "TOTALS":
        assert found["missing"] == 0, found
        assert found["extra"] <= ahead, found
        assert found["different"] == found["serving"], found
        return
    assert found["different"] == 0, found
    more, fewer = (found["missing"], found["extra"]) if served[0] < change[0] else (found["extra"], found["missing"])
    assert more > 0, found
    assert fewer <= (ahead if served[0] < change[0] else 0), found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.shadow", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        broker = Broker(folder / "broker")
        members = Members(folder, broker.start(java_options=QUICK).bootstrap, given.seed)
        try:
            served = project.CHANGES[0]
            members.deploy(served)
            for _ in range(given.rounds):
                change = members.rng.choice([c for c in project.CHANGES if c != served])
                print(f"{served} -> {change}", flush=True)
                round_of(members, served, change)
                served = change
            members.end()
            wrong = project.differences(members.log, change=served)
        finally:
            members.close()
            broker.kill()
    print("; ".join(wrong) or "as DuckDB says")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()

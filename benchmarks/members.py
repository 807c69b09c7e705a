"""How long the output of a partition is silent when an instance dies, joins, or is killed and started again.

    python -m benchmarks.members [--keys 100000] [--partitions 8] [--rate 200] [--standbys 0] [--store]

Two instances on a broker of their own, one keyed aggregate with so many keys. Records come all the time, to every partition in turn. The figures are
the longest times between two committed results of one partition, among the partitions that move, from the event until every partition has results again
from the member that is to have it. Without an event the longest silence is that of a commit. With `--store` members have a remote store, a folder on
the same disk. Below each figure is when tasks began with a checkpoint and ran again, in s after the event, the first and the last of them.
"""

from __future__ import annotations

import argparse
import logging
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Producer

from benchmarks.feeding import kafka_bigint
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.kafka.broker import Broker
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import LogError
from flowql.runtime.events import EVENT, LOGGER
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.log.murmur2 import partition_for
from flowql.runtime.placement.reading import read_placement
from flowql.runtime.state.rocks import open_rocks

APP = "bench"
SQL = """CREATE STREAM S (K BIGINT KEY, V BIGINT)
  WITH (KAFKA_TOPIC='s', PARTITIONS={partitions}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE C WITH (KAFKA_TOPIC='c') AS SELECT K, COUNT(*) AS N, SUM(V) AS T FROM S GROUP BY K EMIT CHANGES;"""
CHUNK = 50_000
WAIT_S = 180.0
SETTLED_S = 3.0  # without a move
COPIES_S = 20.0  # for standby copies to come near the end


def member(folder: Path, bootstrap: str, name: str, partitions: int, standbys: int, remote: str) -> None:
    """One instance, until it is told to leave."""
    leaving = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leaving.set())
    handler = logging.FileHandler(folder / f"{name}.log")
    handler.setFormatter(logging.Formatter(f"%(created)f %({EVENT})s %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    plan = compile_project([SourceText("members.sql", SQL.format(partitions=partitions))]).plan
    config = InstanceConfig(APP, changelogs=True, shared=True, process_id=name, standbys=standbys, remote_state=remote)
    log = KafkaLog(Connection(bootstrap, shared=True), APP)
    instance = Instance(log, open_rocks(folder / name), SystemClock(), config)
    instance.start()
    instance.resume()
    instance.deploy(plan)
    leaving.wait()
    instance.stop()


@dataclass
class Results:
    """When committed results of each partition arrived (s), of a thread of its own."""

    bootstrap: str
    partitions: int
    at: dict[int, list[float]] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "watch", "isolation.level": "read_committed"}
        consumer = Consumer({**settings, "auto.offset.reset": "latest", "fetch.wait.max.ms": 10})
        consumer.subscribe(["c"])
        while not self.ended.is_set():
            for message in consumer.consume(1_000, 0.02):
                if message.error() is None:
                    self.at.setdefault(message.partition(), []).append(time.monotonic())
        consumer.close()

    def silence(self, since: float) -> float:
        """The longest one of a partition since then, in s."""
        longest = 0.0
        for partition in range(self.partitions):
            times = [since, *(t for t in self.at.get(partition, []) if t > since), time.monotonic()]
            longest = max(longest, float(np.diff(times).max()))
        return longest

    def all_since(self, since: float) -> bool:
        return all(self.at.get(p, [0.0])[-1] > since for p in range(self.partitions))


class Relay(Protocol):
    """Something before a broker. port: for clients. target: the port of the broker."""

    port: int
    target: int


class Bench:
    """Broker, members and input."""

    def __init__(
        self,
        folder: Path,
        keys: int,
        partitions: int,
        rate: int,
        standbys: int,
        remote: str = "",
        relay: Relay | None = None,
    ) -> None:
        """remote: URL of a store that gets checkpoints; empty for none. relay: clients reach the broker through it."""
        self.remote = remote
        self.folder, self.keys, self.partitions, self.rate, self.standbys = folder, keys, partitions, rate, standbys
        self.broker = Broker(folder / "broker")
        if relay is None:
            self.bootstrap = self.broker.start().bootstrap
        else:
            self.bootstrap = f"127.0.0.1:{relay.port}"
            self.broker.start(port=relay.target, properties={"advertised.listeners": f"PLAINTEXT://{self.bootstrap}"})
        self.log = KafkaLog(Connection(self.bootstrap), f"{APP}-outside")
        self.members: dict[str, subprocess.Popen[bytes]] = {}
        self.results = Results(self.bootstrap, partitions)
        self.ended = threading.Event()

    def load(self) -> list[bytes]:
        """One record a key; a key of each partition."""
        self.log.create_topic("s", self.partitions)
        names = kafka_bigint(pa.array(range(self.keys))).to_pylist()
        at = np.array([partition_for(name, self.partitions) for name in names])
        for start in range(0, self.keys, CHUNK):
            producer = self.log.producer("load")
            producer.begin()
            for p in range(self.partitions):
                mine = [names[n] for n in range(start, min(self.keys, start + CHUNK)) if at[n] == p]
                columns = [[1_000] * len(mine), mine, [b'{"V":1}'] * len(mine), [None] * len(mine)]
                arrays = [pa.array(c, f.type) for c, f in zip(columns, PRODUCE_SCHEMA, strict=True)]
                producer.send(TopicPartition("s", p), pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA))
            producer.commit()
            producer.close()
        return [names[int(np.argmax(at == p))] for p in range(self.partitions)]

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "benchmarks.members", "--member", name]
        command += ["--folder", str(self.folder), "--bootstrap", self.bootstrap, "--partitions", str(self.partitions)]
        command += ["--standbys", str(self.standbys), "--remote", self.remote]
        self.members[name] = subprocess.Popen(command)

    def kill(self, name: str) -> None:
        self.members.pop(name).kill()

    def feed(self, keys: list[bytes]) -> None:
        """Records to each partition in turn."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 1})
        begin, n = time.monotonic(), 0
        while not self.ended.is_set():
            while n < (time.monotonic() - begin) * self.rate:
                p = n % self.partitions
                producer.produce("s", b'{"V":1}', keys[p], partition=p)
                n += 1
            producer.poll(0.002)

    def caught_up(self) -> bool:
        tps = [TopicPartition("s", p) for p in range(self.partitions)]
        ends = self.log.end_offsets(tps)
        found = self.log.committed_positions(APP, tps)
        return all(tp in found and found[tp].offset >= ends[tp] - self.rate for tp in tps)

    def owners(self) -> set[str]:
        placement = read_placement(self.log, APP)
        moving = placement is None or any(place.in_transit for place in placement.places.values())
        return set() if placement is None or moving else placement.owners()

    def until(self, done: Callable[[], bool]) -> None:
        limit = time.monotonic() + WAIT_S
        while time.monotonic() < limit:
            with suppress(LogError, KafkaException):  # brokers may not know yet what is asked
                if done():
                    return
            time.sleep(0.05)
        raise TimeoutError("it never gets there")

    def silence_after(self, what: str, event: Callable[[], None], owners: set[str]) -> None:
        since, wall = time.monotonic(), time.time()
        event()
        self.until(lambda: self.owners() == owners)
        placed = time.monotonic()
        self.until(lambda: self.results.all_since(placed))
        time.sleep(SETTLED_S)
        print(f"{what:40} {self.results.silence(since):6.1f} s", flush=True)
        for said, times in self.told(wall).items():
            print(f"  {said:38} {min(times):6.1f} s to {max(times):.1f} s, {len(times)} times", flush=True)

    def told(self, wall: float) -> dict[str, list[float]]:
        """Events that members have logged since then, in s after it."""
        found: dict[str, list[float]] = {}
        for path in self.folder.glob("*.log"):
            for line in path.read_text().splitlines():
                at, _, text = line.partition(" ")
                for said in ("begins with", "cannot be used", "is not used", "task.restored"):
                    if at.replace(".", "").isdigit() and said in text and float(at) > wall:
                        found.setdefault(said, []).append(float(at) - wall)
        return found

    def run(self) -> None:
        keys = self.load()
        self.start("a")
        self.until(self.caught_up)
        threads = [threading.Thread(target=self.feed, args=(keys,)), threading.Thread(target=self.results.watch)]
        for thread in threads:
            thread.start()
        try:
            self.until(lambda: self.results.all_since(0.0))
            time.sleep(SETTLED_S)
            print(f"{self.keys:,} keys, {self.partitions} partitions: the longest silence of a partition", flush=True)
            self.silence_after("nothing happens", lambda: time.sleep(SETTLED_S), {"a"})
            self.silence_after("a second instance starts", lambda: self.start("b"), {"a", "b"})
            time.sleep(COPIES_S)
            self.silence_after("kill -9 of one of two", lambda: self.kill("b"), {"a"})
            self.silence_after("it starts again", lambda: self.start("b"), {"a", "b"})
            time.sleep(COPIES_S)
            self.silence_after("one of two leaves", self.leave, {"a"})
            self.silence_after("a new one joins", lambda: self.start("c"), {"a", "c"})
            self.silence_after("kill -9, and started again at once", self.restart, {"a", "c"})
        finally:
            self.ended.set()
            self.results.ended.set()
            for thread in threads:
                thread.join()
            for process in self.members.values():
                process.kill()
            self.broker.kill()

    def leave(self) -> None:
        self.members.pop("b").terminate()

    def restart(self) -> None:
        self.kill("c")
        self.start("c")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--rate", type=int, default=200, help="records a second")
    parser.add_argument("--standbys", type=int, default=0)
    parser.add_argument("--store", action="store_true", help="members upload checkpoints")
    parser.add_argument("--remote", default="", help=argparse.SUPPRESS)
    parser.add_argument("--member", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.member is not None:
        member(given.folder, given.bootstrap, given.member, given.partitions, given.standbys, given.remote)
        return
    with tempfile.TemporaryDirectory() as folder:
        remote = f"file://{folder}/store" if given.store else ""
        Bench(Path(folder), given.keys, given.partitions, given.rate, given.standbys, remote).run()


if __name__ == "__main__":
    main()

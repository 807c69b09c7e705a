"""The bank on a real Kafka, shared by several processes that are killed and join while a producer never pauses.

python -m tests.ticks.members [SECONDS]   (its own broker)
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from flowql.kafka.broker import Broker
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.log.murmur2 import partition_for
from tests.kafka_broker import QUICK
from tests.ticks.lines import Results, sums_at_lines
from tests.ticks.live import VIEWS
from tests.ticks.member import APP, PARTITIONS

ACCOUNTS, TRANSFERS = 10, 40
WAIT_S, LOOK_S = 60.0, 0.02


class Members:
    """Processes by their names."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap, self.folder = bootstrap, folder
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, *more: str) -> None:
        command = [sys.executable, "-m", "tests.ticks.member", self.bootstrap, str(self.folder), name, *more]
        self.processes[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.processes[name].stdout.readline()
        assert line == "runs\n", line

    def ask(self, name: str, what: str) -> Any:
        process = self.processes[name]
        process.stdin.write(f"{what}\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    def tasks(self, name: str) -> int:
        return int(self.ask(name, "owned"))

    def ends_for(self, seconds: float) -> Iterator[dict[TopicPartition, int]]:
        """How far a reader of results gets at each look, at each member."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            for name in self.processes:
                yield {TopicPartition(t, p): end for t, p, end in self.ask(name, "ends")}
            time.sleep(LOOK_S)

    def shared(self) -> dict[str, int]:
        """How many tasks each has, when all have some."""
        limit = time.monotonic() + WAIT_S
        while not all((found := {name: self.tasks(name) for name in self.processes}).values()):
            assert time.monotonic() < limit, found
            time.sleep(0.1)
        return found

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for process in self.processes.values():
            process.communicate("stop\n", timeout=WAIT_S)
        self.processes.clear()


def feed(log: KafkaLog, ended: threading.Event, pause_s: float) -> int:
    """Transactions of one partition each, in which every account takes as often as it gives; returns what was paid in all."""
    rng, producer, written, paid = random.Random(1), log.producer("feed"), 0, 0
    while not ended.wait(pause_s):
        amount, accounts = rng.randrange(1, 100), rng.sample(range(ACCOUNTS), rng.randrange(2, ACCOUNTS))
        pairs = list(zip(accounts, [*accounts[1:], accounts[0]], strict=True))
        p, records = rng.randrange(PARTITIONS), list[dict[str, object]]()
        for src, dst in pairs * (TRANSFERS // len(pairs)):
            while partition_for(str(written).encode(), PARTITIONS) != p:
                written += 1
            value = json.dumps({"src": src, "dst": dst, "amt": amount}).encode()
            records.append(
                {"timestamp": 1_700_000_000_000, "key": str(written).encode(), "value": value, "headers": None}
            )
            written, paid = written + 1, paid + amount
        producer.begin()
        producer.send(TopicPartition("own", p), pa.RecordBatch.from_pylist(records, PRODUCE_SCHEMA))
        producer.commit()
    return paid


def live(
    bootstrap: str, folder: Path, seconds: float, *, kills: bool = True, pause_s: float = 0.02
) -> dict[str, object]:
    """Returns sentences about what is wrong, and figures."""
    members, log, ended, paid = (
        Members(bootstrap, folder),
        KafkaLog(Connection(bootstrap), "feed"),
        threading.Event(),
        [0],
    )
    members.start("a", "--deploy")
    thread = threading.Thread(target=lambda: paid.append(feed(log, ended, pause_s)))
    thread.start()
    begun = time.monotonic()
    try:
        members.start("b")
        shares = [members.shared()]
        looks = list(members.ends_for(seconds / 2))
        if kills:
            members.start("c")
            shares.append(members.shared())
            members.kill("a")
            shares.append(members.shared())
        looks += members.ends_for(seconds / 2)
    finally:
        ended.set()
        thread.join()
    fed_s, limit = time.monotonic() - begun, time.monotonic() + WAIT_S
    while True:
        results = Results(log, APP)
        rows = results.rows("credits", results.everything("credits")).values()
        if sum(row["v"] for row in rows) == paid[-1] and not (wrong := sums_at_lines(results))[0]:
            break
        assert time.monotonic() < limit, (paid[-1], [row["v"] for row in rows], sums_at_lines(results))
        time.sleep(0.5)
    members.stop()
    results = Results(log, APP)
    wrong, sums = sums_at_lines(results)
    for topic, column in (("balance", "bal"), ("total", "t")):
        if off := [row for row in results.history(topic) if row[column]]:
            wrong.append(
                f"{len(off)} of {len(results.history(topic))} rows of {topic} are between two ticks: {off[:3]}"
            )
    read = set[int]()
    for ends in looks:
        rows = {view: results.rows(view, ends).values() for view in VIEWS}
        given, taken = (sum(row["v"] for row in rows[view]) for view in ("credits", "debits"))
        if given != taken or any(r["bal"] for r in rows["balance"]) or any(r["t"] for r in rows["total"]):
            wrong.append(f"a reader up to {ends} gets {rows}")
        read.add(given)
    stages = dict[str, int]()
    for name, _ in results.lines():
        stages[name] = stages.get(name, 0) + 1
    return {
        "wrong": wrong,
        "seconds": fed_s,
        "paid": paid[-1],
        "ticks": len(set(sums.values())),
        "read": len(read),
        "of": stages,
        "shares": shares,
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder) / "kafka")
        started = broker.start(port=0, java_options=QUICK)
        try:
            found = live(started.bootstrap, Path(folder), float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
        finally:
            broker.kill()
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

"""Instances are killed with -9 again and again, and each time their data directory is removed: how long until there is output again.

    python -m benchmarks.lost_machines [--members 3] [--times 20] [--keys 100000] [--without]

A broker of its own, one keyed aggregate with so many keys, records all the time. A machine that is lost is started again at once, with an empty directory.
The figures are the longest times between two committed results of one partition, from the kill on. At the end every result is compared with a count
over the input: nothing is lost, nothing is twice. The store is a folder on the same disk; `--without` runs without one.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import msgspec
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Partition

from benchmarks.members import SETTLED_S, Bench

NAMES = ("a", "b", "c")


class LostMachines(Bench):
    """See the module."""

    def lose(self, name: str) -> float:
        """The longest silence of a partition, in s."""
        since = time.monotonic()
        self.kill(name)
        shutil.rmtree(self.folder / name)
        self.start(name)
        owners = set(self.members)
        self.until(lambda: self.owners() == owners)
        placed = time.monotonic()
        self.until(lambda: self.results.all_since(placed))
        return self.results.silence(since)

    def measure(self, times: int, names: tuple[str, ...]) -> None:
        keys, rng = self.load(), random.Random(times)
        for name in names:
            self.start(name)
        self.until(self.caught_up)
        feeding = threading.Thread(target=self.feed, args=(keys,))
        watching = threading.Thread(target=self.results.watch)
        feeding.start()
        watching.start()
        try:
            self.until(lambda: self.owners() == set(names))
            self.until(lambda: self.results.all_since(0.0))
            time.sleep(4 * SETTLED_S)  # checkpoints come every 10 s
            found: list[float] = []
            for n in range(times):
                found.append(self.lose(rng.choice(names)))
                print(f"lost machine {n + 1:2}: {found[-1]:6.1f} s", flush=True)
                time.sleep(SETTLED_S)
            how = f"{self.keys:,} keys, {len(names)} members, {'with a store' if self.remote else 'without a store'}"
            print(f"{how}: median {statistics.median(found):.1f} s, longest {max(found):.1f} s", flush=True)
            self.ended.set()
            feeding.join()
            self.until(self.all_done)
            print(self.differences(), flush=True)
        finally:
            self.ended.set()
            self.results.ended.set()
            for process in self.members.values():
                process.kill()
            watching.join()
            self.broker.kill()

    def all_done(self) -> bool:
        return self.counted() == self.expected()

    def expected(self) -> Counter[bytes]:
        return Counter(key for key, _ in self.everything("s"))

    def counted(self) -> Counter[bytes]:
        """The newest count of each key."""
        return Counter({key: msgspec.json.decode(value)["N"] for key, value in self.everything("c")})

    def differences(self) -> str:
        """Counts that are too low or too high at the end, and whether a key ever went back."""
        counts: dict[bytes, int] = {}
        back = 0
        for key, value in self.everything("c"):
            n = msgspec.json.decode(value)["N"]
            back += n <= counts.get(key, 0)
            counts[key] = n
        wrong = sum(counts.get(key, 0) != n for key, n in self.expected().items())
        return f"{len(counts):,} keys, {sum(counts.values()):,} records counted; {wrong} counts are wrong, {back} results came twice"

    def everything(self, topic: str) -> list[tuple[bytes, bytes]]:
        """Committed records of a topic."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "all", "isolation.level": "read_committed"}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.partition.eof": True})
        consumer.assign([Partition(topic, p, 0) for p in range(self.partitions)])
        found, ended = list[tuple[bytes, bytes]](), set[int]()
        while len(ended) < self.partitions:
            for message in consumer.consume(10_000, 1.0):
                if message.error() is None:
                    found.append((message.key(), message.value()))
                else:
                    ended.add(message.partition())
        consumer.close()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, choices=(1, 2, 3), default=3)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--rate", type=int, default=200, help="records a second")
    parser.add_argument("--without", action="store_true", help="no store: all comes from changelogs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        remote = "" if given.without else f"file://{folder}/store"
        bench = LostMachines(Path(folder), given.keys, given.partitions, given.rate, 0, remote)
        bench.measure(given.times, NAMES[: given.members])


if __name__ == "__main__":
    main()

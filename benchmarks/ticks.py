"""What ticks cost: how long a row takes through a chain of views, and the processor time of an instance whose tasks are mostly idle.

    python -m benchmarks.ticks [--levels 1,2,5] [--rate 1000] [--seconds 10] [--idle 30]

A chain: each view sums the one before. A row's time is from before its transaction is written to the first answer over the last view that shows it; an
answer is asked for every 3 ms. Idle: so many views over a table that nothing changes, beside a view over one that changes; the share is of one
processor, and includes the writer. The embedded log, two threads, a directory that is removed afterwards.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import orjson
import pyarrow as pa

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.generations import plain
from flowql.compiler.plan.topology import Plan, stores_of
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.state.rocks import open_rocks

TABLE = "CREATE TABLE busy (id INT PRIMARY KEY, a INT) WITH (PARTITIONS = 1);\n"
FIRST = "CREATE VIEW v1 AS SELECT a, COUNT(*) AS n FROM busy GROUP BY a;\n"
NEXT = "CREATE VIEW v{n} AS SELECT a, SUM(n) AS n FROM v{before} GROUP BY a;\n"
IDLE = "CREATE VIEW i{n} AS SELECT a % {m} AS k, COUNT(*) AS n FROM quiet GROUP BY a % {m};\n"
QUIET = "CREATE TABLE quiet (id INT PRIMARY KEY, a INT) WITH (PARTITIONS = 2);\n"
WARM_S, LOOK_S, WRITES_PER_S = 2.0, 0.003, 50


def plan_of(sql: str) -> Plan:
    compiled = compile_project([SourceText("ticks.sql", sql)], dialect="standard")
    assert compiled.ok, compiled.diagnostics
    return compiled.plan


class Site:
    """An instance with threads, and a writer of `rate` rows a second."""

    def __init__(self, folder: Path, plan: Plan, rate: int) -> None:
        self.log, self.rows = EmbeddedLog(folder / "log"), max(1, rate // WRITES_PER_S)
        config = InstanceConfig(threads=2, data_dir=folder)
        self.instance = Instance(self.log, open_rocks(folder / "state"), SystemClock(), config)
        self.instance.start()
        self.instance.deploy(plan)
        self.sent, self._ended, self._written = list[tuple[int, float]](), threading.Event(), 0
        self._producer = self.log.producer("feed")
        self._thread = threading.Thread(target=self._feed)
        self._thread.start()

    def _feed(self) -> None:
        while not self._ended.wait(1 / WRITES_PER_S):
            numbers = range(self._written, self._written + self.rows)
            records = [
                {
                    "timestamp": time.time_ns() // 1_000_000,
                    "key": b"%d" % n,
                    "value": orjson.dumps({"a": n % 10}),
                    "headers": None,
                }
                for n in numbers
            ]
            began = time.perf_counter()
            self._producer.begin()
            self._producer.send(TopicPartition("busy", 0), pa.RecordBatch.from_pylist(records, PRODUCE_SCHEMA))
            self._producer.commit()
            self._written += self.rows
            self.sent.append((self._written, began))

    def shown(self, view: str) -> int:
        """How many rows an answer over a view counts."""
        taken = self.instance.snapshot_of([q.id for q in self.instance.plan.queries if q.sink == view])
        try:
            stores = {plain(s.name, q.generation): s.name for q, s in stores_of(self.instance.plan)}
            return sum(int(row[-1]) for _, row in taken.snapshot.scan(stores[view]))
        finally:
            taken.snapshot.close()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self.instance.stop()


def chain(levels: int, rate: int, seconds: float) -> list[float]:
    """Times of rows in seconds, sorted."""
    sql = TABLE + FIRST + "".join(NEXT.format(n=n, before=n - 1) for n in range(2, levels + 1))
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder), plan_of(sql), rate)
        time.sleep(WARM_S)
        times, seen, until = list[float](), len(site.sent), time.perf_counter() + seconds
        while (now := time.perf_counter()) < until:
            rows = site.shown(f"v{levels}")
            while seen < len(site.sent) and site.sent[seen][0] <= rows:
                times.append(now - site.sent[seen][1])
                seen += 1
            time.sleep(LOOK_S)
        site.close()
    return sorted(times)


def idle(views: int, rate: int, seconds: float) -> tuple[int, float]:
    """How many tasks there are, and the share of a processor."""
    sql = TABLE + QUIET + FIRST + "".join(IDLE.format(n=n, m=n + 2) for n in range(views))
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder), plan_of(sql), rate)
        time.sleep(WARM_S)
        cpu, wall = time.process_time(), time.perf_counter()
        time.sleep(seconds)
        share = (time.process_time() - cpu) / (time.perf_counter() - wall)
        tasks = sum(len(q.built.tasks) for q in site.instance.queries.values())
        site.close()
    return tasks, share


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", default="1,2,5")
    parser.add_argument("--rate", type=int, default=1_000, help="rows a second")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--idle", type=int, default=30, help="views without work")
    given = parser.parse_args(arguments)
    print(f"{'views':>6}{'p50, ms':>10}{'p99, ms':>10}{'max, ms':>10}")
    for levels in map(int, given.levels.split(",")):
        times = [t * 1000 for t in chain(levels, given.rate, given.seconds)]
        print(f"{levels:6}{times[len(times) // 2]:10.0f}{times[int(len(times) * 0.99)]:10.0f}{times[-1]:10.0f}")
    for views in (0, given.idle):
        tasks, share = idle(views, given.rate, given.seconds)
        print(f"{tasks:4} tasks of {views + 1} views, one of them busy: {share:.1%} of a processor")


if __name__ == "__main__":
    main()

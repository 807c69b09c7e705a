"""What queries that have nothing to do cost the others of their instance: one active query beside N idle ones, and all N catching up.

    python -m benchmarks.many_queries [--queries 0,10,100] [--partitions 8] [--seconds 10] [--events 20000] [--threads 2]

The idle queries aggregate a topic that gets no records at first: two tasks per partition each. A separate process appends 1,000 records
a second for a query of priority critical, as in `benchmarks.isolation`. Three figures per number of queries: the instance's processor time
per second with nothing to do, the same and the latency of the active query while it works, and the processor time per
record and query of a backlog that all idle queries read.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import isolation
from benchmarks.feeding import feeding
from benchmarks.isolation import ObservedInstance
from flowql.bench.measuring import BenchFailed
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.state.rocks import open_rocks

ACTIVE = """
CREATE STREAM PULSE (ID BIGINT KEY, CREATED BIGINT)
  WITH (KAFKA_TOPIC='{pulse}', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM ANSWERS WITH (PRIORITY='critical') AS SELECT ID, CREATED, CREATED % 1000 AS REST FROM PULSE;
CREATE STREAM QUIET (ID BIGINT, V BIGINT) WITH (KAFKA_TOPIC='quiet', VALUE_FORMAT='JSON');
"""
IDLE = "CREATE TABLE T{n} AS SELECT V, COUNT(*) AS N, SUM(ID) AS TOTAL FROM QUIET WHERE ID % 100 <> {n} GROUP BY V;\n"
WARM_UP_S, START_S = 3.0, 120.0
VALUES = 100  # groups of each query


@dataclass(frozen=True, slots=True)
class Load:
    """One number of queries. idle, active: processor seconds per second; backlog_us: processor time per record and query."""

    queries: int
    tasks: int
    idle: float
    active: float
    p50_ms: float
    p99_ms: float
    backlog_us: float


def measure(folder: Path, queries: int, options: argparse.Namespace) -> Load:
    """An instance of its own over a log of its own."""
    log = EmbeddedLog(folder / "log")
    log.admin().create_topic("pulse", 1)
    log.admin().create_topic("quiet", options.partitions)
    config = InstanceConfig(application_id="many", threads=options.threads)
    instance = ObservedInstance(log, open_rocks(folder / "state"), SystemClock(), config)
    instance.start()
    try:
        instance.deploy(_plan(queries, options.partitions))
        tasks = sum(len(q.built.tasks) for q in list(instance.queries.values()))
        time.sleep(WARM_UP_S)
        idle = _processor_share(options.seconds)
        with feeding("benchmarks.many_queries", str(folder)) as feed:
            limit = time.monotonic() + START_S
            while not instance.seen:
                if feed.poll() is not None or time.monotonic() > limit:
                    raise BenchFailed("no record of the active query arrives")
                time.sleep(0.1)
            time.sleep(WARM_UP_S)
            since_ns = time.time_ns()
            active = _processor_share(options.seconds)
            until_ns = time.time_ns()
        created, collected = instance.answers(since_ns, until_ns)
        late_ms = (collected - created) / 1e6
        backlog_us = _backlog(instance, log, queries, options) if queries else 0.0
        p50_ms, p99_ms = np.percentile(late_ms, [50, 99])
        return Load(queries, tasks, idle, active, float(p50_ms), float(p99_ms), backlog_us)
    finally:
        instance.stop()


def _plan(queries: int, partitions: int) -> Plan:
    sql = ACTIVE.format(pulse="pulse") + "".join(IDLE.format(n=n) for n in range(queries))
    compiled = compile_project([SourceText("many.sql", sql)], topic_partitions={"pulse": 1, "quiet": partitions})
    if not compiled.ok:
        raise BenchFailed("; ".join(d.title for d in compiled.diagnostics))
    return compiled.plan


def _processor_share(seconds: float) -> float:
    wall, cpu = time.monotonic(), time.process_time()
    time.sleep(seconds)
    return (time.process_time() - cpu) / (time.monotonic() - wall)


def _backlog(instance: ObservedInstance, log: EmbeddedLog, queries: int, options: argparse.Namespace) -> float:
    """Processor time (µs) per record and query until all have processed `--events` new records."""
    producer = log.producer("bench-quiet")
    producer.begin()
    for partition in range(options.partitions):
        producer.send(TopicPartition("quiet", partition), _records(options.events // options.partitions, partition))
    producer.commit()
    producer.close()
    cpu = time.process_time()
    while not caught_up(instance, source_ends(instance)):
        if instance.fatal is not None:
            raise BenchFailed(str(instance.fatal))
        time.sleep(0.2)
    return (time.process_time() - cpu) * 1e6 / options.events / queries


def _records(n: int, seed: int) -> pa.RecordBatch:
    ids, values = np.arange(n), np.random.default_rng(seed).integers(0, VALUES, n)
    columns = [
        pa.array(ids, pa.int64()),
        pa.nulls(n, pa.binary()),
        pa.array(
            [b'{"ID": %d, "V": %d}' % pair for pair in zip(ids.tolist(), values.tolist(), strict=True)], pa.binary()
        ),
        pa.nulls(n, PRODUCE_SCHEMA.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", default="0,10,100", help="how many idle ones, in turn")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each phase")
    parser.add_argument("--events", type=int, default=20_000, help="of the backlog")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--feed", nargs=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.feed:
        isolation.feed(Path(options.feed[0]), "pulse")
    print(f"{'queries':>8}{'tasks':>7}{'idle cpu':>10}{'active cpu':>12}{'p50 ms':>8}{'p99 ms':>8}{'backlog us':>12}")
    for queries in map(int, options.queries.split(",")):
        print(f"{queries} idle queries", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="flowql-many-") as name:
            os.sync()  # or earlier pages are written while commits wait for the same disk
            o = measure(Path(name), queries, options)
        figures = f"{o.idle:>10.1%}{o.active:>12.1%}{o.p50_ms:>8.1f}{o.p99_ms:>8.1f}{o.backlog_us:>12.2f}"
        print(f"{o.queries:>8}{o.tasks:>7}{figures}", flush=True)


if __name__ == "__main__":
    main()

"""How long a record takes through a query on Kafka: from being produced until a reader of committed records has the result.

    python -m benchmarks.latency --bootstrap HOST:PORT [--seconds 20] [--rate 1000] [--stateful]

The query runs in a process of its own with the default commit interval of 100 ms. stateful: a table with a changelog instead of
a projection. Input is written in a transaction every few milliseconds; the time until that is committed is part of the latency.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.config.storage import log_at
from flowql.deploy.engine import open_on
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, Log, TopicPartition
from flowql.runtime.log.kafka.settings import KafkaSettings

TICK_S = 0.02  # between two transactions of input
WARM_UP_S = 5.0  # not counted
QUIET_S = 2.0  # without a result after the last record: there are no more
SOURCE = """CREATE STREAM S (K STRING KEY, AT BIGINT)
  WITH (KAFKA_TOPIC='{app}-in', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
"""
STATELESS = "CREATE STREAM R WITH (KAFKA_TOPIC='{app}-out') AS SELECT K, AT FROM S EMIT CHANGES;"
STATEFUL = "CREATE TABLE R WITH (KAFKA_TOPIC='{app}-out') AS SELECT K, MAX(AT) AS AT FROM S GROUP BY K EMIT CHANGES;"


def serve(bootstrap: str, app: str, sql: str) -> None:
    """The process of the query, until its input is closed."""
    with tempfile.TemporaryDirectory(prefix="flowql-latency-") as folder:
        log = log_at(Path(folder), KafkaSettings(bootstrap), app)
        instance = open_on(log, Path(folder) / "state", InstanceConfig(app, changelogs=True))
        instance.start()
        compiled = compile_project([SourceText("latency.sql", sql)])
        assert compiled.ok, compiled.diagnostics
        instance.deploy(compiled.plan)
        print("ready", flush=True)
        sys.stdin.read()
        instance.stop()


@contextmanager
def serving(bootstrap: str, app: str, sql: str) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.latency", "--serve", app, "--sql", sql, "--bootstrap", bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield  # its input is closed at the end of the block


def write(log: Log, app: str, rate: int, seconds: float) -> None:
    """`rate` records a second, evenly, each with the microsecond at which it was made."""
    producer, sent, start = log.producer(f"{app}-input"), 0, time.monotonic()
    while (passed := time.monotonic() - start) < seconds:
        n = int(passed * rate) - sent
        if n:
            now = time.time_ns() // 1000
            values = [orjson.dumps({"AT": now})] * n
            keys = [b"k%d" % (i % 100) for i in range(sent, sent + n)]
            columns = [[now // 1000] * n, keys, values, [None] * n]
            arrays = [pa.array(c, f.type) for c, f in zip(columns, PRODUCE_SCHEMA, strict=True)]
            producer.begin()
            producer.send(TopicPartition(f"{app}-in", 0), pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA))
            producer.commit()
            sent += n
        time.sleep(TICK_S)
    producer.close()


def read(log: Log, app: str, writer: threading.Thread) -> np.ndarray:
    """Milliseconds per result, until there are no more."""
    consumer, found = log.consumer(f"{app}-reads"), []
    out = TopicPartition(f"{app}-out", 0)
    consumer.assign({out: EARLIEST})
    heard = time.monotonic()
    while writer.is_alive() or time.monotonic() - heard < QUIET_S:
        batches = consumer.poll(10_000, 1 << 24)
        now = time.time_ns() // 1000
        values = [v for b in batches for v in b.records.column("value").to_pylist() if v is not None]
        found += [(now, orjson.loads(v)["AT"]) for v in values]
        heard = time.monotonic() if batches else heard
        time.sleep(0.001)
    consumer.close()
    times = np.array(found)
    begun = times[0, 1] + int(WARM_UP_S * 1e6)
    return (times[:, 0] - times[:, 1])[times[:, 1] >= begun] / 1000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--stateful", action="store_true")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--sql", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.bootstrap, options.serve, options.sql)
        return
    app = f"latency-{uuid.uuid4().hex[:8]}"
    log = log_at(Path(), KafkaSettings(options.bootstrap), f"{app}-outside")
    try:
        with serving(options.bootstrap, app, (SOURCE + (STATEFUL if options.stateful else STATELESS)).format(app=app)):
            writer = threading.Thread(target=write, args=(log, app, options.rate, WARM_UP_S + options.seconds))
            writer.start()
            took = read(log, app, writer)
            writer.join()
        p50, p99, most = np.percentile(took, [50, 99, 100])
        print(f"{len(took):,} results: p50 {p50:.0f} ms, p99 {p99:.0f} ms, most {most:.0f} ms")
    finally:
        for topic in [t for t in log.admin().topics() if t.startswith(app)]:
            log.admin().delete_topic(topic)
        log.close()


if __name__ == "__main__":
    main()

"""How long a killed instance on Kafka gives no output: kill -9, restart at once, until the next result.

    python -m benchmarks.restore_from_position [--keys 1000000] [--partitions 4] [--rate 200] [--bootstrap HOST:PORT]

A table with a row per key is built. Then records of random keys come at a rate, for as long as it takes. The instance is killed and started
again: with the rows that are on its disk, and then as if they had no position, from the beginning of the changelogs. Both report the seconds
from the start of the process to the first committed result, how many of them the restoration took, and the records that it read.

--remote: also with a directory that is gone, from checkpoints in an S3 that answers after 20 ms and lets 200 MB/s through (`benchmarks.slow_store`).
Reports the time to the first right answer to a query by key, and to the last block that is copied.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from benchmarks.feeding import kafka_bigint
from benchmarks.restore import RestoreSetup, build
from benchmarks.slow_store import slow_s3
from flowql.kafka.broker import Broker
from flowql.query.errors import QueryError
from flowql.query.session import evaluate
from flowql.runtime.app import recovery
from flowql.runtime.log.base import HEADERS_TYPE, PRODUCE_SCHEMA, TopicPartition, latest_record
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.task.status import TaskStatus
from flowql.server.on_runtime import RuntimeEngine

WARM_S = 10.0  # of input before a kill
WAIT_S = 600.0
TICK_S = 0.02
TABLE = "CTAS_C"
POSITION, STORE, BEGINNING = STARTS = "position", "store", "beginning"


@dataclass(frozen=True, slots=True)
class Silence:
    """seconds: from the start of the process to its first result; answered: to the first right answer; opening: until the instance was open, and
    restoring: from then until all tasks ran; read: records of changelogs; copied: until all rows are here.
    """

    seconds: float
    answered: float
    opening: float
    restoring: float
    read: int
    copied: float


@dataclass(frozen=True, slots=True)
class Started:
    """opened: Unix seconds when the instance was open; answered, running: seconds from then until the first right answer, and until all tasks ran;
    read: records of changelogs.
    """

    opened: float
    answered: float
    running: float
    read: int


def run(setup: RestoreSetup, keys: int, *, start: str) -> None:
    """The process that is killed. Writes `Started` in a line, and the seconds until all blocks are here in another."""
    if start == BEGINNING:
        patch.object(recovery, "kept_rows", lambda *_, **__: set()).start()
    instance = setup.open()
    opened, begin = time.time(), time.perf_counter()
    instance.start()
    instance.resume()
    engine, answered, running = RuntimeEngine(instance), 0.0, 0.0
    while not answered or not running:
        if not answered and is_right(engine, keys - 1):
            answered = time.perf_counter() - begin
        if not running and all(t.status is TaskStatus.RUNNING for t in instance.queries[TABLE].built.tasks):
            running = time.perf_counter() - begin
        time.sleep(TICK_S)
    print(json.dumps(asdict(Started(opened, answered, running, instance.restoration.records))), flush=True)
    while instance.checkpoints is not None and instance.checkpoints.copier.missing:
        time.sleep(TICK_S)
    print(f"{time.perf_counter() - begin:.2f}", flush=True)
    signal.pause()


def is_right(engine: RuntimeEngine, key: int) -> bool:
    """Whether a query by this key, of which there is one record, answers as it must."""
    try:
        found = evaluate(f"SELECT N, T FROM C WHERE K = {key}", engine.take)
    except QueryError:  # while the state is restored
        return False
    return found.to_pylist() == [{"N": 1, "T": key}]


@dataclass(slots=True)
class InputTime:
    """The time of the records that are written now, which that of their results is, too."""

    ms: int


@contextmanager
def input_of(setup: RestoreSetup, at: InputTime, keys: int, rate: int) -> Iterator[None]:
    """Records of random keys, until it ends. The last key has no more."""
    ended = threading.Event()

    def write() -> None:
        log, rng = setup.log(), random.Random(1)
        producer = log.producer(f"{setup.app}-input")
        while not ended.wait(0.1):
            chosen = [rng.randrange(keys - 1) for _ in range(rate // 10)]
            producer.begin()
            for p in range(setup.partitions):
                mine = pa.array([k for k in chosen if k % setup.partitions == p], pa.int64())
                n = len(mine)
                columns = [
                    pa.array([at.ms] * n),
                    kafka_bigint(mine),
                    pa.array([b'{"V":1}'] * n, pa.binary()),
                    pa.nulls(n, HEADERS_TYPE),
                ]
                producer.send(
                    TopicPartition(f"{setup.app}-s", p), pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA)
                )
            producer.commit()
        producer.close()
        log.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Killed:
    """The instance in a process of its own."""

    def __init__(self, setup: RestoreSetup, keys: int, start: str = POSITION) -> None:
        assert setup.kafka is not None
        self._setup = setup
        self.begin, self.begin_s = time.perf_counter(), time.time()
        command = [sys.executable, "-m", "benchmarks.restore_from_position", "--run", str(setup.folder)]
        command += ["--app", setup.app, "--bootstrap", setup.kafka.bootstrap, "--partitions", str(setup.partitions)]
        command += ["--keys", str(keys), "--start", start, "--store", setup.remote if start != BEGINNING else ""]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def started(self) -> Started:
        """When its tasks run and it has given a right answer."""
        assert self._process.stdout is not None
        return Started(**json.loads(self._process.stdout.readline()))

    def copied(self) -> float:
        """Seconds from the opened instance until all blocks are here."""
        assert self._process.stdout is not None
        return float(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


def silence(setup: RestoreSetup, keys: int, rate: int, start: str) -> Silence:
    """One kill and one start."""
    log, at = setup.log(), InputTime(keys + 1 + 2 * STARTS.index(start))
    tps = [TopicPartition(f"{setup.app}-c", p) for p in range(setup.partitions)]
    with input_of(setup, at, keys, rate):
        before = Killed(setup, keys)
        before.started()
        time.sleep(WARM_S)
        before.kill()
        at.ms += 1  # results of what comes now are its own
        if start == STORE:
            shutil.rmtree(setup.folder / "state")
        after = Killed(setup, keys, start)
        readers = [log.reader(tp, end) for tp, end in log.admin().end_offsets(tps).items()]
        until = time.perf_counter() + WAIT_S
        while time.perf_counter() < until:
            batches = [b for reader in readers if (b := reader.read(10_000, 1 << 20)) is not None]
            if any(latest_record(b.records) >= at.ms for b in batches):
                break
            time.sleep(TICK_S)
        seconds = time.perf_counter() - after.begin
        found = after.started()
        opening = found.opened - after.begin_s
        copied = opening + after.copied()
        after.kill()
    log.close()
    return Silence(seconds, opening + found.answered, opening, found.running, found.read, copied)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restore_from_position")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--bootstrap")
    for hidden in ("--run", "--app"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--start", choices=STARTS, help=argparse.SUPPRESS)
    parser.add_argument("--store", default="", help=argparse.SUPPRESS)
    parser.add_argument("--remote", action="store_true")
    options = parser.parse_args()
    if options.run:
        kafka = KafkaSettings(options.bootstrap)
        setup = RestoreSetup(Path(options.run), options.partitions, kafka, options.app, options.store)
        run(setup, options.keys, start=options.start)
        return
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="flowql-position-"))
        remote = stack.enter_context(slow_s3()) if options.remote else ""
        folder = Path(name)
        broker = None if options.bootstrap else Broker(folder / "broker")
        bootstrap = options.bootstrap if broker is None else broker.start().bootstrap
        try:
            setup = RestoreSetup(
                folder, options.partitions, KafkaSettings(bootstrap), f"position-{uuid.uuid4().hex[:8]}", remote
            )
            made = multiprocessing.get_context("spawn").Process(target=build, args=(setup, options.keys))
            made.start()  # a process of its own: its end gives the state back, whatever still reads it
            made.join()
            assert made.exitcode == 0
            for start in STARTS if options.remote else (POSITION, BEGINNING):
                found = silence(setup, options.keys, options.rate, start)
                print(
                    f"from the {start}: first right answer after {found.answered:.1f} s, first result after {found.seconds:.1f} s, "
                    f"of which {found.opening:.1f} s until the instance is open, "
                    f"and {found.restoring:.1f} s until all tasks run; "
                    f"{found.read:,} records read; all rows are here after {found.copied:.1f} s",
                    flush=True,
                )
        finally:
            if broker is not None:
                broker.kill()


if __name__ == "__main__":
    main()

"""`python -m tests.crash.object_store --kills 6 --seed N`: streams on a cluster over an object store; processes are killed -9, and the store goes away.

Files of orders come into a bucket one by one. `flowql.spark.start` on two workers, in mount namespaces that see neither this checkout nor the
folder of the round, writes Parquet files and Delta tables into it, with checkpoints there as well. Kills are drawn from: the driver, an executor's
JVM, a Python process of an executor, and the store for `--outage` seconds: closed connections, 503, or a process that is stopped. A driver that ends
by itself is started again. At the end all must be what DuckDB makes of all files: nothing lost, nothing twice.
Needs what `tests.s3` needs, root and Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector

from flowql.deploy.spark_package import write_flowql
from tests.crash.driver import Driver, processes_of
from tests.crash.lake import SQL, differences
from tests.delta_jars import PLUGGED, delta_jars
from tests.runtime.spark.test_cluster import checkouts
from tests.s3 import BUCKET, S3, s3_jars, s3_server
from tests.spark_cluster import Cluster, cluster

KINDS = ("driver", "executor", "python", "gone", "slow", "stopped")
EXECUTOR, DAEMON = b"CoarseGrainedExecutorBackend", b"pyspark.daemon"
ROWS, WAIT_S = 300, 240.0
FORMATS = {"BIG": "parquet", "SPENT": "delta", "MINUTES": "delta"}


class Round:
    """One bucket, one cluster, and what has happened."""

    module = "tests.crash.object_store_workload"

    def __init__(self, folder: Path, rng: random.Random, s3: S3, workers: Cluster) -> None:
        self.folder, self.rng, self.s3, self.files = folder, rng, s3, 0
        self.restarts = 0
        path = ":".join(map(str, [*s3_jars(), *delta_jars()]))
        conf = {**workers.conf, **s3.properties(), **PLUGGED, "spark.master": workers.master}
        conf |= {
            "spark.driver.extraClassPath": path,
            "spark.executor.extraClassPath": path,
            "spark.ui.enabled": "false",
        }
        conf |= {"spark.sql.shuffle.partitions": "2", "spark.databricks.delta.snapshotPartitions": "1"}
        self._words = (self.module, str(folder))
        self.write_project(conf)
        self.driver = Driver(folder, *self._words)

    def write_project(self, conf: dict[str, str]) -> None:
        """conf: of the Spark that runs it."""
        _write_project(self.folder)
        (self.folder / "conf.json").write_text(json.dumps(conf))
        none = pa.table({n: pa.array([], pa.int64()) for n in ("CUSTOMER", "ID", "QTY", "ROWTIME")})
        self.s3.write("orders/first.parquet", none)

    def arrive(self, count: int) -> None:
        for _ in range(count):
            first = self.files * ROWS
            made = {
                "CUSTOMER": [self.rng.randrange(20) for _ in range(ROWS)],
                "ID": list(range(first, first + ROWS)),
                "QTY": [self.rng.randrange(8) for _ in range(ROWS)],
                "ROWTIME": [1_700_000_000_000 + self.rng.randrange(600_000) for _ in range(ROWS)],
            }
            self.s3.write(f"orders/{self.files:05}.parquet", pa.table(made))
            self.files += 1

    def commits(self) -> int:
        """Micro-batches of all streams that are complete."""
        found = self.s3.files().get_file_info(
            FileSelector(f"{BUCKET}/checkpoints", recursive=True, allow_not_found=True)
        )
        return sum("/commits/" in f.path for f in found)

    def wait_for_progress(self) -> None:
        """Until a stream has got on, with another driver if this one ends."""
        before, end = self.commits(), time.monotonic() + WAIT_S
        while self.commits() <= before:
            assert time.monotonic() < end, self.driver.said()
            self.go_on()
            time.sleep(0.5)

    def go_on(self) -> None:
        if self.driver.process.poll() is not None:
            self.restarts += 1
            self.driver = Driver(self.folder, *self._words)

    def kill(self, kind: str, outage_s: float) -> None:
        if kind == "driver":
            self.driver.kill()
            self.driver = Driver(self.folder, *self._words)
        elif kind in ("gone", "slow"):
            with self.s3.fault(kind):
                time.sleep(outage_s)
        elif kind == "stopped":
            with _stopped(self.s3.process):
                time.sleep(outage_s)
        else:
            found = processes_of(EXECUTOR if kind == "executor" else DAEMON)
            with suppress(ProcessLookupError):
                if mine := [p for p in found if self._is_mine(p)]:
                    os.kill(self.rng.choice(mine), signal.SIGKILL)
        self.go_on()

    def _is_mine(self, process: int) -> bool:
        """Executors are started in working directories below the round's folder, and so are their Python processes."""
        with suppress(OSError):
            return Path(os.readlink(f"/proc/{process}/cwd")).is_relative_to(self.folder.parent)
        return False

    def finish(self) -> list[str]:
        """Runs to the end of all files, and says what the results and DuckDB say differently."""
        (self.folder / "ended").touch()
        for _ in range(3):
            with suppress(subprocess.TimeoutExpired):
                self.driver.process.wait(WAIT_S)
            assert self.driver.process.poll() is not None, f"it does not end: {self.driver.said()}"
            if self.driver.process.returncode == 0:
                return self.differences()
            self.restarts += 1
            self.driver = Driver(self.folder, *self._words)
        raise AssertionError(self.driver.said())

    def differences(self) -> list[str]:
        with duckdb.connect() as database:
            database.register("orders", self.s3.read("orders"))
            return differences(database, lambda name: (table if FORMATS[name] == "delta" else _listed)(self.s3, name))


@contextmanager
def _stopped(process: int) -> Iterator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def _write_project(folder: Path) -> None:
    files = {"orders": {"format": "parquet", "path": f"s3a://{BUCKET}/orders", "options": {"maxFilesPerTrigger": "1"}}}
    files |= {n: {"format": f, "path": f"s3a://{BUCKET}/results/{n}"} for n, f in FORMATS.items()}
    files["MINUTES"]["write"] = "changes"
    said = {
        "name": "lake",
        "sql": ["lake.sql"],
        "targets": {"s3": {"engine": "spark", "spark": {"late_rows": "none", "files": files}}},
    }
    (folder / "flowql.yaml").write_text(json.dumps(said))
    (folder / "lake.sql").write_text(SQL)
    write_flowql(folder / "flowql_of_test.zip")


def _listed(s3: S3, name: str) -> pa.Table:
    """The files of a stream that Spark's list of micro-batches names, by that list alone."""
    files, place = s3.files(), f"{BUCKET}/results/{name}"
    batches = {
        Path(f.path).name: f.path for f in files.get_file_info(FileSelector(f"{place}/_spark_metadata")) if f.is_file
    }
    compact = max((int(n.removesuffix(".compact")) for n in batches if n.endswith(".compact")), default=-1)
    live: set[str] = set()
    for batch, path in batches.items():
        if batch.endswith(".compact") and int(batch.removesuffix(".compact")) < compact:
            continue
        if batch.isdigit() and int(batch) <= compact:
            continue
        lines = files.open_input_stream(path).readall().decode().splitlines()[1:]
        live |= {json.loads(line)["path"].removeprefix("s3a://") for line in lines}
    return pa.concat_tables([pq.read_table(p, filesystem=files, partitioning=None) for p in sorted(live)])


def table(s3: S3, name: str, folder: str = "results") -> pa.Table:
    """The files of the last version of a Delta table, by its log alone."""
    files, place = s3.files(), f"{BUCKET}/{folder}/{name}"
    live: set[str] = set()
    for f in sorted(files.get_file_info(FileSelector(f"{place}/_delta_log")), key=lambda f: f.path):
        if not f.path.endswith(".json"):
            continue
        for action in map(json.loads, files.open_input_stream(f.path).readall().decode().splitlines()):
            assert "deletionVector" not in action.get("add", {}), "rows of files are hidden"
            live |= {action["add"]["path"]} if "add" in action else set()
            live -= {action["remove"]["path"]} if "remove" in action else set()
    tables = [pq.read_table(f"{place}/{p}", filesystem=files, partitioning=None) for p in sorted(live)]
    return pa.concat_tables(tables, promote_options="default")


def add_options(parser: argparse.ArgumentParser, kinds: Sequence[str]) -> None:
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    parser.add_argument("--outage", type=float, default=30.0, help="seconds for which the store is away")
    parser.add_argument("--kinds", default=",".join(kinds), help="of kills, with commas, which come in turn")


def kills(done: Round, args: argparse.Namespace) -> int:
    """The kills of a command line, and what there is at the end; the exit code."""
    began, kinds = time.monotonic(), args.kinds.split(",")
    try:
        for n in range(args.kills):
            done.arrive(2)
            done.wait_for_progress()
            time.sleep(done.rng.uniform(0.0, 3.0))
            kind = kinds[n % len(kinds)]
            done.kill(kind, args.outage)
            print(f"{time.monotonic() - began:.0f} s: {kind}", flush=True)
        found = done.finish()
    finally:
        done.driver.__exit__()
    said = f"{args.kills} kills, {done.files * ROWS} rows, {done.restarts} drivers that had ended started again"
    print(f"{said}, {time.monotonic() - began:.0f} s", flush=True)
    print("\n".join(found) or "  equal to DuckDB", flush=True)
    return int(bool(found))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.object_store", description=__doc__)
    add_options(parser, KINDS)
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="flowql-crash-") as name, s3_server(Path(name) / "s3") as s3:
        folder = Path(name) / "round"
        folder.mkdir()
        with cluster(Path(name) / "cluster", [folder, *checkouts()], {"PYSPARK_PYTHON": sys.executable}) as workers:
            return kills(Round(folder, random.Random(args.seed), s3, workers), args)


if __name__ == "__main__":
    sys.exit(main())

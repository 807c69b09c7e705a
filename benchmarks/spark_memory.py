"""Memory of the driver over an exact stream on Spark: Python, Java and Python workers, over time, for several numbers of rows.

    python -m benchmarks.spark_memory [--rows 1000000,10000000] [--keys 10000] [--file-rows 250000] [--master 'local[2]'] [--memory 1024]
        [--json FILE] [--plot FILE]

`flowql run -t spark --until-caught-up` with `streams: exact` reads Parquet files into its log, one file in a micro-batch, and counts and sums their rows by
key; the state has as many keys whatever the number of rows. Resident memory is looked up each half second, and the result is compared with DuckDB's. The
driver is a process of Python and one of Java. With a local master its Java also runs the tasks, and Python workers are its children; with
`--master 'local-cluster[2,1,1024]'` executors are processes of their own, which are counted with the workers, as on a cluster. Java takes what --memory (MiB)
allows before it collects garbage, so its resident memory says little below that: the plot has it beside that of Python.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.plots import plotted
from flowql.bench.measuring import BenchFailed

LOOK_S = 0.5
PARTS = 4  # of the time, of which medians are told
MIB = 1 << 20
SQL = """
CREATE STREAM ROWS_IN (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='rows', VALUE_FORMAT='JSON', PARTITIONS=4);
CREATE TABLE SUMS AS SELECT K, COUNT(*) AS N, SUM(V) AS TOTAL FROM ROWS_IN GROUP BY K;
"""
PROJECT = """name: memory
sql: [memory.sql]
targets:
  spark:
    engine: spark
    memory: {memory} MiB
    spark:
      master: '{master}'
      conf: {{spark.flowql.startTimeout: 5min}}
      streams: exact
      history: arrival
      files:
        rows: {{format: parquet, path: rows, options: {{maxFilesPerTrigger: '1'}}}}
        SUMS: {{format: parquet, path: sums}}
"""
FOUND = "SELECT k, max(n), max_by(total, n) FROM read_parquet(?) GROUP BY ALL ORDER BY k"
EXPECTED = "SELECT k, count(*), sum(v) FROM read_parquet(?) GROUP BY ALL ORDER BY k"


@dataclass(frozen=True, slots=True)
class Look:
    """Resident memory at a moment, in MiB. python, java: of the driver; workers: of Python workers and executors."""

    second: float
    python: int
    java: int
    workers: int


@dataclass(frozen=True, slots=True)
class Taken:
    """A run over so many rows."""

    rows: int
    seconds: float
    looks: tuple[Look, ...]

    def part(self, n: int) -> Sequence[Look]:
        size = max(1, len(self.looks) // PARTS)
        return self.looks[n * size : (n + 1) * size] or self.looks[-1:]


def run(folder: Path, rows: int, keys: int, file_rows: int, memory_mib: int, master: str) -> Taken:
    """One run from nothing; raises BenchFailed for a result that is wrong."""
    (folder / "rows").mkdir(parents=True)
    random = np.random.default_rng(rows)
    for n in range(0, rows, file_rows):
        count = min(file_rows, rows - n)
        made = {
            "K": random.integers(0, keys, count),
            "V": random.integers(0, 1000, count),
            "ROWTIME": np.arange(n, n + count),
        }
        pq.write_table(pa.table(made), folder / "rows" / f"{n:012}.parquet")
    (folder / "flowql.yaml").write_text(PROJECT.format(memory=memory_mib, master=master))
    (folder / "memory.sql").write_text(SQL)
    taken = _watched(folder, rows)
    found = duckdb.execute(FOUND, [f"{folder}/sums/*/*.parquet"]).fetchall()
    if found != duckdb.execute(EXPECTED, [f"{folder}/rows/*.parquet"]).fetchall():
        raise BenchFailed(f"{rows} rows: the result is not DuckDB's")
    return taken


def _watched(folder: Path, rows: int) -> Taken:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "flowql", "run", "-t", "spark", "--until-caught-up"]
    log, began, looks = folder / "output.log", time.perf_counter(), list[Look]()
    with log.open("w") as out:
        made = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, env=environment)
        while made.poll() is None:
            looks.append(_look(psutil.Process(made.pid), time.perf_counter() - began))
            time.sleep(LOOK_S)
    if made.returncode:
        raise BenchFailed(f"flowql run ended with {made.returncode}:\n{log.read_text()[-2000:]}")
    return Taken(rows, round(time.perf_counter() - began, 1), tuple(looks))


def _look(driver: psutil.Process, second: float) -> Look:
    java = workers = 0
    try:
        own = driver.memory_info().rss
        for process in driver.children(recursive=True):
            is_driver = "java" in process.name() and process.ppid() == driver.pid
            size = process.memory_info().rss
            java, workers = (java + size, workers) if is_driver else (java, workers + size)
    except psutil.NoSuchProcess:
        return Look(round(second, 1), 0, 0, 0)
    return Look(round(second, 1), own // MIB, java // MIB, workers // MIB)


def told(taken: Taken) -> str:
    lines = [f"{taken.rows:,} rows in {taken.seconds:.0f} s; MiB by quarters of the time, and at most:"]
    for name in ("python", "java", "workers"):
        quarters = [int(statistics.median(getattr(x, name) for x in taken.part(n))) for n in range(PARTS)]
        most = max(getattr(x, name) for x in taken.looks)
        lines.append(f"  {name:8} {' '.join(f'{q:6}' for q in quarters)}   at most {most}")
    return "\n".join(lines)


def plot(runs: Sequence[Taken], file: Path) -> None:
    """Memory of the driver over the share of each run that is over: lines that do not rise, and do not differ, depend on no number of rows."""
    with plotted(file, rows=2, size=(7, 5)) as axes:
        for one, name in zip(axes, ("python", "java"), strict=True):
            for taken in runs:
                looks = [x for x in taken.looks if x.python]
                share = [100 * x.second / taken.seconds for x in looks]
                label = f"{taken.rows:,} rows in {taken.seconds:.0f} s"
                one.plot(share, [getattr(x, name) for x in looks], label=label, linewidth=1)
            one.set(ylabel=f"driver's {name.capitalize()}, MiB", ylim=(0, None))
        axes[0].legend()
        axes[-1].set(xlabel="time, % of the run")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", default="1000000,10000000")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--file-rows", type=int, default=250_000, help="of a micro-batch")
    parser.add_argument("--memory", type=int, default=1024, help="of Java, MiB")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="needs matplotlib, the extra `plots`")
    options = parser.parse_args(words)
    runs = []
    for rows in map(int, options.rows.split(",")):
        with tempfile.TemporaryDirectory(prefix="flowql-bench-") as name:
            runs.append(run(Path(name), rows, options.keys, options.file_rows, options.memory, options.master))
        print(told(runs[-1]), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(r) for r in runs], indent=1) + "\n")
    if options.plot is not None:
        plot(runs, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""An hour of load with queries deployed and removed in turn: what the instance holds must stay flat.

    python -m tests.attacks.soak [--minutes 60] [--plot FILE] [--json FILE]

The probe writes 200 records a second to a critical query; every 15 seconds one of three other queries is replaced by one of three more. Samples: memory
of all processes of the instance, its threads, open descriptors, files of its directory, bytes of its state and of its log, whose topics keep
records for a twelfth of the time. The first third of the time warms up. The run fails if what the process holds in the last third (medians) or has on
disk (peaks: it is removed in steps, the redo of the state at 16 MiB) exceeds that of the second third by more than a fifth, or if a
result is missing or there twice. Resident memory with the log's mapped pages is only shown.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import psutil

from benchmarks.plots import plotted
from tests.attacks.target import Target, held_mb

EVERY_S, SAMPLE_S, GROWTH_MAX = 15.0, 5.0, 1.2
KEPT_PARTS = 12  # of the time of the run, in which records are kept
SQL = """
CREATE STREAM PULSE (ID BIGINT, CREATED BIGINT) WITH (KAFKA_TOPIC = 'pulse', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE STREAM ANSWERS WITH (KAFKA_TOPIC = 'answers', PRIORITY = 'critical') AS SELECT ID, CREATED FROM PULSE;
"""
OTHERS = (
    "CREATE TABLE BY_REST AS SELECT ID % 1000 AS REST, COUNT(*) AS N, MAX(CREATED) AS LAST FROM PULSE GROUP BY ID % 1000;",
    "CREATE TABLE PER_SECOND AS SELECT ID % 10 AS D, COUNT(*) AS N FROM PULSE WINDOW TUMBLING (SIZE 1 SECOND, RETENTION 1 MINUTE) GROUP BY ID % 10;",
    "CREATE STREAM EVEN AS SELECT ID, CREATED FROM PULSE WHERE ID % 2 = 0;",
    "CREATE STREAM TEXTS AS SELECT REGEXP_REPLACE(CAST(ID AS STRING), '[0-4]', 'x') AS S, LPAD('a', 20, 'b') AS P FROM PULSE;",
    "CREATE TABLE LISTS AS SELECT ID % 100 AS REST, LATEST_BY_OFFSET(ID, 5) AS IDS FROM PULSE GROUP BY ID % 100;",
    "CREATE STREAM MOVED AS SELECT ID, CREATED FROM PULSE PARTITION BY ID;",
)


@dataclass(frozen=True, slots=True)
class Sample:
    """What the instance holds at a moment. resident_mb: with the mapped pages of the log."""

    seconds: float
    memory_mb: float
    resident_mb: float
    threads: int
    descriptors: int
    files: int
    state_mb: float
    log_mb: float


def sample(target: Target, since: float) -> Sample:
    memory, resident, threads, descriptors = 0.0, 0.0, 0, 0
    for process in target.processes():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            memory += held_mb(process)
            resident += process.memory_info().rss / 1e6
            threads += process.num_threads()
            descriptors += process.num_fds()
    sizes = dict(_sizes(target.data_dir))
    state = sum(size for path, size in sizes.items() if "state" in path.parts)
    log = sum(size for path, size in sizes.items() if "log" in path.parts)
    return Sample(time.monotonic() - since, memory, resident, threads, descriptors, len(sizes), state / 1e6, log / 1e6)


def limit(target: Target, topics: Sequence[str], age: str) -> None:
    for topic in topics:
        done = target.call("topic", "retention", topic, age)
        if done.returncode:
            raise SystemExit(f"{topic} cannot have a limit: {done.stderr}{done.stdout}")


def _sizes(folder: Path) -> list[tuple[Path, int]]:
    found = []
    for path in folder.rglob("*"):
        with suppress(OSError):  # it may be removed while it is looked at
            if path.is_file():
                found.append((path.relative_to(folder), path.stat().st_size))
    return found


def grown(samples: Sequence[Sample]) -> list[str]:
    """Which figures grew from the second to the last third of the time."""
    third, wrong = max(1, len(samples) // 3), []
    held, stored = ("memory_mb", "threads", "descriptors"), ("files", "state_mb", "log_mb")
    for names, figure in ((held, median), (stored, max)):
        for name in names:
            parts = (samples[-2 * third : -third], samples[-third:])
            before, after = (figure(getattr(s, name) for s in part) for part in parts)
            print(f"{name:14}{before:>12.1f}{after:>12.1f}")
            if after > GROWTH_MAX * before + 5:
                wrong.append(f"{name} grew from {before:.1f} to {after:.1f}")
    return wrong


def plot(samples: Sequence[Sample], file: Path) -> None:
    names = ("memory_mb", "resident_mb", "threads", "descriptors", "files", "state_mb", "log_mb")
    with plotted(file, rows=len(names), size=(8, 14)) as axes:
        for name, axis in zip(names, axes, strict=True):
            axis.plot([s.seconds / 60 for s in samples], [getattr(s, name) for s in samples])
            axis.set(ylabel=name, ylim=(0, None))
        axes[-1].set(xlabel="minutes")


def run(folder: Path, minutes: float, seed: int) -> tuple[list[Sample], list[str]]:
    target, rnd, active = Target(folder, SQL + "\n".join(OTHERS)), random.Random(seed), [0, 1, 2]
    target.deploy()
    names = ["pulse", "answers", *(sql.split()[2] for sql in OTHERS)]
    limit(target, names, f"{minutes * 60 / KEPT_PARTS:.0f} seconds")
    seen = folder / "seen.txt"
    command = [sys.executable, "-m", "tests.attacks.probe", str(target.data_dir / "log"), str(seen)]
    probe = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    since, samples, due_s, deployments = time.monotonic(), [], 0.0, 0
    while (now_s := time.monotonic() - since) < minutes * 60:
        if probe.poll() is not None:
            raise SystemExit(f"the probe has ended with {probe.returncode}")
        samples.append(sample(target, since))
        if now_s >= due_s:
            active = [*active[1:], rnd.choice([n for n in range(len(OTHERS)) if n not in active])]
            target.write(SQL + "\n".join(OTHERS[n] for n in active))
            target.deploy("--prune", "--accept-history")
            due_s, deployments = due_s + EVERY_S, deployments + 1
        time.sleep(SAMPLE_S)
    written = int(probe.communicate(timeout=120.0)[0])
    ids = np.loadtxt(seen, dtype=np.int64, ndmin=2)[:, 0]
    wrong = [] if sorted(ids.tolist()) == list(range(written)) else ["results are lost or doubled"]
    target.call("stop")
    print(f"{written:,} records, {deployments} deployments")
    return samples, wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.attacks.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="flowql-soak-") as name:
        samples, wrong = run(Path(name), options.minutes, options.seed)
    wrong += grown(samples)
    if options.json:
        options.json.write_text(json.dumps([asdict(s) for s in samples]))
    if options.plot:
        plot(samples, options.plot)
    print("\n".join(wrong) or "all flat")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

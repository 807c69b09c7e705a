"""A critical query at 200 records a second while an instance is attacked, one kind of attack at a time and then all at once.

    python -m tests.attacks [--minutes 10] [--kinds records,queries] [--seed N]

Latency is from the creation of a record to its committed result, read by another process. Each kind is compared with the query alone, in all phases
of the same run together. The run fails if a result is missing or there twice, an attack is answered without a code, the critical query waits longer than
allowed, or the processes hold more memory than the budget and a tenth.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.attacks.kinds import KINDS, Kind
from tests.attacks.target import MEMORY_MB, Memory, Target

WARM_UP_S, SETTLE_S, P99_FACTOR, MEMORY_FACTOR = 10.0, 5.0, 2.0, 1.1


@dataclass(slots=True)
class Phase:
    """What happened while these attacks went on. outage_s: the longest time without a result."""

    name: str
    kinds: Sequence[Kind]
    since_ns: int
    until_ns: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    memory_mb: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    outage_s: float = 0.0

    @property
    def outage_s_max(self) -> float | None:
        return max((k.outage_s_max for k in self.kinds if k.outage_s_max is not None), default=None)


def attacked(target: Target, memory: Memory, name: str, kinds: Sequence[Kind], seconds: float, seed: int) -> Phase:
    """Lets the clients of these kinds attack for a while."""
    memory.take()
    phase, limit = Phase(name, kinds, time.time_ns()), time.monotonic() + seconds
    clients = [(k, n) for k in kinds for n in range(k.clients)]
    threads = [
        threading.Thread(target=_client, args=(target, phase, k, limit, f"{seed} {name} {n}"), daemon=True)
        for k, n in clients
    ]
    for thread in threads:
        thread.start()
    time.sleep(max(0.0, limit - time.monotonic()))
    phase.until_ns, phase.memory_mb = time.time_ns(), memory.take()
    for thread in threads:
        thread.join(90.0)
    return phase


def _client(target: Target, phase: Phase, kind: Kind, limit: float, seed: str) -> None:
    rnd = random.Random(seed)
    while time.monotonic() < limit:
        try:
            answer = kind.attack(target, rnd)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"[:80]
        phase.answers[f"{kind.name}: {answer}"] += 1
        if kind.once:
            return
        time.sleep(0.05)


def measure(phases: Sequence[Phase], file: Path) -> np.ndarray:
    """Fills in latencies and outages; the ids of all results."""
    rows = np.loadtxt(file, dtype=np.int64, ndmin=2)
    for phase in phases:
        own = rows[(rows[:, 1] >= phase.since_ns) & (rows[:, 1] < phase.until_ns)]
        ms = (own[:, 2] - own[:, 1]) / 1e6
        if len(ms):
            phase.p50_ms, phase.p99_ms = (float(np.percentile(ms, q)) for q in (50, 99))
        seen = np.sort(rows[(rows[:, 2] >= phase.since_ns) & (rows[:, 2] < phase.until_ns), 2])
        marks = np.concatenate([[phase.since_ns], seen, [phase.until_ns]])
        phase.outage_s = float(np.diff(marks).max() / 1e9)
    return rows[:, 0]


def alone_p99_ms(phases: Sequence[Phase], file: Path) -> float:
    """Of all records of the phases without an attack."""
    rows = np.loadtxt(file, dtype=np.int64, ndmin=2)
    alone = [rows[(rows[:, 1] >= p.since_ns) & (rows[:, 1] < p.until_ns)] for p in phases if not p.kinds]
    own = np.concatenate(alone)
    return float(np.percentile((own[:, 2] - own[:, 1]) / 1e6, 99))


def shown(phases: Sequence[Phase], alone_p99_ms: float) -> tuple[str, list[str]]:
    """The table, and what is wrong."""
    lines = [f"{'attack':14}{'p50 ms':>9}{'p99 ms':>9}{'of alone':>10}{'outage s':>10}{'memory MB':>11}  answers"]
    wrong = []
    for p in phases:
        factor = p.p99_ms / alone_p99_ms
        said = ", ".join(
            f"{k.partition(': ')[2] if len(p.kinds) == 1 else k} {n}" for k, n in p.answers.most_common(12)
        )
        lines.append(
            f"{p.name:14}{p.p50_ms:>9.1f}{p.p99_ms:>9.1f}{factor:>10.2f}{p.outage_s:>10.1f}{p.memory_mb:>11.0f}  {said}"
        )
        if p.outage_s_max is None and p.kinds and factor > P99_FACTOR:
            wrong.append(f"{p.name}: p99 is {factor:.2f} of that alone")
        if p.outage_s_max is not None and p.outage_s > p.outage_s_max:
            wrong.append(f"{p.name}: no result for {p.outage_s:.1f} s")
        if p.memory_mb > MEMORY_MB * MEMORY_FACTOR:
            wrong.append(f"{p.name}: {p.memory_mb:.0f} MB are held, the budget is {MEMORY_MB}")
        wrong += [
            f"{p.name}: answered by {a}" for a in p.answers if "FQ5000" in a or "500" in a.split() or "Error" in a
        ]
    return "\n".join(lines), wrong


def run(folder: Path, kinds: Sequence[Kind], minutes: float, seed: int) -> list[str]:
    target = Target(folder)
    target.deploy()
    memory, seen = Memory(target), folder / "seen.txt"
    command = [sys.executable, "-m", "tests.attacks.probe", str(target.data_dir / "log"), str(seen)]
    probe = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    time.sleep(WARM_UP_S)
    seconds = minutes * 60 / (len(kinds) * 2 + 2)
    phases = [attacked(target, memory, "alone", (), seconds, seed)]
    for kind in kinds:
        phases.append(attacked(target, memory, kind.name, (kind,), seconds, seed))
        time.sleep(SETTLE_S)
        phases.append(attacked(target, memory, "alone", (), max(5.0, seconds - SETTLE_S), seed))
    if len(kinds) > 1:
        phases.append(attacked(target, memory, "all at once", tuple(kinds), seconds, seed))
    written = int(probe.communicate(timeout=120.0)[0])
    ids = measure(phases, seen)
    table, wrong = shown(phases, alone_p99_ms(phases, seen))
    print(table)
    print(target.call("status").stdout)
    print(f"{written:,} records, {len(set(ids.tolist())):,} answered, {len(ids) - len(set(ids.tolist())):,} twice")
    wrong += [] if sorted(ids.tolist()) == list(range(written)) else ["results are lost or doubled"]
    target.call("stop")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.attacks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kinds", default=",".join(k.name for k in KINDS))
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    kinds = [k for k in KINDS if k.name in options.kinds.split(",")]
    with tempfile.TemporaryDirectory(prefix="flowql-attacks-") as name:
        wrong = run(Path(name), kinds, options.minutes, options.seed)
    print("\n".join(wrong) or "all held")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

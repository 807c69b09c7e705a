"""`python -m tests.crash --rounds 50 --seed N`: kill -9 at random moments; `--restart`, `--seeds`, `--power` for the others."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.crash import power
from tests.crash.contents import differences
from tests.crash.kills import Shape, disturbed, undisturbed
from tests.crash.restart import measure
from tests.crash.simulated import Machine, expected

KILLS_PER_RUN, SECONDS, ORDERS = 5, 10.0, 2000
RESTART_S_MAX = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--rounds", type=int, help="kills of real processes, in runs of at least 10 s")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    parser.add_argument("--restart", type=int, metavar="RECORDS", help="restart to first commit on a log that long")
    parser.add_argument("--seeds", type=int, help="crashes in the deterministic driver for that many seeds")
    parser.add_argument(
        "--disk", action="store_true", help="with --seeds: I/O errors of the state, and wall clocks that jump"
    )
    parser.add_argument("--power", action="store_true", help="power loss at every I/O call")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="flowql-crash-") as name:
        failed = bool(args.rounds) and not kill(Path(name), args.rounds, args.seed)
        failed |= bool(args.seeds) and not seeds(args.seed, args.seeds, disk=args.disk)
        failed |= args.power and not power_loss()
        failed |= bool(args.restart) and not restart(Path(name), args.restart)
    return int(failed)


def kill(folder: Path, rounds: int, seed: int) -> bool:
    (folder / "undisturbed").mkdir()
    expected = undisturbed(folder / "undisturbed", Shape(ORDERS, 0, 0, seed))
    done, run, good = 0, 0, True
    while done < rounds:
        shape = Shape(ORDERS, SECONDS, min(KILLS_PER_RUN, rounds - done), seed, moments=seed + run)
        (folder / f"run {run}").mkdir()
        report = disturbed(folder / f"run {run}", shape, expected)
        done, run, good = done + report.kills, run + 1, good and not report.differences
        print(f"run {run}: {report.kills} kills, {report.commits} commits, {report.seconds:.1f} s", flush=True)
        print("\n".join(report.differences) or "  equal to the undisturbed run", flush=True)
    print(f"{done} kills in {run} runs: {'all equal' if good else 'DIFFERENT'}")
    return good


def seeds(first: int, count: int, *, disk: bool) -> bool:
    bad = 0
    for seed in range(first, first + count):
        found = differences(expected(), Machine(seed, faults=disk).run(4))
        bad += bool(found)
        if found:
            print(f"seed {seed}: {found}", flush=True)
    print(f"{count - bad} of {count} seeds equal the undisturbed run")
    return not bad


def power_loss() -> bool:
    calls, losses = power.everywhere(step=1)
    print(f"power lost at each of {calls} I/O calls, {losses} reboots: all equal")
    return True


def restart(folder: Path, records: int) -> bool:
    figures = measure(folder, records, 3, lambda text: print(f"  {text}", flush=True))
    slowest = max(f.engine_s for f in figures)
    print(f"restart to first commit on {records:,} records: {slowest} s at worst (limit {RESTART_S_MAX} s)")
    return slowest <= RESTART_S_MAX


if __name__ == "__main__":
    sys.exit(main())

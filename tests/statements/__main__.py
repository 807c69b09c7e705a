"""python -m tests.statements [--count N] [--seed N] [--workers N] [--only-compile]: statements broken and made at random; those
that are accepted are run.

Fails for an internal error, for one that takes over 1 s, and for a query whose end depends on how it is run.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from tests.statements.check import CPU_S_MAX, share

SHARE = 1_000  # statements of one seed
REPORT = 10_000  # how often a run that nobody watches says how far it is


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.statements", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only-compile", action="store_true")
    args = parser.parse_args()
    task = partial(share, only_compile=args.only_compile)
    shares = [(min(SHARE, args.count - n), args.seed + n // SHARE) for n in range(0, args.count, SHARE)]
    total: Counter[str] = Counter()
    wrong: list[str] = []
    slow: list[str] = []
    slowest_s = 0.0
    with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
        for (_, seed), report in zip(shares, pool.map(task, *zip(*shares, strict=True)), strict=True):
            total += report.outcomes
            slowest_s = max(slowest_s, report.slowest_s)
            wrong += report.wrong
            slow += report.slow
            for text in (*report.wrong, *report.slow):
                print(f"seed {seed}: {text}", flush=True)
            if sys.stderr.isatty() or total.total() % REPORT == 0:
                print(f"\r{total.total():,} of {args.count:,}", end="", file=sys.stderr, flush=True)
    for name, n in sorted(total.items()):
        print(f"{n:8,}  {name}")
    print(
        f"{total.total():,} statements from seed {args.seed}: {len(wrong)} internal errors or wrong ends, "
        f"{len(slow)} over {CPU_S_MAX:.0f} s of processor time, the slowest {slowest_s:.2f} s"
    )
    return int(bool(wrong or slow))


if __name__ == "__main__":
    sys.exit(main())

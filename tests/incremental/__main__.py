"""Views over random changes against DuckDB: `python -m tests.incremental --seeds 1000 [--seed S] [--shape NAME]`.

Each seed is a query, its tables and their changes, a number of partitions, a kernel. A failing seed is printed with the command
that repeats it; the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.incremental.check import run
from tests.incremental.shapes import SHAPES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.incremental", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many, for each shape")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--shape", choices=sorted(SHAPES), action="append", help="only queries of this shape")
    parser.add_argument("--rounds", type=int, default=5, help="of changes, after each of which the view is compared")
    options = parser.parse_args()
    seen: Counter[str] = Counter()
    passed = failed = changes = 0
    for name in options.shape or SHAPES:
        for seed in range(options.seed, options.seed + options.seeds):
            try:
                outcome = run(SHAPES[name], seed, rounds=options.rounds)
            except Exception as error:
                failed += 1
                again = f"python -m tests.incremental --seeds 1 --seed {seed} --shape {name}"
                print(f"{again}\n{type(error).__name__}: {error}\n", flush=True)
                continue
            passed += 1
            changes += outcome.changes
            seen.update(set(outcome.labels))
    print("queries with", ", ".join(f"{label} {n}" for label, n in sorted(seen.items())))
    print(f"{changes} changes; {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

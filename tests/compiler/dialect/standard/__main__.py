"""python -m tests.compiler.dialect.standard [--seeds N] [--first N]: the sweep of which the suite runs a sample."""

from __future__ import annotations

import argparse

from tests.compiler.dialect.standard.checks import check_broken, check_round_trip, check_sqlglot


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.compiler.dialect.standard")
    parser.add_argument("--seeds", type=int, default=5_000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    for check in (check_round_trip, check_sqlglot, check_broken):
        for seed in seeds:
            check(seed)
        print(f"{check.__name__}: {len(seeds)} seeds")


if __name__ == "__main__":
    main()

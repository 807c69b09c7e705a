"""TPC-H and TPC-DS, as written, as views and as interactive queries, right after every commit of changes; PostgreSQL is the oracle.

    python -m tests.tpc --folder data --benchmark tpcds --commits 10

A query that PostgreSQL does not read is compared with DuckDB. At the end: how many are right, and of the others why not.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tests.beside_postgres import Run
from tests.one_meaning import postgres
from tests.tpc.data import BENCHMARKS, load, make


def main(argv: list[str] | None = None) -> int:
    options = _options(argv)
    logging.getLogger("flowql").setLevel(logging.CRITICAL)
    if not (options.folder / BENCHMARKS[-1] / "queries.json").exists():
        make(options.folder)
    wrong = 0
    with ExitStack() as stack:
        theirs = stack.enter_context(postgres.server())
        for benchmark in options.benchmark or BENCHMARKS:
            tables, queries = load(options.folder, benchmark)
            chosen = [n for n in queries if not options.queries or int(n[1:]) in options.queries]
            began_s = time.monotonic()
            run = stack.enter_context(Run(tables, queries, theirs, options.partitions, options.together))
            for name, text in run.follow(chosen, options.commits, options.seed):
                wrong += 1
                print(f"  {name}: {text}", flush=True)
            print(f"{benchmark}: {run.summary(chosen)}, in {time.monotonic() - began_s:.0f} s", flush=True)
    return 1 if wrong else 0


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.tpc", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the rows are, or are made")
    parser.add_argument("--benchmark", choices=BENCHMARKS, action="append", help="both without it")
    parser.add_argument("--queries", type=int, nargs="*", help="their numbers; all without it")
    parser.add_argument("--commits", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=1, help="of each table")
    parser.add_argument("--together", type=int, default=25, help="queries that share an instance")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

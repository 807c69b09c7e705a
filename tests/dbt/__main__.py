"""The models of a dbt project as views and as interactive queries, right after every commit of changes; PostgreSQL is the oracle.

    python -m tests.dbt --seed 2 --changes 5 --only mart_

Says of each model that is not right whether it is refused by name, wrong, or an internal error. The exit status is 1 for the latter two.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.beside_postgres import Run
from tests.dbt.models import load
from tests.dbt.sources import sources
from tests.one_meaning import postgres


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dbt", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="models whose path contains this")
    parser.add_argument("--changes", type=int, default=4, help="commits of them")
    parser.add_argument("--partitions", type=int, default=1, help="of each source table")
    parser.add_argument(
        "--together", type=int, default=60, help="models that share an instance, beside those that they read"
    )
    options = parser.parse_args(argv)
    logging.getLogger("flowql").setLevel(logging.CRITICAL)
    models = load()
    chosen = [n for n, m in models.items() if options.only in m.path]
    began_s = time.monotonic()
    queries = {n: m.sql for n, m in models.items()}
    with postgres.server() as theirs, Run(sources(), queries, theirs, options.partitions, options.together) as run:
        for name, text in run.follow(chosen, options.changes, options.seed):
            print(f"  {name}: {text}", flush=True)
    print(f"seed {options.seed}: {run.summary(chosen)}, in {time.monotonic() - began_s:.0f} s", flush=True)
    if silent := [n for n in chosen if n not in run.with_rows and not models[n].is_test]:
        print(f"without rows: {', '.join(silent)}")
    return 1 if any(not text.startswith("refused") for text in run.wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Random statements of the standard dialect on every way through FlowQL, and in PostgreSQL where it is installed.

    python -m tests.one_meaning --statements 20000 --seed 1
    python -m tests.one_meaning --statements 100 --ways view,asked

Rows are compared as bags, doubles bit by bit, and with PostgreSQL to 1e-12. Statements of a batch share an instance, and the
partitions of its tables are those of the batch in turn. At the end: how many statements each way takes, how often each clause
occurs, and the differences by kind, each with its shortest statement. The exit status is 1 if there is one that is not known.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from contextlib import ExitStack

from tests.one_meaning import postgres
from tests.one_meaning.check import WAYS, Outcome, run
from tests.one_meaning.plants import PLANTS, found_after
from tests.one_meaning.reduce import reduced
from tests.one_meaning.report import report, shortest
from tests.one_meaning.statements import batch


def main(argv: list[str] | None = None) -> int:
    options = _options(argv)
    logging.getLogger("flowql").setLevel(logging.CRITICAL)
    ways = options.ways.split(",")
    partitions = [int(p) for p in options.partitions.split(",")]
    outcome, failed, began_s = Outcome(), 0, time.monotonic()
    with ExitStack() as stack:
        theirs = stack.enter_context(postgres.server()) if options.postgres and postgres.installed() else None
        if options.plant:
            return _plant(options, theirs.address if theirs is not None else "")
        for number in range(-(-options.statements // options.batch)):
            if options.seconds and time.monotonic() - began_s > options.seconds:
                break
            seed = options.seed * 10_000 + number
            made = batch(seed, min(options.batch, options.statements - number * options.batch))
            try:
                outcome.add(
                    made, run(made, ways, partitions[number % len(partitions)], theirs, changes=options.changes)
                )
            except Exception:
                failed += 1
                print(f"--- seed {seed} has no answers", traceback.format_exc()[-1500:], sep="\n", flush=True)
            print(f"seed {seed}: {outcome.statements} statements, {len(outcome.differences)} differences", flush=True)
        if options.reduced:
            outcome.differences += [
                reduced(d, batch(d.seed, d.number + 1), partitions[d.seed % 10_000 % len(partitions)], theirs)
                for d in shortest(outcome.differences)[: options.reduced]
            ]
    report(outcome)
    print(f"{outcome.statements} statements in {time.monotonic() - began_s:.0f} s")
    return 1 if failed or any(not d.known for d in outcome.differences) else 0


def _plant(options: argparse.Namespace, address: str) -> int:
    missed = 0
    for name in PLANTS if options.plant == "all" else options.plant.split(","):
        after = found_after(name, options.seed * 10_000, options.batch, options.statements, address)
        print(
            f"{name:18}" + (f"found after {after} statements" if after else f"not found in {options.statements}"),
            flush=True,
        )
        missed += not after
    return 1 if missed else 0


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.one_meaning", description=__doc__)
    parser.add_argument("--statements", type=int, default=200, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the first batch")
    parser.add_argument("--batch", type=int, default=50, help="statements that share an instance")
    parser.add_argument("--ways", default=",".join(WAYS), help="of " + ", ".join(WAYS))
    parser.add_argument("--changes", type=int, default=4, help="statements for each table after a restart; 0 for none")
    parser.add_argument("--plant", default="", help="plant a fault, or all: " + ", ".join(PLANTS))
    parser.add_argument("--partitions", default="1,3", help="of each topic, taken in turn")
    parser.add_argument("--seconds", type=float, default=0, help="begin no further batch after so many")
    parser.add_argument(
        "--reduced", type=int, default=0, help="reduce the statements of so many kinds of new differences"
    )
    parser.add_argument(
        "--no-postgres", dest="postgres", action="store_false", help="compare the ways with each other alone"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

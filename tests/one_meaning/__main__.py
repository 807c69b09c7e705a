"""Random statements of the standard dialect on every way through FlowQL, and in PostgreSQL where it is installed.

    python -m tests.one_meaning --statements 20000 --seed 1
    python -m tests.one_meaning --statements 100 --ways view,asked
    python -m tests.one_meaning --statements 5000 --stepped

Rows are compared as bags, doubles bit by bit, and with PostgreSQL to 1e-12. Statements of a batch share an instance, and the
partitions of its tables are those of the batch in turn. At the end: how many statements each way takes, how often each clause
occurs, and the differences by kind, each with its shortest statement. The exit status is 1 if there is one that is not known.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import signal
import sys
import time
import traceback
from contextlib import ExitStack

from tests.one_meaning import postgres
from tests.one_meaning.check import WAYS, Outcome, run
from tests.one_meaning.plants import PLANTS, found_after
from tests.one_meaning.reduce import reduced
from tests.one_meaning.report import report, shortest, show
from tests.one_meaning.statements import batch
from tests.one_meaning.stepped import WAYS as STEPPED_WAYS
from tests.one_meaning.stepped import stepped
from tests.one_meaning.world import world

SEEDS = 10_000  # batches of a seed


def main(argv: list[str] | None = None) -> int:
    options = _options(argv)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # child processes would compile all modules each time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # what was started ends, too
    logging.getLogger("flowql").setLevel(logging.CRITICAL)
    with ExitStack() as stack:
        theirs = stack.enter_context(postgres.server()) if options.postgres and postgres.installed() else None
        if options.plant:
            return _plant(options, theirs.address if theirs is not None else "")
        outcome, began_s = Outcome(), time.monotonic()
        try:
            failed = _run(options, outcome, theirs)
            for d in shortest(outcome.differences)[: options.reduced]:
                outcome.differences.append(
                    reduced(d, batch(d.seed, options.batch), _partitions(options, d.seed % SEEDS), theirs)
                )
        finally:
            report(outcome)
            print(f"{outcome.statements} statements in {time.monotonic() - began_s:.0f} s")
    return 1 if failed or any(not d.known for d in outcome.differences) else 0


def _run(options: argparse.Namespace, outcome: Outcome, theirs: postgres.Postgres | None) -> int:
    """How many batches had no answers."""
    enter = stepped if options.stepped else world
    failed, end_s = 0, time.monotonic() + (options.seconds or math.inf)
    for number in range(-(-options.statements // options.batch)):
        if time.monotonic() > end_s:
            break
        made = batch(options.seed * SEEDS + number, options.batch)
        partitions, ways = _partitions(options, number), options.ways.split(",")
        try:
            outcome.add(made, run(made, ways, partitions, theirs, changes=options.changes, enter=enter))
        except Exception:
            failed += 1
            print(f"--- seed {made.seed} has no answers", traceback.format_exc()[-1500:], sep="\n", flush=True)
        show([d for d in outcome.differences if d.seed == made.seed and not d.known])
        print(f"seed {made.seed}: {outcome.statements} statements, {len(outcome.differences)} differences", flush=True)
    return failed


def _partitions(options: argparse.Namespace, number: int) -> int:
    partitions = [int(p) for p in options.partitions.split(",")]
    return partitions[number % len(partitions)]


def _plant(options: argparse.Namespace, address: str) -> int:
    missed = 0
    for name in PLANTS if options.plant == "all" else options.plant.split(","):
        after = found_after(
            name, options.seed * SEEDS, options.batch, options.statements, options.ways.split(","), address
        )
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
        "--stepped", action="store_true", help="in memory and in one thread: " + ", ".join(STEPPED_WAYS)
    )
    parser.add_argument(
        "--no-postgres", dest="postgres", action="store_false", help="compare the ways with each other alone"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

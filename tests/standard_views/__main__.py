"""Random views of standard SQL against DuckDB: `python -m tests.standard_views --seeds 100 [--seed S] [--partitions 1,3,8] [--rows | --vector]`.

Each seed is tables, views and changes, as text. A failing seed is reduced and printed with the command that repeats it; the exit
status is 1. A process that is terminated, as by `timeout`, prints its seed. At the end: how often each construct occurs in views,
and how often these are accepted.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial

from tests.slt.session import Shape
from tests.standard_views.case import case
from tests.standard_views.check import CaseResult, Failed, run
from tests.standard_views.reduce import reduced

INLINE = (16, 1, 3)


def main(argv: list[str] | None = None) -> int:
    options = _options(argv)
    logging.getLogger("flowql").setLevel(logging.CRITICAL)
    partitions = [int(p) for p in options.partitions.split(",")]
    outcomes: list[CaseResult] = []
    failed = 0
    kinds: Counter[str] = Counter()
    start = time.monotonic()
    for seed in range(options.seed, options.seed + options.seeds):
        if options.seconds and time.monotonic() - start > options.seconds:
            break
        signal.signal(signal.SIGTERM, lambda *_, seed=seed: sys.exit(f"--- seed {seed} has not ended"))
        shape = Shape(_kernels(options, seed), partitions[seed % len(partitions)])
        inline = INLINE[seed // 3 % len(INLINE)]
        kills = seed if options.kills else None
        steps = case(seed, edits=options.edits)
        try:
            outcomes.append(run(steps, shape, inline=inline, kills=kills))
        except Failed as failure:
            failed += 1
            kinds[failure.kind] += 1
            print(f"--- seed {seed}, {shape}, inline {inline}: {str(failure)[:600]}", flush=True)
            if not options.whole:
                shorter, found = reduced(steps, failure, partial(run, shape=shape, inline=inline, kills=kills))
                print(str(found)[:1500])
                for step in shorter:
                    print(f"  {step.name + ': ' if step.kind == 'view' else ''}{step.sql};")
            print(flush=True)
    _report(outcomes, time.monotonic() - start)
    print(f"{len(outcomes)} passed, {failed} failed {dict(kinds) or ''}")
    return 1 if failed else 0


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.standard_views", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--partitions", default="1,3,8", help="of each table, taken in turn")
    parser.add_argument("--seconds", type=float, default=0, help="start no further seed after so many")
    kernels = parser.add_mutually_exclusive_group()
    kernels.add_argument("--rows", action="store_true", help="row kernels only; otherwise both in turn")
    kernels.add_argument("--vector", action="store_true", help="vector kernels only")
    parser.add_argument("--kills", action="store_true", help="restart in the middle of some statements")
    parser.add_argument("--edits", action="store_true", help="edit, drop and bring back views between the statements")
    parser.add_argument("--whole", action="store_true", help="do not reduce what fails")
    return parser.parse_args(argv)


def _kernels(options: argparse.Namespace, seed: int) -> bool | None:
    if options.rows or options.vector:
        return bool(options.vector)
    return (None, True, False)[seed // 9 % 3]


def _report(outcomes: Iterable[CaseResult], seconds: float) -> None:
    accepted: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    examples: dict[str, str] = {}
    views = views_accepted = compared = changes = lacking = 0
    for o in outcomes:
        views += len(o.accepted) + len(o.refused)
        views_accepted += len(o.accepted)
        compared += o.compared
        changes += o.changes
        lacking += len(o.lacking)
        for labels in o.accepted:
            accepted.update(labels)
        for labels, reason, sql in o.refused:
            refused.update(labels)
            reasons[reason[:110]] += 1
            examples.setdefault(reason[:110], sql)
    if not views:
        return
    print(f"{'construct':22}{'in views':>9}{'accepted':>10}")
    for label in sorted(accepted | refused):
        of = accepted[label] + refused[label]
        print(f"{label:22}{of / views:8.1%}{accepted[label] / of:10.1%}")
    for reason, n in reasons.most_common(25):
        print(f"{n:6} refused  {reason}\n               {examples[reason][:300]}")
    print(f"{views} views, {views_accepted / views:.1%} accepted, {lacking} that DuckDB does not answer")
    print(f"{changes} changes, {sum(o.edits for o in outcomes)} edits, {compared} answers compared in {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())

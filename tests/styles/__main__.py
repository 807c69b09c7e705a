"""python -m tests.styles [--style postgresql|flink|risingwave] [--only TEXT] [--vector | --rows] [--partitions N] [--all]

Runs each case of a style and says how many are right, refused by name (with the error), wrong, or end in an internal error. The exit
status is 1 for a wrong one, an internal error, or one refused that is not noted as such. --all: also tells the right ones.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter

from tests.slt.session import Shape
from tests.styles.cases import STYLES, load
from tests.styles.check import Result, check


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.styles", description=__doc__)
    parser.add_argument("--style", choices=STYLES, action="append", help="all without it")
    parser.add_argument("--only", default="", help="cases whose title contains this")
    parser.add_argument("--partitions", type=int, default=1, help="of each table")
    parser.add_argument("--all", action="store_true")
    kernels = parser.add_mutually_exclusive_group()
    kernels.add_argument("--vector", action="store_true", help="vector kernels only")
    kernels.add_argument("--rows", action="store_true", help="row kernels only")
    options = parser.parse_args(argv)
    logging.getLogger("flowql").setLevel(logging.CRITICAL)
    shape = Shape(True if options.vector else False if options.rows else None, options.partitions)
    failed = 0
    for style in options.style or STYLES:
        results = [check(c, shape) for c in load(style) if options.only in c.title]
        failed += sum(_failed(r) for r in results)
        for r in results:
            if r.kind != "right" or options.all:
                print(f"  {r.kind:8} {r.case.title}{': ' if r.reason else ''}{r.reason}")
        counts = Counter(r.kind for r in results)
        named = {"right": "right", "refused": "refused by name", "wrong": "wrong", "internal": "internal errors"}
        print(f"{style}: {', '.join(f'{counts[k]} {n}' for k, n in named.items())}, of {len(results)}", flush=True)
    return 1 if failed else 0


def _failed(result: Result) -> bool:
    return result.kind in ("wrong", "internal") or (result.kind == "refused" and not result.case.refused)


if __name__ == "__main__":
    sys.exit(main())

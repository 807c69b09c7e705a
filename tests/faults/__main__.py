"""`python -m tests.faults --state --kind eio [--from N --to M]`: a real instance, with a fault at the n-th I/O, for n = 1, 2, ..."""

from __future__ import annotations

import argparse
import sys
import time

from tests.faults.shim import KINDS, READS, NoCompiler
from tests.faults.sweep import JUMPS_S, WHATS, Found, nursery, sweep


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    for what in WHATS:
        parser.add_argument(f"--{what}", action="append_const", dest="whats", const=what, help=f"files of the {what}")
    parser.add_argument("--kind", choices=(*KINDS, READS), action="append", help="all of them if none is given")
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="N")
    parser.add_argument("--to", dest="last", type=int, default=None, metavar="M")
    parser.add_argument("--times", type=int, default=1, help="so many calls fail, one after the other")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--clock", action="store_true", help="the wall clock jumps by an hour and by a day, both ways")
    parser.add_argument("--verbose", action="store_true", help="each life, not only the bad ones")
    args = parser.parse_args()
    bad = 0
    try:
        with nursery() as made:
            for what in args.whats or WHATS:
                for kind in args.kind or (*KINDS, READS)[: 4 + (what == "log")]:
                    lives, begun = 0, time.monotonic()
                    for found in sweep(
                        made,
                        what,
                        kind,
                        args.first,
                        args.last,
                        times=args.times,
                        step=args.step,
                        jumps_s=JUMPS_S if args.clock else (),
                    ):
                        lives += 1
                        bad += bool(found.wrong)
                        if found.wrong or args.verbose:
                            show(found)
                    took = time.monotonic() - begun
                    print(f"{what} {kind}: {lives} lives in {took:.0f} s, {bad} bad so far", flush=True)
    except NoCompiler as reason:
        print(reason)
        return 2
    return int(bad > 0)


def show(found: Found) -> None:
    f = found.fault
    print(f"{f.what} {f.kind} {f.at}: {found.met or 'not met'} ({found.seen} seen, {found.starts} starts)", flush=True)
    for line in (*found.wrong, *found.trouble, *found.said):
        print(f"    {line.strip()}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

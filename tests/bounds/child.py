"""The process that makes the calls. Each line of its output is a case that it begins, or a finding.

A heartbeat thread wakes every 2 ms and notes the processor time of the process since it ran last: a call that keeps the lock of the
interpreter keeps it from running. Processor time, because the machine may have other work.
"""

from __future__ import annotations

import argparse
import gc
import random
import resource
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from tests.bounds.calls import Kernel, functions, kernel, lambdas, signatures
from tests.bounds.values import LONG, MEGA, shortened, value

WITHHELD_S = 0.05
CALL_S = 5.0
AGAIN = 2
GROWTH_BYTES = 256 * MEGA
MEMORY_BYTES = 4 << 30
SIZES = (10, 100, 1000, 1000, 10_000, 10_000, 100_000, 100_000, MEGA, MEGA)
SIZES_LONG = (*SIZES, LONG)
SIZES_SHORT = (*[10] * 30, *[100] * 30, *[1_000] * 30, *[10_000] * 8, 100_000, MEGA)  # for many calls in little time


class Heartbeat:
    """How much processor time passes while no other thread can run."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = time.process_time()
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while True:
            time.sleep(0.002)
            self.note()

    def note(self) -> None:
        now = time.process_time()
        self.longest = max(self.longest, now - self._last)
        self._last = now

    def begin(self) -> None:
        self._last, self.longest = time.process_time(), 0.0


def case(dialect: Any, seed: int, n: int, only: str, sizes: Sequence[int]) -> tuple[str, Kernel, list[Any]] | None:
    """The n-th call: its name, its kernel and its arguments; None for a function that no arguments fit."""
    r = random.Random(f"{seed}/{n}")
    grown = lambdas() if dialect == "ksql" else {}
    names = [x for x in (*functions(dialect), *grown) if not only or x == only]
    name = names[n % len(names)]
    if name in grown:
        resolution, call = grown[name]
    else:
        every = signatures(name)
        if not every:
            return None
        resolution = r.choice(every)
        call = kernel(name, resolution)
    return name, call, [value(t, r, r.choice(sizes)) for t in resolution.args]


def _called(call: Kernel, args: list[Any], heart: Heartbeat) -> tuple[Any, float]:
    """The result or error of a call, and how long it kept the lock."""
    heart.begin()
    found: Any = None
    try:
        found = call(args)
    except Exception as error:
        found = error
    heart.note()
    return found, heart.longest


def main() -> None:
    p = argparse.ArgumentParser()
    for option in ("--seed", "--start", "--end"):
        p.add_argument(option, type=int, required=True)
    p.add_argument("--dialect", required=True)
    p.add_argument("--only", default="")
    p.add_argument("--sizes", choices=("short", "usual", "long"), default="usual")
    p.add_argument("--withheld", type=float, default=WITHHELD_S)
    a = p.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sys.setswitchinterval(0.0005)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    heart = Heartbeat()
    gc.freeze()
    sizes = {"short": SIZES_SHORT, "usual": SIZES, "long": SIZES_LONG}[a.sizes]
    for n in range(a.start, a.end):
        made = case(a.dialect, a.seed, n, a.only, sizes)
        if made is None:
            continue
        name, call, args = made
        print(f"begin {n} {name}({', '.join(map(shortened, args))})", flush=True)
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        found, withheld = _called(call, args, heart)
        took = time.process_time() - began
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
        for _ in range(AGAIN if a.withheld < withheld < CALL_S else 0):  # a moment of the machine is no finding
            withheld = min(withheld, _called(call, args, heart)[1])
        reasons = [f"kept the lock for {withheld * 1e3:.0f} ms"] if withheld > a.withheld else []
        reasons += [f"took {took:.1f} s"] if took > CALL_S else []
        reasons += [f"allocated {grown >> 20} MiB"] if grown > GROWTH_BYTES else []
        if isinstance(found, MemoryError):
            reasons.append("MemoryError")
        if reasons:
            print(f"finding {n} {', '.join(reasons)} -> {shortened(found)}", flush=True)
    print("end", flush=True)


if __name__ == "__main__":
    main()

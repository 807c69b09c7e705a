"""Fuzzes every function with adversarial arguments in a child process.

    python -m tests.bounds --cases 100000 --seed 7
    python -m tests.bounds --cases 1000 --seed 7 --dialect ksql --only LPAD --sizes long

A finding is a call that kept the lock of the interpreter for more than 50 ms of processor time, took more than 5 s, allocated more than 256 MiB,
or ended its process. Cases of a seed and of sizes are always the same. --sizes: `long` has arguments of 16 MiB, too, and with `short` few are long.
"""

from __future__ import annotations

import argparse
import selectors
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

HANG_S = 120.0
WITHHELD_S = 0.05


@dataclass(frozen=True, slots=True)
class Finding:
    """case: the number of the case. call: name and arguments, shortened."""

    case: int
    call: str
    what: str

    def __str__(self) -> str:
        return f"case {self.case}: {self.call}: {self.what}"


def findings(
    dialect: str,
    seed: int,
    start: int,
    end: int,
    *,
    only: str = "",
    sizes: str = "usual",
    hang_s: float = HANG_S,
    withheld_s: float = WITHHELD_S,
) -> Iterator[Finding]:
    """What the cases from `start` to before `end` show."""
    while start < end:
        command = [sys.executable, "-m", "tests.bounds.child", f"--seed={seed}", f"--start={start}", f"--end={end}"]
        command += [f"--dialect={dialect}", f"--only={only}", f"--sizes={sizes}"]
        command += [f"--withheld={withheld_s}"]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        at, call, ended, what = start - 1, "start", False, ""
        try:
            for line in _lines(child, hang_s):
                word, _, rest = line.partition(" ")
                number, _, text = rest.partition(" ")
                ended = ended or word == "end"
                if word == "begin":
                    at, call = int(number), text
                elif word == "finding":
                    yield Finding(int(number), call, text)
        except TimeoutError:
            what = f"no end after {hang_s:.0f} s"
        finally:
            child.kill()
            errors = child.communicate()[1].decode(errors="replace")
        if ended:
            return
        if at < start:
            raise RuntimeError(f"the child does not start: {errors}")
        last = errors.strip().splitlines()[-1:] or [""]
        yield Finding(at, call, what or f"the process ended with {child.returncode}: {last[0]}")
        start = at + 1


def _lines(child: subprocess.Popen[bytes], hang_s: float) -> Iterator[str]:
    """Lines as they come. Raises TimeoutError after `hang_s` without one."""
    assert child.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        rest = b""
        while True:
            if not selector.select(hang_s):
                raise TimeoutError
            chunk = child.stdout.read1(1 << 16)  # type: ignore[attr-defined]
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)


def main() -> int:
    p = argparse.ArgumentParser(prog="python -m tests.bounds")
    p.add_argument("--cases", type=int, default=10_000, help="per dialect")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--start", type=int, default=0)
    p.add_argument("--dialect", choices=("ksql", "standard"))
    p.add_argument("--only", default="")
    p.add_argument("--sizes", choices=("short", "usual", "long"), default="usual")
    p.add_argument("--hang", type=float, default=HANG_S)
    a = p.parse_args()
    count = 0
    for dialect in (a.dialect,) if a.dialect else ("ksql", "standard"):
        for f in findings(dialect, a.seed, a.start, a.start + a.cases, only=a.only, sizes=a.sizes, hang_s=a.hang):
            count += 1
            print(f"{dialect} seed {a.seed} {f}", flush=True)
    print(f"{count} findings")
    return 1 if count else 0


if __name__ == "__main__":
    raise SystemExit(main())

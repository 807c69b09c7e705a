"""python -m tests.conformance DIR [--tier core|all] [--json FILE] [--only TEXT] [--sample N [--seed N]]
       [--rows N [--vector] [--partitions N]] [--changelogs] [--threads N] [--kill] [--engine runtime|spark]

With one of the options that change how queries run, only positive cases are run; with --rows they are compared in what they end in.
On Spark each query runs over all of its input at once.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.conformance.case_engine import Shape
from tests.conformance.processes import CASE_S, KilledCaseEngine
from tests.conformance.runner import Case, Result, run_case


def load(folder: Path, tier: str, only: str = "") -> list[Case]:
    """All cases under a folder, in order of file and place."""
    cases = []
    for path in sorted(folder.rglob("*.json")):
        document = json.loads(path.read_text(), parse_float=Decimal)
        cases += [c for c in document["cases"] if tier == "all" or c["tier"] == tier]
    return [c for c in cases if only in c["id"]]


def sample(cases: list[Case], n: int, seed: int) -> list[Case]:
    """So many of them, the same for the same seed, in their order."""
    chosen = set(random.Random(seed).sample(range(len(cases)), min(n, len(cases))))
    return [c for i, c in enumerate(cases) if i in chosen]


def summary(results: list[Result]) -> dict[str, Any]:
    """The JSON document of a run. Totals count every case of the tier."""

    def count(kind: str) -> dict[str, int]:
        of_kind = [r for r in results if r.kind == kind]
        return {"passed": sum(r.passed for r in of_kind), "total": len(of_kind)}

    checked = [r for r in results if r.post is not None]
    return {
        "positive": count("positive"),
        "error": count("error"),
        "post": {"passed": sum(r.post == "" for r in checked), "total": len(checked)},
        "failures": [{"id": r.id, "reason": r.reason} for r in results if not r.passed],
        "unsupported": dict(Counter(r.unsupported for r in results if r.unsupported).most_common()),
    }


def run_in(case: Case, shape: Shape) -> Result:
    """Run a case on the runtime."""
    if shape.kill is None:
        return run_case(case, shape)
    return run_case(case, world=KilledCaseEngine(shape, case=case), timeout_s=CASE_S)


@contextmanager
def runner(engine: str, shape: Shape) -> Iterator[Callable[[Case], Result]]:
    """What runs a case."""
    if engine == "runtime":
        yield lambda case: run_in(case, shape)
        return
    from tests.conformance.on_spark import (  # needs an extra that need not be installed
        TIMEOUT_S,
        SparkCaseEngine,
        session,
    )

    ways: Counter[str] = Counter()
    with session() as spark:
        yield lambda case: run_case(case, world=SparkCaseEngine(spark=spark, ways=ways), timeout_s=TIMEOUT_S)
    print(", ".join(f"{n} queries {way}" for way, n in ways.most_common()))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tier", choices=("core", "all"), default="core")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", type=int, help="feed all input at once, in runs of this size; compare final state")
    parser.add_argument("--vector", action="store_true", help="force vector kernels")
    parser.add_argument("--partitions", type=int, default=1, help="of each topic; with --rows")
    parser.add_argument("--changelogs", action="store_true", help="lose the state after half of the input")
    parser.add_argument("--threads", type=int, default=0, help="process with so many threads, on the machine's clock")
    parser.add_argument("--kill", action="store_true", help="run on files, and kill -9 at a write drawn by --seed")
    parser.add_argument("--only", default="", help="cases whose id contains this")
    parser.add_argument("--engine", choices=("runtime", "spark"), default="runtime")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many cases, drawn by --seed")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    shape = Shape(
        options.rows,
        vector=True if options.vector else None,
        coalesce=options.rows is not None,
        changelogs=options.changelogs,
        partitions=options.partitions,
        threads=options.threads,
        kill=options.seed if options.kill else None,
    )
    cases = load(options.folder, options.tier, options.only)
    if options.engine == "spark" or shape != Shape():
        cases = [c for c in cases if "error" not in c]
    if options.sample:
        cases = sample(cases, options.sample, options.seed)
        print(f"{len(cases)} cases of seed {options.seed}")
    results: list[Result] = []
    with runner(options.engine, shape) as run:
        for case in cases:
            results.append(run(case))
            if sys.stderr.isatty():
                print(f"\r{len(results)} of {len(cases)} cases", end="", file=sys.stderr)
    document = summary(results)
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    reasons = Counter(f["reason"][:70] for f in document["failures"])
    for reason, n in reasons.most_common(25):
        print(f"{n:5}  {reason}")
    for reason, n in document["unsupported"].items():
        print(f"{n:5}  not supported on {options.engine}: {reason}")
    for kind in ("positive", "error", "post"):
        part = document[kind]
        print(f"{kind}: {part['passed']} of {part['total']}")
    passed = sum(r.passed for r in results)
    print(f"{passed} passed, {len(results) - passed} failed")
    return 0 if passed == len(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())

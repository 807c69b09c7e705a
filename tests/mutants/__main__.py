"""Do the tests of a package notice small changes to its code? Survivors are printed as differences.

    python -m tests.mutants runtime/commit --mutants 30 --seed 1
    python -m tests.mutants runtime/state/roll_forward.py --tests tests/runtime/state
    python -m tests.mutants runtime/app --seed 7 --part 2/4 --limit 200

Each mutant is tried in a copy of the tree, with `pytest -x` on the tests of its module (TESTS, or `--tests`) and 60 s (`--limit`), in a fork of this process
(tests/mutants/judge.py). One that takes longer counts as noticed: the tests wait for something that does not come. Those of tests/mutants/equivalent.py are not tried. The mutants of a seed are the same as long as the code is.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.judge import Calls, judge, load_libraries, record
from tests.mutants.mutate import Mutant, mutants
from tests.tidy.tree import ROOT, own_files

LIMIT_S = 60.0
RECORDING_S = 1800.0  # for all tests of a package, whose calls are written down
# Where the tests of a package are not in the folder of its name.
TESTS: dict[str, tuple[str, ...]] = {
    "runtime/commit": (
        "tests/runtime/commit",
        "tests/runtime/app/test_commit_trouble.py",
        "tests/runtime/app/test_state_trouble.py",
        "tests/runtime/app/test_refused.py",
        "tests/runtime/app/test_careful.py",
        "tests/runtime/app/test_group.py",
    ),
    # What specs, types and rewrites are for is known where plans are made.
    "compiler/plan": ("tests/compiler/plan", "tests/compiler/physical", "tests/compiler/optimize"),
    # Of the rule `mark_appends` the operators know what it is for.
    "compiler/optimize": ("tests/compiler/optimize", "tests/runtime/operators/test_only_additions.py"),
    "runtime/state": ("tests/runtime/state", "tests/runtime/app/test_state_trouble.py"),
    "runtime/log": ("tests/runtime/log/test_*.py", "tests/runtime/app/test_delivering.py"),
    "runtime/log/kafka": ("tests/runtime/log/kafka",),
    # What values do to a run, and tasks after each other, is known where whole queries run.
    "runtime/task": (
        "tests/runtime/task",
        "tests/runtime/app/test_one_bad_record.py",
        "tests/runtime/app/test_careful.py",
        "tests/runtime/app/test_exchanges.py",
        "tests/runtime/app/test_delivering.py",
        "tests/runtime/app/test_processors.py",
        "tests/runtime/app/test_letters_kept.py",
    ),
    "runtime/app": (
        "tests/runtime/app",
        "tests/runtime/restoration",
        "tests/runtime/test_budget.py",
        "tests/runtime/task/test_publishing.py",
        "tests/sim/test_hung.py",
        "tests/sim/test_scenarios.py",
        "tests/runtime/spark/test_handover.py",
    ),
    "runtime/scheduler": ("tests/runtime/scheduler", "tests/simulation"),
    "runtime/output": ("tests/runtime/output", "tests/runtime/test_budget.py", "tests/runtime/app/test_refused.py"),
}


def judges_of(package: str) -> list[str]:
    """The tests that judge a package or a module: of the longest name that is known, else those of the same folder."""
    known = [name for name in TESTS if package == name or package.startswith(f"{name}/")]
    if known:
        found = TESTS[max(known, key=len)]
    else:
        folder = Path(package)
        while folder.suffix or not (ROOT / "tests" / folder).is_dir():
            folder = folder.parent
        found = (f"tests/{folder}",)
    return [str(path.relative_to(ROOT)) for name in found for path in sorted(ROOT.glob(name))]


def copy_tree(into: Path) -> None:
    for path in own_files():
        target = into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, target)
    for link in ("compiler", "runtime"):  # the packages are links, which git lists as files where they are none
        if not (into / "flowql" / link).exists():
            (into / "flowql" / link).symlink_to(os.path.join("..", link))


def draw(package: str, number: int, seed: int) -> list[tuple[Path, Mutant]]:
    files = [p for p in own_files() if p.suffix == ".py" and (str(p) == package or str(p).startswith(f"{package}/"))]
    every = [(p, m) for p in files for m in mutants((ROOT / p).read_text(encoding="utf-8"))]
    return random.Random(seed).sample(every, min(number, len(every)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Mutants of a package, and its tests.")
    parser.add_argument("package", help="a folder or a module: runtime/commit")
    parser.add_argument("--mutants", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", default="1/1", metavar="N/OF", help="of the mutants of this seed, for short runs")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help="for the tests of a mutant")
    parser.add_argument("--tests", nargs="+", help="in place of those of the package")
    asked = parser.parse_args()
    package = asked.package.rstrip("/")
    part, parts = map(int, asked.part.split("/"))
    drawn = draw(package, asked.mutants, asked.seed)[part - 1 :: parts]
    judged = [(path, mutant) for path, mutant in drawn if mutant.name not in EQUIVALENT.get(str(path), {})]
    recorded: dict[tuple[str, ...], Calls] = {}
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder).resolve()
        copy_tree(tree)
        load_libraries()
        for path, mutant in judged:
            tests = tuple(asked.tests or judges_of(str(path)))
            if tests not in recorded:
                calls = record(tree, tests, RECORDING_S)
                if calls is None:
                    print(f"{' '.join(tests)}: not green without any mutant", file=sys.stderr)
                    return 2
                recorded[tests] = calls
            file = tree / path
            source, times = file.read_text(encoding="utf-8"), file.stat()
            file.write_text(mutant.apply(source), encoding="utf-8")
            if not judge(tree, asked.limit, recorded[tests], str(path), mutant.first):
                survivors += 1
                print(f"survived: {path}:{mutant.first} ({mutant.kind})\n{mutant.diff()}\n", flush=True)
            file.write_text(source, encoding="utf-8")
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # its bytecode is as before
    killed, same = len(judged) - survivors, len(drawn) - len(judged)
    print(
        f"{package}, seed {asked.seed}, part {asked.part}: {killed} of {len(judged)} mutants noticed, {same} equivalent"
    )
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())

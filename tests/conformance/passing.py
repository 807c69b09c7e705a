"""python -m tests.conformance.passing DIR: write the list of passing cases."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.conformance.__main__ import load
from tests.conformance.runner import run_case

if __name__ == "__main__":
    results = [run_case(c) for c in load(Path(sys.argv[1]), "all")]
    ids = sorted(r.id for r in results if r.passed)
    Path(__file__).with_name("passing.txt").write_text("".join(f"{i}\n" for i in ids))
    print(f"{len(ids)} passed, {len(results) - len(ids)} failed")

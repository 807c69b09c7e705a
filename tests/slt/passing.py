"""python -m tests.slt.passing DIR: add to the list of passing cases. It only grows: a case that is lost is an error."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from tests.slt.__main__ import data_of, load
from tests.slt.runner import run_case

PASSING = Path(__file__).with_name("passing.txt")


def passing() -> list[str]:
    """Ids of cases that have passed once."""
    return PASSING.read_text().splitlines()


def main(folder: Path) -> int:
    logging.getLogger("flowql").setLevel(logging.CRITICAL)
    results = [run_case(c, data_of(folder), step_s=60) for c in load(folder)]
    passed = {r.id for r in results if r.passed}
    known = set(passing())
    PASSING.write_text("".join(f"{i}\n" for i in sorted(known | passed)))
    lost = sorted(known - passed)
    print(
        f"{len(passed)} passed, {len(results) - len(passed)} failed, new {len(passed - known)}, lost {lost or 'none'}"
    )
    return 1 if lost else 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))

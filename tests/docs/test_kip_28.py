"""The table of what KIP-28 names: each row that says what something is called here names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = ("runtime/app/test_processors.py", "runtime/app/test_streams.py", "compiler/streams/test_plans.py")
TESTS = "".join((ROOT / "tests" / name).read_text(encoding="utf-8") for name in FILES)


def test_every_row_has_its_test() -> None:
    lines = (ROOT / "docs" / "reference" / "kip-28.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    assert len(rows) > 45
    for named, here, test in rows:
        if test == "test":
            continue
        if here.startswith("not here yet"):
            assert not test
            continue
        (text,) = re.findall(r"`([^`]+)`", test)
        name, _, case = text.removesuffix("]").partition("[")
        exists = (ROOT / name).exists() if "/" in name else f"def {name}(" in TESTS
        exists = exists and (not case or f'"{case}": (' in TESTS)
        assert exists, f"{named}: {name}"

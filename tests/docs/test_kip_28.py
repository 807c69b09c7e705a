"""The table of what KIP-28 names: each row that says what something is called here names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = (ROOT / "tests" / "runtime" / "app" / "test_processors.py").read_text(encoding="utf-8")


def test_every_row_has_its_test() -> None:
    lines = (ROOT / "docs" / "reference" / "kip-28.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][1:]
    assert len(rows) > 15
    for named, here, test in rows:
        if here.startswith("not here yet"):
            assert not test
            continue
        (name,) = re.findall(r"`([^`]+)`", test)
        exists = (ROOT / name).exists() if "/" in name else f"def {name}(" in TESTS
        assert exists, f"{named}: {name}"

"""The tables of what proposals for Kafka Streams name: each row that says what something is called here names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = {"kip-28": "tests/runtime/app/test_processors.py", "kip-311": "tests/flowql/test_asynchronous_functions.py"}


@pytest.mark.parametrize("proposal", list(TESTS))
def test_every_row_has_its_test(proposal: str) -> None:
    tests = (ROOT / TESTS[proposal]).read_text(encoding="utf-8")
    lines = (ROOT / "docs" / "reference" / f"{proposal}.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][1:]
    assert len(rows) > 10
    for named, here, test in rows:
        if here.startswith("not here"):
            assert not test
            continue
        (name,) = re.findall(r"`([^`]+)`", test)
        exists = (ROOT / name).exists() if "/" in name else f"def {name}(" in tests
        assert exists, f"{named}: {name}"

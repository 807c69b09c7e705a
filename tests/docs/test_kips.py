"""The tables of what proposals for Kafka Streams name: each row that says what something is called here names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = {
    "kip-28": ("runtime/app/test_processors.py", "runtime/app/test_streams.py", "compiler/streams/test_plans.py"),
    "kip-311": ("flowql/test_asynchronous_functions.py",),
}
ROWS_MIN = {"kip-28": 45, "kip-311": 12}


@pytest.mark.parametrize("proposal", list(TESTS))
def test_every_row_has_its_test(proposal: str) -> None:
    tests = "".join((ROOT / "tests" / name).read_text(encoding="utf-8") for name in TESTS[proposal])
    lines = (ROOT / "docs" / "internals" / f"{proposal}.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    assert len(rows) > ROWS_MIN[proposal]
    for named, here, test in rows:
        if test == "test":
            continue
        if here.startswith("not available"):
            assert not test
            continue
        (text,) = re.findall(r"`([^`]+)`", test)
        name, _, case = text.removesuffix("]").partition("[")
        exists = (ROOT / name).exists() if "/" in name else f"def {name}(" in tests
        exists = exists and (not case or f'"{case}": (' in tests)
        assert exists, f"{named}: {name}"

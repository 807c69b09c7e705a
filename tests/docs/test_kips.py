"""The tables of KIP-28's names, and of the demands of the source documents: each row names a test that exists, or says why there is none."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ("runtime/app/test_processors.py", "runtime/app/test_streams.py", "compiler/streams/test_plans.py")
ROWS_MIN = 45
DEMANDS = {"T": "demands-runtime", "K": "demands-kip-28", "A": "kip-311", "C": "demands-consumer"}
CODE = re.compile(r"`(?:compiler|runtime|flowql)/[^`]+`")
TEST = re.compile(r"`tests/[^`]+::[^`]+`")


def rows_of(page: str) -> list[list[str]]:
    lines = (ROOT / "docs" / "internals" / f"{page}.md").read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


@pytest.mark.parametrize("letter", list(DEMANDS))
def test_every_demand_has_its_code_and_its_test_or_a_reason(letter: str) -> None:
    rows = [row for row in rows_of(DEMANDS[letter]) if row[0] != "no."]
    assert [row[0] for row in rows] == [f"{letter}{n}" for n in range(1, len(rows) + 1)]
    counts = Counter({"absent": 0, "otherwise": 0})
    for number, demand, here, evidence in rows:
        how, _, reason = here.partition(": ")
        kind = {"Absent": "absent", "Met otherwise": "otherwise"}.get(how, "met")
        counts[kind] += 1
        assert demand, number
        assert here if kind == "met" else reason, number
        evident = bool(CODE.search(evidence)), bool(TEST.search(evidence))
        assert evident == (kind != "absent",) * 2, number
    (told,) = [row[2:] for row in rows_of("demands") if row[1] == letter]
    assert told == [str(n) for n in (len(rows), counts["met"], counts["otherwise"], counts["absent"])]


def test_every_name_of_kip_28_has_its_test() -> None:
    tests = "".join((ROOT / "tests" / name).read_text(encoding="utf-8") for name in TESTS)
    rows = rows_of("kip-28")
    assert len(rows) > ROWS_MIN
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

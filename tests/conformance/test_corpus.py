"""The corpus as a test: what passed once keeps passing. Skipped where the corpus is not there.

`FLOWQL_QTT` names its folder of cases; else the folder `shared/qtt/cases` beside the project is looked for.
`python -m tests.conformance.passing DIR` writes the list anew; it may grow, and a case leaves it only with a reason in the commit.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import load, sample
from tests.conformance.runner import run_case
from tests.conformance.world import Shape

PASSING = Path(__file__).with_name("passing.txt")
BATCHES = Shape(rows=1000, vector=True, coalesce=True)
PARTITIONS = Shape(rows=1000, vector=True, coalesce=True, partitions=4)
SAMPLE, SEED = 300, 20130101
# Stream time is that of a task, so over several partitions other rows are late, and other windows closed.
BY_STREAM_TIME = ("out of order", "suppress::")


def corpus() -> Path | None:
    named = os.environ.get("FLOWQL_QTT")
    folder = Path(named) if named else Path(__file__).parents[3] / "shared" / "qtt" / "cases"
    return folder if folder.is_dir() else None


def passing() -> set[str]:
    return set(PASSING.read_text().splitlines())


@pytest.mark.slow
def test_what_passed_keeps_passing() -> None:
    folder = corpus()
    if folder is None:
        pytest.skip("the conformance corpus is not here (set FLOWQL_QTT)")
    results = [run_case(c) for c in load(folder, "all")]
    failed = {r.id: r.reason for r in results if not r.passed}
    regressed = {i: failed[i] for i in sorted(passing() & set(failed))}
    assert not regressed
    positive = [r for r in results if r.kind == "positive"]
    errors = [r for r in results if r.kind == "error"]
    print(
        f"positive {sum(r.passed for r in positive)} of {len(positive)}, error {sum(r.passed for r in errors)} of {len(errors)}"
    )


@pytest.mark.slow
def test_batches_and_vector_kernels_end_in_the_same_state() -> None:
    folder = corpus()
    if folder is None:
        pytest.skip("the conformance corpus is not here (set FLOWQL_QTT)")
    known = passing()
    cases = [c for c in load(folder, "all") if "error" not in c and c["id"] in known]
    failed = {r.id: r.reason for c in cases if not (r := run_case(c, BATCHES)).passed}
    assert not failed


@pytest.mark.slow
def test_four_partitions_end_in_the_same_state() -> None:
    folder = corpus()
    if folder is None:
        pytest.skip("the conformance corpus is not here (set FLOWQL_QTT)")
    known = passing()
    cases = [c for c in load(folder, "all") if "error" not in c and c["id"] in known and not _by_place_or_time(c)]
    print(f"{SAMPLE} cases of {len(cases)}, seed {SEED}")
    failed = {r.id: r.reason for c in sample(cases, SAMPLE, SEED) if not (r := run_case(c, PARTITIONS)).passed}
    assert not failed


def _by_place_or_time(case: dict[str, Any]) -> bool:
    return "rowpartition_rowoffset" in case["tags"] or any(part in case["id"] for part in BY_STREAM_TIME)

"""The corpus as a test: what passed once keeps passing. Skipped where the corpus is not there.

`FLOWQL_QTT` names its folder of cases; else the folder `shared/qtt/cases` beside the project is looked for.
`python -m tests.conformance.passing DIR` writes the list anew; it may grow, and a case leaves it only with a reason in the commit.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import load, run_in, sample
from tests.conformance.case_engine import Shape
from tests.conformance.runner import run_case

PASSING = Path(__file__).with_name("passing.txt")
BATCHES = Shape(rows=1000, vector=True, coalesce=True)
PARTITIONS = Shape(rows=1000, vector=True, coalesce=True, partitions=4)
THREADS = Shape(rows=1000, vector=True, coalesce=True, threads=2)
SAMPLE, SAMPLE_THREADS, SAMPLE_KILLED, SEED = 150, 15, 8, 20130101
# Stream time is that of a task, so over several partitions other rows are late, and other windows closed. And one case has a key
# that FlowQL writes otherwise ("10" for 10), so that it does not meet its like.
BY_STREAM_TIME = ("out of order", "suppress::", "protobuf on left key mismatch")


def corpus() -> Path:
    """The folder of cases. The project must not contain them, so a test that needs them is left out where they are not."""
    named = os.environ.get("FLOWQL_QTT")
    folder = Path(named) if named else Path(__file__).parents[3] / "shared" / "qtt" / "cases"
    if not folder.is_dir():
        pytest.skip("the conformance corpus is not here (set FLOWQL_QTT)")
    return folder


def passing() -> set[str]:
    return set(PASSING.read_text().splitlines())


@pytest.mark.slow
def test_what_passed_keeps_passing() -> None:
    folder = corpus()
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
    """Other quarters of the cases from run to run; all of them: `python -m tests.conformance DIR --rows 1000 --vector`."""
    cases, seed = _positive(), random.randrange(1 << 20)
    assert _failed(_drawn(cases, len(cases) // 4, seed), BATCHES) == {}


@pytest.mark.slow
def test_four_partitions_end_in_the_same_state() -> None:
    assert _failed(_any_place(SAMPLE), PARTITIONS) == {}


@pytest.mark.slow
def test_two_threads_end_in_the_same_state() -> None:
    assert _failed(_drawn(_positive(), SAMPLE_THREADS), THREADS) == {}


@pytest.mark.slow
def test_a_killed_process_ends_in_the_same_state() -> None:
    assert _failed(_any_place(SAMPLE_KILLED), replace(PARTITIONS, kill=SEED)) == {}


def _positive() -> list[dict[str, Any]]:
    """Positive cases that pass one record at a time."""
    folder = corpus()
    known = passing()
    return [c for c in load(folder, "all") if "error" not in c and c["id"] in known]


def _any_place(n: int) -> list[dict[str, Any]]:
    """So many of those whose outcome does not depend on the number of partitions."""
    return _drawn([c for c in _positive() if not _by_place_or_time(c)], n)


def _drawn(cases: list[dict[str, Any]], n: int, seed: int = SEED) -> list[dict[str, Any]]:
    print(f"{n} cases of {len(cases)}, seed {seed}")
    return sample(cases, n, seed)


def _failed(cases: list[dict[str, Any]], shape: Shape) -> dict[str, str]:
    return {r.id: r.reason for c in cases if not (r := run_in(c, shape)).passed}


def _by_place_or_time(case: dict[str, Any]) -> bool:
    return "rowpartition_rowoffset" in case["tags"] or any(part in case["id"] for part in BY_STREAM_TIME)

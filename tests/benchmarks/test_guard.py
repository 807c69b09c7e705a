"""The comparison of two commits: its verdicts, and rounds of real queries."""

from __future__ import annotations

import pytest

from benchmarks.guard import ROOT, ROUNDS_PER_PROCESS, Measured, compare

pytestmark = pytest.mark.turns("long")


@pytest.mark.parametrize(
    ("head_s", "verdict", "decided"),
    [
        ([1.0, 1.02] * 20, "equal or faster", True),
        ([1.1, 1.2] * 20, "slower", True),
        ([0.9, 1.2] * 20, "undecided", False),
        ([1.0, 1.02] * 4, "equal or faster", False),  # too few rounds to end early
    ],
)
def test_a_verdict_needs_the_whole_interval_on_one_side_of_the_limit(
    head_s: list[float], verdict: str, decided: bool
) -> None:
    measured = Measured("q0", [1.0] * len(head_s), head_s)
    assert (measured.verdict, measured.decided) == (verdict, decided)


def test_queries_are_measured_in_turns_and_checked() -> None:
    measured = compare([ROOT, ROOT], ["q2", "q3"], events=500, rounds=1)
    assert [m.query for m in measured] == ["q2", "q3"]
    for one in measured:
        assert len(one.base_s) == len(one.head_s) == ROUNDS_PER_PROCESS
        assert min(one.base_s + one.head_s) > 0

"""What the saturation program says of its samples."""

from __future__ import annotations

import pytest

from benchmarks.saturation import Answers, Sample, rates, table
from flowql.runtime.budget import MIB


def samples(beside: float, peak: int) -> list[Sample]:
    """A minute in windows of 15 s, with 1,000 records a second in those without interactive queries."""
    found, records = list[Sample](), 0.0
    for second in range(60):
        asked = second // 15 % 2 == 1
        found.append(Sample(float(second), (peak if second == 40 else 100) * MIB, 5 * MIB, int(records), asked, True))
        records += 1_000 * (beside if asked else 1)
    return found


def test_rates_leave_out_what_follows_a_change() -> None:
    found = samples(0.5, 100)
    assert set(rates(found, queried=False)) == {1_000.0}
    assert set(rates(found, queried=True)) == {500.0}


@pytest.mark.parametrize(("beside", "peak", "met"), [(1.0, 220, [1, 1]), (0.95, 221, [0, 1]), (0.5, 100, [1, 0])])
def test_the_targets(beside: float, peak: int, met: list[int]) -> None:
    answers = Answers()
    answers.add("")
    said = table(samples(beside, peak), answers, 200).splitlines()
    assert [line.endswith(": met") for line in said if "target" in line] == [bool(m) for m in met]
    assert said[-1] == "interactive queries: 1 answered"

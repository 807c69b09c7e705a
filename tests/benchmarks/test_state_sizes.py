"""That the benchmark of state sizes measures views that hold rows: its records are read, and a change of them comes out."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.state_sizes import HEAD, VIEWS, Cost, compiled, measure, plot

pytestmark = pytest.mark.turns("long")


@pytest.mark.parametrize("view", ["few groups", "join", "top-n"])
def test_changes_come_out(view: str) -> None:
    small, large = measure(view, (30, 60), 10, 1024)
    assert (small.rows, large.rows) == (30, 60)
    assert small.emitted > 0
    assert large.emitted > 0
    assert large.each_us > 0


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_compiles(view: str) -> None:
    assert len(compiled(view).queries) == 1


def test_costs_are_per_row_in_and_out(tmp_path: Path) -> None:
    cost = Cost("join", 1_000, 600, 400, 0.002, 5.0)
    assert cost.each_us == pytest.approx(2.0)
    assert len(cost.line()) == len(HEAD)
    pytest.importorskip("matplotlib")
    plot([cost, Cost("join", 10_000, 600, 400, 0.003, 5.0)], tmp_path / "costs.png")
    assert (tmp_path / "costs.png").stat().st_size > 1_000

"""A sample of the generated views, and that the check finds an operator that forgets a change."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from flowql.runtime.operators.changes import equi_join
from tests.slt.session import Shape, SqlSession
from tests.standard_views.case import Step, case
from tests.standard_views.check import Failed, difference, run
from tests.standard_views.reduce import reduced


@pytest.mark.turns("cases")
@pytest.mark.parametrize("seed", [0, 3, 4])
def test_views_are_what_duckdb_answers(seed: int) -> None:
    run(case(seed), Shape((None, True, False)[seed % 3], (1, 3)[seed % 2]), inline=(16, 1)[seed % 2])


def test_views_outlive_restarts() -> None:
    run(case(5), Shape(None, 3), kills=5)


@pytest.mark.turns("cases")
@pytest.mark.parametrize("seed", [1, 8])
def test_views_that_are_edited_are_what_duckdb_answers(seed: int) -> None:
    outcome = run(case(seed, edits=True), Shape(None, (1, 3)[seed % 2]), kills=seed)
    assert outcome.edits > 2


JOINED = (
    Step("table", "CREATE TABLE t (a INT, b INT)", "t"),
    Step("table", "CREATE TABLE u (a INT)", "u"),
    Step("change", "INSERT INTO t VALUES (1, 1), (2, 2)", "t"),
    Step("view", "SELECT b FROM t", "unneeded"),
    Step("view", "SELECT t.b AS b, u.a AS a FROM t LEFT JOIN u ON t.a = u.a", "v"),
    Step("change", "INSERT INTO t VALUES (3, 3)", "t"),
    Step("change", "INSERT INTO u VALUES (1)", "u"),
    Step("change", "DELETE FROM t WHERE b = 3", "t"),
)

EDITED = (
    Step("table", "CREATE TABLE t (a INT)", "t"),
    Step("view", "SELECT a FROM t WHERE a > 1", "v"),
    Step("view", "SELECT a FROM v", "w"),
    Step("change", "INSERT INTO t VALUES (1), (2)", "t"),
    Step("edit", "SELECT a FROM t WHERE a > 0", "v"),
)


def test_an_edit_reaches_what_is_made_of_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    run(EDITED, Shape())
    monkeypatch.setattr(SqlSession, "redefine", lambda world, project, *, rounds=None: None)
    with pytest.raises(Failed, match="missing: 1"):
        run(EDITED, Shape())


def test_a_join_that_forgets_that_a_row_has_got_a_match_is_found_and_the_case_reduced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(JOINED, Shape(vector=False))
    monkeypatch.setattr(equi_join.EquiJoinOperator, "_show", _only_appearing)
    with pytest.raises(Failed, match="too many: 1, None") as found:
        run(JOINED, Shape(vector=False))
    shorter, again = reduced(JOINED, found.value, lambda steps: run(steps, Shape(vector=False)))
    assert [s.name for s in shorter if s.kind == "view"] == ["v"]
    assert len(shorter) == 5, "two tables, a view, a row on either side"
    assert again.kind == "rows"


def test_a_generated_case_finds_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equi_join.EquiJoinOperator, "_show", _only_appearing)
    with pytest.raises(Failed):
        _run_all(range(12, 15))


def _run_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        run(case(seed), Shape(vector=False))


def _only_appearing(self, group, side, out):  # type: ignore[no-untyped-def]
    wants = self._kind == "semi"
    for r, before, after in group.matched(side, counted=self._residual is not None):
        if not (r.was and before == wants) and r.now and after == wants:
            out.add(1, self._single(side, r.row), max(r.time, group.time), group.seq)


def test_rows_are_compared_as_bags_with_a_tolerance() -> None:
    assert difference([(1.0, None), (1.0, None)], [(1, None), (1.0 + 1e-12, None)]) == ""
    assert difference([(1.0,), (1.0,)], [(1.0,)])
    assert difference([(1.0,)], [(1.00001,)])
    assert difference([("a",)], [("b",)])

"""State that operators keep where rows only come is never taken for what they keep elsewhere."""

from __future__ import annotations

from functools import partial

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.optimize.rules import RULES, optimise
from flowql.compiler.physical import plan_builder
from flowql.compiler.plan.diff import diff_plans
from flowql.compiler.plan.forward import why_not
from flowql.compiler.plan.topology import Plan

GREATEST = "SELECT b, max(a) AS m, sum(d) AS s FROM t GROUP BY b"  # sums of doubles are not folded
FIRST = "SELECT id, b FROM (SELECT *, row_number() OVER (PARTITION BY b ORDER BY a) AS r FROM t) AS q WHERE r <= 1"


def made(query: str, table: str = "APPEND ONLY", previous: Plan | None = None) -> Plan:
    sql = f"CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, d DOUBLE) {table};\nCREATE VIEW v AS {query};"
    compiled = compile_project([SourceText("a.sql", sql)], dialect="standard", previous=previous)
    assert compiled.ok, compiled.diagnostics
    return compiled.plan


def before_there_were_marks(query: str) -> Plan:
    """As a plan was compiled that knows nothing of rows that only come."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_builder, "optimise", partial(optimise, rules=RULES[:-1]))
        return made(query)


def appends(plan: Plan) -> list[bool]:
    specs = [o.spec for s in plan.queries[0].subtopologies for o in s.operators]
    return [s.appends for s in specs if hasattr(s, "appends")]


def stores(plan: Plan) -> list[str]:
    return [s.name for sub in plan.queries[0].subtopologies for o in sub.operators for s in o.stores]


@pytest.mark.parametrize("query", [GREATEST, FIRST])
def test_a_table_whose_rows_may_leave_from_now_on_rebuilds_its_views(query: str) -> None:
    old = made(query)
    assert any(appends(old))
    new = made(query, table="", previous=old)
    assert not any(appends(new))
    (change,) = diff_plans(old, new)
    assert (change.action, change.state) == ("change", "rebuilt")


def test_the_greatest_value_is_all_that_is_kept_of_rows_that_only_come() -> None:
    assert stores(made(GREATEST)) == ["CTAS_v-groupaggregate-1", "v"]
    assert stores(made("SELECT b, max(a) AS m FROM t GROUP BY b")) == ["CTAS_v-aggregate-1", "v"]
    assert "CTAS_v-groupaggregate-1-values" in stores(made(GREATEST, table=""))


@pytest.mark.parametrize("query", [GREATEST, FIRST])
def test_an_older_plan_keeps_its_operators_as_long_as_its_text(query: str) -> None:
    old = before_there_were_marks(query)
    assert not any(appends(old))
    new = made(query, previous=old)
    assert [c.action for c in diff_plans(old, new)] == ["none"]
    assert new.queries[0].subtopologies == old.queries[0].subtopologies


@pytest.mark.parametrize("query", [GREATEST, FIRST])
def test_a_changed_text_does_not_go_on_with_state_of_the_other_form(query: str) -> None:
    """The rows that a rank keeps are in stores of the same names and columns either way."""
    (old,), (new,) = before_there_were_marks(query).queries, made(query).queries
    assert why_not(old, new)
    assert why_not(new, old)
    assert why_not(new, new) == ""

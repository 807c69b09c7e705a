"""Rules over tables that change (standard SQL): where filters go, what columns are read, and of how many rows a rank is asked."""

from __future__ import annotations

import pytest

from flowql.compiler.optimize.rules import RULES
from flowql.compiler.plan.changes import GroupAggregate, TopN
from flowql.compiler.plan.explain import expr_text
from flowql.compiler.plan.logical import Filter, Node, Scan, walk_nodes
from tests.compiler.sql import compiled

TABLES = """
CREATE TABLE a (id INT PRIMARY KEY, g TEXT, v INT, w INT, unused TEXT);
CREATE TABLE b (id INT PRIMARY KEY, a INT, x INT, y TEXT, spare TEXT);
"""
VIEWS = {
    "join": "SELECT a.g, b.x FROM a JOIN b ON a.id = b.a WHERE a.v > 1 AND b.x < 2 AND a.w <> b.x",
    "left join": "SELECT a.g, b.x FROM a LEFT JOIN b ON a.id = b.a WHERE a.v > 1 AND COALESCE(b.x, 0) < 2",
    "groups": "SELECT g, n FROM (SELECT g, w, COUNT(*) AS n, SUM(v) AS s FROM a GROUP BY g, w) t WHERE g > 'b' AND n > 1",
    "rank": "SELECT g, v, r FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY v DESC) AS r FROM a) t"
    " WHERE r <= 3 AND g > 'b'",
    "rank, less": "SELECT g FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY v) AS r FROM a) t WHERE 4 > r",
    "rank, from": "SELECT g FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY v) AS r FROM a) t WHERE r >= 2",
    "over": "SELECT g, s FROM (SELECT g, v, SUM(v) OVER (PARTITION BY g ORDER BY v) AS s FROM a) t WHERE g > 'b' AND v > 1",
    "union": "SELECT g FROM (SELECT g, v FROM a UNION ALL SELECT y, x FROM b) t WHERE v > 1",
}


def trace(view: str) -> tuple[Node, Node]:
    """The plan of a view before and after all rules."""
    result = compiled(f"CREATE VIEW o AS {VIEWS[view]};", prelude=TABLES, dialect="standard")
    query = result.plan.queries[-1]
    return result.trace[query.id].unoptimised, query.logical


def filters(node: Node) -> list[tuple[str, str]]:
    """Each filter, and the operator below it."""
    return [
        (expr_text(n.spec.predicate), type(n.inputs[0].spec).__name__)
        for n in walk_nodes(node)
        if isinstance(n.spec, Filter)
    ]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__)
def test_every_rule_keeps_the_output_and_changes_nothing_the_second_time(view, rule):
    node, _ = trace(view)
    once = rule(node)
    assert (once.schema, once.change) == (node.schema, node.change)
    assert rule(once) == once


def test_the_views_have_something_to_change():
    changed = {rule.__name__ for view in VIEWS for rule in RULES if rule(trace(view)[0]) != trace(view)[0]}
    assert {"prune_columns", "push_into_changes"} <= changed


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("join", [("(v > 1)", "Materialise"), ("(x < 2)", "Materialise")]),
        ("left join", [("(v > 1)", "Materialise"), ("(COALESCE(x, 0) < 2)", "EquiJoin")]),
        ("groups", [("(g > 'b')", "Materialise"), ("(count > 1)", "GroupAggregate")]),
        ("rank", [("(g > 'b')", "Materialise"), ("(row_number <= 3)", "TopN")]),
        ("over", [("(g > 'b')", "Materialise"), ("(v > 1)", "Over")]),
        ("union", [("(v > 1)", "Materialise"), ("(x > 1)", "Materialise")]),
    ],
)
def test_a_filter_goes_as_far_down_as_it_means_the_same(view, expected):
    """Each with the operator below it."""
    assert filters(trace(view)[1]) == expected


@pytest.mark.parametrize(("view", "limit"), [("rank", 3), ("rank, less", 3), ("rank, from", None)])
def test_a_rank_is_asked_for_the_rows_that_are_wanted(view, limit):
    assert [n.spec.limit for n in walk_nodes(trace(view)[1]) if isinstance(n.spec, TopN)] == [limit]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("join", [("id", "g", "v", "w"), ("id", "a", "x")]),
        ("groups", [("id", "g", "w")]),
        ("rank", [("id", "g", "v")]),
        ("over", [("id", "g", "v")]),
        ("union", [("id", "g", "v"), ("id", "x", "y")]),
    ],
)
def test_scans_of_tables_read_what_is_used_and_their_keys(view, expected):
    assert [n.schema.names for n in walk_nodes(trace(view)[1]) if isinstance(n.spec, Scan)] == expected


def test_an_aggregate_that_nobody_reads_is_not_computed():
    (groups,) = [n.spec for n in walk_nodes(trace("groups")[1]) if isinstance(n.spec, GroupAggregate)]
    assert [c.function for c in groups.calls] == ["COUNT"]

"""FOR SYSTEM_TIME AS OF PROCTIME() in standard SQL: what is bound to a temporal join, where conditions go, what is refused."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Compiled, compile_project
from flowql.compiler.plan.changes import EquiJoin, TemporalJoin
from flowql.compiler.plan.explain import expr_text, tree_text
from flowql.compiler.plan.logical import Filter, Node, walk_nodes
from flowql.compiler.plan.topology import QueryPlan

TABLES = """
CREATE TABLE orders (id INT PRIMARY KEY, item TEXT, pieces INT, placed TIMESTAMP);
CREATE TABLE prices (item TEXT PRIMARY KEY, cents INT, valid BOOLEAN);
CREATE TABLE stores (id INT PRIMARY KEY, item TEXT);
CREATE MATERIALIZED VIEW dear AS SELECT item, cents FROM prices WHERE cents > 100;
"""
NOW = "FOR SYSTEM_TIME AS OF PROCTIME()"


def compiled(query: str) -> Compiled:
    return compile_project([SourceText("t.sql", f"{TABLES}CREATE MATERIALIZED VIEW v AS {query};")], dialect="standard")


def plan_of(query: str) -> QueryPlan:
    result = compiled(query)
    assert result.ok, [f"{d.code} {d.title}" for d in result.diagnostics]
    return result.plan.queries[-1]


def join_of(query: str) -> tuple[Node, TemporalJoin]:
    (found,) = [n for n in walk_nodes(plan_of(query).logical) if isinstance(n.spec, TemporalJoin)]
    assert isinstance(found.spec, TemporalJoin)
    return found, found.spec


def filters(node: Node) -> list[str]:
    return [expr_text(n.spec.predicate) for n in walk_nodes(node) if isinstance(n.spec, Filter)]


def keys_of(spec: TemporalJoin) -> list[tuple[str, str]]:
    return list(zip(spec.left_keys, spec.right_keys, strict=True))


@pytest.mark.parametrize(
    ("text", "kind", "keys"),
    [
        (f"orders o JOIN prices {NOW} AS p ON o.item = p.item", "inner", [("item", "item_2")]),
        (f"orders o LEFT JOIN prices {NOW} p ON p.item = o.item", "left", [("item", "item_2")]),
        (f"orders JOIN prices {NOW} USING (item)", "inner", [("item", "item_2")]),
        (f"orders NATURAL LEFT JOIN prices {NOW}", "left", [("item", "item_2")]),
        (f"orders CROSS JOIN prices {NOW}", "inner", []),
        ("orders o JOIN dear FOR SYSTEM_TIME AS OF proctime() d ON o.item = d.item", "inner", [("item", "item_2")]),
        (f"orders o JOIN prices {NOW} p ON upper(o.item) = p.item", "inner", [("key", "item_2")]),
        (f"orders o, prices {NOW} AS p WHERE o.item = p.item", "inner", []),
    ],
)  # fmt: skip
def test_what_is_a_temporal_join(text, kind, keys):
    _, spec = join_of(f"SELECT pieces, cents FROM {text}")
    assert (spec.kind, keys_of(spec), spec.residual) == (kind, keys, None)


def test_a_star_shows_the_columns_of_both_sides_in_order():
    result = compiled(f"SELECT * FROM orders NATURAL JOIN prices {NOW}")
    assert result.ok, result.diagnostics
    assert result.catalog.sources["v"].columns == ("item", "id", "pieces", "placed", "cents", "valid")


def test_it_stands_among_other_joins_in_the_order_in_which_it_is_written():
    query = f"SELECT o.id, p.cents, s.id AS store FROM orders o JOIN prices {NOW} p ON o.item = p.item JOIN stores s ON s.item = p.item WHERE s.id > 3"
    root = plan_of(query).logical
    specs = [type(n.spec) for n in walk_nodes(root) if isinstance(n.spec, (EquiJoin, TemporalJoin))]
    assert sorted(s.__name__ for s in specs) == ["EquiJoin", "TemporalJoin"]
    node, _ = join_of(query)
    assert not any(isinstance(n.spec, EquiJoin) for n in walk_nodes(node)), tree_text(root)
    node, _ = join_of(
        f"SELECT o.id FROM orders o JOIN stores s ON s.item = o.item JOIN prices {NOW} p ON s.item = p.item"
    )
    assert isinstance(node.inputs[0].spec, EquiJoin) or any(
        isinstance(n.spec, EquiJoin) for n in walk_nodes(node.inputs[0])
    )


@pytest.mark.parametrize(
    ("kind", "condition", "below_left", "below_right", "asked"),
    [
        ("JOIN", "o.pieces > 3", ["(pieces > 3)"], [], None),
        ("LEFT JOIN", "o.pieces > 3", [], [], "(pieces > 3)"),
        ("JOIN", "p.valid", [], ["valid"], None),
        ("LEFT JOIN", "p.valid", [], ["valid"], None),
        ("LEFT JOIN", "o.pieces > p.cents", [], [], "(pieces > cents)"),
        ("JOIN", "p.cents IS NOT DISTINCT FROM o.pieces", [], [], "distinct"),
    ],
)
def test_conditions_of_on(kind, condition, below_left, below_right, asked):
    query = f"SELECT o.id, p.cents FROM orders o {kind} prices {NOW} p ON o.item = p.item AND {condition}"
    node, spec = join_of(query)
    assert [filters(i) for i in node.inputs] == [below_left, below_right]
    if asked is None:
        assert spec.residual is None
    else:
        assert spec.residual is not None
        assert asked in expr_text(spec.residual).lower()


@pytest.mark.parametrize(
    ("kind", "condition", "below_left", "below_right", "above"),
    [
        ("JOIN", "o.pieces > 3", ["(pieces > 3)"], [], []),
        ("LEFT JOIN", "o.pieces > 3", ["(pieces > 3)"], [], []),
        ("JOIN", "p.cents > 3", [], ["(cents > 3)"], []),
        ("LEFT JOIN", "p.cents > 3", [], [], ["(cents > 3)"]),
        ("JOIN", "o.pieces > p.cents", [], [], ["(pieces > cents)"]),
    ],
)
def test_conditions_of_where(kind, condition, below_left, below_right, above):
    query = f"SELECT o.id, p.cents FROM orders o {kind} prices {NOW} p ON o.item = p.item WHERE {condition}"
    node, spec = join_of(query)
    assert spec.residual is None
    below = [filters(i) for i in node.inputs]
    assert below == [below_left, below_right]
    found = filters(plan_of(query).logical)
    for f in [*below[0], *below[1]]:
        found.remove(f)
    assert found == above


def test_both_sides_are_placed_by_the_key_and_the_right_one_is_the_first_input():
    query = plan_of(f"SELECT o.id, p.cents FROM orders o LEFT JOIN prices {NOW} p ON o.item = p.item")
    (sub,) = [s for s in query.subtopologies if any(isinstance(o.spec, TemporalJoin) for o in s.operators)]
    (join,) = [o for o in sub.operators if isinstance(o.spec, TemporalJoin)]
    order = [o.id for o in sub.operators]
    assert order.index(join.inputs[1]) < order.index(join.inputs[0])
    assert [s.name.rsplit("temporaljoin-1-", 1)[1] for s in join.stores] == ["right", "right-entries", "left"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            "orders o JOIN prices FOR SYSTEM_TIME AS OF o.placed + INTERVAL '1' DAY p ON o.item = p.item",
            "another time than PROCTIME()",
        ),
        ("orders o JOIN prices FOR SYSTEM_TIME AS OF now() p ON o.item = p.item", "another time than PROCTIME()"),
        ("orders o JOIN prices FOR SYSTEM_TIME AS OF proctime(1) p ON o.item = p.item", "another time than PROCTIME()"),
        (f"orders o RIGHT JOIN prices {NOW} p ON o.item = p.item", "RIGHT JOIN with FOR SYSTEM_TIME AS OF"),
        (f"orders o FULL JOIN prices {NOW} p ON o.item = p.item", "FULL JOIN with FOR SYSTEM_TIME AS OF"),
        (f"orders {NOW}", "on the right side of a join"),
        (f"orders {NOW} JOIN prices ON orders.item = prices.item", "on the right side of a join"),
        (f"orders o JOIN (SELECT * FROM prices {NOW}) p ON o.item = p.item", "on the right side of a join"),
        (f"orders o JOIN prices {NOW} p ON o.id IN (SELECT id FROM stores)", "a sub-query in ON"),
    ],
)
def test_what_is_refused_by_name(text, named):
    result = compiled(f"SELECT 1 AS one FROM {text}")
    codes = [(d.code, d.title) for d in result.diagnostics]
    assert len(codes) == 1, codes
    assert codes[0][0] == "FQ1901", codes
    assert named in codes[0][1], codes
    assert result.diagnostics[0].span.line > 0


def test_a_common_table_expression_is_no_table():
    result = compiled(
        f"WITH c AS (SELECT item, cents FROM prices) SELECT o.id FROM orders o JOIN c {NOW} ON o.item = c.item"
    )
    assert [(d.code, "common table expression" in d.title) for d in result.diagnostics] == [("FQ1901", True)]

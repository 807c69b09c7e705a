"""Each rule does what its docstring says, and nothing that changes what a query means."""

from dataclasses import replace

import pytest

from flowql.compiler.optimize.drop_rekey import drop_rekey
from flowql.compiler.optimize.fold_constants import fold_constants
from flowql.compiler.optimize.merge_projects import merge_projects
from flowql.compiler.optimize.prune_columns import prune_columns
from flowql.compiler.optimize.push_filter import push_filter
from flowql.compiler.optimize.rules import RULES, optimise
from flowql.compiler.plan.explain import expr_text
from flowql.compiler.plan.logical import Filter, Node, Project, Scan, walk_nodes
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.verify import PlanInvariantError
from tests.compiler.sql import kinds, query, unoptimised


def filters(node):
    return [expr_text(n.spec.predicate) for n in walk_nodes(node) if isinstance(n.spec, Filter)]


def scans(node):
    return [n.schema.names for n in walk_nodes(node) if isinstance(n.spec, Scan)]


def test_constants_are_folded_and_failures_left_to_the_row():
    node = unoptimised(
        "CREATE STREAM o AS SELECT id, amount, CASE WHEN id > 1 THEN 1 / 0 END AS z FROM orders"
        " WHERE amount > 2 * 50 AND id < LEN('abc');"
    )
    folded = fold_constants(node)
    assert filters(folded) == ["((AMOUNT > 100.0) AND (ID < 3))"]
    (project,) = [n.spec for n in walk_nodes(folded) if isinstance(n.spec, Project)]
    assert "(1 / 0)" in expr_text(project.columns[2].expr)


def test_what_differs_each_time_is_not_folded():
    node = unoptimised("CREATE STREAM o AS SELECT id, RANDOM() AS r FROM orders;")
    assert fold_constants(node) == node


def test_filters_on_the_stream_go_below_a_stream_table_join():
    node = unoptimised(
        "CREATE STREAM o AS SELECT customer, city FROM orders JOIN customers ON customer = name WHERE amount > 1 AND age > 2;"
    )
    pushed = push_filter(node)
    assert kinds(pushed) == [
        "Scan",
        "Filter",
        "Project",
        "Rekey",
        "Scan",
        "Project",
        "Join",
        "Filter",
        "Project",
        "Sink",
    ]
    assert filters(pushed) == ["(AMOUNT > 1)", "(CUSTOMERS_AGE > 2)"] or filters(pushed)[1] == "(CUSTOMERS_AGE > 2)"


def test_no_filter_passes_what_looks_at_time():
    joined = unoptimised(
        "CREATE STREAM o AS SELECT o.id, page FROM orders o JOIN clicks c WITHIN 1 HOUR ON o.id = c.id WHERE amount > 1;"
    )
    assert push_filter(joined) == joined
    grouped = unoptimised(
        "CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM orders WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY id HAVING id > 1;"
    )
    assert push_filter(grouped) == grouped


def test_scans_read_only_what_is_used():
    node = unoptimised("CREATE STREAM o AS SELECT id, amount FROM orders;")
    assert scans(prune_columns(node)) == [("ID", "AMOUNT")]
    grouped = unoptimised("CREATE TABLE t AS SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer;")
    assert scans(prune_columns(grouped)) == [("CUSTOMER",)]


def test_keys_of_tables_stay():
    node = unoptimised("CREATE TABLE t AS SELECT city, COUNT(*) AS n FROM customers GROUP BY city;")
    assert scans(prune_columns(node)) == [("NAME", "CITY")]


def test_a_rekey_to_the_same_key_goes():
    node = unoptimised("CREATE STREAM o AS SELECT id, amount FROM orders PARTITION BY id;")
    assert "Rekey" in kinds(node)
    assert "Rekey" not in kinds(drop_rekey(node))
    other = unoptimised("CREATE STREAM o AS SELECT customer, amount FROM orders PARTITION BY customer;")
    assert drop_rekey(other) == other
    grouped = unoptimised("CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM orders GROUP BY id;")
    assert drop_rekey(grouped) == grouped, "it drops rows with a null key"


def test_projections_merge_unless_work_would_be_doubled():
    node = unoptimised(
        "CREATE TABLE t AS SELECT c.city AS k, COUNT(*) AS n FROM orders o JOIN customers c ON o.customer = c.name GROUP BY c.city;"
    )
    assert merge_projects(node) == node
    text = "CREATE STREAM wide (id INT KEY, n BIGINT) WITH (kafka_topic='w', value_format='JSON'); INSERT INTO wide SELECT id, LEN(customer) AS n FROM orders;"
    twice = unoptimised(text)
    assert kinds(twice) == ["Scan", "Project", "Project", "Sink"]
    assert kinds(merge_projects(twice)) == ["Scan", "Project", "Sink"]


QUERIES = [
    "CREATE STREAM o AS SELECT id, amount FROM orders WHERE amount > 1 + 1 PARTITION BY id;",
    "CREATE STREAM o AS SELECT id, EXPLODE(items) AS i FROM orders WHERE customer = 'x';",
    "CREATE TABLE t AS SELECT c.city AS k, SUM(o.amount) AS s FROM orders o JOIN customers c ON o.customer = c.name WINDOW SESSION (1 HOUR) WHERE o.amount > 1 GROUP BY c.city HAVING COUNT(*) > 1;",
    "CREATE TABLE t AS SELECT c.name, country FROM customers c JOIN cities t ON c.city = t.name WHERE c.age > 1;",
    "CREATE STREAM o AS SELECT o.id, page FROM orders o FULL JOIN clicks c WITHIN 1 HOUR ON o.id = c.id JOIN customers u ON o.id = LEN(u.name);",
]


@pytest.mark.parametrize("sql", QUERIES[:4])
@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__)
def test_every_rule_keeps_the_output_and_settles(sql, rule):
    node = unoptimised(sql)
    once = rule(node)
    assert (once.schema, once.change) == (node.schema, node.change)
    assert rule(once) == once


def test_a_rule_that_changes_the_output_is_caught():
    def careless(node: Node) -> Node:
        return replace(node, schema=Schema(node.schema.fields[:1]))

    with pytest.raises(PlanInvariantError, match="careless"):
        optimise(unoptimised(QUERIES[0]), rules=(careless,))


def test_the_observer_hears_of_changes_only():
    heard = []
    optimise(unoptimised(QUERIES[0]), observer=lambda rule, before, after: heard.append(rule))
    assert heard == ["fold_constants", "drop_rekey", "prune_columns"]


def test_the_parts_of_a_key_are_read_together_and_a_key_that_is_the_timestamp_stays():
    source = "CREATE STREAM s (k1 INT KEY, k2 BIGINT KEY, a INT, b INT) WITH (KAFKA_TOPIC='s', KEY_FORMAT='JSON', VALUE_FORMAT='JSON'{});\n"
    for timestamp, select, expected in (
        ("", "CREATE STREAM o AS SELECT k1, a FROM s PARTITION BY k1;", ("K1", "K2", "A")),
        ("", "CREATE STREAM o AS SELECT a, b FROM s PARTITION BY a;", ("A", "B")),
        (", TIMESTAMP='k2'", "CREATE STREAM o AS SELECT a, b FROM s PARTITION BY a;", ("K1", "K2", "A", "B")),
        ("", "CREATE STREAM o AS SELECT ROWTIME AS t, 1 AS one FROM s PARTITION BY ROWTIME;", ("ROWPARTITION",)),
    ):
        plan = query(select, prelude=source.format(timestamp))
        assert scans(plan.logical) == [expected]


def test_a_filter_that_differs_each_time_stays_where_it_is():
    """Below a projection or a join it would be asked of other rows, or more often."""
    node = unoptimised(
        "CREATE STREAM o AS SELECT customer, city FROM orders JOIN customers ON customer = name WHERE amount > RANDOM();"
    )
    assert push_filter(node) == node

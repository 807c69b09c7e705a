"""Broken plans are caught; plans read well."""

import re
from dataclasses import replace

import pytest

from flowql.compiler.plan.explain import outline_text, query_text
from flowql.compiler.plan.expr import Column, Lambda, walk
from flowql.compiler.plan.topology import Plan
from flowql.compiler.plan.types import INT
from flowql.compiler.plan.verify import PlanInvariantError, verify_plan, verify_query
from flowql.compiler.plan.visit import map_expr, map_nodes, map_spec, substitute
from tests.compiler.sql import compiled, query

SQL = "CREATE TABLE t AS SELECT customer, COUNT(*) AS n FROM orders WHERE amount > 1 GROUP BY customer;"


def broken(plan, *, operators=None, **change):
    sub = plan.subtopologies[0]
    if operators is not None:
        change["subtopologies"] = (replace(sub, operators=operators(sub.operators)), *plan.subtopologies[1:])
    return replace(plan, **change)


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        (lambda ops: (*ops[:-1], replace(ops[-1], id=ops[0].id)), "there twice"),
        (lambda ops: ops[1:], "does not come before"),
        (lambda ops: ops[:-1], "has ends"),
        (lambda ops: (ops[0], replace(ops[1], inputs=()), *ops[2:]), "inputs"),
    ],
)
def test_broken_topologies(operators, message):
    with pytest.raises(PlanInvariantError, match=message):
        verify_query(broken(query(SQL), operators=operators))


def test_a_column_that_is_not_there():
    plan = query(SQL)
    logical = map_nodes(plan.logical, lambda n: n)
    assert logical is plan.logical, "an unchanged tree is shared"
    wrong = replace(plan, logical=replace(plan.logical, inputs=(_reading_nothing(plan.logical.inputs[0]),)))
    with pytest.raises(PlanInvariantError, match="NOWHERE"):
        verify_query(wrong)


def _reading_nothing(node):
    first = node.spec.columns[0]
    return replace(
        node,
        spec=replace(
            node.spec, columns=(replace(first, expr=Column(first.expr.type, "NOWHERE")), *node.spec.columns[1:])
        ),
    )


def test_a_query_without_its_sink_in_the_catalogue():
    plan = compiled(SQL).plan
    with pytest.raises(PlanInvariantError, match="not in the plan"):
        verify_plan(replace(plan, sources=plan.sources[:-1]))


def test_names_are_unique_over_a_plan_and_exchanges_have_two_ends():
    plan = compiled(SQL + SQL.replace("TABLE t", "TABLE u")).plan
    verify_plan(plan)
    one, two = plan.queries
    source, named = "source ORDERS is there twice", replace(two, id=one.id)
    for wrong, message in (
        (replace(plan, sources=(*plan.sources, plan.sources[0])), source),
        (replace(plan, queries=(one, named)), f"query {one.id} is there twice"),
        (replace(plan, queries=(one, replace(two, subtopologies=one.subtopologies))), "store .* is there twice"),
        (replace(plan, queries=(one, replace(two, repartitions=one.repartitions))), "topic .* is there twice"),
    ):
        with pytest.raises(PlanInvariantError, match=message):
            verify_plan(wrong)
    with pytest.raises(PlanInvariantError, match="is not listed"):
        verify_query(replace(one, repartitions=()))
    with pytest.raises(PlanInvariantError, match="reads no topic"):
        verify_query(replace(one, subtopologies=(replace(one.subtopologies[0], topics=()), *one.subtopologies[1:])))
    last = one.subtopologies[-1]
    unsunk = replace(last, operators=last.operators[:-1])
    with pytest.raises(PlanInvariantError, match="needs one sink"):
        verify_query(replace(one, subtopologies=(*one.subtopologies[:-1], unsunk)))


def test_substitution_reaches_every_column():
    (predicate,) = [n.spec.predicate for n in _nodes(query(SQL).logical) if hasattr(n.spec, "predicate")]
    moved = substitute(predicate, {"AMOUNT": Column(INT, "OTHER")})
    assert [e.name for e in walk(moved) if isinstance(e, Column)] == ["OTHER"]
    assert map_expr(predicate, lambda e: e) is predicate


def _nodes(node):
    return [node, *(x for i in node.inputs for x in _nodes(i))]


def test_explain_reads_top_down_and_names_stores():
    text = query_text(query(SQL))
    assert text.splitlines()[0] == "query CTAS_T -> T (priority normal, weight 4)"
    order = [
        text.index(w)
        for w in ("Sink table T", "Project", "Aggregate", "Rekey", "Filter (AMOUNT > 1.0)", "Scan stream ORDERS")
    ]
    assert order == sorted(order)
    assert "store CTAS_T-aggregate-1 (table: (CUSTOMER STRING KEY) -> (N BIGINT))" in text
    assert "sub-topology 1: reads CTAS_T-aggregate-1-repartition" in text


def test_an_outline_has_each_operator_once_and_counts_internal_columns():
    source = "CREATE TABLE t (k INT PRIMARY KEY, v INT); CREATE TABLE u (k INT PRIMARY KEY, w INT);"
    made = compiled(
        source + "CREATE VIEW j AS SELECT v, w FROM t JOIN u ON v = w;", prelude="", dialect="standard"
    ).plan
    text = outline_text(made.by_id["CTAS_j"])
    assert re.findall(r"(\w+)(?= table| inner)", text) == ["Sink", "EquiJoin", "Scan", "Scan"]
    assert "Project v, w" in text
    assert re.search(r"^  j +by 2 internal columns$", text, re.MULTILINE)
    assert re.search(r"^  CTAS_j-equijoin-1-left-repartition +by v$", text, re.MULTILINE)


def plan_text(plan: Plan) -> str:
    return "\n\n".join(map(query_text, plan.queries))


def test_explain_names_the_times_that_a_source_admits():
    source = "CREATE STREAM s (k INT KEY, v INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', KEY_FORMAT='JSON'{});"
    query = "CREATE STREAM t AS SELECT k, v FROM s;"
    limits = ", EARLIEST_TIME='1850-01-01', MAX_AHEAD='1 DAY'"
    assert "(topic s, JSON/JSON)" in plan_text(compiled(source.format("") + query).plan)
    text = plan_text(compiled(source.format(limits) + query).plan)
    assert "(topic s, JSON/JSON, from 1850-01-01, at most 86400 s ahead of the clock)" in text


def test_every_operator_has_a_line():
    text = plan_text(
        compiled(
            "CREATE STREAM a AS SELECT id, EXPLODE(items) AS i FROM orders;"
            "CREATE TABLE b AS SELECT c.name, country FROM customers c JOIN cities t ON c.city = t.name;"
            "CREATE STREAM d AS SELECT o.id, page FROM orders o JOIN clicks c WITHIN (1 HOUR, 2 HOURS) GRACE PERIOD 1 DAY ON o.id = c.id;"
        ).plan
    )
    for word in (
        "Explode",
        "Join inner foreign-key",
        "Materialise",
        "within -1 h +2 h grace 1 d",
    ):
        assert word in text


def test_a_parameter_is_known_within_its_lambda_alone():
    plan = query(
        "CREATE STREAM l AS SELECT id, TRANSFORM(items, x => REDUCE(items, x, (s, y) => s + y)) AS r FROM orders;"
    )
    verify_query(plan)

    def lambdas_open(e):
        return replace(e, params=("OTHER", *e.params[1:])) if isinstance(e, Lambda) else e

    def of_node(node):
        return replace(node, spec=map_spec(node.spec, lambda e: map_expr(e, lambdas_open)))

    with pytest.raises(PlanInvariantError, match="outside its lambda"):
        verify_query(replace(plan, logical=map_nodes(plan.logical, of_node)))

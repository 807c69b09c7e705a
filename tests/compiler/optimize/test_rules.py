"""Each rule does what its docstring says, and nothing that changes what a query means."""

from dataclasses import replace

import pytest

from flowql.compiler.optimize.drop_rekey import drop_rekey
from flowql.compiler.optimize.fold_constants import fold_constants
from flowql.compiler.optimize.merge_projects import merge_projects
from flowql.compiler.optimize.prune_columns import prune_columns
from flowql.compiler.optimize.push_filter import push_filter
from flowql.compiler.optimize.push_into_changes import push_into_changes
from flowql.compiler.optimize.rules import RULES, optimise
from flowql.compiler.plan.asynchronous import AsyncCall, AsyncMap
from flowql.compiler.plan.changes import (
    Consolidate,
    EquiJoin,
    GroupAggregate,
    GroupCall,
    Over,
    SortKey,
    TemporalJoin,
    TopN,
    VersionJoin,
    WindowCall,
)
from flowql.compiler.plan.event_times import EARLIEST_MS, LATEST_MS
from flowql.compiler.plan.explain import expr_text
from flowql.compiler.plan.expr import Call, Column, Literal, conjunction
from flowql.compiler.plan.logical import (
    Explode,
    Filter,
    Format,
    Join,
    Materialise,
    NamedExpr,
    Node,
    Project,
    Rekey,
    Scan,
    walk_nodes,
)
from flowql.compiler.plan.processors import Process
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.temporal_filters import Edge, TemporalFilter
from flowql.compiler.plan.types import BIGINT, BOOLEAN
from flowql.compiler.plan.verify import PlanInvariantError, verify_spec
from flowql.compiler.plan.watermarks import AppendOnly, Closing, EmitClosed, Watermark
from tests.compiler.sql import CLICKS, ORDERS, kinds, query, unoptimised


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


@pytest.mark.parametrize(
    ("within", "join", "pushed"),
    [
        ("54787 DAYS", "JOIN", True),  # twice as long is longer than from 1900 to 2200
        ("54786 DAYS", "JOIN", False),
        ("54787 DAYS", "LEFT JOIN", False),
        ("54787 DAYS GRACE PERIOD 0 SECONDS", "JOIN", True),
        ("54000 DAYS GRACE PERIOD 1574 DAYS", "JOIN", True),
        ("(0 SECONDS, 109573 DAYS)", "JOIN", True),
        (f"(0 SECONDS, {LATEST_MS - EARLIEST_MS} MILLISECONDS)", "JOIN", True),
        (f"(0 SECONDS, {LATEST_MS - EARLIEST_MS - 1} MILLISECONDS)", "JOIN", False),
    ],
)
def test_a_filter_passes_an_inner_join_of_streams_that_forgets_nothing(within, join, pushed):
    node = unoptimised(
        f"CREATE STREAM o AS SELECT o.id, page FROM orders o {join} clicks c WITHIN {within} ON o.id = c.id"
        " WHERE amount > 1 AND page = 'x' AND LEN(page) < amount AND o.id > 5;"
    )
    after = filters(push_filter(node))
    assert (after == filters(node)) is not pushed
    if pushed:
        assert after == ["(AMOUNT > 1.0)", "(PAGE = 'x')", "((CAST(LEN(C_PAGE) AS DOUBLE) < O_AMOUNT) AND (O_ID > 5))"]


def test_a_filter_stays_above_a_join_of_streams_whose_times_an_operator_gives():
    """A topology may give its records times that no source allows."""
    scan = Scan("S", "s", "stream", Format("JSON"), Format("JSON"))
    source = Node(scan, (), Schema((field("K", "key"), field("A"))))
    given = Node(Process("TOTALS@totals:1", (), ("S",)), (source,), source.schema)
    other = Node(scan, (), Schema((field("K", "key"), field("B"))))
    schema = Schema((field("K", "key"), field("A"), field("B")))
    kept_ms = LATEST_MS - EARLIEST_MS
    for left, passes in ((source, True), (given, False)):
        join = Node(Join("stream-stream", "inner", "K", kept_ms, kept_ms), (left, other), schema)
        over = Node(Filter(greater("A", "A")), (join,), schema)
        assert (push_filter(over) != over) is passes


def test_a_filter_stays_above_a_join_of_streams_that_keeps_less_than_a_source_allows():
    """Times from 1800 on make rows late that no join of usual times forgets."""
    early = ORDERS.replace("value_format='JSON'", "value_format='JSON', earliest_time='1800-01-01'") + CLICKS
    sql = "CREATE STREAM o AS SELECT o.id, page FROM orders o JOIN clicks c WITHIN {} DAYS ON o.id = c.id WHERE amount > 1;"
    assert filters(query(sql.format(54787), prelude=early).logical) == ["(O_AMOUNT > 1.0)"]
    assert filters(query(sql.format(74000), prelude=early).logical) == ["(AMOUNT > 1.0)"]


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


def test_the_steps_are_those_of_rules_that_changed_something():
    steps = optimise(unoptimised(QUERIES[0]))
    assert [rule for rule, _ in steps] == ["fold_constants", "drop_rekey", "prune_columns"]


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


def field(name, role="value"):
    return Field(name, BIGINT, role)


def greater(*names):
    """Conditions on the first column, and on the first and each other one."""
    return conjunction([Call(BOOLEAN, "gt", (Column(BIGINT, names[0]), Column(BIGINT, n))) for n in names])


def table_of(*names):
    return Node(Materialise(), (), Schema((field(names[0], "key"), *map(field, names[1:]))), "retract")


@pytest.mark.parametrize(
    ("kind", "read", "below"),
    [
        ("inner", ("A", "B"), ["Materialise", "Filter", "Materialise", "EquiJoin"]),
        ("inner", ("C", "D"), ["Materialise", "Materialise", "Filter", "EquiJoin"]),
        ("inner", ("B", "C"), ["Materialise", "Filter", "Materialise", "EquiJoin", "Filter"]),
        ("left", ("A", "B"), ["Materialise", "Filter", "Materialise", "EquiJoin"]),
        ("left", ("C", "D"), ["Materialise", "Materialise", "EquiJoin", "Filter"]),
        ("right", ("C", "D"), ["Materialise", "Materialise", "Filter", "EquiJoin"]),
        ("right", ("A", "B"), ["Materialise", "Materialise", "EquiJoin", "Filter"]),
        ("full", ("A", "B"), ["Materialise", "Materialise", "EquiJoin", "Filter"]),
    ],
)
def test_a_condition_goes_to_a_side_of_a_join_that_has_all_its_columns(kind, read, below):
    """And never to the side that an outer join fills up with NULL."""
    left, right = table_of("A", "B"), table_of("C", "D")
    schema = Schema((field("A", "key"), field("C", "key"), field("B"), field("D")))
    join = Node(EquiJoin(kind, ("B",), ("D",)), (left, right), schema, "retract")
    assert kinds(push_into_changes(Node(Filter(greater(*read)), (join,), schema, "retract"))) == below


@pytest.mark.parametrize(
    ("kind", "read", "below"),
    [
        ("inner", ("A", "B"), ["Materialise", "Filter", "Materialise", "TemporalJoin"]),
        ("inner", ("C", "D"), ["Materialise", "Materialise", "Filter", "TemporalJoin"]),
        ("left", ("A", "B"), ["Materialise", "Materialise", "TemporalJoin"]),
        ("left", ("C", "D"), ["Materialise", "Materialise", "Filter", "TemporalJoin"]),
    ],
)
def test_a_part_of_what_a_temporal_join_asks_goes_to_the_side_that_it_is_about(kind, read, below):
    """A left row without a match is shown by a left join, so that a condition on it decides about the match alone."""
    schema = Schema((field("A", "key"), field("C", "key"), field("B"), field("D")))
    both = Call(BOOLEAN, "gt", (Column(BIGINT, "B"), Column(BIGINT, "C")))
    asked = conjunction([greater(*read), both])
    join = TemporalJoin(kind, ("B",), ("D",), asked)
    moved = push_into_changes(Node(join, (table_of("A", "B"), table_of("C", "D")), schema, "retract"))
    assert kinds(moved) == below
    assert moved.spec.residual == (both if "Filter" in below else asked)
    assert [i.schema.names for i in moved.inputs] == [("A", "B"), ("C", "D")]


@pytest.mark.parametrize(
    "asked", [Call(BOOLEAN, "gt", (Column(BIGINT, "C"), Call(BIGINT, "RANDOM", ()))), Literal(BOOLEAN, value=True)]
)
def test_what_a_temporal_join_asks_of_no_column_or_anew_each_time_stays(asked):
    schema = Schema((field("A", "key"), field("C", "key"), field("B"), field("D")))
    join = Node(
        TemporalJoin("inner", ("B",), ("D",), asked), (table_of("A", "B"), table_of("C", "D")), schema, "retract"
    )
    assert push_into_changes(join) == join


def test_a_filter_stays_above_a_projection_whose_columns_it_reads_differ_each_time():
    def over(predicate):
        made = (NamedExpr("A", Column(BIGINT, "A")), NamedExpr("R", Call(BIGINT, "RANDOM", ())))
        below = Node(Project(made), (table_of("A"),), Schema((field("A", "key"), field("R"))), "append")
        return push_filter(Node(Filter(predicate), (below,), below.schema, "append"))

    assert kinds(over(greater("A", "A"))) == ["Materialise", "Filter", "Project"]
    assert kinds(over(greater("A", "R"))) == ["Materialise", "Project", "Filter"]


@pytest.mark.parametrize(("name", "passes"), [("ABS", True), ("SCORE@scores:1", False), ("RANDOM", False)])
def test_a_filter_passes_no_call_that_would_be_made_twice(name, passes):
    """Below the projection a copy of the call would be computed again for each row; below a change of key, it may differ."""
    made = (NamedExpr("A", Column(BIGINT, "A")), NamedExpr("R", Call(BIGINT, name, (Column(BIGINT, "A"),))))
    schema = Schema((field("A", "key"), field("R")))
    below = Node(Project(made), (table_of("A"),), schema, "append")
    assert kinds(push_filter(Node(Filter(greater("R", "A")), (below,), schema, "append")))[-1] == (
        "Project" if passes else "Filter"
    )
    rekeyed = Node(Rekey((NamedExpr("R", made[1].expr),), False), (table_of("A"),), schema, "append")
    if name != "SCORE@scores:1":
        assert kinds(push_filter(Node(Filter(greater("R", "R")), (rekeyed,), schema, "append")))[-1] == (
            "Rekey" if passes else "Filter"
        )


def projected(inner, outer, *, drops=(False, False)):
    """Two projections, one on the other, after the rule."""
    below = Node(Project((NamedExpr("X", inner),), drops[0]), (table_of("A"),), Schema((field("X"),)))
    columns = tuple(NamedExpr(f"O{n}", e) for n, e in enumerate(outer))
    return merge_projects(Node(Project(columns, drops[1]), (below,), Schema(tuple(field(c.name) for c in columns))))


X, SUM = Column(BIGINT, "X"), Call(BIGINT, "plus", (Column(BIGINT, "A"), Literal(BIGINT, 1)))


@pytest.mark.parametrize(
    ("inner", "outer", "merged"),
    [
        (SUM, (X,), True),
        (SUM, (X, X), False),
        (SUM, (Call(BIGINT, "plus", (X, X)),), False),
        (Column(BIGINT, "A"), (X, X), True),
        (Literal(BIGINT, 1), (X, X, X), True),
        (Call(BIGINT, "RANDOM", ()), (X,), False),
    ],
)
def test_projections_merge_where_each_computed_column_is_used_once(inner, outer, merged):
    assert kinds(projected(inner, outer)) == ["Materialise", "Project", *(() if merged else ("Project",))]


@pytest.mark.parametrize("drops", [(False, False), (False, True), (True, False), (True, True)])
def test_a_merged_projection_leaves_out_failed_rows_where_one_of_the_two_did(drops):
    assert projected(SUM, (X,), drops=drops).spec.drop_failed is any(drops)


def test_a_rekey_by_another_column_or_another_name_stays():
    below = table_of("A", "B")

    def rekeyed(name, expr):
        schema = Schema((field(name, "key"), field("B")))
        return kinds(drop_rekey(Node(Rekey((NamedExpr(name, expr),), False), (below,), schema, "append")))

    assert rekeyed("A", Column(BIGINT, "A")) == ["Materialise"]
    assert rekeyed("A", Column(BIGINT, "B")) == rekeyed("A", Literal(BIGINT, 1)) == ["Materialise", "Rekey"]


@pytest.mark.parametrize(("change", "read"), [("append", ("V",)), ("upsert", ("K", "V")), ("retract", ("K", "V"))])
def test_filters_over_rows_that_change_keep_the_key_that_says_which_row_changes(change, read):
    source = Scan("S", "s", "table", Format("JSON"), Format("JSON"))
    scan = Node(source, (), Schema((field("K", "key"), field("V"), field("W"))), change)
    kept = Node(Filter(greater("V", "V")), (scan,), scan.schema, change)
    selected = Node(Project((NamedExpr("X", Column(BIGINT, "V")),)), (kept,), Schema((field("X"),)), change)
    assert scans(prune_columns(selected)) == [read]


def ranked(limit=None, offset=0):
    below = table_of("A", "B")
    spec = TopN(("B",), (SortKey("A"),), limit, offset, rank="R")
    return Node(spec, (below,), Schema((*below.schema, field("R"))), "retract")


R, THREE = Column(BIGINT, "R"), Literal(BIGINT, 3)


@pytest.mark.parametrize(
    ("sign", "args", "bound"),
    [
        ("le", (R, THREE), 3),
        ("lt", (R, THREE), 2),
        ("eq", (R, THREE), 3),
        ("ge", (THREE, R), 3),
        ("gt", (THREE, R), 2),
        ("eq", (THREE, R), 3),
        ("le", (Call(BIGINT, "cast", (R,)), THREE), 3),
        ("lt", (R, Literal(BIGINT, 0)), 0),
        ("le", (R, Literal(BIGINT, 9)), 9),
        ("ge", (R, THREE), None),
        ("le", (THREE, R), None),
        ("ne", (R, THREE), None),
        ("le", (Column(BIGINT, "A"), THREE), None),
        ("le", (R, Column(BIGINT, "A")), None),
    ],
)
def test_what_bounds_a_rank(sign, args, bound):
    """Of the first five rows, or of all; behind an offset ranks are others."""
    for top, limit in (
        (ranked(5), min(5, 5 if bound is None else max(0, bound))),
        (ranked(), None if bound is None else max(0, bound)),
        (ranked(5, offset=1), 5),
    ):
        made = push_into_changes(Node(Filter(Call(BOOLEAN, f"sql_{sign}", args)), (top,), top.schema, "retract"))
        assert [n.spec.limit for n in walk_nodes(made) if isinstance(n.spec, TopN)] == [limit]


def test_what_bounds_no_rank():
    top = ranked(5)
    for predicate in (Call(BOOLEAN, "le", (Column(BIGINT, "R"), Literal(BIGINT, 3))), Column(BOOLEAN, "R")):
        made = push_into_changes(Node(Filter(predicate), (top,), top.schema, "retract"))
        assert [n.spec.limit for n in walk_nodes(made) if isinstance(n.spec, TopN)] == [5]


@pytest.mark.parametrize(
    ("read", "change", "below"),
    [
        (("A", "B"), "retract", ["Materialise", "Filter", "Explode"]),
        (("E", "A"), "retract", ["Materialise", "Explode", "Filter"]),
        (("A", "E"), "retract", ["Materialise", "Filter", "Explode", "Filter"]),
        (("A", "B"), "append", ["Materialise", "Explode", "Filter"]),
    ],
)
def test_a_condition_goes_below_a_list_of_which_it_reads_nothing(read, change, below):
    table = table_of("A", "B")
    exploded = Node(
        Explode((NamedExpr("E", Column(BIGINT, "B")),)), (table,), Schema((*table.schema, field("E"))), change
    )
    assert kinds(push_into_changes(Node(Filter(greater(*read)), (exploded,), exploded.schema, change))) == below


def test_a_condition_on_all_columns_of_the_stream_goes_below_a_join_with_a_table():
    stream, table = table_of("A", "B"), table_of("C", "D")
    schema = Schema((field("K", "key"), field("A"), field("B"), field("D")))
    join = Node(Join("stream-table", "inner", "K"), (stream, table), schema)
    assert kinds(push_filter(Node(Filter(greater("A", "B")), (join,), schema))) == [
        "Materialise", "Filter", "Materialise", "Join",
    ]  # fmt: skip
    assert kinds(push_filter(Node(Filter(greater("D", "B")), (join,), schema)))[-1] == "Filter"


def test_a_scan_of_which_nothing_is_read_keeps_one_column():
    """A batch without columns would not tell how many rows it has."""
    scan = Node(Scan("S", "s", "stream", Format("JSON"), Format("JSON")), (), Schema((field("V"), field("W"))))
    one = Node(Project((NamedExpr("X", Literal(BIGINT, 1)),)), (scan,), Schema((field("X"),)))
    assert scans(prune_columns(one)) == [("V",)]


def test_a_join_with_versions_is_given_its_keys_and_times():
    sides = [
        Node(
            Scan("S", "s", "stream", Format("JSON"), Format("JSON")),
            (),
            Schema((field(f"{s}K", "key"), *(field(s + n) for n in "ABC"))),
            "retract",
        )
        for s in "LR"
    ]
    join = VersionJoin("inner", ("LA",), ("RA",), "LB", "RB", 0)
    schema = Schema(tuple(f for s in sides for f in s.schema))
    chosen = Project((NamedExpr("X", Column(BIGINT, "RC")),))
    pruned = prune_columns(
        Node(chosen, (Node(join, tuple(sides), schema, "retract"),), Schema((field("X"),)), "retract")
    )
    assert scans(pruned) == [("LK", "LA", "LB"), ("RK", "RA", "RB", "RC")]


SOURCE = Schema((field("K", "key"), *(field(n) for n in "ABCDEF")))
SCANNED = Node(Scan("S", "s", "table", Format("JSON"), Format("JSON")), (), SOURCE, "retract")
TIMES = (Closing("C", 1),)
COUNT = GroupCall("N", "COUNT", ("B",), BIGINT, filter="C", order=(SortKey("D"),))
LAG = WindowCall("L", "LAG", ("C",), BIGINT, filter="D")


@pytest.mark.parametrize(
    ("spec", "made", "wanted", "read"),
    [
        (GroupAggregate(("A",), (COUNT, GroupCall("M", "MAX", ("E",), BIGINT))), ("N", "M"), ("N",), "KABCD"),
        (GroupAggregate(("A",), (COUNT, GroupCall("M", "MAX", ("E",), BIGINT))), ("N", "M"), ("M",), "KAE"),
        (GroupAggregate(("A",), (COUNT,)), ("N",), (), "KA"),
        (TopN(("A",), (SortKey("B"),), 1, rank="R"), ("R",), ("R",), "KAB"),
        (TopN(("A",), (SortKey("B"),), 1), (), ("E",), "KABE"),
        (Over(("A",), (SortKey("B"),), (LAG,)), ("L",), ("L", "E"), "KABCDE"),
        (Consolidate(), (), ("A",), "KA"),
        (AppendOnly(Watermark("B")), (), ("A",), "KAB"),
        (AppendOnly(), (), ("A",), "KA"),
        (EmitClosed(TIMES), (), ("A",), "KAC"),
        (TemporalFilter((Edge("B"),), (Edge("C"),)), (), ("A",), "KABC"),
        (Explode((NamedExpr("X", Column(BIGINT, "B")),)), ("X",), ("X", "A"), "KAB"),
        (AsyncMap((AsyncCall("X", "f", ("B",), BIGINT), AsyncCall("Y", "f", ("C",), BIGINT)), "key"), ("X", "Y"), ("X",), "KB"),
        (AsyncMap((AsyncCall("X", "f", ("B",), BIGINT),), "key"), ("X",), ("A",), "KA"),
        (Materialise(), (), ("A",), "KA"),
    ],
)  # fmt: skip
def test_each_operator_is_given_what_it_reads_and_what_is_wanted_of_it(spec, made, wanted, read):
    groups = isinstance(spec, GroupAggregate)
    fields = (field("A", "key"),) if groups else SOURCE.fields
    node = Node(spec, (SCANNED,), Schema((*fields, *map(field, made))), "retract")
    chosen = Project(tuple(NamedExpr(f"_{n}", Column(BIGINT, n)) for n in wanted))
    pruned = prune_columns(Node(chosen, (node,), Schema(tuple(field(f"_{n}") for n in wanted)), "retract"))
    assert scans(pruned) == [tuple(read)]
    verify_spec(pruned.inputs[0].spec, [i.schema for i in pruned.inputs[0].inputs], pruned.inputs[0].schema, "Q")

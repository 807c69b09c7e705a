"""What a query gives: names, types and keys of its output, formats of its sink."""

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.logical import Aggregate, Filter, Join, Sink, walk_nodes
from flowql.compiler.plan.schema import KeyWindow
from flowql.compiler.plan.topology import SourceDef
from tests.compiler.sql import ALL, ORDERS, columns, compiled, kinds, query, refused, unoptimised

OUTPUTS = [
    ("STREAM", "SELECT * FROM orders", "ID INT KEY, CUSTOMER STRING, AMOUNT DOUBLE, ITEMS ARRAY<INT>"),
    ("STREAM", "SELECT amount, id AS k, amount + 1, id * 2 FROM orders", "K INT KEY, AMOUNT DOUBLE, KSQL_COL_0 DOUBLE, KSQL_COL_1 INT"),
    ("STREAM", "SELECT id, AS_VALUE(id) AS copy FROM orders", "ID INT KEY, COPY INT"),
    ("STREAM", "SELECT id, CASE WHEN amount > 1 THEN 1 ELSE NULL END AS c FROM orders", "ID INT KEY, C INT"),
    ("STREAM", "SELECT id, TRANSFORM(items, x => x + 1.5) AS t FROM orders", None),
    ("STREAM", "SELECT id, EXPLODE(items) AS item FROM orders", "ID INT KEY, ITEM INT"),
    ("STREAM", "SELECT id, ROWTIME AS t, ROWPARTITION AS p FROM orders", "ID INT KEY, T BIGINT, P INT"),
    ("STREAM", "SELECT * FROM orders PARTITION BY customer", "CUSTOMER STRING KEY, AMOUNT DOUBLE, ITEMS ARRAY<INT>, ID INT"),
    ("STREAM", "SELECT customer AS c, amount FROM orders PARTITION BY customer", "C STRING KEY, AMOUNT DOUBLE"),
    ("STREAM", "SELECT id, amount FROM orders PARTITION BY NULL", "ID INT, AMOUNT DOUBLE"),
    ("STREAM", "SELECT ABS(id), amount FROM orders PARTITION BY ABS(id)", "KSQL_COL_0 INT KEY, AMOUNT DOUBLE"),
    ("STREAM", "SELECT o.id, amount, page FROM orders o JOIN clicks c WITHIN 1 HOUR ON o.id = c.id", "O_ID INT KEY, AMOUNT DOUBLE, PAGE STRING"),
    ("STREAM", "SELECT c.id AS k, amount FROM orders o LEFT JOIN clicks c WITHIN 1 HOUR ON o.id = c.id", "K INT KEY, AMOUNT DOUBLE"),
    ("STREAM", "SELECT ROWKEY, page FROM orders o FULL JOIN clicks c WITHIN 1 HOUR ON o.id = c.id", "ROWKEY INT KEY, PAGE STRING"),
    ("STREAM", "SELECT customer, city, id FROM orders JOIN customers ON customer = name", "CUSTOMER STRING KEY, CITY STRING, ID INT"),
    ("TABLE", "SELECT name, age FROM customers WHERE age > 3", "NAME STRING KEY, AGE INT"),
    ("TABLE", "SELECT customer, COUNT(*) AS n, SUM(amount) / COUNT(*) AS mean FROM orders GROUP BY customer", "CUSTOMER STRING KEY, N BIGINT, MEAN DOUBLE"),
    ("TABLE", "SELECT LEN(customer), COUNT(*) FROM orders GROUP BY LEN(customer)", "KSQL_COL_0 INT KEY, KSQL_COL_1 BIGINT"),
    ("TABLE", "SELECT COUNT(*) AS n, id, customer FROM orders GROUP BY customer, id", None),
    ("TABLE", "SELECT c.name AS k, country FROM customers c FULL JOIN cities t ON c.name = t.name", None),
    ("TABLE", "SELECT c.name, city, country FROM customers c LEFT JOIN cities t ON c.name = t.name", "C_NAME STRING KEY, CITY STRING, COUNTRY STRING"),
    ("TABLE", "SELECT c.name, city, country FROM customers c JOIN cities t ON c.city = t.name", "C_NAME STRING KEY, CITY STRING, COUNTRY STRING"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "select", "expected"), [o for o in OUTPUTS if o[2]], ids=[o[1] for o in OUTPUTS if o[2]]
)
def test_output(kind, select, expected):
    result = compiled(f"CREATE {kind} output AS {select};")
    assert columns(result.catalog.sources["OUTPUT"].schema) == expected


def sink(sql: str, *, prelude: str = ALL) -> SourceDef:
    return list(compiled(sql, prelude=prelude).catalog.sources.values())[-1]


def test_a_windowed_result_has_a_windowed_key_and_no_bounds_as_columns():
    made = sink(
        "CREATE TABLE t AS SELECT id, COUNT(*) AS n, WINDOWSTART AS ws FROM orders WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 10 MINUTES) GROUP BY id;"
    )
    assert columns(made.schema) == "ID INT KEY, N BIGINT, WS BIGINT"
    assert (made.schema.window.kind, made.schema.window.size_ms) == ("time", 3_600_000)


def test_formats_come_from_the_source_unless_given():
    prelude = (
        "CREATE STREAM s (k INT KEY, a INT, b INT) WITH (kafka_topic='s', format='DELIMITED', value_delimiter='|');"
    )
    made = sink("CREATE STREAM o AS SELECT * FROM s;", prelude=prelude)
    assert (made.key_format.name, made.value_format.name, made.value_format.delimiter) == (
        "DELIMITED",
        "DELIMITED",
        "|",
    )
    other = sink("CREATE STREAM o WITH (value_format='JSON', kafka_topic='x') AS SELECT * FROM s;", prelude=prelude)
    assert (other.value_format.name, other.topic) == ("JSON", "x")


def test_session_properties_give_defaults():
    text = "CREATE STREAM s (k INT KEY, a INT) WITH (kafka_topic='s'); CREATE STREAM o AS SELECT * FROM s;"
    session = {
        "ksql.persistence.default.format.value": "JSON",
        "ksql.output.topic.name.prefix": "p-",
        "ksql.persistence.wrap.single.values": "false",
    }
    result = compile_project([SourceText("a", text)], properties=session)
    made = result.catalog.sources["O"]
    assert (made.topic, made.value_format.name, made.value_format.wrap) == ("p-O", "JSON", False)


def test_set_holds_from_where_it_stands():
    text = "SET 'ksql.output.topic.name.prefix' = 'p-'; CREATE STREAM a AS SELECT * FROM orders; UNSET 'ksql.output.topic.name.prefix'; CREATE STREAM b AS SELECT * FROM orders;"
    sources = compiled(text).catalog.sources
    assert (sources["A"].topic, sources["B"].topic) == ("p-A", "B")


def test_custom_types_and_structs():
    made = sink(
        "CREATE STREAM o AS SELECT k, p->x AS x, STRUCT(a := p->y, b := 'z') AS s FROM s;",
        prelude="CREATE TYPE point AS STRUCT<x INT, y DOUBLE>; CREATE STREAM s (k INT KEY, p point) WITH (kafka_topic='s', value_format='JSON');",
    )
    assert columns(made.schema) == "K INT KEY, X INT, S STRUCT<A DOUBLE, B STRING>"


def test_a_group_is_project_rekey_aggregate():
    node = unoptimised(
        "CREATE TABLE t AS SELECT customer, SUM(amount) AS s FROM orders WHERE amount > 0 GROUP BY customer HAVING COUNT(*) > 1;"
    )
    assert kinds(node) == ["Scan", "Filter", "Project", "Rekey", "Aggregate", "Filter", "Project", "Sink"]
    aggregate = next(n for n in walk_nodes(node) if isinstance(n.spec, Aggregate))
    assert aggregate.change == "retract", "HAVING must know what it gave out before"
    assert aggregate.spec.aggregates[0].name == "S"


def test_the_same_aggregate_is_computed_once():
    node = query(
        "CREATE TABLE t AS SELECT id, COUNT(*) AS a, COUNT(*) AS b, COUNT(*) + 1 AS c FROM orders GROUP BY id;"
    ).logical
    (aggregate,) = [n.spec for n in walk_nodes(node) if isinstance(n.spec, Aggregate)]
    assert len(aggregate.aggregates) == 1


def test_a_filtered_table_keeps_old_rows_and_a_plain_one_does_not():
    assert "Materialise" in kinds(unoptimised("CREATE TABLE t AS SELECT name, age FROM customers WHERE age > 1;"))
    assert "Materialise" not in kinds(unoptimised("CREATE TABLE t AS SELECT name, age FROM customers;"))


def test_join_inputs_have_prefixed_names_and_rekey_only_where_needed():
    node = unoptimised(
        "CREATE STREAM o AS SELECT customer, amount, city FROM orders o JOIN customers c ON o.customer = c.name WHERE city = 'x';"
    )
    assert kinds(node) == ["Scan", "Project", "Rekey", "Scan", "Project", "Join", "Filter", "Project", "Sink"]
    join = next(n for n in walk_nodes(node) if isinstance(n.spec, Join))
    assert join.spec.key_name == "O_CUSTOMER"
    assert {"O_AMOUNT", "C_CITY", "C_NAME"} <= set(join.schema.names)


def test_a_text_beside_rowtime_is_a_time():
    node = unoptimised("CREATE STREAM o AS SELECT id, amount FROM orders WHERE ROWTIME > '1970-01-01T00:00:01';")
    (found,) = [n.spec for n in walk_nodes(node) if isinstance(n.spec, Filter)]
    assert found.predicate.args[1].value == 1000


def test_a_sink_may_take_its_time_from_a_column_but_its_readers_do_not():
    result = compiled("CREATE STREAM o WITH (timestamp='t') AS SELECT id, ROWTIME + 1 AS t FROM orders;")
    spec = result.plan.queries[0].logical.spec
    assert isinstance(spec, Sink)
    assert spec.timestamp.column == "T"
    assert result.catalog.sources["O"].timestamp is None


def test_inserting_widens_numbers():
    text = "CREATE STREAM wide (id INT KEY, n BIGINT) WITH (kafka_topic='w', value_format='JSON'); INSERT INTO wide SELECT id, LEN(customer) AS n FROM orders;"
    assert query(text).id == "INSERT_WIDE_1"


def test_inserted_values_are_constants_of_the_columns_type():
    (row,) = compiled("INSERT INTO orders (id, customer, amount, ROWTIME) VALUES (1, 'x', 2, 77);").plan.inserts
    assert (row.columns, row.rowtime) == (("ID", "CUSTOMER", "AMOUNT"), 77)
    assert [str(v.type) for v in row.values] == ["INT", "STRING", "DOUBLE"]


def test_a_new_key_of_several_columns_keeps_its_nulls():
    spec = query(
        "CREATE STREAM o WITH (key_format='JSON') AS SELECT * FROM orders PARTITION BY customer, id;"
    ).logical.spec
    assert spec.null_key_parts
    assert not query("CREATE STREAM o AS SELECT * FROM orders PARTITION BY customer;").logical.spec.null_key_parts
    assert not query("CREATE STREAM o AS SELECT * FROM orders;").logical.spec.null_key_parts


def test_a_limit_of_the_session_configures_an_aggregate():
    text = "CREATE TABLE o AS SELECT customer, COLLECT_LIST(id) AS ids FROM orders GROUP BY customer;"
    node = compiled(text, properties={"ksql.functions.collect_list.limit": "3"}).plan.queries[-1].logical
    (call,) = [c for n in walk_nodes(node) if isinstance(n.spec, Aggregate) for c in n.spec.aggregates]
    assert call.init == (3,)
    (wrong,) = compile_project(
        [SourceText("a", ORDERS + text)], properties={"ksql.functions.collect_list.limit": "x"}
    ).diagnostics
    assert wrong.code == "FQ2011"


def test_insert_widens_decimals():
    text = """CREATE STREAM s (a DECIMAL(2, 1)) WITH (kafka_topic='s', value_format='JSON');
        CREATE STREAM o (a DECIMAL({})) WITH (kafka_topic='o', value_format='JSON'); INSERT INTO o SELECT a FROM s;"""
    assert compile_project([SourceText("a", text.format("5, 2"))]).ok
    for narrower in ("2, 0", "3, 3"):
        (wrong,) = compile_project([SourceText("a", text.format(narrower))]).diagnostics
        assert wrong.code == "FQ2040"


def test_time_windows_of_two_sizes_are_joined_by_their_start():
    text = """CREATE STREAM a (k INT KEY, v INT) WITH (kafka_topic='a', value_format='JSON', window_type='HOPPING', window_size='5 SECONDS');
        CREATE STREAM b (k INT KEY, w INT) WITH (kafka_topic='b', value_format='JSON', window_type='TUMBLING', window_size='2 SECONDS');
        CREATE STREAM o AS SELECT a.k, v, w FROM a JOIN b WITHIN 1 MINUTE ON a.k = b.k;"""
    node = compiled(text, prelude="").plan.queries[-1].logical
    (join,) = [n for n in walk_nodes(node) if isinstance(n.spec, Join)]
    left, right = (i.schema.window for i in join.inputs)
    assert left == right == KeyWindow("time", 5000)


def test_other_conditions_of_an_inner_join_choose_among_its_rows():
    both = "SELECT o.id, page FROM orders o JOIN clicks c WITHIN 1 HOUR ON {} {};"
    split = query("CREATE STREAM s AS " + both.format("o.id = c.id", "WHERE o.customer = c.customer AND o.amount > 1"))
    joined = query("CREATE STREAM s AS " + both.format("o.amount > 1 AND o.id = c.id AND o.customer = c.customer", ""))
    assert kinds(joined.logical) == kinds(split.logical)
    refused(
        "CREATE STREAM s AS "
        + both.replace(" JOIN", " LEFT JOIN").format("o.id = c.id AND o.customer = c.customer", ""),
        "FQ2030",
        "STRUCT",
    )

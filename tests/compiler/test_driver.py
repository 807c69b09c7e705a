"""The one door: projects in any order, all mistakes at once, sessions statement by statement."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.analyze.options import QueryOptions
from flowql.compiler.diagnostics.diagnostic import CompileError, ParseError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.parser import parse_query
from flowql.compiler.driver import QueryDefinition, Session, compile_project
from flowql.compiler.plan import codec
from flowql.compiler.plan.verify import verify_plan
from tests.compiler.sql import ALL, ORDERS

PARTS = [
    ORDERS,
    "CREATE STREAM big AS SELECT * FROM orders WHERE amount > 10;",
    "CREATE TABLE per_customer AS SELECT customer, COUNT(*) AS n FROM big GROUP BY customer;",
    "CREATE STREAM joined AS SELECT b.customer, amount, n FROM big b JOIN per_customer p ON b.customer = p.customer;",
    "INSERT INTO big SELECT * FROM orders WHERE amount < 0;",
    "INSERT INTO orders (id, amount) VALUES (1, 2.0);",
]


@settings(max_examples=25, deadline=None)
@given(st.permutations(PARTS))
def test_files_may_come_in_any_order(parts):
    result = compile_project([SourceText(f"{i}.sql", p) for i, p in enumerate(parts)])
    assert result.ok, [d.title for d in result.diagnostics]
    expected = compile_project([SourceText("all.sql", "".join(PARTS))])
    assert {q.id: q.definition for q in result.plan.queries} == {q.id: q.definition for q in expected.plan.queries}


def test_the_written_order_is_kept_where_nothing_speaks_against_it():
    text = ORDERS + "CREATE STREAM z AS SELECT * FROM orders; CREATE STREAM a AS SELECT * FROM orders;"
    assert [q.id for q in compile_project([SourceText("a", text)]).plan.queries] == ["CSAS_Z", "CSAS_A"]


def test_a_cycle_is_named():
    text = "CREATE STREAM a AS SELECT * FROM b; CREATE STREAM b AS SELECT * FROM c; CREATE STREAM c AS SELECT * FROM a;"
    result = compile_project([SourceText("a.sql", text)])
    (found,) = result.diagnostics
    assert found.code == "FQ2070"
    assert all(n in found.title for n in "ABC")
    assert result.plan.queries == ()


def test_a_name_defined_twice_says_where():
    result = compile_project([SourceText("one.sql", ORDERS), SourceText("two.sql", ORDERS)])
    (found,) = result.diagnostics
    assert (found.code, found.span.path) == ("FQ2050", "two.sql")
    assert "one.sql:1" in found.label


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        (
            "ksql",
            "CREATE STREAM s (a INT,, b INT) WITH (kafka_topic='s', value_format='json'); CREATE STREAM t AS SELECT a FROM s;",
        ),
        ("ksql", "CREATE OR REPLACE SOURCE TABLE IF NOT EXISTS `s` (a INTT INT); CREATE TABLE t AS SELECT * FROM `s`;"),
        (
            "standard",
            "CREATE TABLE s (a INT PRIMARY KEY, UNIQUE (a)); CREATE MATERIALIZED VIEW t AS SELECT a FROM s;",
        ),
        (
            "standard",
            "CREATE TABLE public.s (a INT,,); CREATE VIEW t AS SELECT a, row_number() OVER (ORDER BY a) AS r FROM s;",
        ),
    ],
)
def test_readers_of_a_statement_with_a_mistake_add_no_mistakes(dialect, text):
    """The name that an unreadable statement declares was "not a stream or table" for each statement that reads it."""
    (found,) = compile_project([SourceText("a.sql", text)], dialect=dialect).diagnostics
    assert found.span.line == 1
    assert found.code != "FQ2001"
    both = compile_project([SourceText("a.sql", text + "SELEC 1;")], dialect=dialect).diagnostics
    assert sorted(d.code for d in both) == sorted([found.code, "FQ1001"])


def test_plans_survive_the_codec():
    result = compile_project([SourceText("a.sql", "".join(PARTS))])
    text = codec.dumps(result.plan)
    assert codec.loads(text) == result.plan
    verify_plan(codec.loads(text))


SELECT = "SELECT customer, COUNT(*) AS n FROM orders WINDOW TUMBLING (SIZE 1 HOUR) WHERE amount > 1 GROUP BY customer"


@pytest.mark.parametrize("kind", [None, "table"])
def test_a_definition_as_data_gives_the_plan_of_the_statement(kind):
    sql = f"CREATE TABLE per_customer WITH (priority='high', latency_target='100 ms') AS\n  {SELECT};"
    written = compile_project([SourceText("a.sql", ORDERS + sql)])
    parsed = parse_query(SourceText("flowql.yaml", SELECT))
    options = QueryOptions(priority="high", latency_target_ms=100)
    given_ = compile_project([SourceText("a.sql", ORDERS), QueryDefinition("PER_CUSTOMER", parsed, kind, options)])
    assert given_.ok, given_.diagnostics
    assert codec.dumps(given_.plan) == codec.dumps(written.plan)


def test_the_kind_of_a_definition_follows_from_what_it_reads():
    def kind_of(sql):
        definition = QueryDefinition("O", parse_query(SourceText("", sql)))
        return compile_project([SourceText("a", ALL), definition]).catalog.sources["O"].kind

    assert kind_of("SELECT name, age FROM customers") == "table"
    assert kind_of("SELECT customer, city FROM orders JOIN customers ON customer = name") == "stream"


def test_the_trace_shows_what_rules_did():
    result = compile_project(
        [SourceText("a", ORDERS + "CREATE STREAM o AS SELECT id, amount FROM orders WHERE amount > 1 + 1;")]
    )
    trace = result.trace["CSAS_O"]
    assert [rule for rule, _ in trace.steps] == ["fold_constants", "prune_columns"]
    assert trace.steps[-1][1] == result.plan.queries[0].logical


def run(session, sql):
    return session.execute(SourceText("shell", sql))


def test_a_session_accepts_and_refuses_one_statement_at_a_time():
    session = Session()
    run(session, ORDERS)
    with pytest.raises(CompileError, match="NOPE"):
        run(session, "CREATE STREAM a AS SELECT * FROM orders; CREATE STREAM b AS SELECT nope FROM orders;")
    assert [q.id for q in session.plan.queries] == ["CSAS_A"], "what came before the bad one stays"
    with pytest.raises(ParseError):
        run(session, "CREATE STREAM c AS SELECT * FROM orders; CREATE NONSENSE;")
    assert len(session.plan.queries) == 1, "nothing of a text that cannot be parsed is run"


def test_a_replaced_query_keeps_its_place():
    session = Session()
    run(session, ORDERS + "CREATE STREAM a AS SELECT id, amount FROM orders; CREATE STREAM b AS SELECT * FROM orders;")
    old = session.plan.by_id.get("CSAS_A")
    (result,) = run(session, "CREATE OR REPLACE STREAM a AS SELECT id, amount, customer FROM orders;")
    assert [q.id for q in session.plan.queries] == ["CSAS_A", "CSAS_B"]
    assert result.query == session.plan.by_id.get("CSAS_A") != old


def test_dropping_ends_the_query_that_writes():
    session = Session()
    run(session, ORDERS + "CREATE STREAM a AS SELECT * FROM orders; CREATE STREAM b AS SELECT * FROM a;")
    with pytest.raises(CompileError, match="CSAS_B reads it"):
        run(session, "DROP STREAM a;")
    run(session, "DROP STREAM b;")
    (result,) = run(session, "DROP STREAM a;")
    assert result.ended == ("CSAS_A",)
    assert session.plan.queries == ()
    assert list(session.catalog.sources) == ["ORDERS"]


def test_if_not_exists_does_nothing_the_second_time():
    session = Session()
    run(session, ORDERS)
    (result,) = run(session, "CREATE STREAM IF NOT EXISTS orders (x INT) WITH (kafka_topic='x', value_format='JSON');")
    assert result.action == "nothing"
    assert session.catalog.sources["ORDERS"].topic == "orders"


def test_set_changes_the_session():
    session = Session()
    run(
        session, "SET 'ksql.persistence.default.format.value' = 'JSON'; CREATE STREAM s (a INT) WITH (kafka_topic='s');"
    )
    assert session.catalog.sources["S"].value_format.name == "JSON"
    run(session, "UNSET 'ksql.persistence.default.format.value';")
    with pytest.raises(CompileError, match="VALUE_FORMAT"):
        run(session, "CREATE STREAM t (a INT) WITH (kafka_topic='t');")


def test_query_ids_can_be_given_and_are_unique():
    session = Session()
    run(
        session,
        ORDERS + "CREATE STREAM a WITH (query_id='mine') AS SELECT * FROM orders; INSERT INTO a SELECT * FROM orders;",
    )
    assert [q.id for q in session.plan.queries] == ["mine", "INSERT_A_1"]
    with pytest.raises(CompileError, match="mine exists"):
        run(session, "CREATE STREAM b WITH (query_id='mine') AS SELECT * FROM orders;")
    assert "B" not in session.catalog.sources


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE __no_rows (a INT PRIMARY KEY);",
        "CREATE MATERIALIZED VIEW __no_rows AS SELECT 1 AS a;",
        "CREATE MATERIALIZED VIEW v AS SELECT 1 AS a; INSERT INTO __no_rows DEFAULT VALUES;",
        "CREATE MATERIALIZED VIEW v AS SELECT 1 AS a; DELETE FROM __no_rows;",
        "CREATE MATERIALIZED VIEW v AS SELECT 1 AS a; CREATE VIEW w AS SELECT * FROM __no_rows;",
        "CREATE TABLE t (a INT PRIMARY KEY) WITH (kafka_topic = '__no_rows', value_format = 'json');",
    ],
)
def test_nothing_gives_rows_to_the_table_of_views_without_a_table(text: str) -> None:
    """A declared table of that name took its place, without a word, and INSERT ... DEFAULT VALUES was accepted."""
    (found,) = compile_project([SourceText("a.sql", text)], dialect="standard").diagnostics
    assert found.code == "FQ2008"


def test_equal_rows_are_counted_and_those_of_a_dropped_stream_are_forgotten():
    session, row = Session(), "INSERT INTO orders (id, amount) VALUES ({}, 2.0);"
    session.execute(SourceText("a", ORDERS + row.format(1) + row.format(2) + row.format(1)))
    assert [i.occurrence for i in session.plan.inserts] == [0, 0, 1]
    session.execute(SourceText("b", "DROP STREAM orders;" + ORDERS + row.format(1)))
    assert [i.occurrence for i in session.plan.inserts] == [0]

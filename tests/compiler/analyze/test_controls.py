"""TERMINATE, PAUSE and RESUME among the definitions of a project and in a session."""

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session, compile_project
from tests.compiler.sql import ALL, compiled, refused

BIG = "CREATE STREAM big AS SELECT * FROM orders WHERE amount > 100;\n"
MORE = "CREATE STREAM more (id INT KEY, amount DOUBLE) WITH (kafka_topic='more', value_format='JSON');\n"
INTO = "INSERT INTO more SELECT id, amount FROM orders;\n"


@pytest.mark.parametrize("query", ["CSAS_BIG", "csas_big", "CSAS_BIG_17", "`CSAS_BIG`", "QUERY CSAS_BIG"])
def test_a_query_is_named_by_its_id_also_by_the_one_ksqldb_gave_it(query):
    assert compiled(f"{BIG}PAUSE {query};").plan.paused == ("CSAS_BIG",)


def test_a_pause_may_stand_before_what_it_pauses():
    assert compiled(f"PAUSE CSAS_BIG; {BIG}").plan.paused == ("CSAS_BIG",)


def test_all_are_meant_and_resumed_one_by_one():
    plan = compiled(f"{BIG}{MORE}{INTO}PAUSE ALL; RESUME INSERTQUERY_9;").plan
    assert plan.paused == ("CSAS_BIG",)


def test_what_a_terminated_query_made_stays_and_can_be_read():
    plan = compiled(f"{BIG}TERMINATE CSAS_BIG_3; CREATE STREAM big2 AS SELECT * FROM big;").plan
    assert [q.id for q in plan.queries] == ["CSAS_BIG2"]
    source = plan.source("BIG")
    assert source is not None
    assert source.query is None


def test_a_terminated_insert_leaves_the_other_one():
    plan = compiled(f"{MORE}{INTO}{INTO}TERMINATE INSERT_MORE_1;").plan
    assert [q.id for q in plan.queries] == ["INSERT_MORE_2"]


def test_which_insert_is_meant_must_be_clear():
    refused(f"{MORE}{INTO}{INTO}TERMINATE INSERTQUERY_7;", "FQ2054", "INSERTQUERY_7", "INSERT_MORE_1", "INSERT_MORE_2")


def test_an_unknown_query_is_named_with_those_alike():
    found = refused(f"{BIG}PAUSE CSAS_BGI;", "FQ2054", "CSAS_BGI", "CSAS_BIG")
    assert found.span.column == 7


def test_a_session_ends_queries_at_once():
    session = Session()
    session.execute(SourceText("", ALL + BIG))
    (result,) = session.execute(SourceText("", "TERMINATE ALL;"))
    assert (result.action, result.ended) == ("terminate", ("CSAS_BIG",))
    session.execute(SourceText("", "DROP STREAM big; DROP STREAM orders;"))
    assert session.plan.queries == ()


def test_a_mistake_says_what_to_write():
    found = compile_project([SourceText("test.sql", "PAUSE;")]).diagnostics
    assert "the id of a query, or ALL" in found[0].title

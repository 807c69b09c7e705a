"""Which queries wait for which, and what begins anew with a query."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.runtime.spark.engine.order import downstream, is_circle, levels, outside_topics, topics_read
from flowql.runtime.spark.history import topics_written

SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, VALUE_FORMAT='JSON');
CREATE STREAM R (K STRING KEY, V INT) WITH (KAFKA_TOPIC='r', PARTITIONS=1, VALUE_FORMAT='JSON');
CREATE STREAM A AS SELECT * FROM S WHERE V > 1;
CREATE STREAM A2 AS SELECT * FROM A WHERE V > 2;
CREATE TABLE LAST AS SELECT K, COUNT(*) AS N FROM A2 GROUP BY K;
CREATE TABLE ALONE AS SELECT K, COUNT(*) AS N FROM R GROUP BY K;
INSERT INTO A SELECT * FROM R;
"""


def plan_of(sql: str) -> Plan:
    compiled = compile_project([SourceText("t.sql", sql)])
    assert compiled.ok, compiled.diagnostics
    return compiled.plan


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(SQL)


def test_each_comes_after_those_it_reads(plan: Plan) -> None:
    found = [sorted(q.sink for q in level) for level in levels(tuple(reversed(plan.queries)))]
    assert found == [["A", "A", "ALONE"], ["A2"], ["LAST"]]
    assert not any(is_circle(level) for level in levels(plan.queries))


def test_who_reads_a_result_begins_anew_with_it_and_so_do_its_other_writers(plan: Plan) -> None:
    ids = {q.sink: q.id for q in plan.queries}
    assert downstream(plan, [ids["LAST"]]) == {ids["LAST"]}
    assert downstream(plan, [ids["A2"]]) == {ids["A2"], ids["LAST"]}
    everything = {q.id for q in plan.queries} - {ids["ALONE"]}
    assert downstream(plan, ["CSAS_A"]) == everything
    assert len(everything) == 4


def test_topics(plan: Plan) -> None:
    assert outside_topics(plan) == {"s", "r"}
    by_id = {q.id: q for q in plan.queries}
    assert (topics_read(by_id["CSAS_A"]), topics_written(by_id["CSAS_A"])) == (("s",), ("A",))


def test_queries_that_read_each_other_share_a_level() -> None:
    plan = plan_of("""
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, VALUE_FORMAT='JSON');
CREATE STREAM A AS SELECT * FROM S WHERE V > 0;
CREATE STREAM B AS SELECT K, V - 1 AS V FROM A;
INSERT INTO A SELECT * FROM B WHERE V > 0;
CREATE TABLE N AS SELECT K, COUNT(*) AS N FROM B GROUP BY K;
""")
    found = levels(plan.queries)
    assert [sorted(q.sink for q in level) for level in found] == [["A"], ["A", "B"], ["N"]]
    assert [is_circle(level) for level in found] == [False, True, False]

"""Which interactive queries need relations to agree, and what an answer says when they do not."""

from __future__ import annotations

import pytest

from flowql.query.committed import queries_behind
from flowql.query.errors import APART
from flowql.server.on_runtime import RuntimeEngine
from flowql.server.service import Service
from tests.flowql.query.harness import QueryHarness

SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE A AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
CREATE TABLE B AS SELECT V, COUNT(*) AS N FROM S GROUP BY V;
CREATE STREAM C AS SELECT K, V FROM S;
"""
SUMS = "SELECT (SELECT sum(n) FROM a) AS a, (SELECT sum(n) FROM b) AS b, (SELECT count(*) FROM c) AS c"


@pytest.mark.parametrize(
    ("relations", "queries"),
    [
        (("a",), {"CTAS_A"}),
        (("A", "b", "c"), {"CTAS_A", "CTAS_B", "CSAS_C"}),
        (("ctas_a-aggregate-1", "B"), {"CTAS_A", "CTAS_B"}),
        (("S", "DEAD_LETTERS", "nothing"), set()),
    ],
)
def test_every_relation_has_a_query_behind_it_but_sources(relations: tuple[str, ...], queries: set[str]) -> None:
    assert queries_behind(QueryHarness(SQL).instance.plan, relations) == queries


def test_tables_and_streams_of_one_input_agree_and_an_answer_says_when_not() -> None:
    world = QueryHarness(SQL)
    world.feed("s", [(f"k{i}", {"V": i % 3}, 0) for i in range(20)])
    service, instance = Service(RuntimeEngine(world.instance)), world.instance
    instance.manager.hold("CTAS_B")
    world.send("s", [(f"k{i}", {"V": 1}, 0) for i in range(20)])
    for _ in range(10):
        world.driver.round()
    world.driver.commit()
    answer = service.query(SUMS).table()
    assert answer.to_pylist() == [{"a": 40, "b": 20, "c": 40}]
    assert b"did not come together" in answer.schema.metadata[APART]
    instance.manager.resume("CTAS_B")
    answer = service.query(SUMS).table()
    assert answer.to_pylist() == [{"a": 40, "b": 40, "c": 40}]
    assert APART not in answer.schema.metadata

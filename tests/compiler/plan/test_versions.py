"""Of which topics a query reads every record, and of which the last one of each key."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.versions import topics_read_by_version
from tests.flowql.query.harness import plan_of

SOURCES = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE STREAM R (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 'r', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE TABLE T (K STRING PRIMARY KEY, N INT) WITH (KAFKA_TOPIC = 't', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE TABLE U (K STRING PRIMARY KEY, M INT) WITH (KAFKA_TOPIC = 'u', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
"""
OWN = """
CREATE TABLE bids (id INT PRIMARY KEY, item TEXT);
CREATE TABLE prices (item TEXT PRIMARY KEY, cents INT);
"""


@pytest.mark.parametrize(
    ("query", "topics"),
    [
        ("CREATE TABLE Q AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;", ["s"]),
        ("CREATE TABLE Q AS SELECT N, COUNT(*) AS C FROM T GROUP BY N;", []),
        ("CREATE STREAM Q AS SELECT S.K, V, N FROM S LEFT JOIN T ON S.K = T.K;", ["s", "t"]),
        ("CREATE STREAM Q AS SELECT S.K, S.V AS A, R.V AS B FROM S JOIN R WITHIN 1 DAY ON S.K = R.K;", ["r", "s"]),
        ("CREATE TABLE Q AS SELECT T.K, N, M FROM T JOIN U ON T.K = U.K;", []),
        ("CREATE STREAM Q AS SELECT S.K, V, N, M FROM S JOIN T ON S.K = T.K JOIN U ON S.K = U.K;", ["s", "t", "u"]),
    ],
)
def test_streams_and_tables_that_rows_are_joined_with_as_of_their_time(query: str, topics: list[str]) -> None:
    (found,) = plan_of(SOURCES + query).queries
    assert sorted(topics_read_by_version(found)) == topics


@pytest.mark.parametrize(
    ("join", "topics"),
    [
        ("JOIN prices FOR SYSTEM_TIME AS OF PROCTIME() AS p", ["prices"]),
        ("JOIN prices AS p", []),
    ],
)
def test_views_over_tables_need_versions_for_temporal_joins_alone(join: str, topics: list[str]) -> None:
    text = f"CREATE VIEW v AS SELECT b.id, p.cents FROM bids b {join} ON b.item = p.item;"
    (found,) = compile_project([SourceText("test.sql", OWN + text)], dialect="standard").plan.queries
    assert sorted(topics_read_by_version(found)) == topics

"""What `flowql backfill` refuses before it starts Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flowql.cli.program import Program

PROJECT = """\
name: shop
sql: [shop.sql]
dialect: ksql
targets:
  default: {engine: runtime}
  other: {engine: runtime}
  broker: {log: kafka, kafka: {bootstrap: 'localhost:1'}}
  spark: {engine: spark, spark: {master: 'local[2]'}}
  cluster: {engine: spark, spark: {master: 'spark://elsewhere:7077'}}
"""
SQL = """\
CREATE STREAM ORDERS (CUSTOMER STRING KEY, AMOUNT BIGINT)
  WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE STREAM LARGE AS SELECT * FROM ORDERS WHERE AMOUNT > 1;
CREATE TABLE SPENT AS SELECT CUSTOMER, SUM(AMOUNT) AS TOTAL FROM LARGE GROUP BY CUSTOMER;
"""


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flowql.yaml").write_text(PROJECT.replace("dialect: ksql\n", ""))
    Path("shop.sql").write_text(SQL)


@pytest.mark.parametrize(
    ("spark", "then", "why"),
    [
        ("other", "default", "-t computes the history, and has `engine: runtime`"),
        ("spark", "spark", "--then continues with the history, and has `engine: spark`"),
        ("spark", "broker", "--then is on Kafka"),
        ("cluster", "default", "workers of spark://elsewhere:7077 cannot read the embedded log"),
    ],
)
def test_targets_that_do_not_fit(flowql: Program, spark: str, then: str, why: str) -> None:
    done = flowql("backfill", "LARGE", "-t", spark, "--then", then)
    assert done.code == 1
    assert "error[FQ5203]" in done.err
    assert why in done.err


def test_a_query_that_nobody_knows(flowql: Program) -> None:
    assert "error[FQ5202]" in flowql("backfill", "LARG", "-t", "spark", "--then", "default").err


def test_no_log_and_no_topic_have_no_history(flowql: Program) -> None:
    assert "there is no log" in flowql("backfill", "LARGE", "-t", "spark", "--then", "default").err
    flowql("topic", "create", "another")
    assert "there is no topic orders" in flowql("backfill", "LARGE", "-t", "spark", "--then", "default").err


def test_a_reader_of_what_is_computed_anew(flowql: Program) -> None:
    flowql("topic", "produce", "orders", 'ada:{"AMOUNT": 3}')
    flowql("run", "--until-caught-up")
    done = flowql("backfill", "LARGE", "SPENT", "-t", "spark", "--then", "default")
    assert (
        "error[FQ5221]: the history of CTAS_SPENT cannot be computed on Spark: LARGE is itself rebuilt with it"
        in done.err
    )

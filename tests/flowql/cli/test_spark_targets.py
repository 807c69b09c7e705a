"""Verbs on a Spark target that need no Spark: what is explained, refused, and said where nothing has run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowql.deploy.settings import Settings
from flowql.runtime.spark.errors import SparkMissing
from flowql.runtime.spark.settings import SparkSettings, TopicFiles
from tests.flowql.cli.program import Program

PROJECT = """\
name: shop
sql: [shop.sql]
targets:
  default: {engine: runtime}
  spark: {engine: spark, spark: {master: 'local[2]'}}
"""
SQL = """\
CREATE STREAM ORDERS (CUSTOMER STRING KEY, AMOUNT BIGINT)
  WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE TABLE SPENT AS SELECT CUSTOMER, SUM(AMOUNT) AS TOTAL FROM ORDERS GROUP BY CUSTOMER;
"""


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flowql.yaml").write_text(PROJECT)
    Path("shop.sql").write_text(SQL)


def test_explain_says_how_each_node_runs(flowql: Program) -> None:
    shown = flowql("explain", "-t", "spark").out
    assert "on Spark" in shown
    labels = [line for line in shown.splitlines() if "[" in line and "] " in line]
    nodes = {line.split("] ")[1].split()[0] for line in labels}
    assert {"Sink", "Aggregate", "Scan"} <= nodes
    assert "on Spark" not in flowql("explain").out


def test_batches_are_of_spark_targets(flowql: Program) -> None:
    done = flowql("run", "--bounded")
    assert (done.code, "error[FQ5203]" in done.err) == (1, True)
    assert "--until-caught-up" in done.err


def test_where_nothing_has_run(flowql: Program) -> None:
    status = json.loads(flowql("status", "-t", "spark", "-o", "json").out)
    assert (status["instance"]["engine"], status["instance"]["pid"], status["queries"]) == ("spark", None, [])
    told = flowql("query", "SELECT 1", "-t", "spark").err
    assert ("error[FQ5105]" in told, "in their files alone" in told) == (True, False)
    planned = json.loads(flowql("plan", "-t", "spark", "-o", "json").out)
    assert [c["action"] for c in planned["changes"]] == ["add"]


def test_results_of_notebooks_are_in_their_files(flowql: Program) -> None:
    """After `flowql.spark.run` the target was said to have nothing, with the advice to deploy."""
    files = "files: {SPENT: {format: delta, path: out}}"
    Path("flowql.yaml").write_text(PROJECT.replace("spark: {master", f"spark: {{{files}, master"))
    assert "flowql.spark.run or start have written are in their files" in flowql("query", "SELECT 1", "-t", "spark").err


@pytest.mark.parametrize("verb", [["run", "--bounded"], ["run"], ["run", "--until-caught-up"]])
def test_a_missing_extra_is_said_with_the_command(
    flowql: Program, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    pytest.importorskip("pyspark")  # without it the message is true, and reads otherwise

    def missing() -> None:
        raise SparkMissing("targets with `engine: spark` need pyspark, not installed here", help="make setup")

    monkeypatch.setattr("flowql.runtime.spark.engine.instance.require_spark", missing)
    done = flowql(*verb, "-t", "spark")
    assert done.code == 1
    assert "error[FQ4101]" in done.err
    assert "make setup" in done.err


def test_topics_of_a_spark_target(flowql: Program) -> None:
    assert flowql("topic", "produce", "orders", 'ada:{"AMOUNT": 3}', "-t", "spark").code == 0
    listed = json.loads(flowql("topic", "ls", "-t", "spark", "-o", "json").out)
    assert [(t["topic"], t["records"]) for t in listed] == [("orders", 1)]


def test_settings_travel_to_a_background_process(tmp_path: Path) -> None:
    spark = SparkSettings(master="local[3]", conf={"a": "b"}, files={"t": TopicFiles("csv", "/x", {"sep": ";"})})
    settings = Settings(tmp_path, "shop", 2, 1 << 30, engine="spark", spark=spark)
    assert Settings.loads(settings.dumps()) == settings

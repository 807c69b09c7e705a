"""Streams over files: DuckDB says which rows are late and what the others give (`tests.spark_files.streams`), and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

pytest.importorskip("pyspark")

from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.logical import Aggregate, ChangeSpec, Join, JoinShape, Spec, Union, walk_nodes
from flowql.compiler.plan.processors import Process
from flowql.compiler.plan.topology import Plan
from flowql.runtime.spark.engine.feeders import refuse_unfit, with_feeders
from flowql.runtime.spark.errors import FilesUnfit
from flowql.runtime.spark.frames.aggregates import WINDOWS
from flowql.runtime.spark.settings import TopicFiles
from tests.runtime.spark.conftest import TEST_SETTINGS
from tests.runtime.spark.test_engine_order import plan_of
from tests.spark_files.streams import stream_differences, stream_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.turns("files")
def test_streams_give_what_duckdb_says_of_rows_that_were_not_late(spark: SparkSession, tmp_path: Path) -> None:
    """More seeds: `python -m tests.spark_files --streams`."""
    assert list(stream_differences(tmp_path, 1, TEST_SETTINGS)) == []


def test_every_node_is_compared_as_a_stream() -> None:
    """But a union of a plan, which nothing here makes, and what runs no otherwise in a batch: operators over changes, calls, processors."""
    specs = [n.spec for q in stream_plan().queries for n in walk_nodes(q.logical)]
    assert {type(s) for s in specs} == set(get_args(Spec)) - {AsyncMap, Union, Process} - set(get_args(ChangeSpec))
    assert {s.shape for s in specs if isinstance(s, Join)} == set(get_args(JoinShape))
    windows = [s.window for s in specs if isinstance(s, Aggregate) and s.window is not None]
    assert {w.kind for w in windows} == set(WINDOWS)


TABLE = """
CREATE TABLE D (K BIGINT PRIMARY KEY, V BIGINT) WITH (KAFKA_TOPIC='d', PARTITIONS=1, VALUE_FORMAT='JSON');
CREATE TABLE OUT AS SELECT K, V FROM D WHERE V > 1;
"""


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (TopicFiles("parquet", "/in", sequence_by=("SEQ",)), "in the order in which they are read"),
        (TopicFiles("json", "/in", delete_when="V = 1"), "have no columns in Spark"),
        (TopicFiles("csv", "/in", delete_when="V = 1"), "have no columns in Spark"),
    ],
)
def test_what_a_topic_cannot_follow_is_refused(files: TopicFiles, message: str) -> None:
    """It was ignored: a row that removes a key set it."""

    def refused(plan: Plan, direct: set[str]) -> None:
        refuse_unfit(with_feeders(plan, {"d": files}, direct), {"d": files})

    with pytest.raises(FilesUnfit, match=message):
        refused(plan_of(TABLE), set())
    refused(plan_of(TABLE), {"CTAS_OUT"})  # a batch that reads the files itself


def test_a_condition_for_removals_is_a_part_of_what_is_read() -> None:
    """With another one the topic begins anew, as what it has read is not what it would read."""

    def feeder(files: TopicFiles) -> str:
        return with_feeders(plan_of(TABLE), {"d": files}).queries[0].definition

    plain = TopicFiles("parquet", "/in")
    assert feeder(plain) != feeder(TopicFiles("parquet", "/in", delete_when="V = 1"))
    assert feeder(plain) == feeder(TopicFiles("parquet", "/in", write="changes"))

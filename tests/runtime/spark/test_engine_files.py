"""Parquet files that stand for a topic: a batch reads them as they are where all who read the topic can."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from flowql.compiler.plan.topology import Plan
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.spark.engine.feeders import with_feeders
from flowql.runtime.spark.engine.instance import SparkInstance
from flowql.runtime.spark.settings import SparkSettings, TopicFiles
from tests.crash.contents import records_of
from tests.runtime.spark.test_engine_order import plan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL = """
CREATE STREAM S (K STRING KEY, V INT, AT BIGINT)
  WITH (KAFKA_TOPIC='s', PARTITIONS=2, VALUE_FORMAT='JSON', TIMESTAMP='AT');
CREATE TABLE N AS SELECT K, COUNT(*) AS N, SUM(V) AS T FROM S GROUP BY K;
"""
TWICE = "CREATE STREAM TWO AS SELECT K, V FROM S WHERE V < 3; INSERT INTO TWO SELECT K, V FROM S WHERE V > 1;"
LATEST = "CREATE TABLE L AS SELECT K, LATEST_BY_OFFSET(V) AS L FROM S GROUP BY K;"
FILES = {"s": TopicFiles("parquet", "/in")}


def feeders(sql: str, direct: set[str], files: dict[str, TopicFiles] = FILES) -> list[str]:
    return [q.id for q in with_feeders(plan_of(sql), files, direct).queries if q.id.startswith("FILES_")]


def test_a_topic_is_fed_for_those_who_cannot_read_its_files() -> None:
    assert feeders(SQL, {"CTAS_N"}) == []
    assert feeders(SQL, set()) == ["FILES_s"]
    assert feeders(SQL + LATEST, {"CTAS_N"}) == ["FILES_s"]
    assert feeders(SQL, {"CTAS_N"}, {"s": TopicFiles("json", "/in")}) == []
    assert feeders(SQL, {"CTAS_N"}, {"N": TopicFiles("parquet", "/out")}) == []


@pytest.mark.spark
@pytest.mark.turns("files")
def test_a_batch_over_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = {"K": ["a", "a", "b", "c"], "V": pa.array([1, 2, 3, 4], pa.int32()), "AT": [5, 7, 6, -1]}
    pq.write_table(pa.table(rows), tmp_path / "in" / "1.parquet")
    files = {"s": TopicFiles("parquet", str(tmp_path / "in")), "N": TopicFiles("parquet", str(tmp_path / "out"))}
    files["TWO"] = TopicFiles("parquet", str(tmp_path / "two"))

    def run(plan: Plan, history: Any = None) -> dict[str, dict[str, Any]]:
        settings = SparkSettings(master="local[2]", shuffle_partitions=2, files=files, history=history)
        instance = SparkInstance(tmp_path / "log", tmp_path / "state", settings, "app", mode="bounded")
        try:
            instance.start()
            instance.deploy(plan)
            instance.run_until_caught_up()
            return {q["id"]: q for q in instance.status()["queries"]}
        finally:
            instance.stop()

    def topic(name: str) -> list[tuple[bytes, int, Any]]:
        log = EmbeddedLog(tmp_path / "log")
        found = [(r["key"], r["timestamp"], orjson.loads(r["value"])) for _, r in records_of(log, name)]
        log.close()
        return sorted(found, key=lambda r: r[:2])

    expected = [(b"a", 7, {"N": 2, "T": 3}), (b"b", 6, {"N": 1, "T": 3})]
    status = run(plan_of(SQL))
    assert topic("N") == expected
    assert topic("s") == []
    assert {k: status["CTAS_N"][k] for k in ("how", "records_in", "records_out", "dead_letters")} == {
        "how": "native", "records_in": 4, "records_out": 2, "dead_letters": 1,
    }  # fmt: skip
    written = pq.read_table(tmp_path / "out").to_pylist()
    assert sorted(map(tuple, (r.values() for r in written))) == [("a", 2, 3, 7), ("b", 1, 3, 6)]
    status = run(plan_of(SQL + LATEST))
    assert (topic("N"), topic("s")) == (expected, [])
    assert [(key, value) for key, _, value in topic("L")] == [(b"a", {"L": 2}), (b"b", {"L": 3})]
    assert (status["CTAS_N"]["how"], status["CTAS_L"]["how"]) == ("native", "native")
    status = run(plan_of(SQL + LATEST), "arrival")
    assert topic("N") == expected
    assert [key for key, _, _ in topic("s")] == [b"a", b"a", b"b"]
    assert [(key, value) for key, _, value in topic("L")] == [(b"a", {"L": 2}), (b"b", {"L": 3})]
    assert status["FILES_s"]["records_out"] == 3
    run(plan_of(SQL + TWICE))
    assert (topic("N"), topic("s")) == (expected, [])
    # Rows of all queries that write a topic: those of the one that was computed last took the place of the others.
    assert sorted(pq.read_table(tmp_path / "two").column("V").to_pylist()) == [1, 2, 2, 3]


MIXED = """
CREATE STREAM S (K STRING KEY, V INT, AT BIGINT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, VALUE_FORMAT='JSON', TIMESTAMP='AT');
CREATE STREAM Z (K STRING KEY, V INT) WITH (KAFKA_TOPIC='z', PARTITIONS=1, VALUE_FORMAT='JSON');
CREATE STREAM X WITH (PARTITIONS=1) AS SELECT K, V FROM S;
INSERT INTO X SELECT K, V FROM Z;
CREATE TABLE W AS SELECT K, COUNT(*) AS N FROM X WINDOW TUMBLING (SIZE 1 SECOND, GRACE PERIOD 0 SECONDS) GROUP BY K;
"""


@pytest.mark.spark
@pytest.mark.turns("files")
def test_what_is_read_beside_a_topic_comes_in_the_order_of_times(spark: SparkSession, tmp_path: Path) -> None:
    """W also counts rows of a topic, so it goes by arrival: the rows of the files must not come in the order of the files."""
    (tmp_path / "in").mkdir()
    for n, times in enumerate(([3000, 1000], [2000, 0])):
        rows = {"K": ["a", "a"], "V": pa.array([n, n], pa.int32()), "AT": times}
        pq.write_table(pa.table(rows), tmp_path / "in" / f"{n}.parquet")
    settings = SparkSettings(master="local[2]", files={"s": TopicFiles("parquet", str(tmp_path / "in"))})
    log = EmbeddedLog(tmp_path / "log")
    log.admin().create_topic("z", 1)
    log.close()
    instance = SparkInstance(tmp_path / "log", tmp_path / "state", settings, "app", mode="bounded")
    try:
        instance.start()
        instance.deploy(plan_of(MIXED))
        instance.run_until_caught_up()
        told = {q["id"]: (q["how"], q["records_in"], q["late_records"]) for q in instance.status()["queries"]}
    finally:
        instance.stop()
    assert told["CSAS_X"] == ("native", 4, 0)
    assert told["CTAS_W"] == ("exact", 4, 0)

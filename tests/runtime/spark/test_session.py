"""One Spark in this process; how it is configured, shared and kept off the working directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS
from flowql.runtime.spark import session
from flowql.runtime.spark.configuration import FIXED
from flowql.runtime.spark.errors import SessionInUse, WorkersUnfit
from flowql.runtime.spark.session import close_session, in_pool, open_session
from flowql.runtime.spark.settings import SparkSettings
from tests.runtime.spark.conftest import TEST_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
POOL = "spark.scheduler.pool"


def test_what_is_fixed_holds(spark: SparkSession) -> None:
    context = spark.sparkContext.getConf()
    told = {k: spark.conf.get(k) if k.startswith("spark.sql.") else context.get(k) for k in FIXED}
    assert told == dict(FIXED)


def test_every_class_has_its_pool(spark: SparkSession) -> None:
    scheduler = spark.sparkContext._jsc.sc()
    for name, weight in PRIORITY_WEIGHTS.items():
        assert scheduler.getPoolForName(name).get().weight() == weight


def test_in_pool_ends_as_it_began(spark: SparkSession) -> None:
    context = spark.sparkContext
    with in_pool(spark, "batch"):
        with in_pool(spark, "critical"):
            assert context.getLocalProperty(POOL) == "critical"
        assert context.getLocalProperty(POOL) == "batch"
    assert context.getLocalProperty(POOL) is None


def test_a_stream_runs_in_the_pool_it_was_started_in(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[str | None] = []
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = rows.writeStream.foreachBatch(lambda batch, epoch: seen.append(_pool_of(batch)))
    with in_pool(spark, "high"):
        query = writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path)).start()
    assert query.awaitTermination(120)
    assert seen
    assert set(seen) == {"high"}


def _pool_of(batch: object) -> str | None:
    return batch.sparkSession.sparkContext.getLocalProperty(POOL)  # type: ignore[attr-defined]


def test_workers_run_this_python_and_import_what_it_can(spark: SparkSession) -> None:
    from pyspark.sql.functions import udf

    def about(_):  # type: ignore[no-untyped-def]  # hints would be taken for those of an Arrow function
        from tests.runtime.spark import conftest

        return f"{sys.executable} {os.environ['TZ']} {conftest.TEST_SETTINGS.master}"

    told = spark.range(1).select(udf(about, "string")("id")).first()
    assert told is not None
    assert told[0] == f"{sys.executable} UTC {TEST_SETTINGS.master}"


def test_a_session_beside_shares_spark_and_not_its_configuration(spark: SparkSession, tmp_path: Path) -> None:
    settings = SparkSettings(master=TEST_SETTINGS.master, shuffle_partitions=5)
    beside = open_session(settings, "beside", tmp_path / "state")
    assert beside.sparkContext is spark.sparkContext
    assert beside.conf.get("spark.sql.shuffle.partitions") == "5"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    with pytest.raises(Exception, match="path"):  # what it lacks is an option, so it is there
        beside.read.format("flowql_log").load().count()
    close_session(beside)
    close_session(beside)  # once is enough, twice no harm
    assert spark.range(3).count() == 3
    assert not (tmp_path / "state").exists()


def test_another_master_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SessionInUse, match=r"local\[7\]"):
        open_session(SparkSettings(master="local[7]"), "x", tmp_path)


def test_nothing_is_written_where_we_are(spark: SparkSession, tmp_path: Path) -> None:
    before = set(os.listdir())
    spark.range(3).createOrReplaceTempView("three")
    spark.sql("CREATE TABLE kept USING parquet AS SELECT * FROM three").collect()
    assert spark.sql("SELECT * FROM kept").count() == 3
    assert set(os.listdir()) == before
    spark.sql("DROP TABLE kept").collect()


def test_an_error_of_flowql_does_not_wait_for_the_end_of_spark(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refused start and deployment took 10 s longer, in which it was seen whether the JVM ends."""
    waited: list[float] = []

    class Living:
        def wait(self, seconds: float) -> None:
            waited.append(seconds)
            raise subprocess.TimeoutExpired("java", seconds)

        def poll(self) -> None: ...

    monkeypatch.setattr(session, "_jvm_process", Living)
    for error in (WorkersUnfit("worker w1 has no pyarrow"), ValueError("of Java, perhaps")):
        with pytest.raises(type(error)), session.living():
            raise error
    assert waited == [0, session._DYING_SECONDS]
    monkeypatch.setattr(session, "_answers", lambda: False)
    with pytest.raises(WorkersUnfit), session.living():
        raise WorkersUnfit("workers cannot run Python tasks")
    assert waited[2:] == [session._DYING_SECONDS]

"""A stream is joined on Spark with a table that another query writes: rows meet the version of their time, as on the runtime, in every mode."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from flowql.runtime.log.base import PRODUCE_SCHEMA, Log, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.murmur2 import partition_for
from flowql.runtime.spark.engine import work
from flowql.runtime.spark.engine.instance import Mode, SparkInstance, SparkLauncher
from flowql.runtime.spark.engine.streams import RunningQuery
from tests.crash.contents import records_of
from tests.runtime.app.test_upstream import JOIN, LATEST, SOLD, SOURCES, expected, feed
from tests.runtime.spark.conftest import TEST_SETTINGS
from tests.runtime.spark.test_engine_order import plan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.runtime.app.harness import Sent

pytestmark = [pytest.mark.spark, pytest.mark.turns("sessions")]
WAIT_S = 120.0
RECORDS = 60
BIGGEST = "CREATE TABLE LATEST AS SELECT K, MAX(N) AS N, COUNT(*) AS C FROM NAMES GROUP BY K;\n"
SOME = "CREATE TABLE LATEST AS SELECT K, LATEST_BY_OFFSET(N) AS N, COUNT(*) AS C FROM NAMES WHERE {which} GROUP BY K;\n"
Run = Callable[..., None]


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Iterator[Run]:
    """A project over what there is, once; what is left open is stopped."""
    left: list[SparkInstance] = []

    def once(sql: str, mode: Mode, *, rebuild: bool = False) -> None:
        instance = SparkInstance(tmp_path / "log", tmp_path / "state", TEST_SETTINGS, "app", mode=mode)
        left.append(instance)
        instance.start()
        instance.deploy(plan_of(sql), rebuild=rebuild)
        if mode == "continuous":
            done, limit = instance.catch_up(), time.monotonic() + WAIT_S
            while not done():
                assert instance.fatal is None
                assert time.monotonic() < limit, instance.status()
                time.sleep(0.05)
        else:
            instance.run_until_caught_up()
        instance.stop()

    yield once
    for instance in left:
        instance.stop()


def send(folder: Path, begin: int) -> None:
    """RECORDS sales and names from a number on, each sale behind the name that it meets."""
    sales, names = feed(begin)
    produce(folder, "names", names)
    produce(folder, "sales", sales)


def produce(folder: Path, topic: str, rows: list[Sent]) -> None:
    log = EmbeddedLog(folder / "log")
    produce_into(log, topic, rows)
    log.close()


def produce_into(log: Log, topic: str, rows: list[Sent]) -> None:
    if topic not in log.admin().topics():
        log.admin().create_topic(topic, 2)
    producer = log.producer("feed")
    producer.begin()
    for number, value, timestamp in rows:
        assert isinstance(number, int)
        key = number.to_bytes(8, "big")
        record = {"timestamp": timestamp, "key": key, "value": orjson.dumps(value), "headers": None}
        tp = TopicPartition(topic, partition_for(key, 2))
        producer.send(tp, pa.RecordBatch.from_pylist([record], PRODUCE_SCHEMA))
    producer.commit()
    producer.close()


def sold(folder: Path) -> list[tuple[int, int | None]]:
    log = EmbeddedLog(folder / "log")
    values = [json.loads(r["value"]) for _, r in records_of(log, "SOLD")]
    log.close()
    return sorted((v["A"], v["N"]) for v in values)


@pytest.mark.turns("spark")
def test_a_stream_begins_when_its_table_is_there_and_after_each_restart(run: Run, tmp_path: Path) -> None:
    """Both streams began at once: all 60 rows had met nothing."""
    for begin in (0, RECORDS):
        send(tmp_path, begin)
        run(SOURCES + LATEST + SOLD, "continuous")
        assert sold(tmp_path) == expected(begin + RECORDS)


@pytest.mark.turns("spark")
def test_a_rebuild_leaves_results_as_they_were(run: Run, tmp_path: Path) -> None:
    """The tombstones of the old table had its last times, and stood before the first row of the new one."""
    send(tmp_path, 0)
    run(SOURCES + LATEST + SOLD, "caught up")
    assert sold(tmp_path) == expected(RECORDS)
    run(SOURCES + LATEST.replace("COUNT(*)", "COUNT(N)") + SOLD, "caught up", rebuild=True)
    assert sold(tmp_path) == expected(RECORDS)
    run(SOURCES + LATEST.replace("COUNT(*)", "COUNT(N)") + JOIN.format(what="N + 0"), "caught up", rebuild=True)
    assert sold(tmp_path) == expected(RECORDS), "a reader that begins later begins behind the tombstones as well"


@pytest.mark.parametrize("latest", [LATEST, BIGGEST])
def test_a_batch_has_every_version_of_a_table_that_a_stream_is_joined_with(
    run: Run, tmp_path: Path, latest: str
) -> None:
    """Spark's own aggregation gave the last row of each key alone, which 57 of 60 rows did not meet."""
    send(tmp_path, 0)
    run(SOURCES + latest + SOLD, "bounded")
    assert sold(tmp_path) == expected(RECORDS)


@pytest.mark.turns("spark")
def test_a_batch_over_a_table_that_has_lost_a_key_meets_its_other_rows(run: Run, tmp_path: Path) -> None:
    send(tmp_path, 0)
    for which in ("N >= 0", "K > 1"):
        run(SOURCES + SOME.format(which=which) + SOLD, "bounded")
    assert sold(tmp_path) == [(at, at if at % 4 > 1 else None) for at in range(RECORDS)]


@pytest.mark.parametrize("by_column", [False, True])
def test_a_join_of_more_than_a_micro_batch_meets_rows_as_of_their_time(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_column: bool
) -> None:
    """A part of each topic was read at once, by their numbers of records: of a table with many more the part ended earlier than that of the stream."""
    monkeypatch.setattr(work, "ROWS_PER_BATCH_MAX", 50)
    sql, sales, names = SOURCES + LATEST + SOLD, feed(0)[0], [r for n in range(5) for r in feed(n * RECORDS)[1]]
    if by_column:  # records came in another order of times
        sql = sql.replace("A BIGINT)", "A BIGINT, AT BIGINT)").replace("N BIGINT)", "N BIGINT, AT BIGINT)")
        sql = sql.replace("VALUE_FORMAT = 'JSON'", "VALUE_FORMAT = 'JSON', TIMESTAMP = 'AT'")
        sales = [(key, {**value, "AT": ms}, 7) for key, value, ms in sales if isinstance(value, dict)]
        names = [(key, {**value, "AT": ms}, ms) for key, value, ms in names if isinstance(value, dict)]
    produce(tmp_path, "names", names)
    produce(tmp_path, "sales", sales)
    run(sql, "caught up")
    assert sold(tmp_path) == expected(RECORDS)


def test_rows_of_a_partition_with_many_more_records_make_no_others_late(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a repartition, where a window closes by the rows of all partitions: 52 of 360 rows were late."""
    monkeypatch.setattr(work, "ROWS_PER_BATCH_MAX", 50)
    windows = """CREATE TABLE WINDOWS AS SELECT N, COUNT(*) AS C FROM NAMES
      WINDOW TUMBLING (SIZE 100 MILLISECONDS, GRACE PERIOD 50 MILLISECONDS) GROUP BY N;"""
    first, second = (next(k for k in range(9) if partition_for(k.to_bytes(8, "big"), 2) == p) for p in range(2))
    produce(tmp_path, "names", [(first, {"N": 1}, 10 * at) for at in range(300)])
    produce(tmp_path, "names", [(second, {"N": 1}, 10 * at) for at in range(60)])
    produce(tmp_path, "sales", [])
    run(SOURCES + windows, "caught up")
    log = EmbeddedLog(tmp_path / "log")
    counts = {r["key"]: json.loads(r["value"])["C"] for _, r in records_of(log, "WINDOWS")}
    log.close()
    assert sum(counts.values()) == 360


@pytest.mark.turns("spark")
@pytest.mark.parametrize(("mode", "start"), [("caught up", "stream"), ("bounded", "batch")])
def test_records_that_come_while_queries_run_belong_to_the_next_run(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, start: str
) -> None:
    """The join, which runs later than the table, read sales of which the table had not the names."""
    send(tmp_path, 0)
    came, real = list[int](), getattr(SparkLauncher, start)

    def meanwhile(launcher: SparkLauncher, query: RunningQuery, *rest: Any) -> Any:
        if query.plan.id == "CSAS_SOLD" and not came:
            came.append(RECORDS)
            send(tmp_path, RECORDS)
        return real(launcher, query, *rest)

    monkeypatch.setattr(SparkLauncher, start, meanwhile)
    run(SOURCES + LATEST + SOLD, mode)
    assert (came, sold(tmp_path)) == ([RECORDS], expected(RECORDS))
    run(SOURCES + LATEST + SOLD, mode)
    assert sold(tmp_path) == expected(2 * RECORDS)

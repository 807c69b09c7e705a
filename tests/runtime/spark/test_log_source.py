"""The log as source and sink of Spark: exact ranges, streams that are stopped and go on, epochs that come again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from flowql.runtime.errors import OffsetOutOfRange, StateError, TopicMissing
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.spark.engine.causes import runtime_failure
from flowql.runtime.spark.log_append import Target, committed_epochs
from flowql.runtime.spark.log_sink import SinkOptions, write_epoch
from flowql.runtime.spark.log_source import ReadOptions, read_log, register, stream_log
from flowql.runtime.spark.log_staging import Staging, staging_of
from flowql.runtime.spark.shapes import EMITTED_DDL, from_ipc
from tests.runtime.spark.logs import append, copy_to_out, emitted, epochs_of, fill, open_log, records, values
from tests.spark_here import run_to_its_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
TARGET = Target("Q", "run")


@pytest.fixture
def log(tmp_path: Path) -> EmbeddedLog:
    return open_log(tmp_path, "t", "out")


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def options(log: EmbeddedLog, tmp_path: Path, **given: Any) -> ReadOptions:
    return ReadOptions(str(tmp_path / "log"), ("t",), **given)


def sink(tmp_path: Path) -> SinkOptions:
    return SinkOptions(str(tmp_path / "log"), Staging(tmp_path / "staging"), TARGET)


def copied(rows: DataFrame) -> DataFrame:
    return rows.mapInArrow(copy_to_out, EMITTED_DDL)


def failure(act: Callable[[], Any]) -> Exception | None:
    """What the log says behind the exception that Spark raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 (three classes of Spark, by where it happens)
        act()
    return runtime_failure(caught.value)


def test_exact_ranges_are_packed(session: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    fill(log, "t", 0, 20)
    span: dict[str, Any] = {"starting": {"t": {"0": 3}}, "ending": {"t": {"0": 8, "1": 2}}}
    wanted = [(0, n, f"p0-{n}".encode()) for n in range(3, 8)] + [(1, n, f"p1-{n}".encode()) for n in range(2)]
    packed = (
        read_log(session, options(log, tmp_path, chunk_rows=3, **span)).toArrow().sort_by("first_offset").to_pylist()
    )
    assert sorted((r["topic"], r["partition"], r["first_offset"], r["next_offset"]) for r in packed) == [
        ("t", 0, 3, 6),
        ("t", 0, 6, 8),
        ("t", 1, 0, 2),
    ]
    inside = [(r["partition"], x) for r in packed for x in from_ipc(r["ipc"]).to_pylist()]
    assert sorted((p, x["offset"], x["value"]) for p, x in inside) == wanted


def test_headers_and_nulls_go_through_spark(session: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    headers = [[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], None, []]
    given = records([None, b"v", b""], [b"k", None, b""], headers)
    producer = log.producer("test")
    producer.begin()
    producer.send(TopicPartition("t", 1), given)
    producer.commit()
    (packed,) = read_log(session, options(log, tmp_path)).collect()
    assert from_ipc(packed.ipc).drop_columns(["offset"]).to_pylist() == given.to_pylist()
    write_epoch(copied(read_log(session, options(log, tmp_path))), sink(tmp_path), 0)
    stored = log.reader(TopicPartition("out", 1)).read(10, 1 << 20)
    assert stored is not None
    assert stored.records.drop_columns(["offset"]).to_pylist() == given.to_pylist()


@pytest.mark.turns("spark")
def test_a_stream_in_three_portions_with_restarts(session: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    """Each portion by a new query on the same checkpoint; the second is cut into several batches."""
    for portion, rows_max in enumerate((0, 7, 0)):
        fill(log, "t", portion * 10, 10)
        rows = stream_log(session, options(log, tmp_path, max_rows_per_batch=rows_max))
        writer = epochs_of(copied(rows), log, TARGET, tmp_path / "checkpoint")
        query = run_to_its_end(writer.trigger(availableNow=True).start)
        batches = [p for p in query.recentProgress if p["numInputRows"]]
        assert (len(batches) > 1) == bool(rows_max)
    expected = [[f"p{p}-{n}".encode() for n in range(30)] for p in range(2)]
    assert values(log, "out") == expected
    committed = committed_epochs(log, TARGET)
    assert committed is not None
    assert committed.counters["records_in"] == committed.counters["records_appended"] == 60
    assert json.loads(query.recentProgress[-1]["sources"][0]["endOffset"]) == {"t": {"0": 30, "1": 30}}

    # The last batch is given again, as after a crash between its commit to the log and Spark's own.
    commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    run_to_its_end(writer.trigger(availableNow=True).start)
    assert values(log, "out") == expected

    log.drop_before(TopicPartition("t", 0), 30)
    append(log, "t", 0, [b"p0-30", b"p0-31"])
    log.drop_before(TopicPartition("t", 0), 31)  # below a position that the checkpoint has
    query = writer.trigger(availableNow=True).start()
    assert isinstance(failure(lambda: query.awaitTermination(120)), OffsetOutOfRange)


def test_a_live_stream_sees_what_another_client_appends(
    session: SparkSession, log: EmbeddedLog, tmp_path: Path
) -> None:
    rows = stream_log(session, options(log, tmp_path))
    writer = epochs_of(copied(rows), log, TARGET, tmp_path / "checkpoint")
    query = writer.trigger(processingTime="20 milliseconds").start()
    try:
        for n in range(2):
            append(log, "t", 1, [f"{n}".encode()])
            append(log, "out", 0, [b"foreign"])
            query.processAllAvailable()
            assert values(log, "out")[1] == [f"{i}".encode() for i in range(n + 1)]
    finally:
        query.stop()
    assert values(log, "out")[0] == [b"foreign"] * 2


def test_a_repeated_batch_write_counts_once(session: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    fill(log, "t", 0, 5)
    rows = copied(read_log(session, options(log, tmp_path)))
    for _ in range(2):
        write_epoch(rows, sink(tmp_path), 0)
    assert [len(v) for v in values(log, "out")] == [5, 5]
    with pytest.raises(StateError, match="results between are missing"):
        write_epoch(rows, sink(tmp_path), 7)
    assert [len(v) for v in values(log, "out")] == [5, 5]
    assert list(staging_of(tmp_path / "staging", "Q").iterdir()) == []


def test_a_task_that_fails_leaves_nothing(session: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    fill(log, "t", 0, 5)

    def fails(batches: Any) -> Any:
        for batch in batches:
            if batch.column("partition")[0].as_py() == 1:
                raise ValueError("on purpose")
            yield emitted(("sink", "out", 0, 0, 0, from_ipc(batch.column("ipc")[0].as_py()).drop_columns(["offset"])))

    rows = read_log(session, options(log, tmp_path)).mapInArrow(fails, EMITTED_DDL)
    with pytest.raises(Exception, match="on purpose"):
        write_epoch(rows, sink(tmp_path), 0)
    assert values(log, "out") == [[], []]
    write_epoch(copied(read_log(session, options(log, tmp_path))), sink(tmp_path), 0)
    assert [len(v) for v in values(log, "out")] == [5, 5]
    assert list(staging_of(tmp_path / "staging", "Q").iterdir()) == []


def test_what_cannot_be_done_is_said(session: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    assert isinstance(failure(lambda: read_log(session, ReadOptions(path, ("nix",))).count()), TopicMissing)
    elsewhere = failure(lambda: read_log(session, ReadOptions(str(tmp_path / "no"), ("t",))).count())
    assert "there is no log" in str(elsewhere)
    span = {"starting": {"t": {"0": 0}}, "ending": {"t": {"0": 5}}}
    assert isinstance(failure(lambda: read_log(session, options(log, tmp_path, **span)).count()), OffsetOutOfRange)

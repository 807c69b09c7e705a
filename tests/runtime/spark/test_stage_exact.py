"""The exact way inside a real Spark: bounded, and streaming with a restart from the checkpoint between portions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from flowql.runtime.spark.shapes import EMITTED, PACKED_DDL
from flowql.runtime.spark.stage.exact import hash_int
from flowql.runtime.spark.stage.layout import layout_of
from tests.packed_records import begun_of
from tests.runtime.spark.stage_world import Reference, by_key, comparable, dead_of, events, final, packed_table, sink_of
from tests.spark_here import run_to_its_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
BUCKETS = 5  # more than topics have partitions


@pytest.mark.parametrize("shape", ["stateless", "lookup", "table", "cumulating"])
def test_bounded_emits_what_the_runtime_emits(spark: SparkSession, shape: str) -> None:
    from flowql.runtime.spark.stage.exact import exact_bounded

    reference = Reference(shape)
    reference.send(events(300, 1))
    sources = spark.createDataFrame(packed_table(reference.packed()))
    layout = layout_of(reference.plan, reference.query, reference.partitions(), coalesce=False)
    emitted = exact_bounded(layout, begun_of(sources, layout))
    assert emitted.columns == EMITTED.names
    rows: list[Any] = emitted.collect()
    assert comparable(shape, sink_of(rows)) == comparable(shape, reference.sink())
    assert len(dead_of(rows)) == len(reference.world.values("flowql-dead-letters")) > 0


@pytest.mark.parametrize("view", ["one group", "tables joined"])
def test_views_of_standard_sql_have_the_rows_of_the_runtime(spark: SparkSession, view: str) -> None:
    from flowql.runtime.spark.stage.exact import exact_bounded

    reference = Reference(view)
    reference.send(events(120, 1))
    sources = spark.createDataFrame(packed_table(reference.packed()))
    layout = layout_of(reference.plan, reference.query, reference.partitions(), coalesce=False)
    assert final(sink_of(exact_bounded(layout, begun_of(sources, layout)).collect())) == final(reference.sink()) != {}


@pytest.mark.turns("spark")
def test_portions_with_restarts_from_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """Two levels with state, one fed by the other, the second in more hash buckets than topics have partitions. A start of a stream costs seconds: the other shapes are tested without Spark."""
    reference = Reference("table")
    (tmp_path / "in").mkdir()
    feed, got = events(300, 1), dict[int, list[Any]]()
    for n in range(3):
        reference.send(feed[100 * n : 100 * (n + 1)])
        pq.write_table(packed_table(reference.packed(n)), tmp_path / "in" / f"{n}.parquet")
        for records in _run(spark, reference, tmp_path):
            for p, part in sink_of(records).items():
                got.setdefault(p, []).extend(part)
    assert by_key(got) == by_key(reference.sink())  # several buckets write one partition
    _assert_same_state(spark, reference, tmp_path / "checkpoint")


def _assert_same_state(spark: SparkSession, reference: Reference, checkpoint: Path) -> None:
    from flowql.runtime.spark.engine.checkpoint_state import CheckpointSnapshot

    layout = layout_of(reference.plan, reference.query, reference.partitions(), buckets=BUCKETS)
    got, want = CheckpointSnapshot(spark, checkpoint, layout, 2), reference.world.instance.snapshot()
    assert got.sequence == 3
    assert sum(task["totals"]["records_in"] for task in got.tasks().values()) > 0
    for store in got.stores():
        rows = sorted(want.scan(store.name), key=repr)
        assert sorted(got.scan(store.name), key=repr) == rows
        assert all(got.get(store.name, key) == value for key, value in rows[:2])
    want.close()


def _run(spark: SparkSession, reference: Reference, folder: Path) -> list[list[Any]]:
    """Start the query, let it catch up and stop; its batches."""
    from flowql.runtime.spark.stage.exact import exact_streaming

    batches: list[list[Any]] = []
    sources = spark.readStream.schema(PACKED_DDL).parquet(str(folder / "in"))
    layout = layout_of(reference.plan, reference.query, reference.partitions(), coalesce=False, buckets=BUCKETS)
    emitted = exact_streaming(layout, begun_of(sources, layout))
    writer = (
        emitted.writeStream.foreachBatch(lambda batch, _epoch: batches.append(batch.collect()))
        .outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )
    assert run_to_its_end(writer.start).exception() is None
    return batches


def test_slots_know_the_hash_of_spark(spark: SparkSession) -> None:
    numbers = [0, 1, 7, 2**31 - 1, -5]
    (row,) = spark.sql("SELECT " + ", ".join(f"hash({n})" for n in numbers)).collect()
    assert list(row) == [hash_int(n) for n in numbers]

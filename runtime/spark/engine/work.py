"""What Spark is told to do for one query: from its topics to emitted rows, natively or by the runtime's own tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.plan.topology import Plan, QueryPlan
from runtime.spark.engine.checkpoints import positions_after
from runtime.spark.engine.deployed import Record, staging_of
from runtime.spark.engine.feeders import is_feeder
from runtime.spark.engine.order import topics_read, topics_written
from runtime.spark.engine.site import Site
from runtime.spark.engine.supervisor import Pace
from runtime.spark.files import emitted_files
from runtime.spark.files_sink import final_rows, rows_of_topic, write_files
from runtime.spark.log_append import Target, append_emitted
from runtime.spark.log_offsets import Offsets, partition_offsets
from runtime.spark.log_sink import SinkOptions, write_epoch
from runtime.spark.log_source import ReadOptions, read_log, stream_log
from runtime.spark.native.query import native_bounded
from runtime.spark.shapes import EMITTED
from runtime.spark.stage.exact import exact_bounded, exact_streaming

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from runtime.spark.engine.streams import Stream

# A micro-batch is in memory at once, as records and as their Arrow copies in Python workers.
ROWS_PER_BATCH_MAX = 500_000
# How often a stream looks for new records. A query with a latency target looks twice as often as that.
LOOK_MS_DEFAULT, LOOK_MS_MIN = 200, 20


def run_batch(
    spark: SparkSession, site: Site, plan: Plan, query: QueryPlan, record: Record, span: tuple[Offsets, Offsets]
) -> None:
    """Compute a query over exactly the records between two positions, and commit its results as epoch 0 of the run."""
    if is_feeder(query):
        write_epoch(_fed(spark, site, plan, query, streaming=False), _sink(site, query, record), 0)
        return
    options = ReadOptions(str(site.log_dir), topics_read(query), starting=span[0], ending=span[1])
    bounded = native_bounded if record.how == "native" else exact_bounded
    rows = bounded(spark, plan, query, read_log(spark, options), site.partitions())
    write_epoch(rows, _sink(site, query, record), 0)
    for topic in topics_written(query):
        if topic in site.settings.files:
            _write_files(spark, site, plan, topic)


def _write_files(spark: SparkSession, site: Site, plan: Plan, topic: str) -> None:
    """The results there are in a topic, in place of what is in its files."""
    source = next(s for s in plan.sources if s.topic == topic)
    rows = rows_of_topic(read_log(spark, ReadOptions(str(site.log_dir), (topic,))), source)
    write_files(final_rows(rows, source) if source.kind == "table" else rows, source, site.settings.files[topic])


def _fed(spark: SparkSession, site: Site, plan: Plan, query: QueryPlan, *, streaming: bool) -> DataFrame:
    """The rows of the files that a feeder reads, as records of its topic."""
    source = plan.source(query.sink)
    assert source is not None, f"{query.id} feeds {query.sink}, which is not in the plan"
    files, partitions = site.settings.files[source.topic], site.partitions()[source.topic]
    return emitted_files(spark, source, files, partitions, query=query.id, streaming=streaming)


def start_stream(spark: SparkSession, site: Site, plan: Plan, query: QueryPlan, record: Record, pace: Pace) -> Stream:
    """Start the stream of a query, on its checkpoint."""
    if is_feeder(query):
        rows = _fed(spark, site, plan, query, streaming=True)
    else:
        options = ReadOptions(str(site.log_dir), topics_read(query), max_rows_per_batch=ROWS_PER_BATCH_MAX)
        rows = exact_streaming(spark, plan, query, stream_log(spark, options), site.partitions())
    commit = _Commit(site, site.target(query.id, record.run))
    writer = rows.writeStream.foreachBatch(commit).queryName(query.id).outputMode("update")
    writer = writer.option("checkpointLocation", str(site.checkpoint(query.id)))
    if pace == "available now":
        return writer.trigger(availableNow=True).start()
    target = query.latency_target_ms
    every = max(LOOK_MS_MIN, target // 2) if target else LOOK_MS_DEFAULT
    return writer.trigger(processingTime=f"{every} milliseconds").start()


class _Commit:
    """A micro-batch into the log, from the driver: rows are few and fat, and no process has to be started for them.

    (A Python data source cannot be written in output mode update, and starts workers for each commit.)
    """

    def __init__(self, site: Site, target: Target) -> None:
        self._site, self._target = site, target

    def __call__(self, emitted: DataFrame, epoch: int) -> None:
        batches = emitted.select(*EMITTED.names).toArrow().to_batches()
        positions = partition_offsets(positions_after(self._site.checkpoint(self._target.query), epoch))
        append_emitted(self._site.log, self._target, epoch, batches, positions)


def _sink(site: Site, query: QueryPlan, record: Record) -> SinkOptions:
    target = site.target(query.id, record.run)
    return SinkOptions(str(site.log_dir), staging_of(site.state_dir), target, record.replaces)

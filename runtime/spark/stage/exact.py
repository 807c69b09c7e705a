"""The exact way to run a query on Spark: its own tasks inside Spark stages, one group per task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.spark.shapes import EMITTED
from flowql.runtime.spark.stage.envelope import DONE, ENVELOPE, ENVELOPE_DDL, LOG
from flowql.runtime.spark.stage.layout import Layout, layout_of
from flowql.runtime.spark.stage.processor import TaskProcessor
from flowql.runtime.spark.stage.program import TaskOptions
from flowql.runtime.spark.stage.slots import slots
from flowql.runtime.spark.stage.worker import FreeStage, GroupedStage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# A Spark task that waits for a Python worker costs tens of milliseconds; beyond so many, groups share one.
BOUNDED_TASKS_MAX = 64


def exact_bounded(
    _spark: SparkSession,
    plan: Plan,
    query: QueryPlan,
    sources: DataFrame,
    partitions: Mapping[str, int],
    *,
    coalesce: bool = True,
    options: TaskOptions | None = None,
) -> DataFrame:
    """EMITTED rows of a query over all of `sources`, lazily, as one Spark job.

    sources: PACKED rows, or what a source with `layout_of` this query as its option gives. partitions: of every topic the query reads and, where they exist, of those it writes. coalesce: a table that everyone reads
    as a table gets the last update of each key only; without, every update of every row, as the runtime gives them then.
    """
    options = options or TaskOptions()
    layout = layout_of(plan, query, partitions, coalesce=coalesce)
    text = layout.dumps()
    rows = _begun(sources, layout, options)
    for level in layout.grouped_levels():
        groups = layout.groups(level)
        place = group_number(layout, level)
        rows = rows.repartitionById(min(len(groups), BOUNDED_TASKS_MAX), place)
        rows = rows.mapInArrow(GroupedStage(text, level, options), ENVELOPE_DDL)
    return emitted(rows)


def exact_streaming(
    _spark: SparkSession,
    plan: Plan,
    query: QueryPlan,
    sources: DataFrame,
    partitions: Mapping[str, int],
    *,
    coalesce: bool = True,
    options: TaskOptions | None = None,
    buckets: int = 0,
) -> DataFrame:
    """As `exact_bounded` for a stream of PACKED rows: EMITTED rows of each micro-batch, with state in the query's checkpoint.

    buckets: see `layout_of`; never another number over one checkpoint. To be started in output mode update. Each batch is processed to its end, as the runtime would before the next records come.
    """
    options = options or TaskOptions()
    layout = layout_of(plan, query, partitions, coalesce=coalesce, buckets=buckets)
    text = layout.dumps()
    rows = addressed(sources, layout)
    if layout.free:
        rows = rows.mapInArrow(FreeStage(text, options), ENVELOPE_DDL)
    for level in layout.grouped_levels():
        keys = slots(len(layout.groups(level)))
        slot = f.element_at(f.array(*[f.lit(k) for k in keys]), group_number(layout, level) + 1)
        rows = (
            rows.withColumn("slot", slot)
            .groupBy("slot")
            .transformWithState(TaskProcessor(text, level, options), ENVELOPE_DDL, "update", "none")
        )
    return emitted(rows)


def _begun(sources: DataFrame, layout: Layout, options: TaskOptions) -> DataFrame:
    """ENVELOPE rows behind the free sub-topologies."""
    if sources.columns == ENVELOPE.names:
        return sources
    rows = addressed(sources, layout)
    return rows.mapInArrow(FreeStage(layout.dumps(), options), ENVELOPE_DDL) if layout.free else rows


def addressed(sources: DataFrame, layout: Layout) -> DataFrame:
    """PACKED rows as ENVELOPE rows, one for each sub-topology that reads their topic; others are dropped."""
    read = sources.where(f.col("topic").isin(list(layout.readers)))
    targets: Column = f.array(f.lit(DONE))
    for topic, subs in layout.readers.items():
        targets = f.when(f.col("topic") == topic, f.array(*[f.lit(n) for n in subs])).otherwise(targets)
    one_each = all(len(subs) == 1 for subs in layout.readers.values())
    return read.select(
        (targets[0] if one_each else f.explode(targets)).cast("int").alias("target"),
        f.lit(LOG).alias("kind"),
        "topic",
        "partition",
        f.lit(0).alias("source"),
        f.col("first_offset").alias("seq"),
        "ipc",
        "next_offset",
    )


def emitted(rows: DataFrame) -> DataFrame:
    """What is finished, in EMITTED."""
    return rows.where(f.col("target") == DONE).select(*EMITTED.names)


def group_number(layout: Layout, level: int) -> Column:
    """The place of a row's task among the groups of a level; rows that only pass are spread by where they come from."""
    groups = layout.groups(level)
    first = {sub: n for n, (sub, p) in reversed(list(enumerate(groups))) if p == 0}
    place: Column = f.pmod(f.col("source"), f.lit(len(groups)))
    for sub, start in first.items():
        place = f.when(f.col("target") == sub, f.col("partition") + f.lit(start)).otherwise(place)
    return place.cast("int")

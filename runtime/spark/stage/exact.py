"""The exact way to run a query on Spark: its own tasks inside Spark stages, one group per task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from flowql.runtime.spark.shapes import EMITTED
from flowql.runtime.spark.stage.envelope import DONE, ENVELOPE_DDL
from flowql.runtime.spark.stage.layout import Layout
from flowql.runtime.spark.stage.processor import TaskProcessor
from flowql.runtime.spark.stage.slots import slots
from flowql.runtime.spark.stage.worker import GroupedStage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# A Spark task that waits for a Python worker costs tens of milliseconds; beyond so many, groups share one.
BOUNDED_TASKS_MAX = 64


def exact_bounded(layout: Layout, sources: DataFrame) -> DataFrame:
    """EMITTED rows of a query over all of `sources`, lazily, as one Spark job.

    sources: what a source with this layout as its option gives (`worker.begun`).
    """
    return emitted(behind_stages(layout, sources))


def behind_stages(layout: Layout, rows: DataFrame, *, hands_over: bool = False) -> DataFrame:
    """ENVELOPE rows of a bounded run behind its tasks. hands_over: see `GroupedStage`."""
    text = layout.dumps()
    for level in layout.grouped_levels():
        count = min(len(layout.groups(level)), BOUNDED_TASKS_MAX)
        stage = GroupedStage(text, level, hands_over)
        rows = rows.repartitionById(count, group_number(layout, level)).mapInArrow(stage, ENVELOPE_DDL)
    return rows


def exact_streaming(layout: Layout, sources: DataFrame) -> DataFrame:
    """As `exact_bounded` for a stream: EMITTED rows of each micro-batch, with state in the query's checkpoint.

    layout: never with another number of buckets over one checkpoint. To be started in output mode update. Each batch is processed to its end, as the runtime would before the next records come.
    """
    text, rows = layout.dumps(), sources
    for level in layout.grouped_levels():
        keys = slots(len(layout.groups(level)))
        slot = f.element_at(f.array(*[f.lit(k) for k in keys]), group_number(layout, level) + 1)
        rows = (
            rows.withColumn("slot", slot)
            .groupBy("slot")
            .transformWithState(TaskProcessor(text, level), ENVELOPE_DDL, "update", "none")
        )
    return emitted(rows)


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

"""The exact way to run a query on Spark: its own tasks inside Spark stages, one group per task."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from flowql.runtime.spark.shapes import DONE, EMITTED, ENVELOPE_DDL
from flowql.runtime.spark.stage.layout import Layout
from flowql.runtime.spark.stage.processor import TaskProcessor
from flowql.runtime.spark.stage.program import GroupedStage

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
    """The finished rows, in EMITTED."""
    return rows.where(f.col("target") == DONE).select(*EMITTED.names)


def group_number(layout: Layout, level: int) -> Column:
    """The place of a row's task among the groups of a level; rows that only pass are spread by where they come from."""
    groups = layout.groups(level)
    first = {sub: n for n, (sub, p) in reversed(list(enumerate(groups))) if p == 0}
    place: Column = f.pmod(f.col("source"), f.lit(len(groups)))
    for sub, start in first.items():
        place = f.when(f.col("target") == sub, f.col("partition") + f.lit(start)).otherwise(place)
    return place.cast("int")


# Group keys that Spark's hash partitioning spreads evenly.
#
# A streaming group's place is murmur3(key) mod shuffle partitions. Keys chosen so that group g of n hashes to g modulo n put each
# group alone into one of n shuffle partitions, and evenly into any divisor of n. They depend on n alone: a restart with other
# settings finds its state again.

_MASK = 0xFFFFFFFF
_SEED = 42  # `org.apache.spark.sql.catalyst.expressions.Murmur3Hash`


@lru_cache(maxsize=256)
def slots(groups: int) -> tuple[int, ...]:
    """The key of each of `groups` groups.

    >>> [hash_int(s) % 3 for s in slots(3)]
    [0, 1, 2]
    """
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < groups:
        found.setdefault(hash_int(candidate) % groups, candidate)
        candidate += 1
    return tuple(found[g] for g in range(groups))


def hash_int(value: int) -> int:
    """Spark's `hash(value)` of an int column, as a signed number.

    >>> hash_int(1)
    -559580957
    """
    k = value * 0xCC9E2D51 & _MASK
    k = (k << 15 | k >> 17) & _MASK
    k = k * 0x1B873593 & _MASK
    h = _SEED ^ k
    h = (h << 13 | h >> 19) & _MASK
    h = (h * 5 + 0xE6546B64) & _MASK
    h ^= 4  # the length in bytes
    h ^= h >> 16
    h = h * 0x85EBCA6B & _MASK
    h ^= h >> 13
    h = h * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h

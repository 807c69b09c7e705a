"""The bounded history of a query, computed by its own tasks in Spark and written as a folder that an instance of the runtime loads.

Records are taken in the order of their topics (`history: arrival`): lateness, joins and windows are decided as the runtime decides
them, because the same code decides. Parts are written by the tasks; only their names and counts pass through the driver.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as f

from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.spark.log_address import Address
from flowql.runtime.spark.log_offsets import Offsets
from flowql.runtime.spark.log_source import ReadOptions, read_log
from flowql.runtime.spark.shapes import DONE, NOTE
from flowql.runtime.spark.stage.exact import behind_stages
from flowql.runtime.spark.stage.layout import layout_of
from flowql.runtime.state.computed_history import (
    DEAD,
    HISTORY_SCHEMA,
    ROWS,
    SINK,
    TASK,
    HistoryManifest,
    HistoryPart,
    decode_page,
    shape_of,
    write_manifest,
    write_part,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class History:
    """Which history is computed: of `query`, a query of `plan` at generation 1, over [starts, ends) of its topics in the log at `address`.

    partitions: of all topics that the query reads or writes.
    """

    address: Address
    plan: Plan
    query: QueryPlan
    partitions: dict[str, int]
    starts: Offsets
    ends: Offsets


def compute_history(spark: SparkSession, history: History, folder: Path) -> HistoryManifest:
    """Compute a history into `folder`, which must not exist. The folder is complete when this returns; before that it is of no use."""
    query, topics = history.query, tuple(sorted(history.ends))
    layout = layout_of(history.plan, query, history.partitions, grouped=True)
    read = ReadOptions(history.address, topics, starting=history.starts, ending=history.ends, layout=layout.dumps())
    rows = behind_stages(layout, read_log(spark, read), hands_over=True)
    finished = rows.where((f.col("target") == DONE) & (f.col("kind") != NOTE)).select(*HISTORY_SCHEMA.names)
    folder.mkdir(parents=True)
    written = finished.mapInArrow(partial(_written, folder), "part BINARY").collect()
    found: list[tuple[HistoryPart, Counter[str]]] = [pickle.loads(bytes(row.part)) for row in written]
    counts = sum((c for _, c in found), Counter[str]())
    manifest = HistoryManifest(
        query.id,
        query.definition,
        shape_of(query),
        {topic: history.partitions[topic] for topic in topics},
        history.starts,
        history.ends,
        counts[SINK],
        counts[DEAD],
        counts[ROWS],
        counts[TASK],
        tuple(part for part, _ in found),
    )
    write_manifest(folder, manifest)
    return manifest


def _written(folder: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a worker: the rows of one Spark task as a part, and what it is as one row. A task that is repeated writes another part."""
    counts = Counter[str]()

    def counted() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts.update(_counts(batch))
            yield batch

    part = write_part(folder, counted(), str(os.getpid()))
    yield pa.RecordBatch.from_pydict({"part": [pickle.dumps((part, counts))]})


def _counts(batch: pa.RecordBatch) -> Counter[str]:
    """How many records, letters, rows of state and tasks a batch of HISTORY_SCHEMA rows holds."""
    counts = Counter[str]()
    for kind, data in zip(batch.column(0).to_pylist(), batch.column(5), strict=True):
        if kind == ROWS:
            counts[kind] += len(decode_page(data.as_buffer())[0])
        elif kind == TASK:
            counts[kind] += 1
        else:
            with pa.ipc.open_stream(data.as_buffer()) as reader:
                counts[kind] += sum(b.num_rows for b in reader)
    return counts

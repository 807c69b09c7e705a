"""PACKED rows, of files or of memory, as queries on Spark read the records of a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from flowql.compiler.plan.expr import ROWTIME
from flowql.runtime.log.base import RawBatch, TopicPartition
from flowql.runtime.spark.native.frames import BESIDE
from flowql.runtime.spark.native.topics import Reading, rows_of
from flowql.runtime.spark.shapes import ENVELOPE_DDL, from_ipc
from flowql.runtime.spark.stage.layout import Layout
from flowql.runtime.spark.stage.program import begun

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers of a cluster have FlowQL, but no tests

Frame = Any  # pyspark.sql.DataFrame


def reader_of(packed: Frame) -> Callable[[Reading], Frame]:
    """What `over_topics` takes as `read`."""

    def read(reading: Reading) -> Frame:
        mine = packed.where(packed["topic"] == reading.source.topic)
        names = [*reading.schema.names, ROWTIME, *BESIDE[reading.beside]]
        return mine.mapInArrow(partial(_rows, reading.dumps(), names), reading.ddl)

    return read


def begun_of(packed: Frame, layout: Layout) -> Frame:
    """What `stage.exact` takes as `sources`."""
    return packed.mapInArrow(partial(_begun, layout.dumps()), ENVELOPE_DDL)


def _begun(layout: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return begun(layout, _records(batches))


def _rows(reading: str, names: list[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for columns in rows_of(reading, _records(batches)):
        yield pa.RecordBatch.from_arrays(columns, names=names)


def _records(batches: Iterator[pa.RecordBatch]) -> Iterator[RawBatch]:
    for batch in batches:
        for row in batch.select(["topic", "partition", "next_offset", "ipc"]).to_pylist():
            records = from_ipc(row["ipc"])
            if records.num_rows:
                yield RawBatch(TopicPartition(row["topic"], row["partition"]), records, row["next_offset"], 0)

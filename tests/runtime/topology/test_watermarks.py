"""Watermarks on their way through repartitions: what readers are told, and when."""

from __future__ import annotations

import pyarrow as pa

from flowql.compiler.plan.logical import Format
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import ExchangeSink, ExchangeSource, Operator
from flowql.compiler.plan.types import BIGINT, STRING
from flowql.compiler.plan.watermarks import AppendOnly, Watermark
from flowql.runtime.batch import Batch, concat, from_rows
from flowql.runtime.log.base import RawBatch, TopicPartition
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.task.repartition import enclose, open_envelopes
from flowql.runtime.topology.program import Watermarks
from tests.runtime.log.records import batch as produced

SCHEMA = Schema((Field("k", BIGINT, "key"), Field("t", STRING)))
SENT = Operator("sink", ExchangeSink("topic", Format("JSON"), marks=True), ("source",), SCHEMA, "retract")
INPUT = Operator("input", ExchangeSource("input"), (), SCHEMA, "append")
SOURCE = Operator("source", AppendOnly(Watermark("k")), ("input",), SCHEMA, "retract")
READ = Operator("read", ExchangeSource("topic", marks=True), (), SCHEMA, "retract")


def writer(partition: int, at: int | None) -> tuple[Watermarks, MicroBatchContext]:
    """One of two tasks whose watermark is there."""
    run = MicroBatchContext(NO_STATE, last_seq=4, last_ms=77)
    if at is not None:
        run.watermarks["source"] = at
    return Watermarks([INPUT, SOURCE, SENT], partition, {"input": 2}), run


def marked(partition: int, at: int) -> Batch:
    made, run = writer(partition, at)
    found = made.mark(SENT, run)
    assert found is not None
    return found


def test_a_watermark_is_sent_once() -> None:
    made, run = writer(0, 5)
    assert made.mark(SENT, run) is not None
    assert made.mark(SENT, run) is None
    run.watermarks["source"] = 6
    assert made.mark(SENT, run) is not None
    unknown, run = writer(0, None)
    assert unknown.mark(SENT, run) is None


def test_readers_know_the_lowest_watermark_when_all_writers_have_sent_one() -> None:
    reader, run = Watermarks([READ], 0, {}), MicroBatchContext(NO_STATE)
    rows = from_rows(SCHEMA, [(1, "a"), (2, "b")], [1, 2], [0, 0], [0, 1])
    left = reader.received("read", concat(SCHEMA, [rows, marked(0, 50)]), run)
    assert (left.rows(), left.headers) == ([(1, "a"), (2, "b")], None)
    assert reader.at("read", run) is None
    assert not len(reader.received("read", marked(1, 30), run))
    assert reader.at("read", run) == 30
    reader.received("read", marked(1, 70), run)
    assert reader.at("read", run) == 50


def test_a_mark_is_the_same_behind_a_topic() -> None:
    envelopes = [enclose(from_rows(SCHEMA, [(1, "a")], [1], [0], [0]), 0), *(enclose(marked(p, 40), p) for p in (0, 1))]
    values = [v for e in envelopes for v in e.column("value").to_pylist()]
    records = produced(values).add_column(0, "offset", pa.array([0, 1, 2]))
    raw = RawBatch(TopicPartition("topic", 0), records, 3, 1)
    reader, run = Watermarks([READ], 0, {}), MicroBatchContext(NO_STATE)
    left = reader.received("read", open_envelopes(raw, SCHEMA).batch, run)
    assert (left.rows(), reader.at("read", run)) == ([(1, "a")], 40)

"""Views as Spark computes them: by the functions that its workers call, over the records of a log, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from flowql.compiler.plan.logical import Scan, walk_nodes
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.log.base import EARLIEST, RawBatch, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.spark.choose import choose
from flowql.runtime.spark.errors import SparkUnsupported
from flowql.runtime.spark.settings import SparkSettings
from flowql.runtime.spark.stage.layout import layout_of, loads
from flowql.runtime.spark.stage.program import begun
from tests.one_meaning.answers import Answer
from tests.runtime.spark.stage_local import LocalStages
from tests.runtime.spark.stage_world import dead_of, final, records_of, sink_of


def on_stages(plan: Plan, log: MemoryLog, query: QueryPlan, view: Answer) -> Answer:
    """view: the answer of the runtime, which this is if records have the same bytes; else the records."""
    try:
        choose(plan, query, SparkSettings(), "bounded")
    except SparkUnsupported as refused:
        return Answer("refused", text=f"{refused.code} {refused}")
    partitions = {name: info.partitions for name, info in log.topics().items()}
    layout = loads(layout_of(plan, query, partitions).dumps())
    rows = LocalStages(layout).grouped(list(begun(layout.dumps(), _records(query, log, partitions))))
    if dead_of(rows):
        return Answer("failed", text="dead letters")
    source = plan.source(query.sink)
    assert source is not None
    theirs = sink_of(rows)
    ours = {p: _sink(log, source.topic, p) for p in range(partitions[source.topic])}
    same: Any = final if source.kind == "table" else _bag
    if view.kind == "rows" and same(theirs) == same(ours):
        return view
    return Answer("rows", tuple((str(key), str(value)) for records in theirs.values() for _, key, value, _ in records))


def _bag(sink: dict[int, list[Any]]) -> Counter[Any]:
    return Counter((key, value) for records in sink.values() for _, key, value, _ in records)


def _records(query: QueryPlan, log: MemoryLog, partitions: dict[str, int]) -> Iterator[RawBatch]:
    topics = sorted({n.spec.topic for n in walk_nodes(query.logical) if isinstance(n.spec, Scan)})
    for topic in topics:
        for p in range(partitions[topic]):
            yield from _read(log, TopicPartition(topic, p))


def _read(log: MemoryLog, tp: TopicPartition) -> Iterator[RawBatch]:
    reader = log.reader(tp, EARLIEST)
    while (batch := reader.read(100_000, 1 << 30)) is not None:
        yield batch


def _sink(log: MemoryLog, topic: str, partition: int) -> list[Any]:
    return [r for batch in _read(log, TopicPartition(topic, partition)) for r in records_of(partition, batch.records)]

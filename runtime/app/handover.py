"""Takes over the history of a query that another engine has computed (`flowql.runtime.state.computed_history`), in an instance that is alone.

A new generation begins with the state, results and positions of that history instead of at the first record. In this order:

1. State of an attempt that failed is dropped, by a commit.
2. The state is written for tasks that no plan on record has yet, and is durable. A crash here leaves state that nothing uses; the
   next start drops it.
3. The commit that records the deployment also writes the results and dead letters. From then on the generation exists, with all of its history.
4. Its tasks are built from their state, and go on at the end of the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson
import pyarrow as pa

from flowql.compiler.plan.generations import plain, user_id
from flowql.compiler.plan.logical import Scan
from flowql.compiler.plan.topology import QueryPlan, StoreSpec, SubTopology
from flowql.runtime.app.coroutines import Coroutine
from flowql.runtime.app.hosts import QueryHost
from flowql.runtime.commit.replacement import Replacement
from flowql.runtime.errors import HandoverUnfit
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.state.computed_history import DEAD, ROWS, SINK, ComputedHistory, decode_page, shape_of
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.values import decode_metadata, encode_metadata
from flowql.runtime.task.dead_letters import staging_topic, topic_name
from flowql.runtime.task.id import TaskId
from flowql.runtime.topology.grouping import GROUPER
from flowql.runtime.topology.log_facts import LogFacts
from flowql.runtime.topology.query import partition_marks

AGAIN = "run  flowql backfill  again"
PAGES_PER_ROUND = 4  # of state rows between two looks of the reconciler at other things


@dataclass(frozen=True, slots=True)
class HistoryOutputs:
    """Results and state of computed histories, for the commit that records the deployment."""

    results: list[Replacement]
    letters: list[tuple[TopicPartition, pa.RecordBatch]]


def taken_over(
    host: QueryHost, query: QueryPlan, history: ComputedHistory, brought: HistoryOutputs, *, staged: bool
) -> Coroutine:
    """State of a query's history is in the store, its results and dead letters are in `brought`. staged: it does not serve yet."""
    check(host, query, history)
    brought.results.extend(results(host, query, history))
    app = host.config.application_id
    topic = staging_topic(app, query.id) if staged else topic_name(app)
    brought.letters.extend((TopicPartition(topic, 0), b) for b in letters(query, history, host.clock.wall_ms()))
    yield from loaded(host, query, history)


def check(host: QueryHost, query: QueryPlan, history: ComputedHistory) -> None:
    """HandoverUnfit unless this is the history of `query`, a generation that begins now, over the topics as they are."""
    found, counts = history.manifest, {t: i.partitions for t, i in host.admin.topics().items()}
    name = user_id(query.id, query.generation)
    if (found.query, found.definition, found.shape) != (name, query.definition, shape_of(query)):
        raise HandoverUnfit(f"{name} was edited while its history was computed: {AGAIN}")
    for topic, of in found.ends.items():
        if counts.get(topic) != found.partitions[topic] or len(of) != found.partitions[topic]:
            raise HandoverUnfit(
                f"{topic} had {found.partitions[topic]} partitions, and has {counts.get(topic)}: {AGAIN}"
            )
        for partition, end in of.items():
            tp = TopicPartition(topic, int(partition))
            start, first = found.starts[topic][partition], host.position(tp, {}, host.admin.begin_offset)
            if start > first:  # retention may have deleted records meanwhile: the history has them
                raise HandoverUnfit(f"the history of {tp} begins at offset {start}, the topic at {first}: {AGAIN}")
            if not host.admin.begin_offset(tp) <= end <= host.admin.end_offset(tp):
                raise HandoverUnfit(f"{tp} has no offset {end}, where the history ends: {AGAIN}")
    missing = set(_scanned(query)) - set(found.ends)
    if missing:
        raise HandoverUnfit(f"{name} reads {', '.join(sorted(missing))}, of which there is no history: {AGAIN}")


def loaded(host: QueryHost, query: QueryPlan, history: ComputedHistory) -> Coroutine:
    """The state of all tasks of a query is in the store, durable, as of the end of the history. No plan on record has these tasks."""
    records = _task_records(host, query, history)
    stores = {plain(s.name, query.generation): s for sub in query.subtopologies for s in _stores(sub)}
    host.state.rebuild(records)
    rows = 0
    pages = _pages(history, stores)
    while some := list(islice(pages, PAGES_PER_ROUND)):
        for store, partition, keys, values in some:
            host.state.restored.take(store, partition, keys, values)
            rows += len(keys)
        yield None
    if rows != history.manifest.state_rows:
        raise HandoverUnfit(
            f"{history.folder} has {rows} rows of state, its manifest says {history.manifest.state_rows}"
        )
    for task in records:
        ended = host.state.end_restore(task)
        assert ended, (
            f"{task} has a commit under way, although no plan on record has it and `rebuild` refused open tasks"
        )
        yield None


def results(host: QueryHost, query: QueryPlan, history: ComputedHistory) -> list[Replacement]:
    """Records of the results, behind what is in the topic, for the commit that records the deployment."""
    found, topic = history.records(SINK), query.topic
    partitions = host.admin.topics()[topic].partitions
    if found and max(found) >= partitions:
        raise HandoverUnfit(
            f"results of {query.id} are in {max(found) + 1} partitions, and {topic} has {partitions}: {AGAIN}"
        )
    ends = host.admin.end_offsets([TopicPartition(topic, p) for p in found])
    return [Replacement(tp, end, False, tuple(found[tp.partition])) for tp, end in ends.items()]


def letters(query: QueryPlan, history: ComputedHistory, now_ms: int) -> list[pa.RecordBatch]:
    """Dead letters of the history as those of this generation, written now."""
    return [_of_generation(b, query.generation, now_ms) for of in history.records(DEAD).values() for b in of]


def _of_generation(batch: pa.RecordBatch, generation: int, now_ms: int) -> pa.RecordBatch:
    values = [orjson.dumps(orjson.loads(v) | {"GENERATION": generation}) for v in batch.column("value").to_pylist()]
    columns = {n: batch.column(n) for n in PRODUCE_SCHEMA.names}
    columns["timestamp"] = pa.array([now_ms] * batch.num_rows, pa.int64())
    columns["value"] = pa.array(values, pa.binary())
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=PRODUCE_SCHEMA)


def _task_records(host: QueryHost, query: QueryPlan, history: ComputedHistory) -> dict[str, TaskRecord]:
    facts = LogFacts(host.admin, host.config.application_id, [query])
    counts, metadata, partitions = facts.counts(query), history.metadata(), facts.partitions(facts.topics)
    found: dict[str, TaskRecord] = {}
    for sub in query.subtopologies:
        for p in range(counts[sub.number]):
            names = tuple(s.name for s in _stores(sub))
            data = _metadata(metadata.pop((sub.number, p), None), _ends(sub, p, history))
            data |= partition_marks(query, sub, counts[sub.number], partitions)
            found[str(TaskId(query.id, sub.number, p))] = TaskRecord(p, names, encode_metadata(data))
    if metadata:
        raise HandoverUnfit(f"{history.folder} has tasks that {query.id} has not: {sorted(metadata)}: {AGAIN}")
    return found


def _metadata(known: bytes | None, ends: Mapping[str, int]) -> dict[str, Any]:
    """The metadata of a task at the end of the history, with or without earlier metadata."""
    data = {"stream_times": {}, **({} if known is None else decode_metadata(known))}
    assert all(at <= ends[topic] for topic, at in data.get("positions", {}).items()), "read beyond the history"
    return {**data, "positions": dict(ends)}


def _ends(sub: SubTopology, partition: int, history: ComputedHistory) -> dict[str, int]:
    """Where the history of a task ends in each topic that it reads."""
    scanned = {topic: history.manifest.partitions[topic] for topic in _scanned_by(sub)}
    group = GROUPER.group(scanned)[partition] if scanned else ()
    return {tp.topic: history.manifest.ends[tp.topic][str(tp.partition)] for tp in group}


def _pages(
    history: ComputedHistory, stores: Mapping[str, StoreSpec]
) -> Iterator[tuple[StoreSpec, int, Sequence[bytes], Sequence[bytes]]]:
    for row in history.rows(ROWS):
        keys, values = decode_page(row.data)
        yield stores[row.topic], row.partition, keys, values


def _stores(sub: SubTopology) -> list[StoreSpec]:
    return [s for op in sub.operators for s in op.stores]


def _scanned_by(sub: SubTopology) -> list[str]:
    return [op.spec.topic for op in sub.operators if isinstance(op.spec, Scan)]


def _scanned(query: QueryPlan) -> list[str]:
    return [topic for sub in query.subtopologies for topic in _scanned_by(sub)]

"""One run of a test: a fresh instance with everything in memory, stepped in this thread."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any

import orjson
import pyarrow as pa

from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.logical import Scan
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.topology import Operator, Plan, QueryPlan, SourceDef
from flowql.compiler.plan.types import Kind
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.query_state import FAILED
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import TopicMissing
from flowql.runtime.log.base import EARLIEST, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.task.dead_letters import topic_name
from flowql.runtime.topology.table_statements import carry_out
from flowql.runtime.topology.table_writer import POLICY
from flowql.testing.case import Case, Row
from flowql.testing.feed import Timing
from flowql.topics.codecs import RecordReader, shown

CONFIG = InstanceConfig(application_id="test", threads=1, coalesce=False)


@dataclass(frozen=True, slots=True)
class RunResults:
    """The outcome of a test run. records: by result, every record in order (by partition); final: by table; state: by store.

    views: those over tables that change, of which the rows at the end count: their records depend on how input is cut into runs.
    failed: queries that have stopped for an error.
    """

    timing: str
    records: Mapping[str, tuple[Row, ...]]
    final: Mapping[str, tuple[Row, ...]]
    state: Mapping[str, tuple[Row, ...]]
    hints: tuple[str, ...] = field(default=(), compare=False)
    views: frozenset[str] = frozenset()
    failed: tuple[str, ...] = ()


def needed(plan: Plan, names: Iterable[str]) -> Plan:
    """The queries these results are made of. An unknown name (a store) needs all of them."""
    wanted, queries = list(names), dict[str, QueryPlan]()
    known = {s.name: s for s in plan.sources}
    if any(n not in known for n in wanted):
        return plan
    while wanted:
        source = known[wanted.pop()]
        for query in plan.queries:
            if query.id not in queries and known[query.sink].topic == source.topic:
                queries[query.id] = query
                wanted += [s.name for s in plan.sources if s.topic in read_topics(query)]
    topics = {t for q in queries.values() for t in read_topics(q)} | {known[q.sink].topic for q in queries.values()}
    kept = tuple(q for q in plan.queries if q.id in queries)
    inserts = tuple(i for i in plan.inserts if known[i.target].topic in topics)
    changes = tuple(c for c in plan.changes if known[c.target].topic in topics)
    made = replace(
        plan,
        queries=kept,
        inserts=inserts,
        changes=changes,
        sources=tuple(s for s in plan.sources if s.topic in topics),
    )
    return plan if made == plan else made  # what is known of a plan is known of this object


def read_topics(query: QueryPlan) -> set[str]:
    return {o.spec.topic for s in query.subtopologies for o in s.operators if isinstance(o.spec, Scan)}


def partitions_of(case: Case, plan: Plan) -> dict[str, int]:
    """Numbers of partitions of the topics that the plan reads and does not write."""
    return {s.topic: s.partitions or case.partitions for s in plan.sources if s.query is None}


def run(case: Case, plan: Plan, timing: Timing, stores: Iterable[str]) -> RunResults:
    """Feed the rows of a test as the timing says, and look at everything there is in the end."""
    log, clock = MemoryLog(), VirtualClock()
    own = {s.topic for s in plan.sources if s.is_own_table}
    for topic, count in partitions_of(case, plan).items():
        log.create_topic(topic, count, POLICY if topic in own else {})
    instance = Instance(log, MemoryPhysical(), clock, CONFIG)
    driver = Driver(instance, tick=partial(await_calls, instance, clock))
    try:
        instance.deploy(in_input_order(plan))
        carry_out(log, plan, CONFIG.application_id, clock.wall_ms())
        producer = log.producer("rows of the test")
        for chunk in timing.chunks:
            producer.begin()
            for arriving in chunk:
                if arriving.tp.topic in log.topics():
                    producer.send(arriving.tp, arriving.record)
            producer.commit()
            driver.run_until_idle()
        driver.run_until_caught_up(
            unless=lambda: _failed(instance)
        )  # they would fail again, as the clock does not advance
        written = {q.sink for q in plan.queries}  # also what others write, too
        results = [s for s in plan.sources if s.name in written]
        records = {s.name: tuple(_records(log, s)) for s in results}
        final = {s.name: _final(records[s.name], s) for s in results if s.kind == "table"}
        views = frozenset(s.name for s in results if s.relation)
        state, hints = _stores(instance, stores), tuple(_hints(instance, log))
        return RunResults(timing.name, records, final, state, hints, views, tuple(_failed(instance)))
    finally:
        instance.close()


def _records(log: MemoryLog, source: SourceDef) -> Iterable[Row]:
    reader = RecordReader(source)
    for partition in range(log.topics()[source.topic].partitions):
        for batch in _batches(log, source.topic, partition):
            yield from (_row(r, reader, source) for r in batch.to_pylist())


def _batches(log: MemoryLog, topic: str, partition: int) -> Iterable[pa.RecordBatch]:
    reader = log.reader(TopicPartition(topic, partition), EARLIEST)
    while (batch := reader.read(100_000, 1 << 30)) is not None:
        yield batch.records


def _row(record: Mapping[str, object], reader: RecordReader, source: SourceDef) -> Row:
    key = _parsed(reader.key(record["key"]), source.schema.key)  # type: ignore[arg-type]
    if not isinstance(key, dict):
        key = {f.name: key for f in source.schema.key[:1]}
    value = _parsed(reader.value(record["value"]), source.schema.value)  # type: ignore[arg-type]
    value = value if isinstance(value, dict) or value is None else {f.name: value for f in source.schema.value[:1]}
    types = {f.name: f.type for f in source.schema}
    return Row({**key, **(value or {})}, int(record["timestamp"]), value is None, types=types)  # type: ignore[call-overload]


def _parsed(text: Any, fields: Sequence[Field]) -> Any:
    """The value of a JSON text, with all digits of DECIMAL columns."""
    value = orjson.loads(text)
    decimals = [f.name for f in fields if f.type.kind is Kind.DECIMAL]
    if not decimals or value is None:
        return value
    exact = json.loads(text, parse_float=Decimal)
    return exact if not isinstance(value, dict) else value | {n: exact[n] for n in decimals if n in exact}


def _final(records: Iterable[Row], source: SourceDef) -> tuple[Row, ...]:
    """The last row of every key; deleted ones are gone."""
    names = [f.name for f in source.schema.key] + ["WINDOWSTART", "WINDOWEND"] * (source.schema.window is not None)
    last = {orjson.dumps([r.values.get(n) for n in names], default=str): r for r in records}
    rows = tuple(r for r in last.values() if not r.tombstone)
    return (
        tuple(replace(r, values={n: r.values.get(n) for n in source.visible}) for r in rows)
        if source.relation
        else rows
    )


def _stores(instance: Instance, names: Iterable[str]) -> dict[str, tuple[Row, ...]]:
    with instance.snapshot() as snapshot:  # type: ignore[attr-defined]
        specs = {s.name: s for s in snapshot.stores()}
        out = {}
        for name in names:
            spec = specs.get(name) or specs.get(name.upper())
            if spec is not None:
                columns = [*spec.key.names, *spec.value.names]
                rows = [(*k, *v) for k, v in snapshot.scan(spec.name)]
                out[name] = tuple(Row({c: shown(v) for c, v in zip(columns, r, strict=False)}) for r in rows)
        return out


def _failed(instance: Instance) -> list[str]:
    return [q for q in sorted(instance.queries) if instance.query_states.of(q).state is FAILED]


def _hints(instance: Instance, log: MemoryLog) -> Iterable[str]:
    """Hints about rows that gave no result."""
    for query in sorted(instance.queries):
        m = instance.metrics.query(query)
        if m.late_records:
            n = m.late_records
            yield (
                f"{query} dropped {n} late row{'s' * (n > 1)}: their windows had ended longer ago than the grace period "
                "when they came; give a longer GRACE PERIOD, or rows in order of time"
            )
        if m.errors:
            yield f"{query} failed: {m.last_error}"
    try:
        letters = [orjson.loads(v) for b in _batches(log, topic_name("test"), 0) for v in b.column("value").to_pylist()]
    except TopicMissing:
        return
    for letter in letters[:5]:
        at = f"{letter['TOPIC']}[{letter['OFFSET']}]" if letter["TOPIC"] else "a row"
        yield f"{letter['QUERY']} could not process {at} ({letter['CODE']}): {letter['MESSAGE']}"


LOOK_S = 0.001


def in_input_order(plan: Plan) -> Plan:
    """The plan with rows that do not overtake each other: which one of two calls ends first is chance."""

    def ordered(op: Operator) -> Operator:
        return replace(op, spec=replace(op.spec, order="input")) if isinstance(op.spec, AsyncMap) else op

    queries = [
        replace(q, subtopologies=tuple(replace(s, operators=tuple(map(ordered, s.operators))) for s in q.subtopologies))
        for q in plan.queries
    ]
    return replace(plan, queries=tuple(queries))


def await_calls(instance: Instance, clock: VirtualClock) -> None:
    """Waits for asynchronous calls. The clock of tests does not advance otherwise; waiting times before retries are skipped."""
    tasks = [task for q in list(instance.queries.values()) for task in q.built.tasks if task.program.waiting]
    facts = [f for task in tasks for f in task.program.waiting if f.rows]
    if not facts:
        return
    if any(f.in_flight for f in facts):
        time.sleep(LOOK_S)
        return
    due = [ms for task in tasks if (ms := task.program.due_ms) is not None]
    clock.advance(max(0, min(due, default=0) - clock.wall_ms()))

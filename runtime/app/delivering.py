"""Records given to queries once more, beside their input, exactly once: `flowql dlq replay --append`.

The runs that take them, the repairs, and the marks that say that they were taken are of one commit. Marked records are not taken
again; a later rebuild, which is another generation, reads the repaired record at its own place instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flowql.compiler.plan.generations import runtime_name
from flowql.compiler.plan.logical import Scan
from flowql.compiler.plan.topology import Operator, QueryPlan
from flowql.runtime.app.instance import Instance
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.appending import Redelivery
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.log.repairs import CONFIG, encode, marks, topic_name
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.decode import Decoder
from flowql.runtime.task.delivery import Delivery, DeliveryResult
from flowql.runtime.task.task import Task

WAIT_S = 60.0  # until a query has taken its records, and for the commit


@dataclass(frozen=True, slots=True)
class _Share:
    """The records of one partition for one query, by offset."""

    query: QueryPlan
    tp: TopicPartition
    records: list[Redelivery]


def deliver(instance: Instance, wanted: Sequence[Redelivery]) -> dict[str, Any]:
    """By query: `rows`, `late` and `older` (see `DeliveryResult`), `table` where newer rows of its key may be replaced.

    RuntimeFailure with the reason where a query does not take them; other queries may have taken theirs, which marks tell.
    """
    instance.admin.create_topic(topic_name(instance.config.application_id), 1, CONFIG)
    if instance.deployed.building or instance.deployed.swap is not None:
        raise RuntimeFailure("queries are being rebuilt: ask again when that is done")
    if any(task.is_delivering for query in list(instance.queries.values()) for task in query.built.tasks):
        raise RuntimeFailure("a query is taking what it was given before: ask again when it is done")
    _commit_marks(instance)  # what a call before has delivered is marked, and known
    shares = [s for s in _shares(instance, wanted) if s.records]
    prepared = [(share, *_prepared(instance, share)) for share in shares]
    for _, task, delivery, _ in prepared:
        task.deliver(delivery)
    instance.manager.signal()
    found: dict[str, Any] = {}
    try:
        for share, _, delivery, is_table in prepared:
            done = _result(delivery.done, share.query.id)
            known = found.setdefault(share.query.id, {"rows": 0, "late": 0, "older": 0, "table": is_table})
            known.update({n: known[n] + getattr(done, n) for n in ("rows", "late", "older")})
    finally:
        for _, _, delivery, _ in prepared:
            delivery.done.cancel()
        _commit_marks(instance)
    missing = [s.query.id for s in shares for w in s.records if not _is_done(instance, s.query, w)]
    if missing:
        raise RuntimeFailure(f"{', '.join(sorted(set(missing)))}: the commit was made without it; ask again")
    return found


def _commit_marks(instance: Instance) -> None:
    """All that was published is committed, and its marks are known. RuntimeFailure if that cannot be now."""
    if why := instance.commit.held_up:
        raise RuntimeFailure(f"commits fail ({why}): repeat the command when they succeed")
    try:
        instance.commit.request().result(WAIT_S)
    except TimeoutError:
        raise RuntimeFailure("the commit has not come: ask again") from None
    instance.repaired.repairs.read_on()


def _shares(instance: Instance, wanted: Sequence[Redelivery]) -> list[_Share]:
    shares: dict[tuple[str, TopicPartition], _Share] = {}
    for w in sorted(wanted, key=lambda w: (w.tp, w.offset)):
        for name in w.queries:
            query = instance.plan.by_id.get(name)
            if query is None:
                raise RuntimeFailure(f"there is no query {name}")
            share = shares.setdefault((name, w.tp), _Share(query, w.tp, []))
            if not _is_done(instance, query, w):
                share.records.append(w)
    return list(shares.values())


def _is_done(instance: Instance, query: QueryPlan, w: Redelivery) -> bool:
    return instance.repaired.repairs.is_delivered(w.tp, w.offset, runtime_name(query))


def _prepared(instance: Instance, share: _Share) -> tuple[Task, Delivery, bool]:
    """The task, the delivery for it, and whether the task reads a table."""
    query, name = share.query, runtime_name(share.query)
    scan, task = _reader(instance, share)
    assert isinstance(scan.spec, Scan)
    position = min(i.position for i in task.logs.values() if i.tp == share.tp)
    if (last := share.records[-1].offset) >= position:
        raise RuntimeFailure(f"{query.id} has not come to {share.tp}@{last} yet: it will read it there")
    run = MicroBatchContext(NO_STATE)
    batch = Decoder(scan.spec, scan.schema, instance.clock.wall_ms).decode(_raw(share), run)
    if run.dead_letters:
        first = run.dead_letters[0]
        raise RuntimeFailure(f"{query.id}: {share.tp}@{share.records[first.seq].offset}: {first.message}")

    def mark() -> None:
        topic, now_ms = TopicPartition(topic_name(instance.config.application_id), 0), instance.clock.wall_ms()
        if repairs := {(w.tp, w.offset): w.repair for w in share.records if w.is_repaired}:
            instance.collector.add(topic, encode(repairs, now_ms), name)
        instance.collector.add(topic, marks(share.tp, [w.offset for w in share.records], name, now_ms), name)

    return task, Delivery(scan.id, batch, mark), scan.spec.kind == "table"


def _reader(instance: Instance, share: _Share) -> tuple[Operator, Task]:
    name, topic = runtime_name(share.query), share.tp.topic
    scans = [
        op
        for s in share.query.subtopologies
        for op in s.operators
        if isinstance(op.spec, Scan) and op.spec.topic == topic
    ]
    tasks = [t for t in instance.queries[name].built.tasks if any(i.tp == share.tp for i in t.logs.values())]
    if len(scans) != 1 or len(tasks) != 1:
        raise RuntimeFailure(f"{share.query.id} reads {topic} more than once: replay without --append")
    return scans[0], tasks[0]


def _raw(share: _Share) -> RawBatch:
    rows = [(w.offset, w.repair.timestamp_ms, w.repair.key, w.repair.value, None) for w in share.records]
    columns = zip(zip(*rows, strict=True), RECORD_SCHEMA, strict=True)
    records = pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in columns], schema=RECORD_SCHEMA)
    return RawBatch(share.tp, records, share.records[-1].offset + 1, records.nbytes)


def _result(done: Future[DeliveryResult], query: str) -> DeliveryResult:
    try:
        return done.result(WAIT_S)
    except TimeoutError:
        raise RuntimeFailure(f"{query} does not run, so it takes no records: see  flowql status") from None

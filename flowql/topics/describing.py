"""The description of a topic, and whether it may be deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from flowql.compiler.catalog.names import listing
from flowql.compiler.plan.logical import Scan, walk_nodes
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.errors import CommandError
from flowql.runtime.app.plan_topic import topic_name as plan_topic
from flowql.runtime.log.base import Log, TopicInfo, TopicPartition
from flowql.runtime.task.dead_letters import topic_name as dead_letter_topic

IN_USE = "FQ5012"
PARTITION_COLUMNS = ("partition", "begin", "end", "records", "first", "last")


@dataclass(frozen=True, slots=True)
class Description:
    """A topic as it is. partitions: rows of PARTITION_COLUMNS; first and last are the times of those records."""

    name: str
    config: Mapping[str, str]
    sources: tuple[str, ...]
    written_by: tuple[str, ...]
    read_by: tuple[str, ...]
    partitions: tuple[tuple[int, int, int, int, datetime | None, datetime | None], ...]

    @property
    def records(self) -> int:
        return sum(p[3] for p in self.partitions)

    def lines(self) -> Iterator[str]:
        count = len(self.partitions)
        yield f"topic {self.name}: {self.records:,} records in {count} {'partition' if count == 1 else 'partitions'}"
        yield from (f"  {k} = {v}" for k, v in sorted(self.config.items()))
        named = (("declared as", self.sources), ("written by", self.written_by), ("read by", self.read_by))
        yield from (f"{word} {listing(names)}" for word, names in named if names)

    def to_data(self) -> dict[str, Any]:
        return {
            "topic": self.name,
            "records": self.records,
            "config": dict(self.config),
            "sources": list(self.sources),
            "written_by": list(self.written_by),
            "read_by": list(self.read_by),
            "partitions": [dict(zip(PARTITION_COLUMNS, p, strict=True)) for p in self.partitions],
        }


def describe(log: Log, info: TopicInfo, plan: Plan) -> Description:
    """plan: whose sources and queries are named."""
    tps = [TopicPartition(info.name, p) for p in range(info.partitions)]
    return Description(
        info.name,
        info.config,
        tuple(f"{s.kind} {s.name}" for s in plan.sources if s.topic == info.name),
        tuple(q.id for q in plan.queries if _writes(q, plan) == info.name),
        tuple(q.id for q in plan.queries if info.name in _reads(q)),
        tuple(_partition(log, tp) for tp in tps),
    )


def _partition(log: Log, tp: TopicPartition) -> tuple[int, int, int, int, datetime | None, datetime | None]:
    admin = log.admin()
    begin, end = admin.begin_offset(tp), admin.end_offset(tp)
    first, last = (_time_at(log, tp, offset, end) for offset in (begin, max(begin, end - 1)))
    return tp.partition, begin, end, end - begin, first, last


def _time_at(log: Log, tp: TopicPartition, offset: int, end: int) -> datetime | None:
    batch = log.reader(tp, offset).read(1, 1) if offset < end else None
    if batch is None or batch.records.num_rows == 0:  # the last offsets may be markers of transactions
        return None
    return datetime.fromtimestamp(batch.records.column("timestamp")[0].as_py() / 1000, UTC)


def refuse_if_used(topic: str, plan: Plan, application_id: str) -> None:
    """CommandError when something that was deployed reads or writes the topic, or the instance keeps it for itself."""
    if topic in (plan_topic(application_id), dead_letter_topic(application_id)):
        title = f"the instance keeps topic {topic} for itself"
        raise CommandError(title, code=IN_USE, help="to start over, stop it and remove the target's data_dir")
    users = [q.id for q in plan.queries if topic in _reads(q) or _writes(q, plan) == topic]
    if users:
        title = f"{listing(users)} {'uses' if len(users) == 1 else 'use'} topic {topic}"
        raise CommandError(title, code=IN_USE, help="take it out of the project first, then:  flowql deploy --prune")


def _reads(query: QueryPlan) -> set[str]:
    return {n.spec.topic for n in walk_nodes(query.logical) if isinstance(n.spec, Scan)}


def _writes(query: QueryPlan, plan: Plan) -> str:
    sink = plan.source(query.sink)
    return sink.topic if sink is not None else ""

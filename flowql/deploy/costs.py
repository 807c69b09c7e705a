"""The costs of a deployment before it starts: records to read, time, disk, and history that no longer exists."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from flowql.compiler.functions.user import plain_name
from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.deployed import Deployed
from flowql.compiler.plan.generations import topics_read
from flowql.compiler.plan.logical import walk_nodes
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.compiler.plan.versions import topics_read_by_version
from flowql.deploy.extents import Extent
from flowql.errors import CommandError
from flowql.runtime.clock import iso_time

HISTORY, NO_ROOM = "FQ5208", "FQ5209"
RATE = 50_000  # records a second, of a query that nothing is known about
MEASURED_RECORDS = 10_000  # so many a query must have processed for its rate to count


@dataclass(frozen=True, slots=True)
class Reads:
    """The records that a query reads from the beginning, transitively. rate: records a second; measured: of this very query.

    calls: asynchronous functions that it calls for these records.
    """

    topics: tuple[str, ...]
    records: int
    bytes: int
    rate: int
    measured: bool
    calls: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        return self.records / self.rate

    def to_data(self) -> dict[str, Any]:
        return {
            "topics": list(self.topics),
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 1),
            "measured": self.measured,
            "calls": list(self.calls),
        }


@dataclass(frozen=True, slots=True)
class Costs:
    """reads: by id, of queries that begin. lost: inputs of rebuilt queries of which retention or compaction has taken something, as sentences.

    disk_bytes: what the second generation will take at most, as far as can be known. free_bytes: None where that does not count.
    """

    reads: Mapping[str, Reads] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    disk_bytes: int = 0
    free_bytes: int | None = None

    def check(self, *, accept_history: bool) -> None:
        """CommandError for what must not be begun."""
        if self.lost and not accept_history:
            title = "; ".join(self.lost)
            help_ = "--accept-history rebuilds from the records that are left: results of the others are not made again"
            raise CommandError(f"a rebuild would not see all of its input: {title}", code=HISTORY, help=help_)
        if self.free_bytes is not None and self.disk_bytes > self.free_bytes:
            title = f"two generations need about {shown_size(self.disk_bytes)} more, and the disk has {shown_size(self.free_bytes)} left"
            raise CommandError(
                title, code=NO_ROOM, help="make room, or rebuild fewer queries at a time:  --select QUERY"
            )


class DeployTarget(Protocol):
    """The target of a deployment: an engine, or the directory of an instance that does not run."""

    def extents(self, topics: Collection[str], whole: Collection[str] = ()) -> Mapping[str, Extent]: ...

    def free_bytes(self) -> int | None: ...

    def status(self) -> Mapping[str, Any]: ...


def costs_of(deployed: Deployed, plan: Plan, begun: Mapping[str, str], target: DeployTarget) -> Costs:
    """begun: id -> action (`add` or `change`) of the queries that are computed from the beginning."""
    queries = [q for q in plan.queries if q.id in begun]
    if not queries:
        return Costs()
    writers, made = plan.writers, {q.topic for q in queries}
    rebuilt = [q for q in queries if begun[q.id] == "change"]
    inputs = {q.id: sorted(_inputs(q, plan, set(begun))) for q in queries}
    by_version = {q.id: [t for t in topics_read_by_version(q) if t in inputs[q.id]] for q in rebuilt}
    asked = {t for topics in inputs.values() for t in topics} | made
    found = target.extents(asked, {t for topics in by_version.values() for t in topics})
    known = {q["id"]: q for q in target.status()["queries"]}  # of the generations that serve
    there = [q for q in queries if any(t in found for t in inputs[q.id])]
    reads = {q.id: replace(_reads(inputs[q.id], found, known.get(q.id, {})), calls=_calls(q)) for q in there}
    outside = {t for q in rebuilt for t in inputs[q.id] if t not in writers}
    second = {q.topic for q in rebuilt}
    disk = sum(found[t].bytes for t in second if t in found)
    disk += sum(_state_bytes(q, known.get(q.id, {}), found) for q in rebuilt)
    lost = [s for t in sorted(outside) if t in found for s in _lost(t, found[t], deployed)]
    for q in rebuilt:
        lost += [
            _compacted(q, found[t], writers.get(t, ())) for t in by_version[q.id] if t in found and found[t].compacted
        ]
    return Costs(reads, tuple(lost), disk, target.free_bytes())


def _calls(query: QueryPlan) -> tuple[str, ...]:
    specs = [node.spec for node in walk_nodes(query.logical)]
    return tuple(sorted({plain_name(c.function) for s in specs if isinstance(s, AsyncMap) for c in s.calls}))


def _state_bytes(query: QueryPlan, known: Mapping[str, Any], found: Mapping[str, Extent]) -> int:
    """The bytes of its stores. If they were not counted yet, or nothing runs, those of its results: a table's rows are its state."""
    measured = known.get("state_bytes")
    if measured is not None:
        return int(measured)
    stores = any(op.stores for sub in query.subtopologies for op in sub.operators)
    topic = query.topic
    return found[topic].bytes if stores and topic in found else 0


def _inputs(query: QueryPlan, plan: Plan, begun: Collection[str]) -> set[str]:
    """Topics it is made of that are read from the beginning and not made by queries that begin as well."""
    writers, found, seen, waiting = plan.writers, set[str](), set[str](), [query]
    while waiting:
        for topic in topics_read(waiting.pop()):
            makers = [w for w in writers.get(topic, ()) if w.id in begun]
            if not makers:
                found.add(topic)
            waiting += [w for w in makers if w.id not in seen]
            seen |= {w.id for w in makers}
    return found


def _reads(topics: Collection[str], found: Mapping[str, Extent], status: Mapping[str, Any]) -> Reads:
    records, cpu_s = status.get("records_in") or 0, status.get("cpu_s") or 0.0
    measured = records >= MEASURED_RECORDS and cpu_s > 0
    here = [found[t] for t in topics if t in found]
    rate = max(1, int(records / cpu_s)) if measured else RATE
    return Reads(tuple(topics), sum(e.records for e in here), sum(e.bytes for e in here), rate, measured)


def _lost(topic: str, extent: Extent, deployed: Deployed) -> list[str]:
    gone = [(p, begin) for p, begin in enumerate(extent.begins) if begin > deployed.begin(topic, p)]
    if not gone:
        return []
    where = ", ".join(f"{topic}-{p} begins at offset {begin}" for p, begin in gone)
    if extent.from_ms is None:
        return [where]
    return [f"{where} ({iso_time(extent.from_ms, 'seconds')})"]


def _compacted(query: QueryPlan, extent: Extent, writers: Sequence[QueryPlan]) -> str:
    said = f"{query.id} reads every record of {extent.compacted}, and compaction has removed some"
    return f"{said}; --full-refresh {writers[0].sink} computes them again" if writers else said


def shown_size(count: float) -> str:
    """Bytes as people read them.

    >>> shown_size(512), shown_size(2_500_000)
    ('512 B', '2.5 MB')
    """
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"

"""The directory of a runtime that does not run: what was deployed, how far it came, its last commit. Loads no engine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from flowql.compiler.plan.deployed import Deployed, Entry
from flowql.compiler.plan.generations import runtime_name, topics_read
from flowql.compiler.plan.partitions import as_wanted
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.config.storage import log_at
from flowql.deploy.at_rest import deployed_at_rest, process_id
from flowql.deploy.extents import Extent, extents_of, free_bytes
from flowql.deploy.settings import Settings
from flowql.query.committed import Commit, StateUnreadable, Take, stopped_commits
from flowql.query.errors import QueryError
from flowql.runtime.app.exchanges import rows_saved
from flowql.runtime.app.plan_topic import read_deployed, read_entries
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import LetterRetention
from flowql.runtime.log.base import Clients, Log, TopicPartition
from flowql.runtime.log.embedded.log import skipped_records
from flowql.runtime.task.lost import LOST, losses_of
from flowql.runtime.task.position_names import topic_named
from flowql.runtime.task.remaining import held_in

if TYPE_CHECKING:
    from flowql.server.engine import Mode
    from flowql.server.members import Members

PHYSICAL_STORES = 1  # one RocksDB, whatever the number of queries
COUNTED_MAX = (
    10_000  # offsets of a partition: on Kafka, many of them may be markers of transactions, which are no records
)
READ_BYTES = 1 << 24
Tasks = Mapping[str, Mapping[str, Any]]  # by name: what they committed


class RuntimeAtRest:
    """Implements `flowql.server.engine.AtRest`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def deployed(self) -> tuple[Deployed, Mapping[str, int]]:
        deployed, topics = deployed_at_rest(self._settings)
        return deployed, as_wanted(deployed, topics)

    def refuse(self, plan: Plan, mode: Mode) -> None:
        """A changed query is rebuilt beside the one that serves."""

    def extents(self, topics: Collection[str], whole: Collection[str] = ()) -> Mapping[str, Extent]:
        s = self._settings
        if s.kafka is None and not s.log_dir.is_dir():
            return {}
        with closing(log_at(s.log_dir, s.kafka, s.application_id)) as log:
            return extents_of(log, topics, whole)

    def deployments(self) -> list[Entry]:
        s = self._settings
        if s.kafka is None and not s.log_dir.is_dir():
            return []
        with closing(log_at(s.log_dir, s.kafka, s.application_id)) as log:
            return read_entries(log, s.application_id)

    def free_bytes(self) -> int | None:
        return free_bytes(self._settings.data_dir) if self._settings.kafka is None else None

    def status(self) -> dict[str, Any]:
        return stopped_status(self._settings)

    def commits(self) -> AbstractContextManager[Take]:
        return _stopped(self._settings)


@contextmanager
def _stopped(settings: Settings) -> Iterator[Take]:
    """The last commit of a directory; of one of many instances with what the others have, if any of them runs."""
    with stopped_commits(settings.data_dir, settings.application_id, settings.kafka) as take:
        if settings.kafka is None or not settings.kafka.shared:
            yield take
            return
        own = process_id(settings.data_dir)
        members: Members | None = None

        def with_others(relations: Sequence[str]) -> Commit:
            nonlocal members
            commit = take(relations)
            if members is None:  # once: it remembers members that did not answer
                from flowql.server.members import Members  # with DuckDB, which `status` does not need

                members = Members(commit.log, settings.application_id, own, SystemClock())
            return replace(commit, others=members.rows, writer=f"{settings.application_id}-{own}")

        yield with_others


def stopped_status(settings: Settings) -> dict[str, Any]:
    """The status of a stopped instance, from its directory: its queries and their progress."""
    queries: list[dict[str, Any]] = []
    try:
        with stopped_commits(settings.data_dir, settings.application_id, settings.kafka) as take:
            commit = take(())
            try:
                record = read_deployed(commit.log, settings.application_id)
                building = {q.id: q.generation for q in record.building} if record is not None else {}
                tasks = commit.snapshot.tasks()
                between = rows_saved(commit.snapshot)
                queries = [
                    _stopped_query(q, commit.log, tasks, building.get(q.id), between) for q in commit.plan.queries
                ]
            finally:
                commit.snapshot.close()
    except StateUnreadable as error:
        queries = _without_state(settings, str(error))
    except QueryError:  # nothing has run here yet
        queries = []
    return {
        "instance": instance_entry(
            None, settings.threads, Clients(0, 0, 0), settings.dead_letters, kafka=settings.kafka is not None
        ),
        "queries": queries,
    }


def instance_entry(
    pid: int | None, threads: int, clients: Clients, kept: LetterRetention, *, kafka: bool
) -> dict[str, Any]:
    return {
        "pid": pid,
        "engine": "runtime",
        "log": "kafka" if kafka else "embedded",
        "threads": threads,
        "clients": asdict(clients),
        "physical_stores": PHYSICAL_STORES,
        "dead_letters_kept": asdict(kept),
    }


def _without_state(settings: Settings, error: str) -> list[dict[str, Any]]:
    """The log holds the deployment; the next start reads the inputs again."""
    with closing(log_at(settings.log_dir, settings.kafka, settings.application_id)) as log:
        record = read_deployed(log, settings.application_id) or Deployed()
        return [
            {**_stopped_query(q, log, {}, None, {}), "lag": _lag(_beginnings(q, log), log), "last_error": error}
            for q in record.serving.queries
        ]


def _stopped_query(
    query: QueryPlan, log: Log, known: Tasks, building: int | None, between: Mapping[str, int]
) -> dict[str, Any]:
    """known: tasks of all queries. building: the generation that goes on being built when the instance runs again. between: rows by repartition."""
    tasks = {t: m for t, m in known.items() if t.rpartition("/")[0] == runtime_name(query)}
    positions = _positions(tasks)
    held = held_in(tasks.values())
    return {
        "id": query.id,
        "state": "stopped",
        "priority": query.priority,
        "weight": query.weight,
        "engine": "runtime",
        "lag": _lag(positions, log) + sum(between.get(topic, 0) for topic in query.repartitions),
        "records_in": 0,
        "records_out": 0,
        "rows_by_row": {},
        **losses_of((int(t.rpartition("_")[2]), m.get(LOST, {})) for t, m in tasks.items()).to_data(),
        "skipped_records": skipped_records(log, positions),
        "errors": 0,
        "last_error": None,
        "latency_target_ms": query.latency_target_ms,
        "generation": query.generation,
        "building": None if building is None else _paused_building(building),
        **({} if held is None else {"waiting": {"calls": 0, "windows": held}}),
    }


def _paused_building(generation: int) -> dict[str, Any]:
    counted = dict.fromkeys(("lag", "records_in", "records_out", "dead_letters", "errors"), 0)
    return {"generation": generation, "state": "stopped", **counted, "last_error": None, "why": "no instance runs"}


def _positions(tasks: Tasks) -> dict[TopicPartition, int]:
    """The lowest position of the tasks in each partition that they read."""
    positions: dict[TopicPartition, int] = {}
    for task, metadata in tasks.items():
        for name, position in metadata.get("positions", {}).items():
            tp = TopicPartition(topic_named(name), int(task.rpartition("_")[2]))
            positions[tp] = min(position, positions.get(tp, position))
    return positions


def _beginnings(query: QueryPlan, log: Log) -> dict[TopicPartition, int]:
    """Where a query begins that reads its inputs again."""
    known = log.admin().topics()
    topics = [t for t in topics_read(query) if t in known]
    return {TopicPartition(t, p): 0 for t in topics for p in range(known[t].partitions)}


def _lag(positions: Mapping[TopicPartition, int], log: Log) -> int:
    """Records from these positions on."""
    return sum(_records_after(log, tp, position) for tp, position in positions.items())


def _records_after(log: Log, tp: TopicPartition, position: int) -> int:
    """Up to the end. Not counted further than COUNTED_MAX offsets: the rest is thought to be like those."""
    end, first = log.admin().end_offset(tp), max(position, log.admin().begin_offset(tp))
    if end <= first:
        return 0
    reader, records = log.key_values(tp, first), 0
    while reader.position < first + COUNTED_MAX and (batch := reader.read(COUNTED_MAX, READ_BYTES)) is not None:
        records += batch.rows
    counted = reader.position - first
    return records + (max(0, end - reader.position) * records // counted if counted else 0)

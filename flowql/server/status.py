"""`status`: its public JSON, of a live instance and of a directory whose instance is not running."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from flowql.compiler.plan.generations import runtime_name
from flowql.compiler.plan.topology import QueryPlan
from flowql.deploy.settings import Settings
from flowql.query.committed import Commit, stopped_commits
from flowql.query.errors import QueryError
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.plan_topic import read_deployed
from flowql.runtime.app.progress import skipped_records
from flowql.runtime.app.status import instance_figures, statuses
from flowql.runtime.config import LetterRetention
from flowql.runtime.log.base import Clients, Log, TopicPartition
from flowql.runtime.task.input_buffer import topic_named
from flowql.runtime.task.lost import LOST, losses_of
from flowql.server.process import process_figures

PHYSICAL_STORES = 1  # one RocksDB, whatever the number of queries
COUNTED_MAX = (
    10_000  # offsets of a partition: on Kafka, many of them may be markers of transactions, which are no records
)
READ_BYTES = 1 << 24


def live_status(instance: Instance, *, detail: bool = False) -> dict[str, Any]:
    """detail: what the endpoint for Prometheus tells beside it."""
    kafka = not instance.log.supports_redo
    return {
        "instance": _instance(
            os.getpid(), instance.config.threads, instance.clients, instance.config.dead_letters, kafka=kafka
        )
        | process_figures()
        | instance_figures(instance, detail=detail),
        "queries": statuses(instance, detail=detail),
    }


def stopped_status(settings: Settings) -> dict[str, Any]:
    """What was deployed and how far it came, from the directory."""
    queries: list[dict[str, Any]] = []
    try:
        with stopped_commits(settings.data_dir, settings.application_id, settings.kafka) as take:
            commit = take(())
            try:
                record = read_deployed(commit.log, settings.application_id)
                building = {q.id: q.generation for q in record.building} if record is not None else {}
                queries = [_stopped_query(q, commit, building.get(q.id)) for q in commit.plan.queries]
            finally:
                commit.snapshot.close()
    except QueryError:  # nothing has run here yet
        queries = []
    return {
        "instance": _instance(
            None, settings.threads, Clients(0, 0, 0), settings.dead_letters, kafka=settings.kafka is not None
        ),
        "queries": queries,
    }


def _instance(pid: int | None, threads: int, clients: Clients, kept: LetterRetention, *, kafka: bool) -> dict[str, Any]:
    return {
        "pid": pid,
        "engine": "runtime",
        "log": "kafka" if kafka else "embedded",
        "threads": threads,
        "clients": asdict(clients),
        "physical_stores": PHYSICAL_STORES,
        "dead_letters_kept": asdict(kept),
    }


def _stopped_query(query: QueryPlan, commit: Commit, building: int | None) -> dict[str, Any]:
    """building: the generation that goes on being built when the instance runs again."""
    tasks = {t: m for t, m in commit.snapshot.tasks().items() if t.rpartition("/")[0] == runtime_name(query)}
    return {
        "id": query.id,
        "state": "stopped",
        "priority": query.priority,
        "weight": query.weight,
        "engine": "runtime",
        "lag": _lag(tasks, commit),
        "records_in": 0,
        "records_out": 0,
        **losses_of((int(t.rpartition("_")[2]), m.get(LOST, {})) for t, m in tasks.items()).to_data(),
        "skipped_records": skipped_records(commit.log, _positions(tasks)),
        "errors": 0,
        "last_error": None,
        "latency_target_ms": query.latency_target_ms,
        "generation": query.generation,
        "building": None if building is None else _paused_building(building),
    }


def _paused_building(generation: int) -> dict[str, Any]:
    counted = dict.fromkeys(("lag", "records_in", "records_out", "dead_letters", "errors"), 0)
    return {"generation": generation, "state": "stopped", **counted, "last_error": None, "why": "no instance runs"}


Tasks = Mapping[str, Mapping[str, Any]]  # by name: what they committed


def _positions(tasks: Tasks) -> dict[TopicPartition, int]:
    """Of the partitions that tasks read, the lowest of each."""
    positions: dict[TopicPartition, int] = {}
    for task, metadata in tasks.items():
        for name, position in metadata.get("positions", {}).items():
            tp = TopicPartition(topic_named(name), int(task.rpartition("_")[2]))
            positions[tp] = min(position, positions.get(tp, position))
    return positions


def _lag(tasks: Tasks, commit: Commit) -> int:
    """Records behind the positions its tasks have committed."""
    return sum(_records_after(commit.log, tp, position) for tp, position in _positions(tasks).items())


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

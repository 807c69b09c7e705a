"""The content of `status` and of the Prometheus endpoint for a live instance: counters, rates, latencies, sizes, and what each query waits for.

It only reads: one look at the log and one pass over the queries for each call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

from flowql.compiler.plan.deployed import Deployed, SwapGroup, groups_of, is_held, running_plan
from flowql.compiler.plan.generations import runtime_name, under_own_name, user_id
from flowql.runtime.app.hosts import QueryHost
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import committed_of, ends_of, query_status
from flowql.runtime.app.query_rates import QueryRates
from flowql.runtime.app.running import RunningQuery
from flowql.runtime.app.swapping import BUILT
from flowql.runtime.latency import Latencies, octaves
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.task.channels import ExchangeInput
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.task.remaining import Committed, records_left, remaining
from flowql.runtime.task.task import Task
from flowql.runtime.topology.query import BuiltQuery

SWAPPING = "the commit with which it begins to serve is under way"


def statuses(instance: Instance, *, detail: bool = False) -> list[dict[str, Any]]:
    """An entry of `status` for each query (their fields are public: docs/reference/status.md), by the ids that people use. detail: by
    partition, and the classes of latencies, too.

    A generation that is being built stands in the entry of the one that serves; it counts as being built until interactive queries read it.
    """
    known = deployed_queries(instance)
    building = {runtime_name(q): group for group in groups_of(known.deployed) for q in group.queries}
    with closing(instance.snapshot()) as snapshot:
        asked = {(q.id, q.generation) for q in instance.plan_at(snapshot.sequence).queries}
    swapping = {q.id for q in known.deployed.serving.queries if (q.id, q.generation) not in asked}
    found: dict[str, dict[str, Any]] = {}
    for name, entry in _by_name(instance, known.queries, building.keys(), detail=detail).items():
        shown = found.setdefault(entry["id"], {**entry, "building": None})
        if name in building:
            shown["building"] = _building(entry, _waits_for(instance, known.deployed, building[name]))
        elif entry["id"] in swapping:
            shown["building"] = _building(entry, SWAPPING)
    return list(found.values())


def _waits_for(instance: Instance, deployed: Deployed, group: SwapGroup) -> str:
    """Why a swap waited at its last check. A deployment since then may have released it."""
    why = instance.deployer.swaps.why.get(group.name, "")
    return why if why != BUILT or is_held(deployed, group) else ""


def _building(entry: Mapping[str, Any], why: str) -> dict[str, Any]:
    """why: what its swap waits for."""
    keys = ("generation", "state", "lag", "records_in", "records_out", "dead_letters", "errors", "last_error")
    return {**{k: entry[k] for k in keys}, "why": why}


def _by_name(
    instance: Instance, queries: Mapping[str, RunningQuery], building: Collection[str], *, detail: bool
) -> dict[str, dict[str, Any]]:
    """By the names under which generations run, in their order. The lag of one that is built is what it has not read: with `records_in` it is all
    of its input.
    """
    rates = instance.rates.read()
    committed = committed_of(instance)  # before the ends: what is committed meanwhile is lag at most
    ends = ends_of(instance, queries.values())
    found: dict[str, dict[str, Any]] = {}
    people = {n: user_id(n, q.plan.generation) for n, q in queries.items()}
    for name, q in queries.items():
        left = remaining(q.built.tasks, ends, None if name in building else committed)
        entry = query_status(instance, name, q, left)
        wait = wait_of(instance, name, entry["state"], q.built.tasks)
        entry |= _rates(rates.get(name, QueryRates())) | _sizes(instance, q)
        whom = [] if wait is None else list(dict.fromkeys(people.get(w, w) for w in wait.whom))
        entry["waits"] = None if wait is None else {"for": wait.reason, "whom": whom}
        entry["cpu_s"] = round(instance.metrics.query(name).cpu_ns / 1e9, 3)
        if detail:
            entry |= _detail(instance, q, ends, committed)
        found[name] = entry | {"id": people[name], "generation": q.plan.generation}
    return found


def blocked(instance: Instance) -> str | None:
    """Why commits do not get through just now."""
    return instance.commit.blocked or instance.commit.state_trouble or None


def instance_metrics(instance: Instance, *, detail: bool = False) -> dict[str, Any]:
    """Entries of `status` that belong to no single query."""
    m = instance.metrics
    found: dict[str, Any] = {
        "commits": m.commits,
        "commit_ms": round(m.cut_to_commit_ms, 1),
        "blocked": blocked(instance),
        "uncommitted_bytes": instance.collector.size_bytes,
        "state": instance.statistics.newest or None,
        "trouble": [
            t.to_data(now)
            for now in [instance.clock.timer_ms()]
            for found in (instance.polling.troubles, instance.polling.transactions, instance.torn_commits)
            for t in found.current(now)
        ],
    }
    remote = instance.checkpoints or instance.uploads
    if remote is not None:
        found["remote"] = remote.status()
    if instance.deployer.moved_positions:
        found["notes"] = [instance.deployer.moved_positions]
    found["stuck"] = [s.to_data() for s in instance.watchdog.stuck(instance.clock.timer_ms())]
    if instance.group is not None:
        found["group"] = {
            "away": instance.watchdog.is_away or bool(instance.group.plans.outdated),
            "partitions": instance.group.owned,
            "of": len(instance.group.planned.partitions),
            "rack": instance.config.rack or None,
            "trouble": instance.group.plans.outdated or instance.group.trouble or None,
        }
    if detail:
        found["topics"] = {
            topic: {"fetched": m.fetched[topic], "decoded": m.decoded.get(topic, 0)} for topic in sorted(m.fetched)
        }
        found["commit_latency"] = _classes(m.commit_latency)
    return found


def _rates(f: QueryRates) -> dict[str, Any]:
    latency = None if f.p50_ms is None or f.p99_ms is None else {"p50": round(f.p50_ms, 1), "p99": round(f.p99_ms, 1)}
    return {
        "rate_in": round(f.rate_in, 1),
        "rate_out": round(f.rate_out, 1),
        "latency_ms": latency,
        "cpu": round(f.cpu, 3),
        "share": None if f.share is None else round(f.share, 4),
        "entitled": None if f.entitled is None else round(f.entitled, 4),
    }


def _sizes(instance: Instance, q: RunningQuery) -> dict[str, Any]:
    stores = {s.name for sub in q.plan.subtopologies for op in sub.operators for s in op.stores}
    return {
        "latency_target_ms": q.plan.latency_target_ms,
        "tasks": len(q.built.tasks),
        "state_bytes": instance.sizes.total(stores),
        "buffered_bytes": sum(t.buffered_bytes for t in q.built.tasks),
    }


def _detail(
    instance: Instance, q: RunningQuery, ends: Mapping[TopicPartition, int], committed: Committed | None
) -> dict[str, Any]:
    places = [(t, i) for t in q.built.tasks for i in t.logs.values()]
    return {
        "partitions": [
            {
                "topic": i.tp.topic,
                "partition": i.tp.partition,
                "position": i.position,
                "lag": records_left(t, i, ends.get(i.tp, 0), committed),
            }
            for t, i in places
        ],
        "latency": _classes(instance.metrics.query(q.plan.id).latency),
    }


def _classes(latencies: Latencies) -> dict[str, Any]:
    """Upper ends in ms with how many took no longer; None stands for no upper end."""
    classes = octaves(latencies.counts)
    return {"sum_ms": latencies.sum_ms, "classes": [*([ms, n] for ms, n in classes[:-1]), [None, classes[-1][1]]]}


# All deployed queries at one moment, for `status`.


@dataclass(frozen=True, slots=True)
class DeployedQueries:
    """queries: by the names under which generations run; those that serve come first, those that are being built after them."""

    deployed: Deployed
    queries: Mapping[str, RunningQuery]


def deployed_queries(host: QueryHost) -> DeployedQueries:
    """Any thread.

    The record of what is deployed decides, because a commit replaces it in one step. The tasks of a query that serves are
    removed and made again at the end of a swap and of a deployment; meanwhile `queries` of the instance lacks the query, which
    stands here without tasks.
    """
    deployed, queries = _at_one_moment(host)
    lost = {name for name, why in deployed.lost if why}  # they serve what they have made, and do not run
    plans = [under_own_name(q) for q in deployed.serving.queries if runtime_name(q) in lost]
    plans += running_plan(deployed).queries
    serving = {runtime_name(q) for q in deployed.serving.queries}
    plans.sort(key=lambda q: q.id not in serving)
    return DeployedQueries(deployed, {q.id: queries.get(q.id) or RunningQuery(q, BuiltQuery()) for q in plans})


def _at_one_moment(host: QueryHost) -> tuple[Deployed, dict[str, RunningQuery]]:
    """The record and what ran while it held. `dict` copies in one step (the interpreter lock)."""
    while True:
        deployed, queries = host.deployed, dict(host.queries)
        if host.deployed is deployed:
            return deployed, queries


# The reason why a query waits at the moment, and the queries, partitions or topics that it waits for. It only reads.

Reason = Literal[
    "deployment",  # a topic that it reads is gone: it continues after a new deployment
    "resume",  # it is paused, or its function hung
    "restoration",  # its state is restored from changelogs, or its tasks are being built
    "restart",  # it failed and will be retried
    "log",  # commits fail
    "commit",  # too much output waits for the next commit
    "processor",  # it could run; whom: the queries that do
    "input",  # there is nothing to read
    "upstream",  # it merges what another query writes, which has to read the existing records first; whom: that query
    "trial",  # an instance died in its micro-batch: another suspected query is tried first (`flowql.runtime.app.trials`)
    "other input",  # earlier rows may come from another input; whom: topic partitions
    "repartition",  # what it feeds is full; whom: the repartition
    "interactive_query",  # an interactive query waits for tables that agree
    "tick",  # it reads results of queries that have not finished the next tick; whom: these queries, nobody if only a commit is missing
]


@dataclass(frozen=True, slots=True)
class Wait:
    """A reason. whom: the queries, partitions or topics that the query waits for."""

    reason: Reason
    whom: tuple[str, ...] = ()


_STATES: dict[str, Reason] = {
    "error": "deployment",
    "paused": "resume",
    "hung": "resume",
    "restoring": "restoration",
    "failed": "restart",
    "blocked": "log",
}


def wait_of(instance: Instance, query: str, state: str, tasks: Sequence[Task]) -> Wait | None:
    """None while the query is at work. state: of `progress.state_of`. tasks: those of the query."""
    if state in _STATES:
        return Wait(_STATES[state])
    record = instance.query_states.of(query)
    if record.waits_for:
        return Wait("upstream", (record.waits_for,))
    if record.awaits_trial:
        return Wait("trial")
    at_work = instance.manager.at_work()
    if query in at_work:
        return None
    if not all(map(instance.publisher.has_room, tasks)):
        return Wait("commit")
    if any(t.runnable for t in tasks):
        return Wait("commit") if instance.manager.awaits_commit(query) else Wait("processor", tuple(at_work))
    waiting = [t for t in tasks if t.buffered_rows]
    if (behind := instance.ticks.waits_for(query)) is not None and not any(
        i.has_rows for t in waiting for i in t.inputs.values()
    ):
        return Wait("tick", behind)
    return _of_rows(waiting) if waiting else Wait("input")


def _of_rows(tasks: list[Task]) -> Wait:
    """The reason why tasks with rows cannot run."""
    if any(t.read_up_to.ms is not None or any(i.stopped for i in t.logs.values()) for t in tasks):
        return Wait("interactive_query")
    full = {x.topic for t in tasks for x in t.downstream.channels if x.full}
    if full:
        return Wait("repartition", tuple(sorted(full)))
    missing = {_name(i) for t in tasks for i in t.inputs.values() if not i.has_rows and not i.idle}
    return Wait("other input", tuple(sorted(missing))) if missing else Wait("processor")


def _name(source: LogInput | ExchangeInput) -> str:
    return str(source.tp) if isinstance(source, LogInput) else source.topic

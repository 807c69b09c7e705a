"""All deployed queries at one moment, for `status`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowql.compiler.plan.deployed import Deployed, running_plan
from flowql.compiler.plan.generations import runtime_name, under_own_name
from flowql.runtime.app.hosts import QueryHost
from flowql.runtime.app.running import RunningQuery
from flowql.runtime.topology.query import BuiltQuery


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

"""A deployment for all members of a group: its record goes to the plan topic, from where each of them takes it (rule R11)."""

from __future__ import annotations

from dataclasses import replace

from flowql.compiler.plan.deployed import Entry, running_plan
from flowql.compiler.plan.diff import PlanChange
from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.app.deployment import create_staging, inserted, refuse_rebuild, with_names_for
from flowql.runtime.app.forwarding import refuse_forward
from flowql.runtime.app.hosts import QueryHost
from flowql.runtime.app.plan_writer import write_after
from flowql.runtime.topology.log_facts import LogFacts, scanned
from flowql.runtime.topology.query import ensure_changelogs, ensure_topics, repartitions


def announced(host: QueryHost, change: PlanChange, entry: Entry | None = None) -> PlanChange | None:
    """Records the change and returns it; None if the deployment on which it was decided is no longer the newest record."""
    before, app = host.deployed, host.config.application_id
    change = replace(change, deployed=with_names_for(host.log, change.deployed, app))
    after = change.deployed
    refuse_rebuild(host, after)
    refuse_forward(after)
    ensure_topics(after.plan, host.admin)
    create_staging(host, after)
    runs = {q.id for q in running_plan(before).queries}
    queries = running_plan(after).queries
    facts = LogFacts(host.admin, app, queries)
    whole = [q for q in queries if q.id not in runs or not _reads_missing(q, facts)]
    # Only for new queries: an empty topic must not take the place of a lost changelog.
    ensure_changelogs([q for q in queries if q.id not in runs], host, facts, repartitions(whole, app, facts, runs))
    records = inserted(host, after)
    return change if write_after(host, before, after, entry, records) else None


def _reads_missing(query: QueryPlan, facts: LogFacts) -> bool:
    """Whether a topic that it reads is missing: the query is stalled."""
    read = scanned(query)
    return len(facts.partitions(read)) < len(set(read))

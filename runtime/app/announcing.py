"""A deployment for all members of a group: its record goes to the plan topic, from where each of them takes it (rule R11)."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import replace

from flowql.compiler.plan.deployed import Entry, running_plan
from flowql.compiler.plan.diff import PlanChange
from flowql.runtime.app.deployment import create_staging, inserted, refuse_rebuild, with_names_for
from flowql.runtime.app.forwarding import refuse_forward
from flowql.runtime.app.hosts import QueryHost
from flowql.runtime.app.plan_writer import PlanWriter
from flowql.runtime.errors import TopicMissing
from flowql.runtime.topology.query import ensure_changelogs, ensure_repartitions, ensure_topics


def announced(host: QueryHost, change: PlanChange, entry: Entry) -> PlanChange | None:
    """Records the change and returns it; None if the deployment on which it was decided is no longer the newest record."""
    before, app = host.deployed, host.config.application_id
    change = replace(change, deployed=with_names_for(host.log, change.deployed, app))
    after = change.deployed
    refuse_rebuild(host, after)
    refuse_forward(after)
    ensure_topics(after.plan, host.admin)
    create_staging(host, after)
    runs = {q.id for q in running_plan(before).queries}
    for query in running_plan(after).queries:
        with (
            suppress(TopicMissing) if query.id in runs else nullcontext()
        ):  # what reads a topic that is gone stands still
            if query.id not in runs:  # another, empty one must not take the place of one that is gone
                ensure_changelogs(query, host)
            ensure_repartitions(query, host, runs=query.id in runs)
    records = inserted(host, after)
    writer = PlanWriter(host.log, app)
    try:
        if writer.deployed != before:
            return None
        writer.write(after, host.clock.wall_ms(), entry, records)
    finally:
        writer.close()
    return change

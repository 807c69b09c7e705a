"""Which queries a deployment begins anew, over the whole graph, and whether it may. No pyspark."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from flowql.compiler.plan import deployed as plans
from flowql.compiler.plan.diff import decide_change
from flowql.compiler.plan.topology import Plan
from flowql.runtime.spark.choose import Mode, is_native
from flowql.runtime.spark.engine.checkpoints import REBUILD
from flowql.runtime.spark.engine.deployed import Deployed, Form, How
from flowql.runtime.spark.engine.deployment import check, not_native_any_more
from flowql.runtime.spark.engine.feeders import is_feeder, with_feeders
from flowql.runtime.spark.engine.order import begun_with, topics_written
from flowql.runtime.spark.engine.results import topics_to_replace, topics_with_results
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.spark.errors import CheckpointOfOtherQuery, SparkFailure
from flowql.runtime.spark.history import complete_queries
from flowql.runtime.spark.settings import SparkSettings


def ways(plan: Plan, settings: SparkSettings, form: Form) -> dict[str, How]:
    """The way each query runs. Raises SparkUnsupported."""
    mode: Mode = "bounded" if form == "batch" else "streaming"
    native = {q.id: is_native(plan, q, settings, mode) for q in plan.queries}  # also for what it refuses
    return {q: "native" if is_one else "exact" for q, is_one in native.items()}


def decide_rebuild(
    site: Site, before: Deployed, plan: Plan, how: Mapping[str, How], form: Form, *, asked: bool
) -> frozenset[str]:
    """The queries that begin anew to come from what is deployed to `plan`; batches all do, so of them those that changed.

    asked: what is kept of them may be thrown away. Raises what names all of them and says why, if it may not; OutsideRecords if
    results are among records of others. Changes nothing.
    """
    against = check(site, before, plan, form) | not_native_any_more(before, how)
    whole, results = with_feeders(plan, site.settings.files), topics_with_results(site, before)
    because = _of_plans(before, plan, results)
    for query in whole.queries:
        if is_feeder(query) and query.id not in before.records and set(results) & {*topics_written(query)}:
            because[query.id] = "its topic holds records of earlier files"
    because = begun_with(whole, because | {q: "" for q in against if q not in because})
    if not asked:
        kept = {q.id for q in whole.queries if q.id in before.records or set(results) & {*topics_written(q)}}
        loses = (q.id for q in whole.queries if form == "stream" and q.id in because and q.id in kept)
        _refuse([*against, *(q for q in loses if q not in against)], because, against)
    if form == "batch":
        whole = with_feeders(plan, site.settings.files, complete_queries(plan, site.settings))
    topics_to_replace(site, before, whole, because if form == "stream" else {q.id for q in whole.queries})
    return frozenset(because)


def _of_plans(before: Deployed, plan: Plan, results: Collection[str]) -> dict[str, str]:
    """The rebuilds that follow from the plans: query -> the reason, as `flowql.compiler.plan.diff` has it."""
    histories = tuple(plans.TopicHistory(topic, 1) for topic in results)
    plan = replace(
        plan, queries=tuple(replace(q, on_change="rebuild") for q in plan.queries)
    )  # forward: refused before
    changes = decide_change(plans.Deployed(before.plan, histories=histories), plan).changes
    return {c.query: c.because for c in changes if c.action == "change" or c.because}


def _refuse(loses: Sequence[str], because: Mapping[str, str], against: Mapping[str, SparkFailure]) -> None:
    """loses: queries that have something to lose, first those with a failure of their own."""
    if not loses:
        return

    def why(query: str) -> str:
        if query in against:
            return against[query].title
        said = because[query]
        return (
            f"it reads results of {said}, or writes where {said} does" if said in because else said or "it has changed"
        )

    lines = [f"  {query}: {why(query)}" for query in loses]
    failure = against.get(loses[0])
    title = f"{loses[0]} cannot go on: {why(loses[0])}" if failure is None else failure.title
    if len(loses) > 1:
        title = f"{title}\nwhat is kept of {len(loses)} queries does not fit any more:\n" + "\n".join(lines)
    kind = CheckpointOfOtherQuery if failure is None else type(failure)
    raise kind(title, help=REBUILD if failure is None else failure.help)

"""A deployment to a Spark target, before anything runs: what stands against it, what is thrown away, what is written. No pyspark."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.log.base import TopicDescription
from flowql.runtime.spark.engine.checkpoints import REBUILD, check_fits, check_partitions
from flowql.runtime.spark.engine.deployed import Deployed, Form, How, Record, new_run
from flowql.runtime.spark.engine.feeders import ensure_fed_topics, is_feeder, refuse_unfit, topic_fed_by, with_feeders
from flowql.runtime.spark.engine.order import downstream, outside_topics, topics_read, topics_written
from flowql.runtime.spark.engine.results import take_away, topics_to_replace, topics_with_results
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.spark.errors import CheckpointOfOtherQuery, ResultsOfBatch, SparkFailure
from flowql.runtime.spark.folders import remove
from flowql.runtime.spark.history import complete_queries, refuse_shared_files, refuse_unfit_files
from flowql.runtime.spark.log_append import ensure_own_topics
from flowql.runtime.spark.log_offsets import Offsets, bounds
from flowql.runtime.task.dead_letters import ensure_topic as ensure_letters
from flowql.runtime.topology.query import ensure_topics


def check(site: Site, before: Deployed, plan: Plan, form: Form) -> dict[str, SparkFailure]:
    """Query -> why it cannot go on from what is kept of it. `form`: how it is to run."""
    found: dict[str, SparkFailure] = {}
    whole = with_feeders(plan, site.settings.files)
    described = _sources(site, whole) if form == "stream" else {}
    ids = _ids_of(described)
    for query in whole.queries:
        record = before.records.get(query.id)
        try:
            if form == "stream":
                _check_topics(query, record, ids)
                check_partitions(query, site.checkpoint(query.id), described)
                check_fits(query, record, site.committed_epochs(query.id), site.checkpoint(query.id))
                _check_buckets(site, query, record)
            elif record is not None and record.form == "stream" and site.epochs_of_record(query.id, record) is not None:
                title = f"{query.id} has been running as a stream here, and a batch would take the place of its results"
                raise ResultsOfBatch(title, help=f"omit --bounded to continue with it; {REBUILD}")
        except SparkFailure as failure:
            found[query.id] = failure
    return found


def _buckets(site: Site, query: QueryPlan) -> int:
    """Hash buckets that the target wants for the stream of a query; 0 for none."""
    return 0 if is_feeder(query) else site.settings.buckets_of(query.id, query.sink)


def _sources(site: Site, whole: Plan) -> dict[str, TopicDescription]:
    """The topics that are read and that no query writes. What queries write, a deployment may make anew."""
    return site.log.admin().describe_topics(outside_topics(whole)).result()


def _ids_of(described: Mapping[str, TopicDescription]) -> dict[str, str]:
    return {name: topic.id for name, topic in described.items() if topic.id}


def _check_topics(query: QueryPlan, record: Record | None, ids: Mapping[str, str]) -> None:
    """Raises where the checkpoint has positions of another topic of the same name, which may well be within it."""
    for topic, topic_id in (record.topic_ids if record is not None else {}).items():
        if ids.get(topic, topic_id) != topic_id:
            title = f"{query.id} has read another topic {topic} than there is now: it was deleted and created again"
            raise CheckpointOfOtherQuery(title, help=f"its first records would be missing; {REBUILD}")


def _check_buckets(site: Site, query: QueryPlan, record: Record | None) -> None:
    """Raises for a checkpoint with another number of hash buckets: keys would be looked for where they are not."""
    wanted = _buckets(site, query)
    if record is not None and record.buckets != wanted:
        kept, asked = (
            f"{n} hash buckets" if n else "one task per partition of its topics" for n in (record.buckets, wanted)
        )
        way = (
            f"hash_buckets: {{{query.id}: {record.buckets}}}"
            if record.buckets
            else f"remove {query.id} from hash_buckets"
        )
        raise CheckpointOfOtherQuery(
            f"{query.id} keeps its state in {kept}, and is to keep it in {asked}",
            help=f"{way}  continues with it; {REBUILD}",
        )


def not_native_any_more(before: Deployed, how: Mapping[str, How]) -> dict[str, SparkFailure]:
    """Native streams that would have to be exact now, because somebody else reads them or the target says so."""
    title = "{} keeps its state as Spark does, and cannot from now on (flowql explain says why)"
    streams = (q for q, r in before.records.items() if (r.form, r.how) == ("stream", "native"))
    return {q: CheckpointOfOtherQuery(title.format(q), help=REBUILD) for q in streams if how.get(q) == "exact"}


def prepare(
    site: Site,
    before: Deployed,
    plan: Plan,
    how: dict[str, How],
    *,
    form: Form,
    rebuild: Collection[str],
    now_ms: int,
) -> Deployed:
    """Make the folders and the log what `plan` needs, and write `plan.json`. Nothing of it runs meanwhile.

    rebuild: queries that begin anew; those that read them do, too. Batches always begin anew. how: of queries that begin. Results
    of streams that begin anew are taken away here; those of batches stay until others take their place. A crash halfway leaves
    queries without committed epochs in the log: their checkpoints fit no more, and the same deployment is to be made again.
    """
    refuse_unfit_files(plan, site.settings)
    if form == "stream":
        refuse_shared_files(plan, site.settings)
    direct = complete_queries(plan, site.settings) if form == "batch" else frozenset[str]()
    whole = with_feeders(plan, site.settings.files, direct)
    refuse_unfit(whole, site.settings.files)
    ensure_fed_topics(plan, site.settings.files, site.log.admin())
    ensure_topics(plan, site.log.admin())
    ensure_own_topics(site.log.admin(), site.application_id)
    ensure_letters(site.log, site.application_id, site.dead_letters)
    fresh = downstream(whole, rebuild) if form == "stream" else {q.id for q in whole.queries}
    old = bounds(site.log, topics_to_replace(site, before, whole, fresh))[1]
    known_topics = topics_with_results(site, before)
    now = {t: old.pop(t) for t in _replaced_now(plan, whole, old, rebuild, form)}
    begins = {**before.begins, **take_away(site, plan, now, fresh if form == "stream" else (), now_ms)}
    gone = [q for q in before.records if q not in whole.by_id]
    for name in {*fresh, *gone}:
        remove(site.checkpoint(name))
        site.staging.clear(name)
    for name in gone:
        site.forget(name)
        if topic_fed_by(name) in site.settings.files:
            site.drop_results(topic_fed_by(name) or "")  # its files are read directly now
    records = {q.id: _record(site, q, before, fresh, how.get(q.id, "exact"), form) for q in whole.queries}
    records = {
        q.id: _starting(records[q.id], q, begins) if records[q.id] is not before.records.get(q.id) else records[q.id]
        for q in whole.queries
    }
    if form == "stream":
        ids = _ids_of(_sources(site, whole))
        records = {q.id: _of_topics(records[q.id], q, ids) for q in whole.queries}
    if form == "batch":
        for q in (q for q in whole.queries if q.id not in plan.paused):  # results of a paused one stay as they are
            records[q.id] = replace(records[q.id], replaces={t: old[t] for t in topics_written(q) if t in old})
    after = Deployed(plan, records, known_topics, begins)
    site.save(after)
    return after


def _replaced_now(
    plan: Plan, whole: Plan, old: Collection[str], rebuild: Collection[str], form: Form
) -> Collection[str]:
    """Topics with results whose old records go with the deployment, not with the first batch: all of streams.

    Of batches those that hold rows of INSERT VALUES, which are written once more, and those of changed queries that do not run.
    """
    if form == "stream":
        return list(old)
    inserted = {s.topic for i in plan.inserts for s in plan.sources if s.name == i.target}
    paused = {t for q in whole.queries if q.id in plan.paused and q.id in rebuild for t in topics_written(q)}
    return [t for t in old if t in inserted | paused]


def _of_topics(record: Record, query: QueryPlan, ids: Mapping[str, str]) -> Record:
    """With the ids of the topics that the query reads; those of topics that it has read before stay."""
    return replace(record, topic_ids={t: ids[t] for t in topics_read(query) if t in ids} | dict(record.topic_ids))


def _starting(record: Record, query: QueryPlan, begins: Offsets) -> Record:
    return replace(record, starts={t: begins[t] for t in topics_read(query) if t in begins})


def _record(site: Site, query: QueryPlan, before: Deployed, fresh: Collection[str], how: How, form: Form) -> Record:
    known = before.records.get(query.id)
    if known is None or query.id in fresh:
        return Record(query.definition, new_run(), form, how, buckets=_buckets(site, query) if form == "stream" else 0)
    return known

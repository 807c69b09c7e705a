"""A deployment to a Spark target, before anything runs: what stands against it, which queries begin anew, what is written. No pyspark."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from flowql.compiler.plan import codec
from flowql.compiler.plan import deployed as plans
from flowql.compiler.plan.diff import decide_change
from flowql.compiler.plan.topology import InsertValues, Plan, QueryPlan
from flowql.runtime.errors import OutsideRecords
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicDescription, TopicPartition
from flowql.runtime.spark.choose import Mode, is_native
from flowql.runtime.spark.engine.checkpoints import REBUILD, check_fits, check_partitions
from flowql.runtime.spark.engine.deployed import Deployed, Form, How, Record, new_run
from flowql.runtime.spark.engine.feeders import ensure_fed_topics, is_feeder, refuse_unfit, topic_fed_by, with_feeders
from flowql.runtime.spark.engine.order import begun_with, downstream, outside_topics, topics_read
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.spark.errors import CheckpointOfOtherQuery, ResultsOfBatch, SparkFailure
from flowql.runtime.spark.folders import remove
from flowql.runtime.spark.history import complete_queries, refuse_shared_files, refuse_unfit_files, topics_written
from flowql.runtime.spark.log_append import ensure_own_topics, epochs_topic, replace_with, replaced
from flowql.runtime.spark.log_offsets import Offsets, bounds, partition_offsets
from flowql.runtime.spark.settings import SparkSettings
from flowql.runtime.task.dead_letters import ensure_topic as ensure_letters
from flowql.runtime.topology.query import build_inserts, ensure_topics

_INSERTED = b"inserts"  # the key of the record
_CHUNK_ROWS, _CHUNK_BYTES = 1_000, 16 << 20


def topics_with_results(site: Site, before: Deployed) -> tuple[str, ...]:
    """Topics with records to which queries of this target have written, queries that were removed included."""
    found = {t for t, queries in _writers(before).items() if any(site.committed_epochs(q) is not None for q in queries)}
    there = sorted({*before.topics, *found} & site.partitions().keys())
    first, after = bounds(site.log, there)
    return tuple(t for t in there if first[t] != after[t])


def topics_to_replace(site: Site, before: Deployed, whole: Plan, fresh: Collection[str]) -> list[str]:
    """Topics with results of queries that begin anew. OutsideRecords if one holds records that others have written."""
    results, found = topics_with_results(site, before), []
    written = {t for q in whole.queries if q.id in fresh for t in topics_written(q)}
    for topic in sorted(written & site.partitions().keys()):
        now = [q for q in whole.queries if topic in topics_written(q)]
        if topic not in results and not any(_is_lost(site, before, q.id) for q in now):
            continue
        owned = any(map(is_feeder, now)) or any(s.topic == topic and s.query is not None for s in whole.sources)
        _refuse_outside(site, topic, [q.id for q in now], owned=owned)
        assert {q.id for q in now} <= set(fresh), "all queries that write to the same topic start again"
        found.append(topic)
    return found


def take_away(site: Site, plan: Plan, ends: Offsets, anew: Collection[str], now_ms: int) -> Offsets:
    """Records below `ends` go, and no epoch of the queries `anew` counts any more; rows of INSERT VALUES that are new or went with
    those records are written: in one transaction. Where a log deletes nothing with a transaction it does so right after.
    Where what comes instead begins: behind the tombstones of a table.
    """
    at, known = TopicPartition(epochs_topic(site.application_id), 0), _inserted(site)
    wanted = {_digest(i): i for i in plan.inserts}
    topics = {s.name: s.topic for s in plan.sources}
    rows = [i for d, i in wanted.items() if d not in known or topics[i.target] in ends]
    away = partition_offsets(ends)
    anew = [q for q in anew if site.committed_epochs(q) is not None]
    if not (rows or away or anew) and wanted.keys() == known:
        return {}
    records = build_inserts(plan, rows, site.log.admin(), now_ms)
    producer = site.log.producer(f"{site.application_id}-spark-inserts")
    try:
        producer.begin()
        gone = replace_with(site.log, producer, away, ())
        for tp, batch in records:
            producer.send(tp, batch)
        for query in anew:
            producer.send_positions(site.target(query).group, site.no_epochs(query))
        said = {"timestamp": now_ms, "key": _INSERTED, "value": json.dumps(sorted(wanted)).encode(), "headers": None}
        producer.send(at, pa.RecordBatch.from_pylist([said], schema=PRODUCE_SCHEMA))
        producer.commit()
    finally:
        producer.close()
    replaced(site.log, away)
    return {t: {p: end + gone.get(TopicPartition(t, int(p)), 0) for p, end in at.items()} for t, at in ends.items()}


def _is_lost(site: Site, before: Deployed, query: str) -> bool:
    """It has results in the log, and `plan.json` does not know of it."""
    committed = site.committed_epochs(query)
    return query not in before.records and committed is not None and committed.next_epoch > 0


def _writers(before: Deployed) -> dict[str, set[str]]:
    """Topic -> the queries that have written it, feeders included."""
    found: dict[str, set[str]] = {}
    for query in before.plan.queries:
        for topic in topics_written(query):
            found.setdefault(topic, set()).add(query.id)
    for name in before.records:
        topic_fed = topic_fed_by(name)
        if topic_fed is not None:
            found.setdefault(topic_fed, set()).add(name)
    return found


def _refuse_outside(site: Site, topic: str, queries: Collection[str], *, owned: bool) -> None:
    """owned: the topic is that of a result, where a log that does not say who has written is trusted."""
    admin, found = site.log.admin(), set[str]()
    for p in range(admin.partition_counts([topic])[topic]):
        found |= admin.writers(TopicPartition(topic, p)) or frozenset()
    others = sorted(w for w in found if not w.startswith(f"{site.application_id}-spark-"))
    if not others and (found or owned):
        return
    by = f" of {', '.join(others)}" if others else ", as far as is known,"
    raise OutsideRecords(
        f"{topic} holds records from outside{by} beside the results of {', '.join(queries)}: recomputing these would lose "
        "them; let the queries write to another topic (KAFKA_TOPIC), or use a target with another data_dir"
    )


def _inserted(site: Site) -> set[str]:
    """Digests of the inserts that were written."""
    found: set[str] = set()
    reader = site.log.reader(TopicPartition(epochs_topic(site.application_id), 0))
    while (raw := reader.read(_CHUNK_ROWS, _CHUNK_BYTES)) is not None:
        for row in raw.records.to_pylist():
            if row["key"] == _INSERTED:
                found = set(json.loads(row["value"]))
    reader.close()
    return found


def _digest(insert: InsertValues) -> str:
    return hashlib.sha256(json.dumps(codec.to_data(insert)).encode()).hexdigest()[:16]


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

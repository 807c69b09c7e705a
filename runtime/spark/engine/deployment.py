"""A deployment to a Spark target, before anything runs: what stands against it, what is thrown away, what is written. No pyspark."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Collection, Mapping
from dataclasses import replace

import pyarrow as pa

from compiler.plan import codec
from compiler.plan.topology import InsertValues, Plan, QueryPlan
from runtime.build.query import build_inserts, ensure_topics
from runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from runtime.spark.engine.checkpoints import REBUILD, check_fits
from runtime.spark.engine.deployed import Deployed, Form, How, Record, new_run, save, staging_of
from runtime.spark.engine.feeders import ensure_fed_topics, is_feeder, topic_fed_by, with_feeders
from runtime.spark.engine.order import downstream, topics_written
from runtime.spark.engine.site import Site
from runtime.spark.errors import CheckpointOfOtherQuery, ResultsOfBatch, SparkFailure
from runtime.spark.log_append import ensure_own_topics, places_topic
from runtime.spark.log_offsets import bounds
from runtime.spark.log_staging import clear

_INSERTED = b"inserts"  # the key of the record
_CHUNK_ROWS, _CHUNK_BYTES = 1_000, 16 << 20


def check(site: Site, before: Deployed, plan: Plan, form: Form) -> dict[str, SparkFailure]:
    """Query -> why it cannot go on from what is kept of it. `form`: how it is to run."""
    found: dict[str, SparkFailure] = {}
    for query in with_feeders(plan, site.settings.files).queries:
        record = before.records.get(query.id)
        try:
            if form == "stream":
                check_fits(query, record, site.place(query.id), site.checkpoint(query.id))
            elif record is not None and record.form == "stream" and site.place_of_record(query.id, record) is not None:
                title = f"{query.id} has been running as a stream here, and a batch would take the place of its results"
                raise ResultsOfBatch(title, help=f"leave out --bounded to go on with it; {REBUILD}")
        except SparkFailure as failure:
            found[query.id] = failure
    return found


def not_native_any_more(before: Deployed, how: Mapping[str, How]) -> dict[str, SparkFailure]:
    """Native streams that would have to be exact now, because somebody else reads them or the target says so."""
    title = "{} keeps its state as Spark does, and cannot from now on (flowql explain says why)"
    streams = (q for q, r in before.records.items() if (r.form, r.how) == ("stream", "native"))
    return {q: CheckpointOfOtherQuery(title.format(q), help=REBUILD) for q in streams if how.get(q) == "exact"}


def prepare(
    site: Site, before: Deployed, plan: Plan, how: dict[str, How], *, form: Form, rebuild: Collection[str], now_ms: int
) -> Deployed:
    """Make the folders and the log what `plan` needs, and write `plan.json`. Nothing of it runs meanwhile.

    rebuild: queries that begin anew; those that read them do, too. Batches always begin anew. how: of queries that begin. Results
    of streams that begin anew are dropped here; those of batches stay until others take their place.
    """
    ensure_fed_topics(plan, site.settings.files, site.log.admin())
    ensure_topics(plan, site.log.admin())
    direct = {q for q, is_one in how.items() if is_one == "native"} if form == "batch" else set()
    whole = with_feeders(plan, site.settings.files, direct)
    ensure_own_topics(site.log.admin(), site.application_id)
    fresh = downstream(whole, rebuild) if form == "stream" else {q.id for q in whole.queries}
    written = sorted({t for q in whole.queries if q.id in fresh for t in topics_written(q)})
    old = bounds(site.log, [topic for topic in written if _has_results(site, whole, topic, fresh)])[1]
    if form == "stream":
        for topic in old:
            site.drop_results(topic)
    gone = [q for q in before.records if whole.query(q) is None]
    for name in {*fresh, *gone}:
        shutil.rmtree(site.checkpoint(name), ignore_errors=True)
        clear(staging_of(site.state_dir), name)
    for name in gone:
        site.forget(name)
        if topic_fed_by(name) in site.settings.files:
            site.drop_results(topic_fed_by(name) or "")  # its files are read directly now
    _write_inserts(site, plan, now_ms)
    records = {q.id: _record(q, before, fresh, how.get(q.id, "exact"), form) for q in whole.queries}
    if form == "batch":
        for q in whole.queries:
            records[q.id] = replace(records[q.id], replaces={t: old[t] for t in topics_written(q) if t in old})
    after = Deployed(plan, records)
    save(site.state_dir, after)
    return after


def _record(query: QueryPlan, before: Deployed, fresh: Collection[str], how: How, form: Form) -> Record:
    known = before.records.get(query.id)
    if known is None or query.id in fresh:
        return Record(query.definition, new_run(), form, how)
    return known


def _has_results(site: Site, plan: Plan, topic: str, fresh: Collection[str]) -> bool:
    """Whether a topic has results that are to be computed anew; they must be all there is in it."""
    writers = [q for q in plan.queries if topic in topics_written(q)]
    written = [q.id for q in writers if site.place(q.id) is not None]
    owned = any(map(is_feeder, writers)) or any(s.topic == topic and s.query is not None for s in plan.sources)
    if not written:
        return False
    if not owned:
        title = f"{', '.join(written)} writes into {topic}, which also holds records from outside"
        raise SparkFailure(
            f"{title}: its results cannot be taken out again", help="use a target with a data_dir of its own"
        )
    assert set(written) <= set(fresh), "who writes to the same topic begins anew, too"
    return True


def _write_inserts(site: Site, plan: Plan, now_ms: int) -> None:
    """Rows of INSERT INTO ... VALUES, each written once: which ones were is written with them, as a record of the topic of places."""
    at, known = TopicPartition(places_topic(site.application_id), 0), _inserted(site)
    wanted = {_digest(i): i for i in plan.inserts}
    if wanted.keys() == known:
        return
    records = build_inserts(plan, [i for d, i in wanted.items() if d not in known], site.log.admin(), now_ms)
    producer = site.log.producer(f"{site.application_id}-spark-inserts")
    try:
        producer.begin()
        for tp, batch in records:
            producer.send(tp, batch)
        said = {"timestamp": now_ms, "key": _INSERTED, "value": json.dumps(sorted(wanted)).encode(), "headers": None}
        producer.send(at, pa.RecordBatch.from_pylist([said], schema=PRODUCE_SCHEMA))
        producer.commit()
    finally:
        producer.close()


def _inserted(site: Site) -> set[str]:
    """Digests of the inserts that were written."""
    found: set[str] = set()
    reader = site.log.reader(TopicPartition(places_topic(site.application_id), 0))
    while (raw := reader.read(_CHUNK_ROWS, _CHUNK_BYTES)) is not None:
        for row in raw.records.to_pylist():
            if row["key"] == _INSERTED:
                found = set(json.loads(row["value"]))
    reader.close()
    return found


def _digest(insert: InsertValues) -> str:
    return hashlib.sha256(json.dumps(codec.to_data(insert)).encode()).hexdigest()[:16]

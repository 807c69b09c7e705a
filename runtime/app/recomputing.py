"""Queries whose state is lost are computed again from their inputs: which of them can be, and why others cannot."""

from __future__ import annotations

from collections.abc import Mapping

from flowql.compiler.plan.generations import topics_read
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.compiler.plan.versions import topics_read_by_version
from flowql.runtime.app.hosts import PlanHost
from flowql.runtime.app.plan_writer import writer_id
from flowql.runtime.log.base import TopicInfo, TopicPartition
from flowql.runtime.log.compacted import removed_from

STATE_LOST = "its state is lost"


def unrecoverable(host: PlanHost, plan: Plan) -> dict[str, str]:
    """By query id, why a rebuild would lose rows: of its own results, or of a query that reads them."""
    known = host.admin.topics()
    found = {
        q.id: why
        for q in plan.queries
        if (why := _unreadable_history(host, plan, q, known) or _kept_result(host, q, known))
    }
    return _with_upstream(plan, found)


def _unreadable_history(host: PlanHost, plan: Plan, query: QueryPlan, known: Mapping[str, TopicInfo]) -> str:
    """Which input of a query is not whole (any more), or nothing. Results that are rebuilt count as whole."""
    written, admin = plan.writers, host.admin
    by_version = topics_read_by_version(query)
    for topic in topics_read(query):
        if topic not in written and topic not in known:
            return f"the topic {topic} is missing"
        for p in range(0 if topic in written else known[topic].partitions):
            begin = admin.begin_offset(TopicPartition(topic, p))
            if begin > host.deployed.begin(topic, p):
                return f"records of {topic}-{p} before offset {begin} are gone (retention)"
        if topic not in written and topic in by_version and (tp := removed_from(host.log, known[topic])):
            return f"records of {tp} that it has read are gone (compaction)"
    return ""


def _with_upstream(plan: Plan, gone: Mapping[str, str]) -> dict[str, str]:
    """Adds the queries whose results these read: a rebuild of those would rebuild these, too."""
    found = dict(gone)
    while more := {
        q.id: f"{reader.id} reads its results and cannot be rebuilt (afterwards:  flowql deploy --full-refresh {q.id})"
        for q in plan.queries
        for reader in plan.queries
        if q.id not in found and reader.id in found and q.topic in topics_read(reader)
    }:
        found |= more
    return found


def _kept_result(host: PlanHost, query: QueryPlan, known: Mapping[str, TopicInfo]) -> str:
    """Why the result of a query cannot be replaced, or nothing: others have written to its topic, too. known: the topics of the log."""
    topic = query.topic
    others = outside_writers(host, topic, known[topic].partitions) if topic in known else ""
    if not others:
        return ""
    return f"{topic} holds records that {others} has written, which a rebuild would lose: give the result another topic (KAFKA_TOPIC)"


def outside_writers(host: PlanHost, topic: str, partitions: int) -> str:
    """Who else has written to a topic, for messages. Empty on Kafka, whose brokers do not say it, and for members, which write under names of their own."""
    if host.config.shared:
        return ""
    own, found = {host.config.application_id, writer_id(host.config.application_id)}, set[str]()
    for p in range(partitions):
        found |= host.admin.writers(TopicPartition(topic, p)) or frozenset()
    return ", ".join(sorted(found - own))

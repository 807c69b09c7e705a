"""Refuses a deployment that would write once more what another application has written to the same log.

That happens when the name of a project was changed, and when two projects have results, or rows of INSERT VALUES, of the same topic.
An embedded log keeps which applications have written to a topic. Brokers do not: there the plan records of the other applications are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flowql.compiler.plan.deployed import Deployed
from flowql.compiler.plan.generations import topic_of
from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.app.hosts import PlanHost
from flowql.runtime.app.plan_topic import other_applications, read_others
from flowql.runtime.errors import OutsideRecords
from flowql.runtime.log.base import Admin, TopicPartition


def refuse_other_applications(host: PlanHost, after: Deployed) -> None:
    """OutsideRecords if a new result, or a new row of INSERT VALUES, would be in its topic with that of another application."""
    known, before, app = host.admin.topics(), host.deployed, host.config.application_id
    names = other_applications(app, known)
    if not names:
        return
    new = {q.topic: q for q in _new_results(before, after) if q.topic in known}
    rows = {(topic_of(after.plan, row), row) for row in after.plan.inserts} - before.rows_inserted()
    if not new and not rows:
        return
    others = read_others(host.log, app)
    for topic, query in new.items():
        partitions = [TopicPartition(topic, p) for p in range(known[topic].partitions)]
        for other in _writers(host.admin, topic, partitions, names, others):
            raise OutsideRecords(
                f"{topic} holds results of {other}, and {query.id} of {app} would write the same once more: where the name of the project "
                f"was changed, write  name: {other}  in flowql.yaml again; else give the result another topic (KAFKA_TOPIC), or "
                f"flowql topic delete {topic}"
            )
    for other, deployed in others.items():
        for topic in sorted({topic for topic, _ in rows & deployed.rows_inserted()} & known.keys()):
            raise OutsideRecords(
                f"{other} has written a row of INSERT VALUES to {topic} that {app} would write once more: where the name of the project was "
                f"changed, write  name: {other}  in flowql.yaml again; else take the statement out of this project"
            )


def _new_results(before: Deployed, after: Deployed) -> Iterator[QueryPlan]:
    """Queries that write a topic which no query of this application has written."""
    served = before.serving.writers
    yield from (q for q in after.plan.queries if q.topic not in served and before.history(q.topic) is None)


def _writers(
    admin: Admin,
    topic: str,
    partitions: Sequence[TopicPartition],
    names: Sequence[str],
    others: Mapping[str, Deployed],
) -> list[str]:
    """Other applications whose queries have written to a topic that has records."""
    found = set[str]()
    for tp in partitions:
        known = admin.writers(tp)
        if known is not None:
            found |= known & set(names)
        elif admin.end_offset(tp) > admin.begin_offset(tp):
            found |= {name for name, deployed in others.items() if _has_written(deployed, topic)}
    return sorted(found)


def _has_written(deployed: Deployed, topic: str) -> bool:
    return deployed.history(topic) is not None or topic in deployed.serving.writers

"""All topics and groups that an application has made for itself on its log, for commands that remove them."""

from __future__ import annotations

from typing import Literal

from flowql.compiler.plan.deployed import Deployed, groups_of
from flowql.runtime.app.exchanges import STORE as EXCHANGE_STORE
from flowql.runtime.app.hung_topic import topic_of as hung_topic
from flowql.runtime.app.internal_topics import deployed_internal
from flowql.runtime.app.member_topic import topic_name as members_topic
from flowql.runtime.app.plan_topic import other_applications
from flowql.runtime.app.plan_topic import topic_name as plan_topic
from flowql.runtime.app.written_keys import topic_name as written_keys_topic
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.repairs import topic_name as repairs_topic
from flowql.runtime.placement.heartbeats import heartbeat_topic
from flowql.runtime.placement.record import placement_topic
from flowql.runtime.state.changelog import changelog_topic, metadata_topic
from flowql.runtime.task.dead_letters import topic_name as dead_letter_topic
from flowql.runtime.ticks.record import tick_topic

# state: what state comes back from, and what waits between tasks. record: what was deployed, dead letters, repairs.
Use = Literal["state", "record"]


def topics_of(log: Log, application_id: str, deployed: Deployed) -> dict[str, Use]:
    """The existing ones, sorted. Topics of results are not among them."""
    app, known = application_id, log.admin().topics()
    state = {metadata_topic(app), changelog_topic(app, EXCHANGE_STORE.name), *deployed_internal(log, app, known)}
    names = (plan_topic, dead_letter_topic, repairs_topic, members_topic, written_keys_topic)
    record = {*(name(app) for name in names), hung_topic(app).topic, counter_of(app).topic}
    record |= {placement_topic(app).topic, heartbeat_topic(app).topic, tick_topic(app).topic}
    record |= {t for g in groups_of(deployed) for t in g.staging.values()}
    record |= {t for t in known if t.startswith(f"{dead_letter_topic(app)}-of-")}
    found: dict[str, Use] = {**dict.fromkeys(record, "record"), **dict.fromkeys(state, "state")}
    return {topic: found[topic] for topic in sorted(found) if topic in known}


def groups_of_application(log: Log, application_id: str) -> list[str]:
    """Groups with a position in the topic that numbers commits: that of the application, and those of its transactional ids."""
    admin, counter = log.admin(), counter_of(application_id)
    if counter.topic not in admin.topics():
        return []
    prefix = f"{application_id}-"
    others = other_applications(application_id, admin.topics())
    foreign = tuple(f"{o}-" for o in others if o.startswith(prefix))
    named = [g for g in admin.groups(application_id) if g == application_id or g.startswith(prefix)]
    mine = [g for g in named if g not in others and not g.startswith(foreign)]
    return [g for g in mine if g == application_id or admin.stable_positions(g, [counter])]


def counter_of(application_id: str) -> TopicPartition:
    """Where the positions are that number commits on Kafka."""
    return TopicPartition(f"{application_id}-commits", 0)

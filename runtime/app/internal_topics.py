"""Changelogs and repartition topics by their names: which of them an application has, and still needs.

Names begin with the application's, which may be the beginning of another's: `shop` and `shop-eu`. So a topic counts as this application's only
if a plan in its history of deployments has it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from flowql.compiler.plan.deployed import Deployed, running_plan
from flowql.compiler.plan.generations import plain, under_own_name
from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.app.plan_topic import other_applications, read_entries
from flowql.runtime.log.base import Log
from flowql.runtime.state.changelog import changelog_topic
from flowql.runtime.task.repartition import topic_of

_INTERNAL = re.compile(r"(?:\.g(\d+))?-changelog$|-repartition(?:\.g(\d+))?$")


def internal_topics(query: QueryPlan, application_id: str) -> Iterator[str]:
    """Those of one generation of a query."""
    for sub in query.subtopologies:
        for store in (s for op in sub.operators for s in op.stores):
            yield changelog_topic(application_id, store.name)
    for repartition in query.repartitions:
        yield topic_of(application_id, repartition)


def unneeded(log: Log, deployed: Deployed, application_id: str, topics: Collection[str]) -> list[str]:
    """Those among existing topics whose query, or its generation, was deployed and neither runs nor serves any more.

    A generation later than those on record may be announced just now: its topics are not among them.
    """
    queries = [*running_plan(deployed).queries, *(under_own_name(q) for q in deployed.serving.queries)]
    needed = {topic for q in queries for topic in internal_topics(q, application_id)}
    found = [t for t in _of_application(application_id, topics) if t not in needed]
    if not found:
        return []
    owners, last = _owners(log, application_id), dict(deployed.last)
    return [t for t in found if 1 <= _generation(t) <= last.get(owners.get(_plain(t), ""), 0)]


def deployed_internal(log: Log, application_id: str, topics: Collection[str]) -> list[str]:
    """Those among existing topics that any plan in the history of deployments has, of any generation."""
    owners = _owners(log, application_id)
    return [t for t in _of_application(application_id, topics) if _plain(t) in owners]


def _of_application(application_id: str, topics: Collection[str]) -> list[str]:
    """Internal topics by their names, without those of applications whose name begins with this one's."""
    prefix = f"{application_id}-"
    others = tuple(f"{o}-" for o in other_applications(application_id, topics) if o.startswith(prefix))
    return [t for t in topics if t.startswith(prefix) and not t.startswith(others) and _INTERNAL.search(t)]


def _owners(log: Log, application_id: str) -> dict[str, str]:
    """Internal topics of all queries in the history of deployments, by their names in the first generation, with the id of the query."""
    return {
        _plain(topic): plain(query.id, query.generation)
        for entry in read_entries(log, application_id)
        for query in entry.plan.queries
        for topic in internal_topics(query, application_id)
    }


def _generation(topic: str) -> int:
    """The generation that an internal topic belongs to.

    >>> _generation("a-CTAS_A-aggregate-1-changelog"), _generation("a-CTAS_A-aggregate-1.g2-changelog")
    (1, 2)
    >>> _generation("a-CTAS_A-aggregate-2-repartition.g3")
    3
    """
    found = _INTERNAL.search(topic)
    assert found is not None, f"{topic} is not an internal topic"
    return int(found[1] or found[2] or 1)


def _plain(topic: str) -> str:
    """The name of an internal topic in the first generation.

    >>> _plain("a-SOME.g2-changelog"), _plain("a-CTAS_A-aggregate-2-repartition.g3")
    ('a-SOME-changelog', 'a-CTAS_A-aggregate-2-repartition')
    """
    return re.sub(r"\.g\d+(?=-changelog$)|\.g\d+$", "", topic)

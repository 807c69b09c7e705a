"""Changelogs and repartition topics by their names: which of them an application has.

Names begin with the application's, which may be the beginning of another's: `shop` and `shop-eu`. So a topic counts as this application's only
if a plan in its history of deployments has it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from flowql.compiler.plan.generations import plain
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


def _plain(topic: str) -> str:
    """The name of an internal topic in the first generation.

    >>> _plain("a-SOME.g2-changelog"), _plain("a-CTAS_A-aggregate-2-repartition.g3")
    ('a-SOME-changelog', 'a-CTAS_A-aggregate-2-repartition')
    """
    return re.sub(r"\.g\d+(?=-changelog$)|\.g\d+$", "", topic)

"""How many partitions topics have, are declared to have, and will have when a change is done."""

from __future__ import annotations

from collections.abc import Mapping

from flowql.compiler.plan.deployed import Deployed, groups_of
from flowql.compiler.plan.generations import topics_read
from flowql.compiler.plan.topology import Plan, QueryPlan, sink_of

Partitions = Mapping[str, int]
NONE_KNOWN: Partitions = {}


def declared_partitions(plan: Plan) -> dict[str, tuple[str, int | None]]:
    """Topic -> what declares its partitions, and how many; None: as many as what it is made of."""
    found: dict[str, tuple[str, int | None]] = {
        s.topic: (s.name, s.partitions) for s in plan.sources if s.query is None and s.partitions
    }
    for topic, queries in plan.writers.items():
        found.setdefault(topic, (queries[0].sink, sink_of(queries[0]).partitions))
    return found


def redeclared(before: Plan, wanted: Plan) -> dict[str, int]:
    """Topics whose number of partitions is declared in both plans, and another one now.

    What a first declaration says of a topic that exists is not looked at: scripts for other systems say what held there.
    """
    was = declared_partitions(before)
    now = declared_partitions(wanted) if was else {}
    return {t: n for t, (_, n) in now.items() if n is not None and t in was and was[t][1] != n}


def resized_sources(before: Deployed, wanted: Plan, known: Partitions) -> dict[str, int]:
    """Topics with records from outside that are to get another number of partitions. known: how many they have."""
    plan = before.plan
    changed = redeclared(plan, wanted)
    written = {*plan.writers, *before.serving.writers, *wanted.writers} if changed else ()
    outside = {t: n for t, n in changed.items() if t not in written and before.history(t) is None}
    return {t: n for t, n in outside.items() if t in known and known[t] != n}


def reads_any(query: QueryPlan, topics: Mapping[str, object]) -> bool:
    """Whether it reads one of them itself."""
    return any(t in topics for t in topics_read(query))


def as_wanted(deployed: Deployed, known: Partitions) -> dict[str, int]:
    """How many partitions topics will have once what is being built serves: as many as their staging topics have now."""
    building = {t: staging for group in groups_of(deployed) for t, staging in group.staging.items()}
    return {**known, **{t: known[staging] for t, staging in building.items() if staging in known}}

"""What a deployment does, decided before anything is done: one value that is printed and applied, so a dry run cannot lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from compiler.diagnostics.suggest import did_you_mean
from compiler.plan.diff import QueryChange, diff_plans
from compiler.plan.logical import Scan, Sink, walk_nodes
from compiler.plan.topology import Plan, QueryPlan
from flowql.errors import CommandError

CONFLICT, NO_QUERY = "FQ5201", "FQ5202"


@dataclass(frozen=True, slots=True)
class Deployment:
    """A decided deployment.

    plan: what will run. changes: every query's fate, as printed. withheld: removals that wait for `--prune`; these queries
    are in `plan` and go on running.
    """

    plan: Plan
    changes: tuple[QueryChange, ...]
    withheld: tuple[str, ...] = ()

    @property
    def applicable(self) -> tuple[QueryChange, ...]:
        """What the engine is asked to do."""
        return tuple(c for c in self.changes if c.action != "none" and c.query not in self.withheld)

    def to_data(self, *, applied: bool) -> dict[str, Any]:
        """The public JSON of a deployment."""
        return {
            "changes": [{"query": c.query, "action": c.action, "state": c.state} for c in self.changes],
            "applied": applied,
            "withheld": list(self.withheld),
        }


def decide(running: Plan, wanted: Plan, *, prune: bool) -> Deployment:
    """How to come from what runs to what is wanted. Without `prune` nothing that runs is removed.

    What is paused stays so, and of what is new begins so what the project pauses.

    Raises CommandError when a query that would go on running no longer fits the project.
    """
    changes = diff_plans(running, wanted)
    begins = tuple(q for q in wanted.paused if running.query(q) is None)
    wanted = replace(wanted, paused=(*running.paused, *begins))
    removed = [c.query for c in changes if c.action == "remove"]
    if prune or not removed:
        paused = tuple(q for q in wanted.paused if q not in removed)
        return Deployment(replace(wanted, paused=paused), changes)
    kept = [q for q in running.queries if q.id in removed]
    for query in kept:
        _check_fits(query, running, wanted)
    names = {s.name for s in wanted.sources}
    needed = {n for q in kept for n in names_of(q)} - names
    sources = tuple(s for s in running.sources if s.name in needed)
    plan = replace(wanted, sources=wanted.sources + sources, queries=wanted.queries + tuple(kept))
    changes = tuple(replace(c, state="kept") if c.query in removed else c for c in changes)
    return Deployment(plan, changes, tuple(removed))


def names_of(query: QueryPlan) -> list[str]:
    """Streams and tables a query reads or writes."""
    return _reads(query) + [n.spec.name for n in walk_nodes(query.logical) if isinstance(n.spec, Sink)]


def _reads(query: QueryPlan) -> list[str]:
    return [n.spec.source for n in walk_nodes(query.logical) if isinstance(n.spec, Scan)]


def _check_fits(query: QueryPlan, running: Plan, wanted: Plan) -> None:
    made, defined = running.source(query.sink), wanted.source(query.sink)
    if made is not None and made.query == query.id and defined is not None:
        title = f"{query.id} still runs and makes {query.sink}, which the project now defines differently"
        raise CommandError(title, code=CONFLICT, help="remove the old query with it:  flowql deploy --prune")


def select(plan: Plan, names: Sequence[str]) -> Plan:
    """The part of a plan that the named queries (by id or by name of their result) need. All of it for no names."""
    if not names:
        return plan
    chosen = {query.id: query for name in names for query in [find_query(plan, name)]}
    waiting = list(chosen.values())
    while waiting:
        for query in _needed_by(plan, waiting.pop()):
            if query.id not in chosen:
                chosen[query.id] = query
                waiting.append(query)
    needed = {n for q in chosen.values() for n in names_of(q)}
    return replace(
        plan,
        sources=tuple(s for s in plan.sources if s.name in needed),
        queries=tuple(q for q in plan.queries if q.id in chosen),
        inserts=tuple(i for i in plan.inserts if i.target in needed),
    )


def _needed_by(plan: Plan, query: QueryPlan) -> list[QueryPlan]:
    """Who writes what it reads (also as a topic: a source may be declared over a result) or what it inserts into.

    Not who writes the same topic under another name: those have nothing to do with each other.
    """
    topics = {s.name: s.topic for s in plan.sources}
    names, read = names_of(query), {topics[n] for n in _reads(query) if n in topics}
    return [q for q in plan.queries if q.sink in names or topics.get(q.sink) in read]


def find_query(plan: Plan, name: str) -> QueryPlan:
    """By id or by name of its result, in any case. Raises CommandError with the nearest name."""
    for query in plan.queries:
        if name in (query.id, query.sink):
            return query
    for query in plan.queries:
        if name.casefold() in (query.id.casefold(), query.sink.casefold()):
            return query
    known = [n for q in plan.queries for n in (q.id, q.sink)]
    hint = did_you_mean(name, known) or f"queries are {', '.join(q.id for q in plan.queries)}"
    raise CommandError(f"there is no query {name}", code=NO_QUERY, help=hint)

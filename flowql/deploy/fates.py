"""What becomes of each query, in words: its class, and why that is so."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from flowql.compiler.functions.user import is_users, plain_name
from flowql.compiler.physical.unrepeatable import unrepeatable_calls
from flowql.compiler.plan.deployed import Deployed
from flowql.compiler.plan.diff import QueryChange
from flowql.compiler.plan.generations import runtime_name
from flowql.compiler.plan.logical import Scan, walk_nodes
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.compiler.plan.visit import functions_called

# metadata: its priority, or how its text is written. compatible: what it reads has changed, and its state is still right.
# forward: its new text applies to new records.
Class = Literal["unchanged", "metadata", "compatible", "added", "forward", "rebuilt", "removed"]
_BUILDING = {"": "", "continued": "it is being built already", "dropped": "its new generation is dropped"}


@dataclass(frozen=True, slots=True)
class Fate:
    """A change with its class. why: one line, empty where nothing is to be said. parent: id of the query whose rebuild is the cause."""

    change: QueryChange
    kind: Class
    why: str = ""
    parent: str = ""


def fate_of(change: QueryChange, deployed: Deployed, plan: Plan, withheld: Collection[str]) -> Fate:
    """plan: what will run."""
    fate = _fate_of(change, deployed, plan, withheld)
    said = [s for s in (fate.why, _BUILDING[change.building]) if s]
    return replace(fate, why="; ".join(said))


def _fate_of(change: QueryChange, deployed: Deployed, plan: Plan, withheld: Collection[str]) -> Fate:
    old, new = deployed.serving.by_id.get(change.query), plan.by_id.get(change.query)
    parent = change.because if change.because in plan.by_id else ""
    if change.action == "remove" and new is not None:
        also = f"; rebuilt because of {change.because}" if change.state == "rebuilt" else ""
        return Fate(change, "removed", f"needs --prune{also}" if change.query in withheld else also[2:], parent)
    if change.action == "remove":
        return Fate(change, "removed")
    if change.action == "add":
        return Fate(change, "added", f"with {change.because}" if parent else change.because, parent)
    assert old is not None, "what does not serve is added"
    assert new is not None, "what is gone is removed"
    if change.action == "change":
        why = (
            f"because of {change.because}"
            if parent
            else change.because or _own_change(old, new, deployed.serving, plan)
        )
        return Fate(change, "rebuilt", "; ".join((why, *_differs(old, new, deployed))), parent)
    if change.action == "forward":
        return Fate(change, "forward", f"its new text applies to new records ({change.because})")
    if change.action == "priority":
        return Fate(change, "metadata", f"{_priority(new)}, was {_priority(old)}")
    changed = _sources_changed(new, deployed.plan, plan)
    if changed:
        use = "only in columns that it does not use"
        return Fate(change, "compatible", f"{', '.join(changed)} {_has(changed)} changed {use}")
    if old.on_change != new.on_change:
        return Fate(
            change, "metadata", f"ON_CHANGE is {new.on_change or 'not given'}, was {old.on_change or 'not given'}"
        )
    if old.sql.split() != new.sql.split():
        return Fate(change, "metadata", "written otherwise, and means the same")
    return Fate(change, "unchanged")


def _own_change(old: QueryPlan, new: QueryPlan, before: Plan, after: Plan) -> str:
    """What of a query means something else now: its text, a declaration that it reads or a function of the project that it calls."""
    if old.sql.split() != new.sql.split():
        return "its text has changed"
    sources = ((n, before.source(n), after.source(n)) for n in _sources_read(new))
    declared = [
        n for n, was, now in sources if was and now and replace(was, statement="") != replace(now, statement="")
    ]
    if declared:
        return f"the declaration of {', '.join(declared)} has changed"
    added = functions_called(new.logical) - functions_called(old.logical)
    functions = sorted({plain_name(name) for name in added if is_users(name)})
    return f"{', '.join(functions)} {_has(functions)} changed" if functions else "its text has changed"


def _has(names: Collection[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _sources_read(query: QueryPlan) -> list[str]:
    return list(dict.fromkeys(n.spec.source for n in walk_nodes(query.logical) if isinstance(n.spec, Scan)))


def _differs(old: QueryPlan, new: QueryPlan, deployed: Deployed) -> list[str]:
    """Why a rebuilt result is another one even where its text is the same, in sentences."""
    found: list[str] = []
    since = [f.deployment for f in deployed.forwards if f.query == runtime_name(old)]
    if since:
        found.append(f"all history with the newest text, which came forward in deployment {', '.join(map(str, since))}")
    if functions := unrepeatable_calls(new.logical, builtin=True):
        found.append(f"{', '.join(functions)} will give other values")
    return found


def _priority(query: QueryPlan) -> str:
    target = f", latency target {query.latency_target_ms} ms" if query.latency_target_ms else ""
    return f"{query.priority} (weight {query.weight}{target})"


def _sources_changed(query: QueryPlan, before: Plan, after: Plan) -> list[str]:
    """What it reads and is declared with other columns now. That it means the same is proven by its definition, which has not changed."""
    pairs = [(n, before.source(n), after.source(n)) for n in _sources_read(query)]
    return [n for n, old, new in pairs if old is not None and new is not None and old.schema != new.schema]

"""What a deployment does, decided before anything is done: one value that is printed and applied, so a dry run cannot lie."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from compiler.plan.deployed import Deployed
from compiler.plan.diff import Change, QueryChange, decide_change
from compiler.plan.topology import Plan
from flowql.deploy.asked import NOTHING_ELSE, Asked
from flowql.deploy.selection import merged


@dataclass(frozen=True, slots=True)
class Deployment:
    """A decided deployment.

    plan: what will run. change: what the engine will do, and the record that makes it true. changes: every query's fate, as
    printed. withheld: removals that wait for `--prune`; these queries are in `plan` and go on running.
    """

    plan: Plan
    change: Change
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


def decide(deployed: Deployed, wanted: Plan, asked: Asked = NOTHING_ELSE) -> Deployment:
    """How to come from what is deployed to what is wanted. Without `prune` nothing that runs is removed.

    wanted: the whole project; queries that are not selected stay as they run. What is paused stays so, and of what is new begins so
    what the project pauses.

    Raises CommandError when a query that would go on running no longer fits the project.
    """
    selected, prune = asked.selected, asked.prune
    base = deployed.plan
    removed = [q.id for q in base.queries if wanted.query(q.id) is None and (selected is None or q.id in selected)]
    plan = merged(base, wanted, selected, removed if prune else ())
    change = decide_change(deployed, plan, refresh=asked.refresh)
    withheld = () if prune else tuple(removed)
    return Deployment(plan, change, _shown(change.changes, withheld), withheld)


def _shown(changes: Collection[QueryChange], withheld: Collection[str]) -> tuple[QueryChange, ...]:
    """Removals come last, also those that wait."""
    kept = [c for c in changes if c.query not in withheld]
    return (*kept, *(replace(c, action="remove") for c in changes if c.query in withheld))

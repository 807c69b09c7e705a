"""The decision of a deployment, made before any change: one value that is both printed and applied, so a dry run shows what will happen."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flowql.compiler.plan.deployed import Deployed, Hold
from flowql.compiler.plan.diff import ForwardRefused, PlanChange, QueryChange, decide_change
from flowql.compiler.plan.partitions import NONE_KNOWN, Partitions
from flowql.compiler.plan.topology import InsertValues, Plan
from flowql.deploy.control import with_paused
from flowql.deploy.costs import Costs, Reads
from flowql.deploy.fates import Fate, fate_of
from flowql.deploy.request import DEFAULT_REQUEST, DeployRequest
from flowql.deploy.selection import merged
from flowql.errors import CommandError

REFUSED = "FQ5220"
NO_COSTS = Costs()


@dataclass(frozen=True, slots=True)
class Deployment:
    """A decided deployment.

    plan: the plan after the deployment. change: the actions of the engine, and the deployment record. fates: of every
    query, as printed. withheld: removals that wait for `--prune`; these queries are in `plan` and continue to run. forward: ids of
    queries that continue with their new text without a rebuild. waiting: queries whose built generation waits for promotion already.
    left: rows that stayed in topics before it (`Deployed.left`).
    """

    plan: Plan
    change: PlanChange
    fates: tuple[Fate, ...]
    withheld: tuple[str, ...] = ()
    forward: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    left: tuple[tuple[str, InsertValues], ...] = ()

    @property
    def changes(self) -> tuple[QueryChange, ...]:
        return tuple(f.change for f in self.fates)

    @property
    def applicable(self) -> tuple[QueryChange, ...]:
        """The changes that the engine has to make."""
        return tuple(c for c in self.changes if c.action != "none" and c.query not in self.withheld)

    @property
    def begun(self) -> dict[str, str]:
        """Queries that are computed from the beginning: id -> action."""
        changes = {c.query: c.action for c in self.change.changes}
        return {q: action for q, action in changes.items() if action in ("add", "change")}

    def to_data(self, costs: Costs = NO_COSTS, *, applied: bool) -> dict[str, Any]:
        """The public JSON of a deployment."""
        found = [self._change_data(f, costs.reads.get(f.change.query)) for f in self.fates]
        return {
            "id": self.change.deployed.id,
            "changes": found,
            "applied": applied,
            "withheld": list(self.withheld),
            "lost_history": list(costs.lost),
            "disk_bytes": costs.disk_bytes,
            "held": list(self.change.deployed.held),
            "waiting": list(self.waiting),
            "rows_left": self._rows_left(),
        }

    def _rows_left(self) -> dict[str, int]:
        """By topic, how many rows of INSERT VALUES the project no longer has, from this deployment on."""
        new = [topic for topic, row in self.change.deployed.left if (topic, row) not in self.left]
        return {topic: new.count(topic) for topic in dict.fromkeys(new)}

    def _change_data(self, fate: Fate, reads: Reads | None) -> dict[str, Any]:
        c = fate.change
        return {
            "query": c.query,
            "action": c.action,
            "state": c.state,
            "class": fate.kind,
            "because": fate.parent or None,
            "why": fate.why,
            "generation": c.generation,
            "building": c.building or None,
            "reads": None if reads is None else reads.to_data(),
        }


def decide(
    deployed: Deployed, wanted: Plan, request: DeployRequest = DEFAULT_REQUEST, *, partitions: Partitions = NONE_KNOWN
) -> Deployment:
    """Decides how to get from the deployed plan to the wanted one. Without `prune` no running query is removed.

    wanted: the whole project; queries that are not selected stay as they run. partitions: of existing topics. Paused queries stay paused, and new
    queries start paused if the project or the request pauses them.

    Raises CommandError if a query that would continue to run no longer fits the project, or cannot continue with its new text.
    """
    selected, prune = request.selected, request.prune
    base = deployed.plan
    removed = [q.id for q in base.queries if q.id not in wanted.by_id and (selected is None or q.id in selected)]
    plan = merged(base, wanted, selected, removed if prune else ())
    if request.without:
        plan, _ = with_paused(plan, request.without, paused=True)
    forward = tuple(q.id for q in plan.queries if request.forward and (selected is None or q.id in selected))
    change = _decided(deployed, plan, request, forward, partitions)
    withheld = () if prune else tuple(removed)
    fates = tuple(fate_of(c, deployed, plan, withheld) for c in _shown(change.changes, withheld))
    return Deployment(plan, change, fates, withheld, forward, deployed.held, deployed.left)


def _decided(
    deployed: Deployed, plan: Plan, request: DeployRequest, forward: Sequence[str], partitions: Partitions
) -> PlanChange:
    try:
        return decide_change(
            deployed,
            plan,
            refresh=request.refresh,
            forward=forward,
            partitions=partitions,
            swap=Hold(hold=request.shadow),
        )
    except ForwardRefused as error:
        title = "\n".join(f"{query} cannot continue with its new SQL: {why}" for query, why in error.reasons)
        names = " ".join(f"--full-refresh {query}" for query, _ in error.reasons)
        ways = "deploy without --forward, or" if request.forward else "to rebuild it nevertheless:"
        raise CommandError(title, code=REFUSED, help=f"{ways}  flowql deploy {names}") from error


def _shown(changes: Collection[QueryChange], withheld: Collection[str]) -> tuple[QueryChange, ...]:
    """Removals come last, also those that wait."""
    kept = [c for c in changes if c.query not in withheld]
    return (*kept, *(replace(c, action="remove") for c in changes if c.query in withheld))

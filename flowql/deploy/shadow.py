"""Generations that are built and not to serve yet: which are meant, and what promoting or abandoning them asks of a deployment."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.plan.deployed import Deployed, Hold, SwapGroup, groups_of, is_held, without
from flowql.compiler.plan.generations import runtime_name
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.errors import CommandError

NOTHING_BUILT, NOT_YET = "FQ5215", "FQ5216"


def group_of(deployed: Deployed, name: str) -> tuple[SwapGroup, QueryPlan]:
    """The new generation of a query, and all that swaps in with it. name: of the query or its result, in any case. CommandError."""
    for group in groups_of(deployed):
        for query in group.queries:
            if name.casefold() in (query.id.casefold(), query.sink.casefold()):
                return group, query
    built = [q.id for q in deployed.building]
    title = f"no generation of {name} is being built"
    raise CommandError(
        title, code=NOTHING_BUILT, help=f"built are {', '.join(built)}" if built else "flowql deploy --shadow"
    )


def groups_meant(deployed: Deployed, name: str | None) -> Sequence[SwapGroup]:
    """The group of a query, or all of them. CommandError if nothing is built."""
    if name is not None:
        return [group_of(deployed, name)[0]]
    found = groups_of(deployed)
    if not found:
        raise CommandError("no generation is being built", code=NOTHING_BUILT, help="flowql deploy --shadow")
    return found


def promoted(deployed: Deployed, name: str | None) -> tuple[Plan, Hold, list[str]]:
    """The plan to deploy, its options for the swap, and the ids of the promoted queries. Raises CommandError."""
    groups = groups_meant(deployed, name)
    if not any(is_held(deployed, g) for g in groups):
        title = f"{', '.join(_ids(groups))}: not held back; it serves as soon as it has come up"
        raise CommandError(title, code=NOTHING_BUILT, help="flowql status")
    return deployed.plan, Hold(promoted=tuple(_ids(groups))), _ids(groups)


def abandoned(deployed: Deployed, name: str | None) -> tuple[Plan, Hold, list[str]]:
    """As `promoted`. What must be rebuilt because the serving generation cannot go on is not to be abandoned."""
    groups, lost = groups_meant(deployed, name), dict(deployed.lost)
    stuck = [q.id for g in groups for q in g.gone if runtime_name(q) in lost]
    if stuck:
        title = f"{', '.join(stuck)} cannot continue: its state is gone, or its input lies in other partitions now"
        raise CommandError(title, code=NOTHING_BUILT, help="flowql promote")
    return without(deployed, groups), Hold(abandoned=tuple(_ids(groups))), _ids(groups)


def _ids(groups: Sequence[SwapGroup]) -> list[str]:
    return [q.id for group in groups for q in group.queries]

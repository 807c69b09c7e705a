"""Members of a group agree on ticks in the thread of the placement, whose leader writes them (`flowql.runtime.ticks.step`)."""

from __future__ import annotations

from flowql.compiler.plan.generations import runtime_name
from flowql.runtime.app.group import GroupStep
from flowql.runtime.app.hosts import DeploymentHost
from flowql.runtime.app.swapping import group_of_swap
from flowql.runtime.ticks.member import MemberTicks
from flowql.runtime.ticks.step import TickStep
from flowql.runtime.ticks.ticks import Ticks


def agree_on_ticks(host: DeploymentHost, ticks: Ticks | MemberTicks, group: GroupStep | None) -> None:
    """Connects the ticks of a member with those of the others; an instance that is alone has its own."""
    if group is None or not isinstance(ticks, MemberTicks):
        return
    step = TickStep(host.log, host.config.application_id, host.clock, ticks, lambda: group.planned.reads)
    host.placement.also = step.run_once
    ticks.wake, ticks.free = lambda: host.placement.wake(), lambda: _swapping_in(host)


def _swapping_in(host: DeploymentHost) -> frozenset[str]:
    """Queries of a generation that takes over: their tasks read what they can get, and are parked there."""
    found = group_of_swap(host.deployed)
    return frozenset() if found is None else frozenset(map(runtime_name, found.queries))

"""Both generations of a group at one place of the input, where several instances share their tasks.

The tasks are parked as for a swap (`flowql.runtime.app.swapping`): each member commits and stops those that it has. For a group that is held
back, the leader records no moves, so topics do not change; as soon as the results have been looked at, the swap is taken back
and the tasks go on. An instance that dies meanwhile leaves that to the leader, which does so after a while.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress

from flowql.compiler.plan.deployed import SwapGroup, groups_of, is_held
from flowql.runtime.app import group_swap
from flowql.runtime.app.group_swap import GroupSwap
from flowql.runtime.app.hosts import PlanHost
from flowql.runtime.app.plan_writer import write_after, writer_of
from flowql.runtime.app.swapping import BUILT, begun, results_are_seen, taken_back
from flowql.runtime.errors import LogError, RuntimeFailure

TOGETHER_MS = 5_000  # the serving generation is held up for at most this long
BUSY = "another comparison, deployment or swap is under way"


class ComparisonUnavailable(RuntimeFailure):
    """The generations have not reached the same offsets in time; the comparison may be repeated."""


def side_by_side(
    host: PlanHost, swap: GroupSwap, group: SwapGroup, look: Callable[[], None], wait: Callable[[], None]
) -> int:
    """Calls `look` while both generations stand still. How many records of the input the new one has read that the serving one has not.

    ComparisonUnavailable if they do not come together, or if another deployment comes first. wait: a moment; not the thread of a step.
    """
    if not is_held(host.deployed, group):
        raise ComparisonUnavailable(
            "it is not held back, and several instances share it: what is to be compared is deployed with --shadow"
        )
    _free(host, swap, group, wait)
    if (why := swap.why.get(group.name, BUSY)) != BUILT:
        raise ComparisonUnavailable(why)
    number = _begun(host, group, wait)
    try:
        ahead = _parked(host, swap, number, wait)
        _await(host, lambda: results_are_seen(host.admin, group), "results are not to be seen yet", wait)
        look()
    finally:
        still = _let_go(host, number)
        with suppress(ComparisonUnavailable):  # the next comparison finds both generations running
            _await(host, lambda: host.deployed.swap is None or host.deployed.swap.id != number, "", wait)
    if not still:
        raise ComparisonUnavailable("tasks went on before they had been looked at")
    return ahead


def _free(host: PlanHost, swap: GroupSwap, group: SwapGroup, wait: Callable[[], None]) -> None:
    """Until no swap is on record, and this member, which may just have started, has looked at the group. The leader takes back the
    comparison of an instance that died.
    """
    left_ms = group_swap.TOGETHER_MS + TOGETHER_MS
    _await(host, lambda: host.deployed.swap is None and group.name in swap.why, BUSY, wait, left_ms)


def _begun(host: PlanHost, group: SwapGroup, wait: Callable[[], None]) -> int:
    """The tasks are to be parked. The id of the swap for which."""
    numbers: list[int] = []

    def written() -> bool:
        before = host.deployed
        if group not in groups_of(before) or not is_held(before, group):
            raise ComparisonUnavailable("another deployment came first")
        if before.swap is None and write_after(host, before, begun(before, group)):
            numbers.append(before.swaps + 1)
        return bool(numbers)

    _await(host, written, BUSY, wait)
    return numbers[0]


def _parked(host: PlanHost, swap: GroupSwap, number: int, wait: Callable[[], None]) -> int:
    _await(host, lambda: host.deployed.swaps >= number, "this instance does not read the plan", wait)

    def stopped() -> bool:
        now = host.deployed.swap
        if now is None or now.id != number:
            raise ComparisonUnavailable("tasks did not stop in time, or another deployment came first")
        return swap.ahead[0] == number

    _await(host, stopped, "tasks did not stop in time", wait)
    return swap.ahead[1]


def _await(host: PlanHost, done: Callable[[], bool], why: str, wait: Callable[[], None], ms: int = TOGETHER_MS) -> None:
    end_ms = host.clock.timer_ms() + ms
    while not done():
        if host.clock.timer_ms() > end_ms:
            raise ComparisonUnavailable(why)
        wait()


def _let_go(host: PlanHost, number: int) -> bool:
    """Lets the tasks continue. Returns whether they were parked. Leaves failures to the leader."""
    with suppress(LogError, RuntimeFailure), closing(writer_of(host)) as writer:
        now = writer.deployed
        if now.swap is not None and now.swap.id == number:
            writer.write(taken_back(now), host.clock.wall_ms())
            return True
    return False

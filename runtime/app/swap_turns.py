"""Which generation that is built swaps in next, and when one whose swap has failed is tried again: in an instance alone as in a group."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flowql.compiler.plan.deployed import SwapGroup, groups_of, is_held
from flowql.runtime.app.hosts import QueryHost
from flowql.runtime.app.swapping import BUILT

AGAIN_MS, AGAIN_MS_MAX = 1_000, 30_000  # between two attempts


class SwapTurns:
    """Owned by the reconciler's thread, but for `why`: by name of a group, what its swap waits for, for status."""

    def __init__(self, host: QueryHost) -> None:
        self._host = host
        self.why: dict[str, str] = {}
        self._next_try: dict[str, tuple[int, int]] = {}  # group -> when (ms), failures in a row

    def is_due(self, group: str, now_ms: int) -> bool:
        return now_ms >= self._next_try.get(group, (0, 0))[0]

    def due(self, now_ms: int) -> Iterator[SwapGroup]:
        """Groups to look at, in the order of their turns."""
        return (group for group in groups_of(self._host.deployed) if self.is_due(group.name, now_ms))

    def is_ready(self, group: SwapGroup, far: str, damaged: Callable[[], Exception | None] = lambda: None) -> bool:
        """far: why it is not to be swapped yet, or nothing. damaged: why it never is; asked only of one that would swap now."""
        self.why[group.name] = far or (BUILT if is_held(self._host.deployed, group) else "") or str(damaged() or "")
        return not self.why[group.name]

    def postpone(self, group: SwapGroup, why: str) -> None:
        _, failures = self._next_try.get(group.name, (0, 0))
        wait = min(AGAIN_MS_MAX, AGAIN_MS << min(failures, 10))
        self._next_try[group.name] = self._host.clock.timer_ms() + wait, failures + 1
        self.why[group.name] = why

    def done(self, group: SwapGroup) -> None:
        """It serves."""
        self._next_try.pop(group.name, None)
        self.why.pop(group.name, None)

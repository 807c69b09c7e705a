"""Which built generation swaps in next, how far it is behind, and when a swap that failed is tried again. An instance alone and a group share it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from flowql.compiler.plan.deployed import SwapGroup, groups_of, is_held
from flowql.runtime.app.hosts import QueryHost
from flowql.runtime.app.swapping import BUILT, NEAR_RECORDS
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.task.repartition import topic_of

AGAIN_MS, AGAIN_MS_MAX = 1_000, 30_000  # between two attempts

Positions = Mapping[TopicPartition, int]


class SwapTurns:
    """Owned by the reconciler's thread, but for `why`: by name of a group, what its swap waits for, for status."""

    def __init__(self, host: QueryHost) -> None:
        self._host, self._app = host, host.config.application_id
        self.why: dict[str, str] = {}
        self._next_try: dict[str, tuple[int, int]] = {}  # group -> when (ms), failures in a row
        # By group, offsets that the serving generation had reached at a look. The new one must reach them before it swaps in.
        self.targets: dict[str, dict[TopicPartition, int]] = {}

    def is_due(self, group: str, now_ms: int) -> bool:
        return now_ms >= self._next_try.get(group, (0, 0))[0]

    def due(self, now_ms: int) -> Iterator[SwapGroup]:
        """Groups to look at, in the order of their turns."""
        return (group for group in groups_of(self._host.deployed) if self.is_due(group.name, now_ms))

    def is_ready(self, group: SwapGroup, far: str, damaged: Callable[[], Exception | None] = lambda: None) -> bool:
        """far: why it is not to be swapped yet, or nothing. damaged: why it never is; asked only of one that would swap now."""
        self.why[group.name] = far or (BUILT if is_held(self._host.deployed, group) else "") or str(damaged() or "")
        return not self.why[group.name]

    def lag(
        self,
        group: SwapGroup,
        serving: Positions,
        built: Positions,
        passed: Callable[[Sequence[TopicPartition]], Positions] = lambda _: {},
    ) -> str:
        """How far a generation is behind the serving one; empty if it is near enough.

        Where nothing serves that reads a partition, the records it held at the first look count. passed: offsets that all readers have
        passed, where their positions do not tell.
        """
        inside = group.all_topics | {topic_of(self._app, r) for q in self._host.running.queries for r in q.repartitions}
        old, new = [{tp: at for tp, at in of.items() if tp.topic not in inside} for of in (serving, built)]
        targets = self.targets.setdefault(group.name, {})
        missing = self._host.admin.end_offsets(sorted(new.keys() - old.keys() - targets.keys()))
        targets |= {tp: at for tp, at in {**missing, **old}.items() if tp not in targets}
        short = {tp: targets[tp] - at for tp, at in new.items() if at < targets.get(tp, 0)}
        all_at = passed(sorted(short)) if short else {}
        if short := {tp: n for tp, n in short.items() if all_at.get(tp, 0) < targets[tp]}:
            return f"{sum(short.values()):,} records behind"
        staged = {tp: at for tp, at in built.items() if tp.topic in group.staging.values()}
        ends = self._host.admin.end_offsets(sorted(staged))
        behind = sum(max(0, at - new.get(tp, 0)) for tp, at in old.items() if tp in new)
        behind += sum(max(0, ends.get(tp, 0) - at) for tp, at in staged.items())
        if behind > NEAR_RECORDS:
            del self.targets[group.name]
            return f"{behind:,} records behind"
        return ""

    def postpone(self, group: SwapGroup, why: str) -> None:
        _, failures = self._next_try.get(group.name, (0, 0))
        wait = min(AGAIN_MS_MAX, AGAIN_MS << min(failures, 10))
        self._next_try[group.name] = self._host.clock.timer_ms() + wait, failures + 1
        self.why[group.name] = why

    def done(self, group: SwapGroup) -> None:
        """It serves."""
        for known in (self._next_try, self.targets, self.why):
            known.pop(group.name, None)

"""The state of queries as of ticks that they have finished, for answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowql.runtime.state.snapshot import StateSnapshot
from flowql.runtime.state.store import Snapshot
from flowql.runtime.ticks.record import Ends

STALE_MS = 10_000  # a whole tick that is older is no answer any more


class WholeStates(dict[int, tuple[StateSnapshot, int]]):
    """By tick: the state of the commit that finished it, and when it was committed. The epoch lock guards it."""

    def keep(self, tick: int, snapshot: StateSnapshot, now_ms: int) -> None:
        """Takes over the snapshot, in place of an older one of the tick."""
        if tick in self:
            self[tick][0].close()
        self[tick] = snapshot, now_ms

    def let_go(self, oldest: int, now_ms: int, spared: int = 0) -> None:
        """Forgets ticks before `oldest`. No other tick is kept for more than `STALE_MS`, except `spared`: the store cannot drop old rows that a
        snapshot shows, whichever query they are of.
        """
        for tick, (kept, at_ms) in list(self.items()):
            if tick < oldest or (now_ms - at_ms > STALE_MS and tick != spared):
                kept.close()
                del self[tick]

    def forget(self) -> None:
        for snapshot, _ in self.values():
            snapshot.close()
        self.clear()


@dataclass(frozen=True, slots=True)
class TakenSnapshot:
    """State for an answer. reason: why queries are not at one place of their inputs; empty if they are, or if nobody has looked.
    is_whole: it is of one tick. newest: it is that of the last commit. tick: of a member, the tick that others are asked for; else 0. cut: ends
    of sources as of the tick; {}: it is of none; None: the queries follow no ticks. ends: of results as of the tick.
    """

    snapshot: Snapshot
    reason: str = ""
    is_whole: bool = False
    newest: bool = True
    tick: int = 0
    cut: Ends | None = None
    ends: Ends = field(default_factory=dict)

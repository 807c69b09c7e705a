"""The cleanup step: the space of expired segments, and the log's upkeep.

It does not drop stores: `QueryTasks.close` drops those that no plan uses, as part of a commit.
"""

from __future__ import annotations

from collections.abc import Callable

from flowql.runtime.errors import LogError, StateError
from flowql.runtime.events import WARNING, say
from flowql.runtime.state.manager import StateManager

INTERVAL_MS = 60_000
RANGES_MIN = 16  # a compaction rewrites files: not for every expired segment


class Cleaner:
    """Runs in a thread of its own; a compaction may take seconds. upkeep: of the log."""

    def __init__(
        self, state: StateManager, *, upkeep: Callable[[], None] = lambda: None, ranges_min: int = RANGES_MIN
    ) -> None:
        self._state, self._upkeep, self._ranges_min = state, upkeep, ranges_min
        self._next_ms = 0
        self._troubles: dict[str, str] = {}  # by event, what was said last

    def run_once(self, now_ms: int) -> int:
        if now_ms < self._next_ms:
            return self._next_ms - now_ms
        self._next_ms = now_ms + INTERVAL_MS
        self._attempt("state.upkeep", lambda: self._state.compact(ranges_min=self._ranges_min))
        self._attempt("log.upkeep", self._upkeep)
        return INTERVAL_MS

    def _attempt(self, event: str, action: Callable[[], object]) -> None:
        """After an error - no space, a damaged file - all is as it was, and the next round tries again."""
        try:
            action()
        except (LogError, StateError) as error:
            before, self._troubles[event] = self._troubles.get(event), str(error)
            if self._troubles[event] != before:
                say(WARNING, event, f"space is not given back: {error}", retry_ms=INTERVAL_MS)
        else:
            self._troubles.pop(event, None)

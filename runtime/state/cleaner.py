"""The cleanup step: stores that no plan uses, old checkpoints, the space of expired segments, and the log's upkeep."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from flowql.runtime.errors import LogError, StateError
from flowql.runtime.events import WARNING, say
from flowql.runtime.state.manager import StateManager

INTERVAL_MS = 60_000
CHECKPOINTS_KEPT = 2
RANGES_MIN = 16  # a compaction rewrites files: not for every expired segment


class Cleaner:
    """Runs in a thread of its own; a compaction may take seconds.

    live_stores: names that the current plan uses, or None while it is unknown (then nothing is dropped). A store must be
    without use in two runs in a row: a deploy closes tasks before it opens their successors. upkeep: of the log.
    """

    def __init__(
        self,
        state: StateManager,
        live_stores: Callable[[], set[str] | None],
        *,
        upkeep: Callable[[], None] = lambda: None,
        checkpoints: Path | None = None,
        ranges_min: int = RANGES_MIN,
    ) -> None:
        self._state, self._live_stores, self._checkpoints = state, live_stores, checkpoints
        self._upkeep, self._ranges_min = upkeep, ranges_min
        self._suspects: set[str] = set()
        self._next_ms = 0
        self._troubles: dict[str, str] = {}  # by event, what was said last

    def run_once(self, now_ms: int) -> int:
        if now_ms < self._next_ms:
            return self._next_ms - now_ms
        self._next_ms = now_ms + INTERVAL_MS
        self._drop_obsolete()
        self._remove_checkpoints()
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

    def _drop_obsolete(self) -> None:
        live = self._live_stores()
        if live is None:
            return
        with self._state.epoch_lock:  # no task opens one of them in between
            unused = {s.name for s in self._state.stores()} - live - self._state.open_stores()
            for name in sorted(unused & self._suspects):
                self._state.drop_store(name)
        self._suspects = unused

    def _remove_checkpoints(self) -> None:
        """All but the newest; their names rise with the commit sequence (`checkpoint_name`)."""
        if self._checkpoints is None or not self._checkpoints.is_dir():
            return
        found = sorted(p for p in self._checkpoints.iterdir() if p.is_dir())
        for path in found[:-CHECKPOINTS_KEPT]:
            shutil.rmtree(path)


def checkpoint_name(sequence: int) -> str:
    """The directory name of a checkpoint."""
    return f"{sequence:020d}"

"""A state that takes no more writes: when it is opened anew.

RocksDB refuses all writes after an I/O error, for good, and after a full disk for a while. What the disk itself does not take is
waited for; what is left then is over when the state is opened again, as at a start.
"""

from __future__ import annotations

from functools import partial

from flowql.runtime.errors import LogError, StateLost
from flowql.runtime.events import WARNING, say
from flowql.runtime.log.base import Log
from flowql.runtime.state.manager import StateManager

AFTER = 2  # failures in a row: the first may be over by itself
PAUSE_MS, PAUSE_MS_MAX = 1_000, 30_000


class StateReopening:
    """Opens the physical store again after repeated failures of writes. Owned by the commit thread, but for `failed`.

    is_behind: the instance starts over, as tasks are restored from changelogs: the state is opened again when no task runs.
    """

    def __init__(self, state: StateManager, log: Log, application_id: str) -> None:
        self._state, self._log, self._id = state, log, application_id
        self._again_at_ms = self._pause_ms = 0
        self.failures = 0  # in a row
        self.is_behind = False

    def failed(self, error: Exception) -> None:
        """It could not be written to, unless it was the log that failed. Any thread."""
        self.failures += not isinstance(error, LogError)

    def works(self) -> None:
        """Called after a successful write."""
        self.failures = self._pause_ms = self._again_at_ms = 0

    def is_due(self, now_ms: int) -> bool:
        """Whether to open the state again: writes have failed repeatedly although its disk accepts files."""
        return self.failures >= AFTER and now_ms >= self._again_at_ms and self._state.accepts_files()

    def reopen(self, now_ms: int) -> str:
        """See `StateManager.reopen`. Why it could not be, or nothing. StateLost if it never can be.

        If it does not help it is not done again at once, as readers have to wait for it.
        """
        try:
            if not self.is_behind and not self._log.supports_redo:
                raise StateLost("the state takes no more writes after an I/O error: start again, to have it restored")
            self._state.reopen(None if self.is_behind else partial(self._log.redo_after, self._id))
        except StateLost:
            raise
        except Exception as error:  # whatever the physical store says
            return str(error)
        then = "tasks are restored from changelogs" if self.is_behind else "its missing writes came from the log"
        self.failures, self.is_behind = 0, False
        self._pause_ms = min(PAUSE_MS_MAX, max(PAUSE_MS, 2 * self._pause_ms))
        self._again_at_ms = now_ms + self._pause_ms
        say(WARNING, "state.reopened", f"after an I/O error; {then}")
        return ""

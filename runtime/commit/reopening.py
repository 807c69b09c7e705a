"""A state that takes no more writes: when it is opened anew.

RocksDB refuses all writes after an I/O error, for good, and after a full disk for a while. What the disk itself does not take is
waited for; what is left then is over when the state is opened again, as at a start.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flowql.runtime.errors import LogError, StateLost
from flowql.runtime.events import WARNING, say
from flowql.runtime.log.base import Log
from flowql.runtime.state.changelog import Changelogs, whole_changelogs
from flowql.runtime.state.manager import StateManager

AFTER = 2  # failures in a row: the first may be over by itself
PAUSE_MS, PAUSE_MS_MAX = 1_000, 30_000


class StateReopening:
    """Opens the physical store again after repeated failures of writes. Owned by the commit thread, but for `failed`.

    is_behind: of a member, which starts over for it: the state is opened again when no task runs.
    """

    def __init__(self, state: StateManager, log: Log, application_id: str, *, has_changelogs: bool) -> None:
        self._state, self._log, self._id, self._has_changelogs = state, log, application_id, has_changelogs
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
            if self.is_behind:
                self._state.reopen(None)
            else:
                redo_after = partial(self._log.redo_after, self._id) if self._log.supports_redo else None
                self._state.reopen(redo_after, self._changelogs())
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

    def _changelogs(self) -> Callable[[], Changelogs] | None:
        read = partial(whole_changelogs, self._log, self._id)
        if self._log.supports_redo:
            return read if self._has_changelogs else None
        if not self._has_changelogs:
            raise StateLost("the state takes no more writes after an I/O error: start again, to have it restored")
        known = read()  # before it is closed: readers need not wait for brokers
        return lambda: known

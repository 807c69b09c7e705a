"""A store that gets nothing: told once at its beginning and once at its end, and asked less and less often."""

from __future__ import annotations

from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.events import INFO, WARNING, say

RETRY_MS, RETRY_MS_MAX = 5_000, 60_000  # the wait is doubled with each attempt


class Outage:
    """what: is uploaded. reason: of the last attempt; empty while the store answers. attempts: in vain. until_ms: then the next one."""

    def __init__(self, what: str) -> None:
        self._what, self._code = what, ""
        self.reason = ""
        self.attempts = self.until_ms = 0

    def goes_on(self, error: Exception, now_ms: int) -> int:
        """After an attempt in vain; ms until the next one. An event also says when the store refuses what it could not do before."""
        code = error.code if isinstance(error, RuntimeFailure) else ""
        if not self.reason or code != self._code:
            say(
                WARNING,
                "state.remote",
                f"{self._what} wait, queries go on: {error}",
                **({"code": code} if code else {}),
            )
        self.reason, self._code = str(error), code
        wait_ms = min(RETRY_MS << min(self.attempts, 10), RETRY_MS_MAX)
        self.attempts, self.until_ms = self.attempts + 1, now_ms + wait_ms
        return wait_ms

    def ends(self) -> None:
        """After an attempt that succeeded."""
        if self.reason:
            say(INFO, "state.remote", f"the remote store answers again: {self._what} go on")
        self.reason, self.attempts = "", 0

"""The state of the instance in another process of its machine, while queries ask for it: look-ups and queries then cost the instance nothing."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from flowql.errors import CommandError
from flowql.runtime.clock import SystemClock
from flowql.runtime.errors import LogError, StateError
from flowql.runtime.events import WARNING, say
from flowql.runtime.log.base import Log
from flowql.runtime.state.followed import FollowedState
from flowql.runtime.state.snapshot import StateSnapshot

LOOK_S = 0.5  # between two looks at the log, which keeps redo for two flushes of the state
IDLE_S = 30.0  # after the last query
RENEWED_S = 600.0  # an older copy keeps files from being deleted that the instance has replaced
AGAIN_S, BROKEN_S = 2.0, 60.0  # after a copy that could not be followed, and after an error that no one expects
SMALL_S = 10.0  # for how long a store of some size is taken to have it


class StateNearby:
    """Has a thread that takes a copy of the state once a query asks, and follows it until no query has asked for `IDLE_S`. Any thread may call its methods."""

    def __init__(self, log: Log, application_id: str, copied: Callable[[], Path | None], bytes_max: int) -> None:
        """copied: makes a copy of the instance's state. Returns None where it cannot be followed; raises CommandError where the instance does not
        answer. bytes_max: memory for the copy; the instance answers where it needs more.
        """
        self._log, self._id, self._copied, self._bytes_max = log, application_id, copied, bytes_max
        self._lock = threading.Lock()  # guards the thread
        self._thread: threading.Thread | None = None
        self._followed: FollowedState | None = None
        self._ended = threading.Event()
        self._asked_s = self._not_before_s = 0.0  # by the monotonic clock
        self._large = dict[tuple[str, int], tuple[float, bool]]()
        self.seen = 0  # the newest commit of which a snapshot was given

    def snapshot(self) -> StateSnapshot | None:
        """The newest commit; close it. Returns None while there is no copy, and from then on there will be one if possible."""
        followed = self._asked()
        found = None if followed is None else self._read_on(followed)
        return None if found is None else self._given(found)

    def snapshot_now(self) -> StateSnapshot | None:
        """As `snapshot`. Returns None if something has to be read first."""
        followed = self._asked()
        try:
            found = None if followed is None else followed.snapshot_now(self._log.last_sequence(self._id))
        except StateError:  # it was just closed
            return None
        return None if found is None else self._given(found)

    def has_more(self, store: str, rows: int) -> bool:
        """Whether a store has more rows than this, or had a moment ago."""
        followed, now = self._followed, time.monotonic()
        until_s, is_larger = self._large.get((store, rows), (0.0, False))
        if followed is not None and now > until_s:
            try:
                is_larger = followed.has_more(store, rows)
            except StateError:  # it was just closed
                return False
            self._large[store, rows] = now + SMALL_S, is_larger
        return is_larger

    def close(self) -> None:
        with self._lock:
            self._ended.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _given(self, snapshot: StateSnapshot) -> StateSnapshot:
        self.seen = max(self.seen, snapshot.sequence)
        return snapshot

    def _asked(self) -> FollowedState | None:
        self._asked_s = time.monotonic()
        if self._thread is None and self._asked_s >= self._not_before_s:
            with self._lock:
                if self._thread is None and not self._ended.is_set():
                    self._thread = threading.Thread(target=self._follow, name="following", daemon=True)
                    self._thread.start()
        return self._followed

    def _leave(self, followed: FollowedState) -> None:
        if self._followed is followed:
            self._followed = None

    def _follow(self) -> None:
        followed, rest_s = None, AGAIN_S
        try:
            followed = self._begun()
            if followed is not None:
                self._followed = followed
                self._read_until_idle(followed)
                rest_s = RENEWED_S if followed.is_too_large else AGAIN_S
        except Exception as error:  # of a file, say: the instance answers
            say(
                WARNING, "state.copy", f"the gateway cannot read its copy of the state: {type(error).__name__}: {error}"
            )
            rest_s = BROKEN_S
        finally:
            if followed is not None:
                self._leave(followed)
                followed.close()
            with self._lock:
                self._not_before_s = time.monotonic() + rest_s
                self._thread = None

    def _read_until_idle(self, followed: FollowedState) -> None:
        begun_s = time.monotonic()
        while (
            not self._ended.wait(LOOK_S)
            and self._followed is followed
            and not followed.is_too_large
            and time.monotonic() < min(self._asked_s + IDLE_S, begun_s + RENEWED_S)
        ):
            if (found := self._read_on(followed)) is not None:
                found.close()

    def _read_on(self, followed: FollowedState) -> StateSnapshot | None:
        """The newest commit of a followed copy. Returns None, and leaves the copy, if it does not lead there."""
        try:
            return followed.snapshot(self._log.last_sequence(self._id))
        except (StateError, LogError):
            self._leave(followed)
            return None

    def _begun(self) -> FollowedState | None:
        try:
            path = self._copied()
        except CommandError:
            return None
        if path is None:
            return None
        try:
            redo_after = partial(self._log.redo_after, self._id)
            return FollowedState(path, redo_after, SystemClock(), self._bytes_max)
        except StateError:
            shutil.rmtree(path, ignore_errors=True)
            return None

"""A thread that beats for an instance, from before it recovers until it has ended. See `flowql.runtime.app.beat_file`."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from flowql.runtime.app.beat_file import BEAT_MS, ENDED, STARTING, BeatFile, read
from flowql.runtime.app.freeze import note_death
from flowql.runtime.events import WARNING, say
from flowql.server.supervised import tell


class Beating:
    """One instance. `begin`, `confirm`, `become` and `end` are called by the thread that starts and stops it."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.file: BeatFile | None = None
        self._state = STARTING
        self._lock = threading.Lock()  # guards the header of the file
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="beat", daemon=True)

    def begin(self) -> None:
        """The instance is about to open its directory, which another process may have."""
        other = read(self._data_dir)
        if other is None or not other.is_alive or other.state == ENDED:
            with suppress(OSError):  # a full disk stops no instance
                note_death(self._data_dir)
            self._make()
        self._thread.start()

    def confirm(self) -> None:
        """The directory is this instance's: the file in it has to be as well."""
        if self.file is None or not self.file.is_published:
            self._make()
        tell(self._data_dir)

    def become(self, state: str) -> None:
        with self._lock:
            self._state = state
            if self.file is not None:
                self.file.become(state)

    def end(self) -> None:
        self._ending.set()
        self._thread.join()
        self.become(ENDED)

    def _make(self) -> None:
        try:
            file = BeatFile(self._data_dir)
        except OSError as error:  # a full disk stops no instance
            say(WARNING, "beat.missing", f"other processes cannot tell whether the instance is frozen: {error}")
            return
        with self._lock:
            self.file = file
            file.become(self._state)

    def _beat(self) -> None:
        while not self._ending.wait(BEAT_MS / 1000):
            with self._lock:
                if self.file is not None:
                    self.file.beat()

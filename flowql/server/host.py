"""The process of an instance: engine threads, HTTP beside them, and an end that commits."""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack, suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from flowql.compiler.functions.user import finding
from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.runtime.app.beat_file import BEAT_MS, ENDED, RUNNING, STARTING, STOPPING, BeatFile, read
from flowql.runtime.app.freeze import note_death
from flowql.runtime.app.threads import collect_all, collect_less
from flowql.runtime.events import INFO, WARNING, say
from flowql.server.address import remove_address
from flowql.server.choice import open_engine
from flowql.server.descriptors import raise_limit
from flowql.server.engine import Mode
from flowql.server.logs import writing
from flowql.server.supervised import tell

if TYPE_CHECKING:  # they load the compiler and HTTP
    from flowql.server.listening import Listening
    from flowql.server.service import Service


BROKEN = "FQ5303"
_POLL_S = 0.1
WARM_AFTER_S = 10.0  # after the start, which has work for all processors


class Host:
    """Runs an instance in this process, from `start` to `close`. stop: set to end it, as `request_stop` does."""

    def __init__(self, settings: Settings, mode: Mode = "continuous", stop: threading.Event | None = None) -> None:
        self._settings, self._mode = settings, mode
        self._stop = stop or threading.Event()
        self._closed = False
        self.listening: Listening | None = None  # once its queries run
        self._log = ExitStack()
        self._beating = Beating(settings.data_dir)

    def start(self) -> None:
        """Recover, resume what ran, listen. When it returns the instance can be found by its directory."""
        settings = self._settings
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        raise_limit()
        self._beating.begin()
        with ExitStack() as until_open:
            until_open.callback(self._beating.end)  # until the last thread has ended, or the instance was not opened
            until_open.enter_context(finding(self._find))
            self.engine = open_engine(settings, self._mode)
            self._log = until_open.pop_all()
        self._log.enter_context(writing(settings.data_dir, settings.log_level))
        say(INFO, "instance.started", pid=os.getpid(), engine=settings.engine, version=metadata.version("flowql"))
        self._beating.confirm()
        try:
            self.engine.start(self._beating.file)
            self._listen()
        except BaseException:
            self.close()
            raise
        self._beating.become(RUNNING)

    def _find(self, name: str) -> None:
        from flowql.deploy.functions import (
            find_function,
        )  # loads the compiler, for queries with functions of the project

        find_function(self._settings.project_dir, name)

    def _listen(self) -> None:
        """The queries run meanwhile: what this loads takes a third of the processor time of a start."""
        from flowql.server.listening import Listening

        self.listening = Listening(self._settings, self.engine, self.request_stop)
        self.listening.begin()
        collect_less()

    @property
    def service(self) -> Service:
        """Its operations, of a started instance."""
        assert self.listening is not None
        return self.listening.service

    def request_stop(self) -> None:
        """Any thread, or a signal handler."""
        self._stop.set()

    def wait(self, seconds: float) -> bool:
        """Sleep; True when it is time to stop. Raises CommandError when the engine is broken."""
        stopping = self._stop.wait(seconds)
        fatal = self.engine.fatal
        if fatal is not None:
            title = f"the instance stopped: {type(fatal).__name__}: {fatal}"
            raise CommandError(title, code=BROKEN, help="nothing committed is lost; start it again")
        return stopping

    def serve(self) -> None:
        """Until asked to stop. The process for interactive queries starts once the instance has run for a while, if memory is counted for it."""
        warm_s = time.monotonic() + WARM_AFTER_S
        cold = self._settings.budget.counts_query_process
        while not self.wait(_POLL_S):
            if cold and time.monotonic() >= warm_s and self.listening is not None:
                if self.listening.database.pool is not None:
                    self.listening.database.pool.warm()
                cold = False

    def close(self) -> None:
        """Commit, end the threads, release the directory. Once is enough."""
        if self._closed:
            return
        self._closed = True
        self._beating.become(STOPPING)
        try:
            remove_address(self._settings.data_dir)
            if self.listening is not None:
                self.listening.end()
        finally:  # also where Ctrl-C breaks off the waiting: threads of the engine would go on, and nothing could end them
            with self._log:
                self.engine.stop()
                collect_all()
                say(INFO, "instance.stopped", pid=os.getpid())


# A thread that beats for an instance, from before it recovers until it has ended. See `flowql.runtime.app.beat_file`.


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

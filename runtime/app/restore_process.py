"""Changelogs read by another process, which makes files of rows of them.

To read a record from Kafka and place it costs some 1.5 us of the interpreter lock, to take over a file less than 0.1 us per row of
it: large restorations leave the lock to the queries that run. The other process has a Kafka consumer of its own, in place of the
restore consumer. It ends when nothing is left to read, or with this one.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.state.restore import RowFile

PROGRAM = "flowql.runtime.app.restore_worker"


@dataclass(frozen=True, slots=True)
class StartWorker:
    """The first message: where changelogs are, and where files are to be."""

    open_log: Callable[[], Log]
    folder: Path


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A file of at most `max_records` (and what was fetched together with the last) from `offset` on. store: its `StoreEntry.record`.

    over_runs: see `restore.over_runs`.
    """

    number: int
    tp: TopicPartition
    offset: int
    max_records: int
    store: bytes
    over_runs: bool = False


@dataclass(frozen=True, slots=True)
class ReadResponse:
    """To `ReadRequest.number`. error: why there is no file; as text, as not every exception comes through a pipe."""

    number: int
    file: RowFile | None = None
    error: str = ""


def restore_process(log: Log, folder: Path | None) -> RestoreProcess | None:
    """The restore process for a log, with its files in `folder`; None if the log cannot be opened by another process."""
    open_log = log.opener()
    return None if open_log is None or folder is None else RestoreProcess(open_log, folder)


class RestoreProcess:
    """The other process; started with the first `ask`. Owned by the restoration thread, which never waits for it.

    lost: it died, or could not be started. It is not tried again.
    """

    def __init__(self, open_log: Callable[[], Log], folder: Path) -> None:
        self._begin = StartWorker(open_log, folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._asked: dict[int, Future[object]] = {}
        self._number = 0
        self.lost = False

    @property
    def running(self) -> bool:
        return self._process is not None

    def ask(
        self, tp: TopicPartition, offset: int, max_records: int, store: bytes, *, over_runs: bool = False
    ) -> Future[object]:
        """Resolves to a RowFile, at a later `poll`. One without records: nothing is there to be read up to its next_offset."""
        future: Future[object] = Future()
        self._number += 1
        self._asked[self._number] = future
        try:
            if self._connection is None:
                self._start()
            assert self._connection is not None
            self._connection.send(ReadRequest(self._number, tp, offset, max_records, store, over_runs))
        except OSError as error:
            self._lose(error)
        return future

    def poll(self) -> bool:
        """Take the answers that have arrived."""
        progress = False
        try:
            while self._connection is not None and self._connection.poll():
                self._take(self._connection.recv())
                progress = True
        except (EOFError, OSError) as error:
            self._lose(error)
        return progress

    def close(self) -> None:
        """Ends the process at once, as it owns no durable data, and deletes files that were not taken over."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._asked.clear()
        shutil.rmtree(self._begin.folder, ignore_errors=True)
        self._process = None  # last: once it counts as ended, none of its files is left

    def _start(self) -> None:
        self._begin.folder.mkdir(exist_ok=True)
        ours, theirs = socket.socketpair()
        with theirs:
            self._connection = Connection(ours.detach())
            command = [sys.executable, "-m", PROGRAM, str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
            )
        self._connection.send(self._begin)

    def _take(self, answer: ReadResponse) -> None:
        future = self._asked.pop(answer.number)
        if answer.error:
            future.set_exception(RuntimeFailure(answer.error))
        else:
            future.set_result(answer.file)

    def _lose(self, error: Exception) -> None:
        self.lost = True
        asked = list(self._asked.values())
        self.close()
        for future in asked:
            future.set_exception(RuntimeFailure(f"the process that reads changelogs is gone ({error!r})"))

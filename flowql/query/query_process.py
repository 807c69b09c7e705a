"""Interactive queries answered by a child process, for those that delay the continuous queries.

Reading a row of the state into an Arrow batch holds the interpreter lock for 0.6 to 2 us, and DuckDB's sorts and joins occupy a processor; the
continuous queries need both. The child process computes the answer from a copy of the state (`flowql.runtime.state.copy`) with its own DuckDB, and the
operating system schedules it as an idle task. That is not enough where the queries need all processors: threads of theirs that wake up on a processor on
which it runs start later than on an idle one. So it is then stopped for two thirds of the time. It writes the answer to a file and exits, so a slow client
does not keep it alive. It also exits when its parent does.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from flowql.query.database import QueryLimits
from flowql.query.errors import query_error
from flowql.query.interactive import InteractiveQuery
from flowql.query.relations import StoreRelation
from flowql.query.views import ViewMaker
from flowql.runtime.functions.interactive import InteractiveFunction
from flowql.runtime.state.copy import StateCopy

PROGRAM = "flowql.query.query_worker"
# Measured on two processors, `python -m flowql.bench.saturation --keys 500000`: beside an idle task that never stops, queries process 79 % of the
# records they process alone; beside one that is stopped for two thirds of the time 97 %, of each 0.15 s 94 %.
RUN_S, STOP_S = 0.2, 0.4
BUSY = 0.5  # processors that the continuous queries use: below, none of them waits


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """The one message to the child process. sql: as the user wrote it. stores: name, view, and whether the commit has it. answer: the file to write.

    path, owned: of the `StateCopy`.
    """

    sql: str
    limits: QueryLimits
    path: Path
    owned: frozenset[str] | None
    stores: tuple[tuple[str, ViewMaker, bool], ...]
    answer: Path
    functions: Mapping[str, InteractiveFunction] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerReply:
    """The one message from the child process. refused: the user's error, as `errors.to_data` gives it. failure: any other error."""

    refused: Mapping[str, Any] | None = None
    failure: str = ""


class ProcessFailed(Exception):
    """The child process failed or could not be started."""


def movable(relations: Mapping[str, object]) -> bool:
    """Whether a child process can read all of them: only stores, as topics have newer records by the time the copy of the state is made."""
    return all(isinstance(r, StoreRelation) and r.make is not None for r in relations.values())


def answer_in_child(
    query: InteractiveQuery, copy: StateCopy, relations: Mapping[str, StoreRelation]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema and the batches of the answer of a child process. Raises QueryError, ProcessFailed."""
    stores = tuple((name, r.make, r.present) for name, r in relations.items() if r.make is not None)
    file = copy.path.with_suffix(".answer")
    request = WorkerRequest(
        query.given, query.limits, copy.path, copy.owned, stores, file, {f.name: f for f in query.functions}
    )
    try:
        done = _send(request, query.check)
        if done.refused is not None:
            raise query_error(done.refused)
        if done.failure:
            raise ProcessFailed(done.failure)
        source = pa.OSFile(str(file))
    finally:
        file.unlink(missing_ok=True)  # what is open stays readable
    reader = pa.ipc.open_stream(source)
    return reader.schema, _pieces(source, reader)


def _pieces(source: pa.NativeFile, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    with closing(source):
        yield from reader


def _send(request: WorkerRequest, check: Callable[[], None]) -> WorkerReply:
    ours, theirs = socket.socketpair()
    with Connection(ours.detach()) as connection:
        with theirs:
            process = _started(theirs.fileno())
        try:
            connection.send(request)
            stoppable = _next(connection, check)
            done = _next(connection, check, process if stoppable else None)
        except (EOFError, OSError) as error:
            raise ProcessFailed("it ended by itself") from error
        finally:
            process.kill()
            process.wait()
    assert isinstance(done, WorkerReply)
    return done


def _next(connection: Connection, check: Callable[[], None], stopped: subprocess.Popen[bytes] | None = None) -> Any:
    """The next message of the child process. stopped: the process, which is stopped for part of the time while continuous queries need the processors."""
    load = Load()
    while not connection.poll(RUN_S):
        check()
        if stopped is not None and load.high():
            stopped.send_signal(signal.SIGSTOP)
            connection.poll(STOP_S)
            stopped.send_signal(signal.SIGCONT)
            check()
    return connection.recv()


class Load:
    """Load of the processors between two calls of `high`."""

    def __init__(self) -> None:
        self._last = self._read()

    @staticmethod
    def _read() -> tuple[float, float, float]:
        """In seconds."""
        return time.monotonic(), time.process_time(), psutil.cpu_times().idle

    def high(self) -> bool:
        """Whether this process is at work and less than one processor was idle."""
        last, self._last = self._last, self._read()
        wall, used, idle = (now - before for now, before in zip(self._last, last, strict=True))
        return used > BUSY * wall and idle < wall


def _started(descriptor: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", PROGRAM, str(descriptor)]
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[descriptor], start_new_session=True)
    except OSError as error:
        raise ProcessFailed(str(error)) from error

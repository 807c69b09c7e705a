"""One child process that answers interactive queries, one after another, with its own DuckDB: what its parent sends and gets.

It answers what this process should not: queries that make values without a bound (`bounds`), whose memory and time only the operating system can
limit, and large queries about tables for which continuous queries would have to wait. Rows come as Arrow streams, or the child reads a copy of
the state (`flowql.runtime.state.copy`). The answer is a file without a name, so a slow client does not keep the child. The operating system schedules
the child as an idle task, limits its memory, and kills it with its parent. `query_pool` starts, watches and ends it.

A message is a length and a pickle. After a request come one Arrow stream for each relation that is sent, and, on a socket of its own, the
descriptor of the file.
"""

from __future__ import annotations

import io
import pickle
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from select import select
from typing import IO, Any

import psutil
import pyarrow as pa

from flowql.compiler.plan.schema import Schema
from flowql.query.limits import QueryLimits
from flowql.query.statement import Statement
from flowql.query.views import ViewMaker
from flowql.runtime.functions.interactive import InteractiveFunction

PROGRAM = "flowql.query.query_worker"
LENGTH = struct.Struct("!Q")
_EXIT_S = 1.0


@dataclass(frozen=True, slots=True)
class CopyPlace:
    """The files of a `StateCopy`, and the stores in them: name, view, and whether the commit has it. owned: as of `StateCopy`."""

    path: Path
    owned: frozenset[str] | None
    stores: tuple[tuple[str, ViewMaker, bool], ...]


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """sql: as the user wrote it. sequence: of the commit. statement: of standard SQL, bound. is_duckdbs: it is in DuckDB's SQL. copied: where rows are read. sent: relations whose rows follow, in the order in which they
    follow. shown: further relations, of which a statement without relations may ask names and columns.
    """

    sql: str
    sequence: int
    statement: Statement | None = None
    is_duckdbs: bool = False
    copied: CopyPlace | None = None
    sent: tuple[tuple[str, Schema], ...] = ()
    shown: tuple[tuple[str, Schema], ...] = ()
    functions: Mapping[str, InteractiveFunction] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """The first message to the process. memory_bytes: what it may take beside what it has when it is idle."""

    queries: QueryLimits
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """The first message of the process. stoppable: it is killed with its parent also while it is stopped."""

    stoppable: bool


@dataclass(frozen=True, slots=True)
class WorkerReply:
    """refused: the user's error, as `errors.to_data` gives it. failure: any other error."""

    refused: Mapping[str, Any] | None = None
    failure: str = ""


class ProcessFailed(Exception):
    """The child process could not be started, or failed at something that is no fault of the query."""


class ProcessEnded(Exception):
    """The child process ended before it replied."""


class QueryProcess:
    """One process. `ask` is called by one thread at a time; the thread that made it must live as long as the process, which is killed with it.

    stopped: by a signal, for a while. killed_for: why its pool has killed it.
    """

    def __init__(self, limits: QueryLimits) -> None:
        """The process starts; it is ready when `look` says so. Raises ProcessFailed."""
        self._folder = limits.folder if limits.folder is not None and limits.folder.is_dir() else None
        self._data, data = socket.socketpair()
        self._files, files = socket.socketpair()
        command = [sys.executable, "-P", "-m", PROGRAM, str(data.fileno()), str(files.fileno())]
        try:
            with data, files:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    pass_fds=[data.fileno(), files.fileno()],
                    start_new_session=True,
                )
            self._in, self._out = self._data.makefile("rb"), SocketWriter(self._data)
            send(self._out, WorkerLimits(limits.of_process, limits.process_bytes))
        except OSError as error:
            self._close()
            raise ProcessFailed(str(error)) from error
        self.stoppable = self.stopped = False
        self.killed_for = ""
        self.idle_bytes = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def look(self, wait_s: float = 0.0) -> bool:
        """Whether it is ready. Raises ProcessFailed if it ended before."""
        if not select([self._data], [], [], wait_s)[0]:
            return False
        try:
            ready = receive(self._in)
        except (EOFError, OSError) as error:
            raise ProcessFailed(f"the process of an interactive query did not start: {self._ending()}") from error
        assert isinstance(ready, WorkerReady)
        self.stoppable, self.idle_bytes = ready.stoppable, self.resident_bytes()
        return True

    def resident_bytes(self) -> int:
        """Its memory; 0 if it ended."""
        try:
            return int(psutil.Process(self.pid).memory_info().rss)
        except psutil.Error:
            return 0

    def ask(
        self, request: WorkerRequest, rows: Sequence[tuple[pa.Schema, Iterator[pa.RecordBatch]]]
    ) -> tuple[WorkerReply, IO[bytes]]:
        """The reply, and the file with the answer. rows: of `request.sent`. Raises ProcessEnded, and what reading rows raises."""
        file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed by whoever takes the answer
        try:
            socket.send_fds(self._files, [b"."], [file.fileno()])
            send(self._out, request)
            for schema, batches in rows:
                self._send_rows(schema, batches)
            reply = receive(self._in)
        except (EOFError, OSError) as error:
            file.close()
            raise ProcessEnded(self._ending()) from error
        except BaseException:
            file.close()
            raise
        assert isinstance(reply, WorkerReply)
        file.seek(0)
        return reply, file

    def _send_rows(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        """No further than until the reply."""
        with pa.ipc.new_stream(pa.PythonFile(self._out, mode="w"), schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
                if select([self._data], [], [], 0)[0]:
                    break

    def stop(self, number: signal.Signals) -> None:
        """SIGSTOP or SIGCONT."""
        with suppress(OSError):
            self._process.send_signal(number)
        self.stopped = number == signal.SIGSTOP

    def kill(self, why: str = "") -> None:
        """Waiting callers get ProcessEnded. Any thread, and more than once."""
        self.killed_for = self.killed_for or why
        self._process.kill()

    def wait(self) -> None:
        self._process.wait()

    def end(self) -> None:
        """Kills it and frees what it has here."""
        self.kill()
        self.wait()
        self._close()

    def _close(self) -> None:
        self._data.close()
        self._files.close()

    def _ending(self) -> str:
        """How it ended. Its end of the socket is closed before it is gone."""
        try:
            status = self._process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return "it closed its connection"
        return f"signal {-status} ended it" if status < 0 else f"it ended with status {status}"


class SocketWriter(io.RawIOBase):
    """Writes all bytes at once."""

    def __init__(self, to: socket.socket) -> None:
        self._to = to

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._to.sendall(data)
        return len(data)


def send(out: SocketWriter, message: object) -> None:
    data = pickle.dumps(message, 5)
    out.write(LENGTH.pack(len(data)) + data)


def receive(incoming: IO[bytes]) -> Any:
    """The next message. Raises EOFError."""
    return pickle.loads(_exactly(incoming, LENGTH.unpack(_exactly(incoming, LENGTH.size))[0]))


def _exactly(incoming: IO[bytes], size: int) -> bytes:
    data = incoming.read(size)
    if len(data) < size:
        raise EOFError
    return data

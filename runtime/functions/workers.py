"""Processes that run user-defined functions, as their parent sees them.

A function may block, leak memory, crash or end its process: here that costs the call that did it, and no other query. A process runs the
functions of one module, for one call at a time, from the source that was loaded when the query was deployed, whatever the files say now. There are
as many as calls at once, at most one per thread; a process ends itself after `IDLE_S` without a request. Queries of class `batch` have their own, with
a lower priority: a function that spins takes a processor from no other query.

A request and a reply are a length and a pickle. The process counts the calls it begins in a shared page, so that a batch of slow calls and one call
that does not return are told apart. It is killed by the operating system when the parent ends: the other end of its lifeline closes.
"""

from __future__ import annotations

import atexit
import hashlib
import mmap
import os
import pickle
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from flowql.compiler.functions.bounds import ValueTooLarge
from flowql.compiler.functions.registry import QueryFailure
from flowql.runtime.events import WARNING, is_a_step, say
from flowql.runtime.functions.runs import gives_way

AggregatePart = Literal["add", "undo", "merge", "result", "of_rows", "add_many", "add_runs", "result_many", "of_lists"]
PROGRAM = "flowql.runtime.functions.worker"
START_S = 60.0
LOOK_S = 0.5  # between two looks at whether a call goes on
EXIT_S = 1.0
IDLE_S = 60.0
STARTING_SHARE = 0.125  # of a core: what the starts of a module's processes may take for long,
STARTING_CREDIT_S = 1.0  # and so much more at once
START_PAUSE_S_MAX = 10.0
LOW_PRIORITY = 10  # nice(2) of processes for queries of class `batch`, and of a module that has used the credit
LOST_MAX = 10  # processes in succession that did not live to see the end of a call: then it is not the values
LENGTH = struct.Struct("!Q")


@dataclass(frozen=True, slots=True)
class Source:
    """A module of a project as it was loaded. path: of its file, which need not be there any more."""

    name: str
    path: str
    text: bytes
    is_package: bool


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a project that its modules read while they were imported. digest: of what was in it, "" if it did not exist."""

    path: str
    digest: str

    @property
    def is_same(self) -> bool:
        return digest_of(self.path) == self.digest


def digest_of(path: str) -> str:
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Code:
    """A module with functions, and those of its project that it imports. memory_bytes, idle_s: of a process that runs it.

    version: of the functions that have none of their own. files: what the modules read while they were imported, where a process must
    find the same.
    """

    module: str
    sources: tuple[Source, ...]
    memory_bytes: int
    idle_s: float = IDLE_S
    version: str = ""
    files: tuple[DataFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """The request of one call. given: a tuple of reference values, or a batch of columns as Arrow IPC. part: of an aggregate."""

    function: str  # its name in SQL
    given: tuple[Any, ...] | bytes
    part: AggregatePart | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The reply in place of a result. kind: of the exception. fails_query: it is no matter of values."""

    kind: str
    text: str
    fails_query: bool = False


def to_ipc(columns: Sequence[pa.Array]) -> bytes:
    """Columns of one length."""
    batch = pa.RecordBatch.from_arrays(list(columns), [str(i) for i in range(len(columns))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def from_ipc(data: bytes) -> list[pa.Array]:
    batch: pa.RecordBatch = pa.ipc.open_stream(data).read_next_batch()
    return list(batch.columns)


class FunctionFailed(Exception):
    """The error of a function, in a class with the name of its exception."""


class ProcessLost(FunctionFailed):
    """How the process of a function ended in a call, or that it had to be ended after it."""


class Ended(Exception):
    """A process ended, or was ended, before it replied. begun: it had begun a call."""

    def __init__(self, why: str, *, begun: bool) -> None:
        super().__init__(why)
        self.begun = begun


class Worker:
    """One process. Used by one thread at a time.

    socket: where requests go, and replies come. page: shared with it; the first number counts the calls that it has begun. fresh: it has not
    replied to a request. start_s: processor time that its start took.
    """

    def __init__(self, code: Code, program: str = PROGRAM, nice: int = 0) -> None:
        """program: a module, given the descriptors of a socket, of a lifeline and of a page. nice: how much lower its priority is than that of this
        process (nice(2)). Raises OSError, Ended, and QueryFailure where it cannot import the module.
        """
        self.socket, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        with theirs, tempfile.TemporaryFile() as page:
            page.truncate(mmap.PAGESIZE)
            self.page = memoryview(mmap.mmap(page.fileno(), mmap.PAGESIZE)).cast("Q")
            passed = [theirs.fileno(), lifeline, page.fileno()]
            command = [sys.executable, "-P", "-m", program, *map(str, passed)]
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    env={"ARROW_DEFAULT_MEMORY_POOL": "system", **os.environ},  # others take large pieces at once
                    pass_fds=passed,
                    process_group=0,  # out of reach of Ctrl-C; in a session of its own it would get as much time as this process
                )
            except BaseException:
                self.socket.close()
                os.close(self._lifeline)
                raise
            finally:
                os.close(lifeline)
        if nice:
            with suppress(OSError):  # it may have ended
                os.setpriority(os.PRIO_PROCESS, self._process.pid, os.getpriority(os.PRIO_PROCESS, 0) + nice)
        self.fresh = True
        said = self._asked(code, START_S)
        if isinstance(said, Failed):
            self.end()
            raise QueryFailure(f"{code.module} cannot be imported in a separate process: {said.kind}: {said.text}")
        assert isinstance(said, float)
        self.start_s = said

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: Request, timeout_s: float) -> Any:
        """The reply. timeout_s: of each call that it begins. Raises Ended."""
        reply = self._asked(request, timeout_s)
        self.fresh = False
        return reply

    def end(self) -> None:
        """Kills the process. A reply that it was computing is lost."""
        self._process.kill()
        self._process.wait()
        if self.socket.fileno() >= 0:
            self.socket.close()
            os.close(self._lifeline)

    def _asked(self, message: Code | Request, timeout_s: float) -> Any:
        data, before = pickle.dumps(message, 5), self.page[0]
        try:
            self.socket.settimeout(None)
            self.socket.sendall(LENGTH.pack(len(data)) + data)
            self.socket.settimeout(LOOK_S)
            patience = _Patience(self.page, timeout_s)
            (size,) = LENGTH.unpack(self._receive(LENGTH.size, patience))
            return pickle.loads(self._receive(size, patience))
        except OSError as error:
            why = str(error) if isinstance(error, TimeoutError) else self.exit_said()
            self.end()
            raise Ended(why, begun=self.page[0] != before) from error
        except BaseException:  # what was sent is not answered, or the answer not read to its end
            self.end()
            raise

    def _receive(self, size: int, patience: _Patience) -> bytearray:
        data = bytearray(size)
        view, place = memoryview(data), 0
        while place < size:
            try:
                n = self.socket.recv_into(view[place:])
            except TimeoutError:
                patience.look()
                continue
            if not n:
                raise ConnectionError
            place += n
        return data

    def exit_said(self) -> str:
        """How it ended. Its end of the socket is closed before it is gone."""
        try:
            status = self._process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            return "its process closed what it had open"
        return f"its process was killed by signal {-status}" if status < 0 else f"it ended its process ({status})"


class _Patience:
    """Raises TimeoutError when a call takes too long."""

    def __init__(self, begun: memoryview, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.page, self._timeout_s, self._clock = begun, timeout_s, clock
        self._last, self._since = begun[0], clock()

    def look(self) -> None:
        if self.page[0] != self._last:
            self._last, self._since = self.page[0], self._clock()
        elif self._clock() - self._since > self._timeout_s:
            raise TimeoutError(f"it did not return within {self._timeout_s:g} s")


class Starts:
    """Starts the processes of one module, with pauses where they do not live long. Thread-safe.

    A start takes some 0.25 s of a core, and more if the module imports much. Where each call loses its process, starting them without a
    pause would take a core from the other queries.
    """

    def __init__(self, code: Code, program: str = PROGRAM) -> None:
        self._code, self._program = code, program
        self._lock = threading.Lock()  # guards the two below
        self._used_s, self._as_of_s = 0.0, time.monotonic()

    def start(self, sleep: Callable[[float], object] = time.sleep, *, low: bool = False) -> Worker:
        """As `Worker`, after a pause if there has to be one, and then with a lower priority, as for `low`."""
        if (pause_s := self.pause_s(time.monotonic())) > 0:
            sleep(pause_s)
        began_s = time.monotonic()
        took_s: float | None = None  # of one that fails it is not known
        try:
            worker = Worker(self._code, self._program, LOW_PRIORITY if low or pause_s > 0 else 0)
            took_s = worker.start_s
            return worker
        finally:
            now_s = time.monotonic()
            self.took(now_s - began_s if took_s is None else took_s, now_s)

    def pause_s(self, now_s: float) -> float:
        """0 while less than the credit is used."""
        with self._lock:
            beyond = self._used(now_s) - STARTING_CREDIT_S
        return min(START_PAUSE_S_MAX, max(0.0, beyond / STARTING_SHARE))

    def took(self, seconds: float, now_s: float) -> None:
        with self._lock:
            self._used_s, self._as_of_s = self._used(now_s) + seconds, now_s

    def _used(self, now_s: float) -> float:
        """The lock is held."""
        return max(0.0, self._used_s - (now_s - self._as_of_s) * STARTING_SHARE)


class Workers:
    """The processes of one module. Thread-safe."""

    def __init__(self, code: Code) -> None:
        self._code, self._starts = code, Starts(code)
        self._lock = threading.Lock()
        self._idle: dict[bool, list[Worker]] = {True: [], False: []}  # by whether their queries give way
        self._lost, self._lost_ever = 0, 0  # in succession, and since the start

    def ask(self, request: Request, timeout_s: float) -> Any:
        """The result. timeout_s: of each call. Raises FunctionFailed, QueryFailure."""
        low = gives_way()
        while True:
            worker = self._take(low)
            fresh = worker.fresh
            try:
                reply = worker.ask(request, timeout_s)
            except Ended as ended:
                if ended.begun or fresh:
                    raise self._failure(request, str(ended)) from ended
                continue  # it ended while it was idle
            if isinstance(reply, Failed) and reply.kind == "MemoryError":
                worker.end()
                if not fresh:
                    continue  # earlier calls may have left it no memory
                raise self._failure(request, f"it needed more memory than it may have (MemoryError: {reply.text})")
            with self._lock:
                self._idle[low].append(worker)
            self._lost = 0
            if not isinstance(reply, Failed):
                return reply
            if reply.fails_query:
                raise QueryFailure(f"{request.function}: {reply.kind}: {reply.text}")
            bases = (FunctionFailed, ValueTooLarge) if reply.kind == ValueTooLarge.__name__ else (FunctionFailed,)
            raise type(reply.kind, bases, {})(reply.text)

    def _failure(self, request: Request, why: str) -> Exception:
        said = f"{request.function}: {why}"
        with self._lock:
            self._lost, self._lost_ever = self._lost + 1, self._lost_ever + 1
            ever = self._lost_ever
        if is_a_step(ever - 1, ever):
            say(WARNING, "function.ended", said, module=self._code.module, times=ever)
        if self._lost < LOST_MAX:
            return ProcessLost(said)
        self._lost = 0  # the retry of the query begins anew
        return QueryFailure(
            f"{said}; as did the {LOST_MAX - 1} calls before, so it is not for the values of one record"
        )

    def _take(self, low: bool) -> Worker:
        """low: with a lower priority."""
        while True:
            with self._lock:
                found = self._idle[low].pop() if self._idle[low] else None
            if found is None:
                break
            if found.alive:
                return found
            found.end()
        try:
            return self._starts.start(low=low)
        except (OSError, Ended) as error:
            raise QueryFailure(f"no process can be started for {self._code.module}: {error}") from error

    def end_idle(self) -> None:
        with self._lock:
            gone, self._idle = [*self._idle[True], *self._idle[False]], {True: [], False: []}
        for worker in gone:
            worker.end()


_known: dict[Code, Workers] = {}
_known_lock = threading.Lock()


def workers_of(code: Code) -> Workers:
    """The workers of this process. Starts none."""
    with _known_lock:
        return _known.setdefault(code, Workers(code))


@atexit.register
def end_idle_workers() -> None:
    """Ends the idle processes of all modules."""
    with _known_lock:
        known = list(_known.values())
    for workers in known:
        workers.end_idle()

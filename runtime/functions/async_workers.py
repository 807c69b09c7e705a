"""Processes that await calls of asynchronous functions, as their parent sees them: one per module, with a thread that talks to it.

What crashes or hangs there costs its own call. Which one it was is not always known: after the end of a process its calls are made again, half as
many at once as there were, until one that ends its process is alone (as `isolate.RowLimit` finds one bad row among many).
"""

from __future__ import annotations

import atexit
import pickle
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from flowql.compiler.functions.registry import QueryFailure
from flowql.runtime.events import WARNING, say
from flowql.runtime.functions.call_results import CallResult, Done
from flowql.runtime.functions.workers import LENGTH, LOST_MAX, Code, Ended, Starts, Worker

PROGRAM = "flowql.runtime.functions.async_worker"
GRACE_S = 5.0  # after the timeout of a call, until its process counts as hung
LOOK_S = 0.5
END_S = 2.0
READ_BYTES = 1 << 20


@dataclass(slots=True, eq=False)
class _Call:
    number: int
    function: str  # its name in SQL
    args: tuple[Any, ...]
    timeout_s: float
    done: Done | None  # None: it was abandoned
    limit_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ProcessCalls:
    """Implements `flowql.runtime.functions.call_results.Calls` for one function, by the process of its module."""

    function: str
    timeout_s: float
    code: Code

    def begin(self, args: tuple[Any, ...], done: Done) -> Callable[[], None]:
        return _process_of(self.code).begin(self.function, args, self.timeout_s, done)


class AsyncProcess:
    """The process of one module, while there are calls, and some time longer. Thread-safe."""

    def __init__(self, code: Code) -> None:
        self._code, self._starts = code, Starts(code, PROGRAM)
        self._ending = threading.Event()
        self._lock = threading.Lock()  # guards the four below
        self._queue: deque[_Call] = deque()
        self._next = 0
        self._thread: threading.Thread | None = None  # that serves
        self._bell: socket.socket | None = None  # wakes it
        # owned by the thread that serves
        self._under_way: dict[int, _Call] = {}
        self._limit: int | None = None  # of calls at once, after the end of a process
        self._lost = 0  # processes in succession that ended before any call did
        self._unsent, self._unread = bytearray(), bytearray()

    def begin(self, function: str, args: tuple[Any, ...], timeout_s: float, done: Done) -> Callable[[], None]:
        """As `Calls.begin`."""
        with self._lock:
            call = _Call(self._next, function, args, timeout_s, done)
            self._next += 1
            self._queue.append(call)
            if self._thread is None:
                self._start()
            elif len(self._queue) == 1:
                self._ring()
        return partial(_abandon, call)

    def end(self) -> None:
        """Ends the process; its current calls are lost."""
        with self._lock:
            thread = self._thread
            self._ending.set()
            self._ring()
        if thread is not None:
            thread.join(END_S)

    def _start(self) -> None:
        """The lock is held."""
        self._bell, ear = socket.socketpair()
        self._bell.setblocking(False)
        name = f"calls-of-{self._code.module}"
        self._thread = threading.Thread(target=self._serve, args=(ear,), name=name, daemon=True)
        self._thread.start()

    def _ring(self) -> None:
        """The lock is held."""
        if self._bell is not None:
            with suppress(BlockingIOError):  # it rings already
                self._bell.send(b"!")

    def _serve(self, ear: socket.socket) -> None:
        with ear:
            while not self._is_over():
                self._serve_by_a_process(ear)

    def _serve_by_a_process(self, ear: socket.socket) -> None:
        """Until it ends."""
        try:
            worker = self._starts.start(self._ending.wait)
        except (OSError, Ended, QueryFailure) as error:
            why = "" if isinstance(error, QueryFailure) else f"no process can be started for {self._code.module}: "
            self._fail_all(f"{why}{error}")
            return
        try:
            self._converse(worker, ear)
        except (OSError, EOFError) as error:
            why = str(error) if isinstance(error, TimeoutError | MemoryExceeded) else worker.exit_said()
            self._lose(why, int(worker.page[0]) - 1)
        finally:
            worker.end()
            self._unsent.clear()
            self._unread.clear()

    def _is_over(self) -> bool:
        with self._lock:
            over = self._ending.is_set() or not (self._queue or self._under_way)
            if over and self._bell is not None:
                self._bell.close()
                self._thread = self._bell = None
            return over

    def _converse(self, worker: Worker, ear: socket.socket) -> None:
        """Until there is nothing to do for long. Raises OSError, EOFError when the process ends, TimeoutError when it hangs."""
        connection, idle_s = worker.socket, time.monotonic()
        connection.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(ear, selectors.EVENT_READ)
            selector.register(connection, selectors.EVENT_READ)
            while not self._ending.is_set():
                self._fill()
                selector.modify(connection, selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0))
                for key, events in selector.select(LOOK_S):
                    if key.fileobj is ear:
                        ear.recv(4_096)
                        continue
                    if events & selectors.EVENT_WRITE:
                        del self._unsent[: connection.send(self._unsent)]
                    if events & selectors.EVENT_READ:
                        self._read(connection)
                now = time.monotonic()
                if self._under_way or self._queue:
                    idle_s = now
                elif now - idle_s > self._code.idle_s:
                    return
                if any(c.limit_s < now for c in self._under_way.values()):
                    raise TimeoutError("its process did not answer any more")

    def _fill(self) -> None:
        """Hand over calls, as many as may be under way."""
        limit, calls = self._limit, list[_Call]()
        with self._lock:
            while self._queue and (limit is None or len(self._under_way) + len(calls) < limit):
                call = self._queue.popleft()
                if call.done is not None:
                    calls.append(call)
        if not calls:
            return
        now = time.monotonic()
        for call in calls:
            call.limit_s = now + call.timeout_s + GRACE_S
            self._under_way[call.number] = call
        data = pickle.dumps([(c.number, c.function, c.args) for c in calls], 5)
        self._unsent += LENGTH.pack(len(data)) + data

    def _read(self, connection: socket.socket) -> None:
        data = connection.recv(READ_BYTES)
        if not data:
            raise EOFError
        self._unread += data
        while len(self._unread) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._unread)
            if len(self._unread) < LENGTH.size + size:
                return
            outcomes = pickle.loads(memoryview(self._unread)[LENGTH.size : LENGTH.size + size].tobytes())
            del self._unread[: LENGTH.size + size]
            self._take(outcomes)

    def _take(self, outcomes: list[tuple[int, CallResult]]) -> None:
        for number, outcome in outcomes:
            if outcome.error.startswith("MemoryError:"):  # others may have left it none
                raise MemoryExceeded(f"it needed more memory than it may have ({outcome.error})")
            self._end(self._under_way.pop(number), outcome)
        self._lost = 0
        if self._limit is not None:
            self._limit *= 2
            if self._limit > 2 * (len(self._under_way) + len(self._queue)):
                self._limit = None

    def _lose(self, why: str, culprit: int) -> None:
        """A process ended. culprit: the number of the call that held it up, where it could say so."""
        calls, self._under_way = list(self._under_way.values()), {}
        self._lost += 1
        found = next((c for c in calls if c.number == culprit), calls[0] if len(calls) == 1 else None)
        said = (
            why if culprit < 0 else "it held up the event loop for longer than its timeout (it should await, not block)"
        )
        if found is not None:
            say(WARNING, "function.ended", f"{found.function}: {said}", module=self._code.module, times=self._lost)
            self._end(found, CallResult(error=f"ProcessLost: {said}", fails_query=self._lost >= LOST_MAX))
            calls.remove(found)
        elif calls:
            self._limit = max(1, len(calls) // 2)
        with self._lock:
            self._queue.extendleft(reversed(calls))

    def _fail_all(self, why: str) -> None:
        with self._lock:
            calls, self._queue = list(self._queue), deque()
        for call in calls:
            self._end(call, CallResult(error=why, fails_query=True))

    @staticmethod
    def _end(call: _Call, outcome: CallResult) -> None:
        done = call.done
        if done is not None:
            done(outcome)


class MemoryExceeded(OSError):
    """A process has reached the limit of its memory."""


def _abandon(call: _Call) -> None:
    call.done = None


_known: dict[Code, AsyncProcess] = {}
_known_lock = threading.Lock()


def _process_of(code: Code) -> AsyncProcess:
    with _known_lock:
        return _known.setdefault(code, AsyncProcess(code))


@atexit.register
def end_processes() -> None:
    """Ends those of all modules."""
    with _known_lock:
        known = list(_known.values())
    for process in known:
        process.end()

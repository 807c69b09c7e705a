"""The child processes of an instance that answer interactive queries (`query_process`): a queue in front of them, and what watches them.

One process stays warm from `warm` on, or once the first has been needed, and there are at most `QueryLimits.processes` while queries wait. A process that
ends, or keeps more memory than a query may leave behind, is replaced in the background. A process that exceeds its memory, or whose query is cancelled
or out of time, is killed.

One client never has all processes, and those who wait take turns by client: whatever one of them asks, another waits for one query at most.

Beside continuous queries that need all processors an idle task is still too much: threads that wake up on a processor on which it runs start later
than on an idle one. So a process is then stopped for two thirds of the time.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import psutil

from flowql.query.errors import NO_ROOM, TOO_LARGE, QueryError
from flowql.query.limits import QueryLimits
from flowql.query.query_process import ProcessFailed, QueryProcess
from flowql.runtime.budget import MIB

WAITING_MAX = 64
LOOK_S = 0.05  # between two looks at each process that works or starts
KEPT_BYTES = 32 * MIB  # that an idle process may have more than it began with
# Measured on two processors, over a table of 500,000 keys: beside an idle task that never stops, queries process 79 % of the
# records they process alone; beside one that is stopped for two thirds of the time 97 %, of each 0.15 s 94 %.
RUN_S, STOP_S = 0.2, 0.4
BUSY = 0.5  # processors that the continuous queries use: below, none of them waits
MEMORY = "memory"
Check = Callable[[], None]  # raises when the query is to end


@dataclass(eq=False, slots=True)
class Ticket:
    """A query that waits for a process, or has one. client: empty for the program of the pool itself."""

    check: Check
    client: str


class QueryPool:
    """Any thread. Each process belongs to one query at a time, from `lease` to the end of its block."""

    def __init__(self, limits: QueryLimits) -> None:
        self._limits = limits
        self._changed = threading.Condition()  # guards all of the following
        self._waiting = list[Ticket]()  # those that asked earlier first
        self._served = dict[str, int]()  # of clients that wait or have a process: when they got one last, counted
        self._turns = count(1)
        self._idle, self._starting = list[QueryProcess](), list[QueryProcess]()
        self._busy = dict[QueryProcess, Ticket]()
        self._failure = ""  # of the last start
        self._closed = False
        self._keeper: threading.Thread | None = None
        self._load, self._turn_s = Load(), 0.0  # when those that run are stopped, or those that are stopped run

    def warm(self) -> None:
        """Starts the first process before it is needed."""
        with self._changed:
            self._keep()

    @contextmanager
    def lease(self, check: Check, client: str = "") -> Iterator[QueryProcess]:
        """A process, when it is the turn of the client. Raises what `check` raises, QueryError, ProcessFailed."""
        process = self._taken(Ticket(check, client))
        try:
            yield process
        finally:
            with self._changed:
                if self._busy.pop(process, None) is not None:
                    self._returned(process)
                self._forget(client)
                self._changed.notify_all()

    def memory(self) -> tuple[int, int]:
        """How many processes there are, and their memory in bytes."""
        with self._changed:
            known = [*self._idle, *self._busy, *self._starting]
        return len(known), sum(p.resident_bytes() for p in known)

    def close(self) -> None:
        """Ends all processes; a query that waits for one is cancelled."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._keeper is not None:
            self._keeper.join()

    def ended(self, process: QueryProcess, why: str) -> QueryError:
        """The message about a query whose process ended."""
        most = f"{self._limits.process_bytes / MIB:,.0f} MB of memory"
        if process.killed_for == MEMORY:
            title = f"this query needs more than the {most} that the process of an interactive query has here"
        else:
            title = f"the process that answered this query ended before its answer ({why}); it may use {most}"
        help_ = "make fewer or shorter lists and strings, or give the target more:  memory: 2 GB   # in flowql.yaml"
        return QueryError(title, code=TOO_LARGE, help=help_)

    def _taken(self, ticket: Ticket) -> QueryProcess:
        with self._changed:
            if len(self._waiting) >= WAITING_MAX:
                title = f"{WAITING_MAX} interactive queries wait for a process already"
                raise QueryError(title, code=NO_ROOM, help="ask again in a moment")
            self._waiting.append(ticket)
            self._failure = ""
            self._keep()
            try:
                while not self._idle or self._next() is not ticket:
                    if self._failure and not self._busy and not self._starting:
                        raise ProcessFailed(self._failure)
                    self._changed.wait(LOOK_S if self._closed else 4 * LOOK_S)
                    ticket.check()
                process = self._idle.pop()
                self._busy[process] = ticket
                self._served[ticket.client] = next(self._turns)
                return process
            finally:
                self._waiting.remove(ticket)
                self._forget(ticket.client)
                self._changed.notify_all()

    def _next(self) -> Ticket | None:
        """Who gets the next process: the client that got one the longest time ago, and none that has one already. The lock is held."""
        return min(self._entitled(), key=lambda t: self._served.get(t.client, 0), default=None)

    def _entitled(self) -> list[Ticket]:
        """Those that wait and may have a process now. The lock is held."""
        if self._limits.processes == 1:
            return self._waiting
        holding = {t.client for t in self._busy.values()} - {""}
        return [t for t in self._waiting if t.client not in holding]

    def _forget(self, client: str) -> None:
        """The lock is held."""
        if not any(t.client == client for t in (*self._waiting, *self._busy.values())):
            self._served.pop(client, None)

    def _keep(self) -> None:
        """The lock is held."""
        if self._keeper is None and not self._closed:
            self._keeper = threading.Thread(target=self._kept, name="query-processes", daemon=True)
            self._keeper.start()
        self._changed.notify_all()

    def _returned(self, process: QueryProcess) -> None:
        """The lock is held."""
        if process.stopped:
            process.stop(signal.SIGCONT)
        has = process.resident_bytes()
        if process.killed_for or self._closed or not 0 < has <= process.idle_bytes + KEPT_BYTES:
            process.end()
        else:
            self._idle.append(process)

    def _kept(self) -> None:
        """The thread that starts all processes: the operating system kills them when it ends."""
        try:
            while True:
                with self._changed:
                    if self._closed:
                        return
                    self.run_once(time.monotonic())
                    self._changed.wait(LOOK_S if self._busy or self._starting else None)
        finally:
            for process in (*self._idle, *self._starting, *self._busy):
                process.kill("the end of the instance")
            for process in (*self._idle, *self._starting):
                process.end()
            for process in self._busy:  # those who use them free the rest
                process.wait()

    def run_once(self, now_s: float) -> None:
        """A look at each process. The lock is held."""
        for process in list(self._starting):
            self._look_at_start(process)
        for process, ticket in self._busy.items():
            self._look(process, ticket.check)
        self._take_turns(now_s)
        wanted = max(1, min(self._limits.processes, len(self._busy) + len(self._entitled())))
        if not self._failure and len(self._busy) + len(self._idle) + len(self._starting) < wanted:
            try:
                self._starting.append(QueryProcess(self._limits))
            except ProcessFailed as error:
                self._failed(error)

    def _look_at_start(self, process: QueryProcess) -> None:
        try:
            if not process.look():
                return
        except ProcessFailed as error:
            process.end()
            self._failed(error)
        else:
            self._idle.append(process)
        self._starting.remove(process)
        self._changed.notify_all()

    def _failed(self, error: ProcessFailed) -> None:
        self._failure = str(error)
        self._changed.notify_all()

    def _look(self, process: QueryProcess, check: Check) -> None:
        try:
            check()
        except QueryError:
            process.kill("its query")
        if process.resident_bytes() - process.idle_bytes > self._limits.process_bytes:
            process.kill(MEMORY)

    def _take_turns(self, now_s: float) -> None:
        """Stops processes at work, and lets them run again."""
        stopped = [p for p in self._busy if p.stopped]
        if stopped and now_s - self._turn_s >= STOP_S:
            for process in stopped:
                process.stop(signal.SIGCONT)
            self._load.high()
            self._turn_s = now_s
        elif not stopped and now_s - self._turn_s >= RUN_S:
            self._turn_s = now_s
            for process in self._busy if self._load.high() else ():
                if process.stoppable:
                    process.stop(signal.SIGSTOP)


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

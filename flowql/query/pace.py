"""How much time of the interpreter interactive queries take while continuous queries wait for it."""

from __future__ import annotations

import threading
import time

CONTENDED, YIELDED, YIELDED_S_MAX = 1.5, 9.0, 0.5  # then all interactive queries together take a tenth
# A group of equal queries waits LINGER_S for further ones if continuous queries have waited for a query in the last RECENT_S.
LINGER_S, RECENT_S = 0.03, 5.0


class Share:
    """Divides the processor time of interactive queries among the running ones. Any thread."""

    def __init__(self, *, yields: bool = True) -> None:
        """yields: to threads of the same interpreter that run continuous queries; a process without them has its own priority instead."""
        self.yields = yields
        self._lock = threading.Lock()  # guards both
        self.taking = 0  # interactive queries that are at work
        self._free_at_s = 0.0  # by the monotonic clock: when queries that begin need not wait any more

    def add(self, number: int) -> None:
        with self._lock:
            self.taking += number

    def owe(self, cpu_s: float) -> None:
        """Notes processor time of a query for which continuous queries had to wait. Queries that begin next leave them time in return."""
        if not (self.yields and cpu_s):
            return
        with self._lock:
            now = time.monotonic()
            wanted = max(now, self._free_at_s) + YIELDED * cpu_s
            self._free_at_s = min(wanted, now + YIELDED_S_MAX)

    def wait_s(self) -> float:
        """How long a query that begins now should wait, for itself and for equal ones that come at about the same time."""
        left_s = self._free_at_s - time.monotonic()
        return max(left_s, LINGER_S if left_s > -RECENT_S else 0.0)


class Pace:
    """Leaves time to other threads that wait for the interpreter or for a processor: reading state holds the interpreter's lock.

    Waiting is visible in the thread itself: its wall time exceeds its processor time. cost: of a piece of work, as a multiple of
    the time of the thread that does it, where other threads then work on it.
    """

    def __init__(self, share: Share, cost: float = 1.0) -> None:
        self._share, self._cost = share, cost
        self._working = False

    def begin(self) -> None:
        """A piece of work, by this thread; `contended`, `rest` or `end` follows."""
        assert not self._working
        self._working = True
        self._share.add(1)
        self._cpu, self._wall = time.thread_time(), time.monotonic()

    def contended(self) -> float:
        """The piece is done: its processor time in seconds if others had to wait for it, else 0."""
        cpu = self._contended()
        self.end()
        return cpu

    def rest(self) -> float:
        """As `contended`. Leaves time to others if they had to wait for it."""
        cpu = self._contended()
        if cpu > 0 and self._share.yields:
            time.sleep(min(YIELDED_S_MAX, YIELDED * cpu * self._cost * self._share.taking))
        self.end()
        return cpu

    def _contended(self) -> float:
        cpu, wall = time.thread_time() - self._cpu, time.monotonic() - self._wall
        return cpu if wall > CONTENDED * cpu else 0.0

    def end(self) -> None:
        """Also where no piece has begun."""
        if self._working:
            self._working = False
            self._share.add(-1)

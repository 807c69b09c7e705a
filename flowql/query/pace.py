"""How much of the interpreter questions take while queries wait for it."""

from __future__ import annotations

import threading
import time

CONTENDED, YIELDED, YIELDED_S_MAX = 1.5, 9.0, 0.5  # then all questions together take a tenth


class Share:
    """What the questions of an instance take together, divided among those that are at work. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.taking = 0  # questions that are at work

    def add(self, number: int) -> None:
        with self._lock:
            self.taking += number


class Pace:
    """Leaves time to others who wait for the interpreter, or for a processor: reading state holds the interpreter's lock.

    Waiting is visible in the thread itself: its wall time exceeds its processor time. cost: of a piece of work, as a multiple of
    the time of the thread that does it, where other threads then work on it.
    """

    def __init__(self, share: Share, cost: float = 1.0) -> None:
        self._share, self._cost = share, cost
        self._working = False
        self.contended_s = 0.0  # processor time of pieces that others had to wait for

    def begin(self) -> None:
        """A piece of work, by this thread; `rest` or `end` follows."""
        assert not self._working
        self._working = True
        self._share.add(1)
        self._cpu, self._wall = time.thread_time(), time.monotonic()

    def rest(self) -> None:
        """The piece is done."""
        cpu, wall = time.thread_time() - self._cpu, time.monotonic() - self._wall
        if wall > CONTENDED * cpu:
            self.contended_s += cpu
            time.sleep(min(YIELDED_S_MAX, YIELDED * cpu * self._cost * self._share.taking))
        self.end()

    def end(self) -> None:
        """Also where no piece has begun."""
        if self._working:
            self._working = False
            self._share.add(-1)

"""Lines of a pipe or a terminal in groups: a line does not wait for the end of the input before it is written."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait  # select(2) takes no descriptor above 1,023
from types import FrameType

GROUP_LINES, GROUP_S = 10_000, 0.2  # a group ends with so many lines, or so long after its first one
_READ_BYTES = 1 << 16
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Piped:
    """The lines of a file descriptor. interrupted: Ctrl-C or SIGTERM came before its end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.interrupted = False

    def groups(self) -> Iterator[list[str]]:
        """Groups of lines that are not empty, until the end or a signal; what was read until then is the last group. Main thread only.

        Between two groups a signal waits until the caller asks for the next one.
        """
        with _signalled() as signalled:
            waiting, rest, due_s, ended = list[str](), b"", 0.0, False
            while not ended:
                ready = wait([self._descriptor, signalled], max(0.0, due_s - time.monotonic()) if waiting else None)
                self.interrupted = signalled in ready
                if self._descriptor in ready:
                    data = os.read(self._descriptor, _READ_BYTES)
                    *lines, rest = (rest + data).split(b"\n") if data else (rest, b"")
                    due_s = due_s if waiting else time.monotonic() + GROUP_S
                    waiting += [text for line in lines if (text := line.decode("utf-8", "replace").strip())]
                    ended = not data  # then `rest` was a line
                ended = ended or self.interrupted
                if waiting and (ended or len(waiting) >= GROUP_LINES or time.monotonic() >= due_s):
                    yield waiting
                    waiting = []


@contextmanager
def _signalled() -> Iterator[int]:
    """A descriptor that can be read once one of the signals has come. The second one does what it did before."""
    reading, writing = os.pipe()
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def note(_number: int, _frame: FrameType | None) -> None:
        os.write(writing, b"!")
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in _SIGNALS:
        signal.signal(number, note)
    try:
        yield reading
    finally:
        restore()
        os.close(reading)
        os.close(writing)

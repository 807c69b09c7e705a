"""Something that is done again and again in a thread of its own, while something else goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Repeated:
    """act: says after how many seconds it is to be done again. What it raises ends it, and `check` raises it."""

    def __init__(self, act: Callable[[], float]) -> None:
        self._act = act
        self._turn = threading.Lock()  # held while it acts, or is paused
        self._failure: BaseException | None = None

    @contextmanager
    def going_on(self) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Not in the middle of it."""
        with self._turn:
            yield

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self, stop: threading.Event) -> None:
        try:
            while True:
                with self._turn:
                    again_s = self._act()
                if stop.wait(again_s):
                    return
        except BaseException as failure:  # belongs to the story, which must not pass without it
            self._failure = failure

"""The threads of a Spark instance: one repeats the supervisor's step, one looks whether brokers answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from flowql.runtime.clock import Clock

STOP_S = 120.0  # Spark may be starting a stream


class StepThread:
    """Repeats `step(now_ms)`, which returns ms to wait, from `start` to `stop`. What it raises goes to `on_death`."""

    def __init__(
        self,
        step: Callable[[int], int],
        clock: Clock,
        on_death: Callable[[BaseException], None],
        name: str = "spark-queries",
    ) -> None:
        self._step, self._clock, self._on_death = step, clock, on_death
        self._stopping = threading.Event()
        self._stepping = threading.RLock()  # guards what the step works on
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def between_steps(self) -> AbstractContextManager[object]:
        """No step is under way within."""
        return self._stepping

    def wait(self, seconds: float) -> None:
        """Let steps be made; ends early when it is time to stop."""
        self._stopping.wait(seconds)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended, or does not within STOP_S."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(STOP_S)

    def _loop(self) -> None:
        try:
            while not self._stopping.is_set():
                with self._stepping:
                    wait_ms = self._step(self._clock.timer_ms())
                self._stopping.wait(wait_ms / 1000)
        except BaseException as error:  # whatever it is: the instance must learn that its thread is gone
            self._on_death(error)

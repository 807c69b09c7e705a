"""Whether the brokers of a log on Kafka answer, said within seconds: streams learn it from calls that wait for half a minute. No pyspark."""

from __future__ import annotations

from collections.abc import Callable

from flowql.runtime.clock import Clock
from flowql.runtime.events import INFO, WARNING, say

LOOK_MS = 4_000
ANSWER_S = 4.0  # so long is waited for an answer: what is said comes 8 s after brokers have gone at most


class LogWatch:
    """answers: asks the brokers at `place`; blocks for ANSWER_S at most. A thread of its own repeats `run_once`; others read `trouble`."""

    def __init__(self, place: str, answers: Callable[[], bool], clock: Clock) -> None:
        self._place, self._answers, self._clock = place, answers, clock
        self._since_ms: int | None = None
        self.trouble = ""

    def run_once(self, now_ms: int) -> int:
        if self._answers():
            if self._since_ms is not None:
                gone_s = (self._clock.timer_ms() - self._since_ms) // 1000
                say(INFO, "log.answers", f"the Kafka brokers at {self._place} answer again, after {gone_s} s")
            self._since_ms, self.trouble = None, ""
        elif self._since_ms is None:
            self._since_ms = now_ms
            self.trouble = f"the Kafka brokers at {self._place} do not answer; queries continue from their last micro-batch when they do"
            say(WARNING, "log.trouble", self.trouble)
        return LOOK_MS

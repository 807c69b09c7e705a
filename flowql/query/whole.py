"""How far subscriptions and queries read topics, so that they show no part of a transaction."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from flowql.errors import CommandError
from flowql.query.relations import spans_of, within
from flowql.runtime.log.base import Log, TopicPartition

STEP_S = 0.02  # between two looks
SETTLED_S, QUIET_S = 1.0, 5.0
FORGOTTEN_S = 60.0  # after the last question about some topics
T = TypeVar("T")


class WholeEnds(Protocol):
    """See `flowql.server.engine.Engine.whole_ends`."""

    def __call__(self, *topics: str) -> Mapping[TopicPartition, int] | None: ...


def to_the_end(*topics: str) -> dict[TopicPartition, int]:
    """For topics whose writers follow no ticks."""
    del topics
    return {}


@dataclass(slots=True)
class _Told:
    """What was told last about some topics. sequence: of the newest commit before that; times by the monotonic clock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    asked_s: float = 0.0
    sequence: int = -1
    sequence_s: float = 0.0  # since when no later commit is known
    ends: Mapping[TopicPartition, int] | None = None


class SharedEnds:
    """Asks an instance in another process for whole ends, for all readers in this one: at most every `STEP_S`, and once in `QUIET_S` while nothing is
    committed. Readers that wait share what it tells. Answers of one client never go back: `known` tells nothing that is older than an answer of the
    instance, or than ends that it has told together with others.
    """

    def __init__(self, ask: WholeEnds, sequence: Callable[[], int] | None) -> None:
        """sequence: of the newest commit; None where a broker would have to be asked."""
        self._ask, self._sequence = ask, sequence
        self._told = defaultdict[tuple[str, ...], _Told](_Told)
        self._lock = threading.Lock()  # guards the times, and forgetting
        # By topic, when it was asked last; "": when it answered a request, or told all ends.
        self._asked_s = dict[str, float]()
        self._forgot_s = time.monotonic()

    def answered(self) -> None:
        """The instance has answered a request, and the client does not have the answer yet."""
        with self._lock:
            self._asked_s[""] = time.monotonic()

    def __call__(self, *topics: str) -> Mapping[TopicPartition, int] | None:
        """Any thread. None if it is not known yet."""
        called_s, told = time.monotonic(), self._told[topics]
        with told.lock:
            if told.asked_s <= called_s and not self._holds(told):  # what it told before may be out of date
                time.sleep(max(0.0, told.asked_s + STEP_S - time.monotonic()))
                self._note_sequence(told)
                told.asked_s = time.monotonic()
                with self._lock:
                    self._asked_s.update(dict.fromkeys(topics or ("",), told.asked_s))
                    self._forget(told.asked_s)
                try:
                    told.ends = self._ask(*topics)
                except CommandError:  # it does not answer now
                    told.ends = None
            return told.ends

    def known(self, *topics: str) -> Mapping[TopicPartition, int] | None:
        """As a call, without waiting: None if the instance has to be asked."""
        told = self._told[topics]
        if not told.lock.acquire(blocking=False):
            return None
        try:
            is_newest = all(told.asked_s >= self._asked_s.get(topic, 0.0) for topic in (*topics, ""))
            return told.ends if (is_newest and time.monotonic() - told.asked_s < STEP_S) or self._holds(told) else None
        finally:
            told.lock.release()

    def _forget(self, now_s: float) -> None:
        """Forgets the topics of results that no one reads any more. What was told so long ago is out of date for `known`."""
        if now_s - self._forgot_s > FORGOTTEN_S:
            self._forgot_s = now_s
            for topics in [t for t, told in list(self._told.items()) if now_s - told.asked_s > FORGOTTEN_S]:
                self._told.pop(topics, None)
            for topic in [t for t, asked_s in self._asked_s.items() if now_s - asked_s > FORGOTTEN_S]:
                del self._asked_s[topic]

    def _holds(self, told: _Told) -> bool:
        """Whether nothing was committed since a while before it was asked: an instance knows what it has finished a moment after the commit."""
        if self._sequence is None or told.ends is None or told.asked_s - told.sequence_s < SETTLED_S:
            return False
        return time.monotonic() - told.asked_s < QUIET_S and self._sequence() == told.sequence

    def _note_sequence(self, told: _Told) -> None:
        if self._sequence is not None and (newest := self._sequence()) != told.sequence:
            told.sequence, told.sequence_s = newest, time.monotonic()


@dataclass(slots=True)
class Whole:
    """Reads topics to their ends as of the newest tick that their writers have finished. A topic whose writers follow no ticks, or have finished none for
    some seconds after a start, is read to its end. The ends are of one moment, so a transaction of the embedded log is before all of them or after.
    """

    log: Log
    ends: WholeEnds
    _last: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    def spans(self, *topics: str) -> Mapping[TopicPartition, tuple[int, int]] | None:
        """First offset and end of each partition; None if it is not known yet. The topics are the same at each call."""
        found = spans_of(self.log, *topics)
        if found != self._last:  # the instance is asked first: what it says is never beyond the ends
            if (ends := self.ends(*topics)) is None:
                return None
            self._last = {tp: within(span, ends.get(tp)) for tp, span in spans_of(self.log, *topics).items()}
        return self._last


def awaited(
    look: Callable[[], T | None],
    seconds: float,
    wait: Callable[[float], object] = time.sleep,
    stopped: Callable[[], bool] = lambda: False,
) -> T | None:
    """Looks until there is an answer. Returns None after so many seconds, or once it is stopped. wait: waits so many seconds, or less."""
    limit = time.monotonic() + seconds
    while (found := look()) is None and time.monotonic() < limit and not stopped():
        wait(STEP_S)
    return found

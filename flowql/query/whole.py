"""How far a subscription reads, so that it shows no part of a transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from flowql.query.relations import spans_of, within
from flowql.runtime.log.base import Log, TopicPartition

STEP_S = 0.02  # between two looks
T = TypeVar("T")


class WholeEnds(Protocol):
    """See `flowql.server.engine.Engine.whole_ends`."""

    def __call__(self, *topics: str) -> Mapping[TopicPartition, int] | None: ...


def to_the_end(*topics: str) -> dict[TopicPartition, int]:
    """For topics whose writers follow no ticks."""
    del topics
    return {}


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

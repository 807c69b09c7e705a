"""Schedules of punctuations. They are part of the task's committed metadata, so that they go on after a failure or restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flowql.compiler.processors.processor import ClockKind
from flowql.runtime.operators.base import NO_TIME


@dataclass(slots=True)
class Schedule:
    """method: of the processor. next_ms: of stream time or the wall clock; NO_TIME where no stream time is known yet.

    of_init: made by `init`, which makes it again for each object. Implements `flowql.compiler.processors.processor.Cancellable`.
    """

    processor: str
    method: str
    clock: ClockKind
    every_ms: int
    next_ms: int
    of_init: bool
    ended: bool = False

    def cancel(self) -> None:
        self.ended = True

    def is_due(self, now_ms: int) -> bool:
        """Whether it is to be called. The first stream time that is known only starts it."""
        if self.ended:
            return False
        if self.next_ms == NO_TIME:
            self.advance(now_ms)
            return False
        return now_ms >= self.next_ms

    def advance(self, now_ms: int) -> None:
        """Once for all that have passed."""
        if self.clock == "stream":
            self.next_ms = now_ms - now_ms % self.every_ms + self.every_ms
        else:
            self.next_ms = now_ms + self.every_ms

    @property
    def identity(self) -> tuple[str, str, str, int]:
        return (self.processor, self.method, self.clock, self.every_ms)


class Schedules:
    """All of a task's topology."""

    def __init__(self, saved: Sequence[Sequence[Any]]) -> None:
        """saved: of the objects before these, as `to_data` gives them."""
        self._saved = [Schedule(*fields) for fields in saved]
        self._all: list[Schedule] = []

    def add(self, made: Schedule) -> Schedule:
        """The same schedule of the object before goes on."""
        before = next((s for s in self._saved if s.identity == made.identity), None)
        if before is not None:
            self._saved.remove(before)
            made.next_ms = before.next_ms
        self._all.append(made)
        return made

    def initialised(self) -> None:
        """Schedules that were made by `process` or `punctuate` go on; those that `init` made before and does not any more end."""
        self._all += [s for s in self._saved if not s.of_init]
        self._saved = []

    def due(self, clock: ClockKind, now_ms: int) -> list[Schedule]:
        """In the order of their times, and of being made."""
        found = [s for s in self._all if s.clock == clock and s.is_due(now_ms)]
        return sorted(found, key=lambda s: s.next_ms)

    def next_ms(self, clock: ClockKind) -> int | None:
        """The earliest; None if there is none. NO_TIME: it waits for the first stream time."""
        return min((s.next_ms for s in self._all if s.clock == clock and not s.ended), default=None)

    def follow_wall(self, now_ms: int) -> None:
        """A clock that was set back must not keep punctuations waiting."""
        for s in self._all:
            if s.clock == "wall":
                s.next_ms = min(s.next_ms, now_ms + s.every_ms)

    def are(self, saved: Sequence[Sequence[Any]]) -> bool:
        """Whether these are the same, whatever their next times."""
        return [s.identity for s in self._all if not s.ended] == [Schedule(*fields).identity for fields in saved]

    def to_data(self) -> list[list[Any]]:
        self._all = [s for s in self._all if not s.ended]
        return [[s.processor, s.method, s.clock, s.every_ms, s.next_ms, s.of_init] for s in self._all]

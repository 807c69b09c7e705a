"""The reservation stations of an operator: rows that wait for calls, in memory (KIP-311).

A row is *issued* when it comes, *executed* by calls that end in any order, and *retired* when all of them have ended and its order allows it. Rows
that have waited for longer than `PARK_MS` are *parked*: they hold no station any more, and those of the same key that came later are parked behind
them. Nothing here is the only copy of a row: each is in the operator's store until it is retired.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any

from flowql.compiler.functions.async_options import Order, Retry
from flowql.runtime.batch import Row
from flowql.runtime.functions.call_results import CallResult
from flowql.runtime.operators.base import AT_ONCE, SourceRecord
from flowql.runtime.state.rows import Key, Value

PARK_MS = 1_000
PARKED_MAX = 10_000  # rows of one operator of a task; with so many it takes no more input


def _nothing() -> None:
    """Nothing is under way."""


@dataclass(slots=True, eq=False)
class Pending:
    """A call that has no result yet. failed: how often it ended with an exception. due_ms: when it is to be made, by the wall clock."""

    row: Waiting
    place: int
    failed: int = 0
    due_ms: int = 0
    under_way: bool = False
    cancel: Callable[[], None] = _nothing


@dataclass(slots=True, eq=False)
class Waiting:
    """A row. number: rising in the order of rows. key: None where its order is no matter. since_ms: when it was issued.

    values: of its calls. errors: of calls that gave up. delayed: it waits for a delay that its function asked for.
    """

    number: int
    row: Row
    rowtime: int
    op: int
    key: Key | None
    since_ms: int
    source: SourceRecord | None = None
    headers: Any = None
    values: list[Any] = field(default_factory=list)
    errors: list[tuple[int, str]] = field(default_factory=list)
    calls: dict[int, Pending] = field(default_factory=dict)
    parked: bool = False
    delayed: bool = False


class Stations:
    """The stations of one operator. Only the thread that holds the task uses them."""

    def __init__(self, order: Order, retries: Sequence[Retry], max_in_flight: int) -> None:
        self.order, self._retries, self._max = order, retries, max_in_flight
        self.rows: dict[int, Waiting] = {}  # in their order
        self._of_key: dict[Key, deque[Waiting]] = {}
        self._ready: dict[int, Waiting] = {}  # rows that may be retired, by their numbers
        self._begin: deque[Pending] = deque()  # calls that could be made
        self._later: list[tuple[int, int, int, Pending]] = []  # a heap of calls to be made at a time
        self._young: deque[Waiting] = deque()  # rows that may have to be parked, the oldest first
        self.in_flight = 0
        self.parked = 0

    def add(self, row: Waiting) -> None:
        """Issue a row; those of `calls` that have a time are made then."""
        self.rows[row.number] = row
        if row.key is not None:
            self._of_key.setdefault(row.key, deque()).append(row)
        for call in row.calls.values():
            self._schedule(call)
        if self.order != "input":
            self._young.append(row)
        if not row.calls:
            self._executed(row)

    def _schedule(self, call: Pending) -> None:
        if call.due_ms:
            heapq.heappush(self._later, (call.due_ms, call.row.number, call.place, call))
        else:
            self._begin.append(call)

    def to_begin(self, now_ms: int) -> Iterator[Pending]:
        """Calls to be made now, as many as may be under way. They are under way when this has given them."""
        while self._later and self._later[0][0] <= now_ms:
            call = heapq.heappop(self._later)[-1]
            call.row.delayed = False
            self._begin.append(call)
        while self._begin and self.in_flight < self._max:
            call = self._begin.popleft()
            if self._is_wanted(call):
                self.in_flight += 1
                call.under_way = True
                yield call

    def _is_wanted(self, call: Pending) -> bool:
        return self.rows.get(call.row.number) is call.row and call.row.calls.get(call.place) is call

    def ended(self, call: Pending, outcome: CallResult, now_ms: int) -> bool:
        """A call has ended. Whether what is kept of its row has changed: when it is to be made again."""
        if not call.under_way:
            return False  # it was abandoned
        self._ends(call)
        row = call.row
        if outcome.again_ms is not None:
            row.delayed = True
            return self._again(call, now_ms + outcome.again_ms)
        if outcome.error:
            call.failed += 1
            delay_ms = self._retries[call.place].delay_ms(call.failed, row.number)
            if delay_ms is not None:
                return self._again(call, now_ms + delay_ms)
            row.errors.append((call.place, outcome.error))
        else:
            row.values[call.place] = outcome.value
        del row.calls[call.place]
        if not row.calls:
            self._executed(row)
        return False

    def put_back(self, call: Pending) -> None:
        """It was under way, and is to be made again, as nothing is known of it."""
        if call.under_way:
            self._ends(call)
            self._begin.append(call)

    def _ends(self, call: Pending) -> None:
        self.in_flight -= 1
        call.under_way, call.cancel = False, _nothing

    def _again(self, call: Pending, due_ms: int) -> bool:
        call.due_ms = due_ms
        heapq.heappush(self._later, (due_ms, call.row.number, call.place, call))
        return True

    def _executed(self, row: Waiting) -> None:
        """All its calls have ended."""
        if self.order == "input":
            first = next(iter(self.rows.values()))
            if first is row:
                self._ready[row.number] = row
        elif row.key is None or self._of_key[row.key][0] is row:
            self._ready[row.number] = row

    def ready(self, most: int) -> list[Waiting]:
        """Rows that may be retired, in their order: where one stands in the way of the next, that one, too."""
        found: list[Waiting] = []
        if self.order == "input":
            behind: Iterable[Waiting] = self.rows.values()
            return list(islice(takewhile(lambda row: not row.calls, behind), most))
        for head in self._ready.values():
            behind = (head,) if head.key is None else self._of_key[head.key]
            found += takewhile(lambda row: not row.calls, behind)
        return sorted(found, key=lambda row: row.number)[:most]

    def earlier(self, key: Key) -> list[Waiting]:
        """Rows of a key that wait."""
        return list(self._of_key.get(key, ()))

    def remove(self, row: Waiting) -> None:
        """Removes a row that is retired or cancelled."""
        del self.rows[row.number]
        for call in row.calls.values():
            if call.under_way:
                call.cancel()
                self._ends(call)
        self.parked -= row.parked
        follower = next(iter(self.rows.values()), None) if self.order == "input" else None
        if row.key is not None:
            of_key = self._of_key[row.key]
            was_first = of_key[0] is row
            of_key.remove(row)  # from the front: found at once if it is the first
            if was_first and of_key and self.order != "input":
                follower = of_key[0]
            if not of_key:
                del self._of_key[row.key]
        self._ready.pop(row.number, None)
        if follower is not None and not follower.calls:
            self._ready[follower.number] = follower

    def park(self, now_ms: int) -> None:
        """Rows that have waited for long, and those behind them."""
        while self._young:
            row = self._young[0]
            if self.rows.get(row.number) is not row or row.parked:
                self._young.popleft()
                continue
            if 0 <= now_ms - row.since_ms < PARK_MS and not row.delayed:
                return
            for behind in self._of_key.get(row.key, (row,)) if row.key is not None else (row,):
                if not behind.parked:
                    behind.parked = True
                    self.parked += 1

    def clock_set_back(self, by_ms: int) -> None:
        """Nothing has to wait for the clock to be again where it was."""
        self._later = [(due - by_ms, number, place, call) for due, number, place, call in self._later]
        for due, _, _, call in self._later:
            call.due_ms = due
        for row in self._young:
            row.since_ms -= by_ms

    @property
    def room(self) -> int:
        """How many rows may be issued."""
        if self.parked >= PARKED_MAX:
            return 0
        return max(0, self._max - (len(self.rows) - self.parked))

    def due_ms(self, now_ms: int) -> int | None:
        """When there is something to do, unless a call ends before."""
        if self._ready or (self._begin and self.in_flight < self._max):
            return AT_ONCE
        times = [self._later[0][0]] if self._later else []
        if self._young:
            times.append(min(self._young[0].since_ms, now_ms) + PARK_MS)
        return min(times, default=None)

    @property
    def oldest_ms(self) -> int | None:
        """The row time of the first row that waits; of those that are delayed on purpose none."""
        return next((w.rowtime for w in self.rows.values() if not w.delayed), None)

    def abandon(self) -> None:
        """Cancels all calls, whose results are no longer needed."""
        for row in list(self.rows.values()):
            for call in row.calls.values():
                call.cancel()
        self.rows.clear()


_FIXED = 13  # values in front of the row


def to_value(row: Waiting, now_ms: int) -> Value:
    """The row, how it came, the record it was read from, and which of its calls have failed. now_ms: by the wall clock."""
    failed = tuple([n for c in row.calls.values() if c.failed or c.due_ms for n in (c.place, c.failed, c.due_ms)])
    source: tuple[Any, ...] = (None,) * 6
    if row.source is not None:
        s = row.source
        source = (s.topic, s.partition, s.offset, s.timestamp, s.key, s.value)
    head = (now_ms, row.rowtime, row.op, row.since_ms, row.delayed, failed or None, row.headers)
    return (*head, *source, *row.row)


def from_value(number: int, value: Value, now_ms: int) -> Waiting:
    """As it was kept. Of its calls only those that have failed or wait for a time are there: no longer than was left of it when it was kept, if the
    clock was set back since.
    """
    kept_ms, rowtime, op, since_ms, delayed, failed, headers = value[:7]
    topic, partition, offset, timestamp, key, raw = value[7:_FIXED]
    back_ms = max(0, kept_ms - now_ms)
    source = None if topic is None else SourceRecord(topic, partition, offset, timestamp, key, raw)
    row = Waiting(
        number, tuple(value[_FIXED:]), rowtime, op, None, since_ms - back_ms, source, headers, delayed=delayed
    )
    parts = failed or ()
    for n in range(0, len(parts), 3):
        place, count, due_ms = parts[n : n + 3]
        row.calls[place] = Pending(row, place, count, due_ms - back_ms if due_ms else 0)
    return row

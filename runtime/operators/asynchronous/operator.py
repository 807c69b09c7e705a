"""Calls of asynchronous functions as an operator of a task.

Rows that come are written to the operator's store and leave it when they are retired, in the same epochs as positions and results: what is
committed says which rows above the first unfinished one are done, and with which rows a restart begins. Of a row that comes and goes within an epoch
only the removal is written. Calls are begun after the run that issued their rows was published, and again after a restart: at least once.

What happens between runs is known by a counter in the task's metadata, as that of a topology of processors: rows of a run that was dropped are
dropped here, too, and after an abort everything is read from the store.
"""

from __future__ import annotations

import heapq
import inspect
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any

from flowql.compiler.functions.asynchronous import ONCE, AsyncOptions, Order, Retry
from flowql.compiler.functions.registry import AsyncFunction, QueryFailure
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.user import function_in_plan, plain_name
from flowql.compiler.functions.user_rows import named
from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.processors import CALL
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import BIGINT
from flowql.compiler.processors.processor import AsyncProcessor
from flowql.compiler.processors.topology import topology_in_plan
from flowql.runtime.batch import DELETE, Batch, Row
from flowql.runtime.functions.call_results import CallResult, Calls, calls_of
from flowql.runtime.operators.base import AT_ONCE, AsyncFacts, MicroBatchContext, SourceRecord
from flowql.runtime.operators.keys import frozen_picker, key_fields
from flowql.runtime.operators.processors.values import RecordOfRow
from flowql.runtime.operators.rows import Emitter
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
    """The rows of one operator that wait for calls (KIP-311). Only the thread that holds the task uses them.

    A row is *issued* when it comes, *executed* by calls that end in any order, and *retired* when all of them have ended and its order allows
    it. A row that has waited for more than `PARK_MS` is *parked*: it holds no station any more, and later rows of its key are parked behind it.
    Each row is also in the operator's store until it is retired.
    """

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


def call_of_processor(name: str, source: Schema) -> AsyncFunction:
    """name: of its calls in plans. Calls run in the engine's own process, as processors do, on an object that is made for them. Raises QueryFailure."""
    topology_name, _, step = name.partition(CALL)
    topology, reader = topology_in_plan(topology_name), RecordOfRow(source)
    made = topology.make(step)
    if not isinstance(made, AsyncProcessor):
        raise QueryFailure(f"processor {step} is not asynchronous any more")
    asks = made.call

    async def call(*row: Any) -> bytes:
        return pickle.dumps(await asks(reader.key(row), reader.value(row)), 5)

    def blocking_call(*row: Any) -> bytes:
        return pickle.dumps(asks(reader.key(row), reader.value(row)), 5)

    is_coroutine = inspect.iscoroutinefunction(asks)
    options = AsyncOptions(made.max_in_flight, float(made.timeout), made.retry or ONCE, made.order)
    return AsyncFunction(options, call if is_coroutine else blocking_call, is_coroutine, (), name)


FAILED = "FQ4030"
ARGUMENTS_MAX = 200  # characters of them in a message


@dataclass(slots=True)
class _Changes:
    """Changes of the current micro-batch, applied when it is published."""

    added: list[Waiting] = field(default_factory=list)
    gone: list[Waiting] = field(default_factory=list)


class AsyncMapOperator:
    """Implements `Timed` and `Waits`."""

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, AsyncMap)
        self.plan, self._spec = plan, plan.spec
        self._store = plan.stores[0].name
        source = self._source = inputs[0].schema
        self._key = frozen_picker(source, [f.name for f in key_fields(source)])
        self._args = [tuple(source.names.index(a) for a in c.args) for c in plan.spec.calls]
        self._stations: Stations | None = None
        self._names = [named(f.type) for f in plan.schema.fields[len(source.fields) :]]
        self._functions: list[tuple[AsyncFunction, Calls]] = []
        self._changes = _Changes()
        self._runs = 0
        self._ended: deque[tuple[Stations, Pending, CallResult]] = deque()  # added to by threads of calls
        self._lock = threading.Lock()  # guards the wish to be woken
        self._wake: Callable[[], None] | None = None  # asked for, and not called yet
        # Other threads read this at any time: it is replaced after each micro-batch, and never changed.
        self.facts = AsyncFacts(is_known=False)
        self._next_ms: int | None = AT_ONCE
        self._room: int | None = None
        self._closes = False
        self._wall_ms = 0  # of the last run

    # -- what others may ask

    @property
    def due_ms(self) -> int | None:
        return AT_ONCE if self._ended else self._next_ms

    @property
    def room(self) -> int | None:
        return self._room

    # -- runs

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        saved = run.timers.get(self.plan.id, {})
        stations = self._ready(saved, run)
        self._wake = None
        if run.wall_ms < self._wall_ms:
            stations.clock_set_back(self._wall_ms - run.wall_ms)
        self._wall_ms = run.wall_ms
        changed = self._take_ended(stations, run)
        stations.park(run.wall_ms)
        for call in stations.to_begin(run.wall_ms):
            self._call(stations, call)
        next_row = saved.get("next", 0)
        batch = inputs[0]
        if batch is not None and len(batch):
            next_row = self._issue(batch, next_row, stations, run)
        out = self._retire(stations, run) if run.is_tick else None
        if self._changes.added or self._changes.gone or changed:
            run.timers[self.plan.id] = {"runs": self._runs + 1, "next": next_row}
            self._next_ms = AT_ONCE  # only then it is known that this run was published
        else:
            self._next_ms = stations.due_ms(run.wall_ms)
        added = len(self._changes.added)  # which wait, too, if this run is published
        self._room = max(0, stations.room - added)
        rows = len(stations.rows) + added
        self.facts = AsyncFacts(True, rows, stations.in_flight, stations.parked, stations.oldest_ms)
        with self._lock:
            self._wake = run.wake
        return out

    def _ready(self, saved: dict[str, Any], run: MicroBatchContext) -> Stations:
        """Stations with the rows that are published, and no others."""
        runs, stations, changes = saved.get("runs", 0), self._stations, self._changes
        self._changes = _Changes()
        if stations is not None and runs == self._runs + 1 and (changes.added or changes.gone):
            for row in changes.gone:
                stations.remove(row)
            for row in changes.added:
                stations.add(row)
        elif stations is None or runs not in (self._runs, self._runs + 1):
            stations = self._loaded(run)
        self._runs = runs
        return stations

    def _loaded(self, run: MicroBatchContext) -> Stations:
        """Also after an abort: calls that are under way then are abandoned."""
        self.close()
        if not self._closes:
            run.state.closing.append(self.close)
            self._closes = True
        functions = [_function(c.function, self._source) for c in self._spec.calls]
        self._functions = [(f, calls_of(f)) for f in functions]
        retries, most = [f.options.retry for f in functions], min(f.options.max_in_flight for f in functions)
        stations = Stations(self._spec.order, retries, most)
        for (number, *_), value in run.state.store(self._store).scan():
            assert isinstance(number, int)
            stations.add(self._waiting(from_value(number, value, run.wall_ms)))
        self._stations = stations
        return stations

    def close(self) -> None:
        """The task ends, or begins again."""
        stations, self._stations, self.facts = self._stations, None, AsyncFacts(is_known=False)
        if stations is not None:
            stations.abandon()

    def _waiting(self, row: Waiting) -> Waiting:
        """With its key and its calls. Of one that was kept, what is known of calls that failed stays."""
        failed, row.calls = row.calls, {}
        if self._spec.order != "none":
            key = self._key(row.row)
            row.key = key if any(part is not None for part in key) else None
        row.values = [None] * len(self._functions)
        for place, (function, _) in enumerate(self._functions):
            args = self._args[place]
            if row.op != DELETE and all(row.row[args[n]] is not None for n in function.required):
                row.calls[place] = failed.get(place, Pending(row, place))
        return row

    def _issue(self, batch: Batch, number: int, stations: Stations, run: MicroBatchContext) -> int:
        """Rows of a run, from `number` on. A row of a table replaces those of its key that wait, where only the last one counts (WAW)."""
        records = run.records_of(batch.seq)
        headers = batch.headers or [None] * len(batch)
        rows = zip(batch.rows(), batch.rowtime.tolist(), batch.op.tolist(), records, headers, strict=True)
        issued = [
            self._waiting(Waiting(n, row, rowtime, op, None, run.wall_ms, record, header))
            for n, (row, rowtime, op, record, header) in enumerate(rows, number)
        ]
        kept, store = issued, run.state.store(self._store)
        if run.coalesce:
            last = {row.key: row for row in issued if row.key is not None}
            kept = [row for row in issued if row.key is None or last[row.key] is row]
            self._changes.gone = [row for key in last for row in stations.earlier(key)]
            store.put_many([(row.number,) for row in self._changes.gone], [None] * len(self._changes.gone))
        store.put_many([(row.number,) for row in kept], [to_value(row, run.wall_ms) for row in kept])
        self._changes.added = kept
        return number + len(issued)

    def _take_ended(self, stations: Stations, run: MicroBatchContext) -> bool:
        """Calls that have ended since the last run. Whether what is kept of rows has changed."""
        changed = False
        while self._ended:
            of, call, outcome = self._ended.popleft()
            if of is not stations:
                continue
            if outcome.fails_query:
                stations.put_back(call)
                raise QueryFailure(f"{plain_name(self._spec.calls[call.place].function)}: {outcome.error}")
            if stations.ended(call, outcome, run.wall_ms):
                run.state.store(self._store).put((call.row.number,), to_value(call.row, run.wall_ms))
                changed = True
        return changed

    def _call(self, stations: Stations, call: Pending) -> None:
        _, calls = self._functions[call.place]
        row = call.row.row

        def done(outcome: CallResult) -> None:
            self._ended.append((stations, call, outcome))
            with self._lock:
                wake, self._wake = self._wake, None
            if wake is not None:
                wake()

        call.cancel = calls.begin(tuple([row[i] for i in self._args[call.place]]), done)

    def _retire(self, stations: Stations, run: MicroBatchContext) -> Batch | None:
        """Rows whose calls have ended, in order. With `run.refused` the first of them leaves without a trace but a dead letter."""
        gone = set(map(id, self._changes.gone))
        rows = [row for row in stations.ready(run.retire_max) if id(row) not in gone]
        if not rows:
            return None
        run.retire_max -= len(rows)
        store, out = run.state.store(self._store), Emitter(self.plan.schema)
        for row in rows:
            seq = run.add_retired(row.source)
            for place, error in row.errors:
                run.fail_row(seq, FAILED, self._said(row.row, place, error))
            if run.refused is not None:
                run.fail_row(seq, *run.refused)
            else:
                out.add((*row.row, *self._named(row.values)), row.rowtime, row.op, seq, row.headers)
        store.put_many([(row.number,) for row in rows], [None] * len(rows))
        self._changes.gone += rows
        return out.batch() if out.rows else None

    def _named(self, values: Sequence[Any]) -> Sequence[Any]:
        """Values of calls with the names that fields have in SQL."""
        if not any(self._names):
            return values
        return [v if n is None or v is None else n(v) for n, v in zip(self._names, values, strict=True)]

    def _said(self, row: Row, place: int, error: str) -> str:
        """`LOOKUP('ada'): TimeoutError: it did not return within 30 s`."""
        args = ", ".join(repr(row[i]) for i in self._args[place])
        shown = args if len(args) <= ARGUMENTS_MAX else f"{args[:ARGUMENTS_MAX]} ..."
        return f"{plain_name(self._spec.calls[place].function)}({shown}): {error}"


def _function(name: str, source: Schema) -> AsyncFunction:
    """source: of the rows that it is called for. Raises QueryFailure where that version is not here."""
    if CALL in name:
        return call_of_processor(name, source)
    found = function_in_plan(name)
    if found is None:
        raise QueryFailure(f"there is no function {plain_name(name)}")
    if found.asynchronous is None:
        found.reference(Resolution((), BIGINT))()  # says why it is missing
        raise QueryFailure(f"{plain_name(name)} is not asynchronous any more")
    return found.asynchronous

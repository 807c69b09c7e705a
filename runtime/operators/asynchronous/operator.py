"""Calls of asynchronous functions as an operator of a task.

Rows that come are written to the operator's store and leave it when they are retired, in the same epochs as positions and results: what is
committed says which rows above the first unfinished one are done, and with which rows a restart begins. Of a row that comes and goes within an epoch
only the removal is written. Calls are begun after the run that issued their rows was published, and again after a restart: at least once.

What happens between runs is known by a counter in the task's metadata, as that of a topology of processors: rows of a run that was dropped are
dropped here, too, and after an abort everything is read from the store.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowql.compiler.functions.registry import AsyncFunction, QueryFailure
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.user import function_in_plan, plain_name
from flowql.compiler.functions.user_rows import named
from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.processors import CALL
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import BIGINT
from flowql.runtime.batch import DELETE, Batch, Row
from flowql.runtime.functions.call_results import CallResult, Calls
from flowql.runtime.functions.event_loop import calls_of
from flowql.runtime.operators.asynchronous.station import Pending, Stations, Waiting, from_value, to_value
from flowql.runtime.operators.base import AT_ONCE, AsyncFacts, MicroBatchContext
from flowql.runtime.operators.keys import frozen_picker, key_fields
from flowql.runtime.operators.processors.calls import call_of_processor
from flowql.runtime.operators.rows import Emitter

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

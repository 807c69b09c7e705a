"""The contract of an operator at run time.

A task processes a *run*: for each of its sources at most one batch, rows numbered by `seq` in the merged order of the
task. Each operator is called once per run, after its inputs, with one batch per input (None: nothing came). Everything
an operator remembers between runs lives in its stores or in `MicroBatchContext.stream_time`, so that dropping a failed run
leaves no trace (rule R1). Operators are deterministic functions of their stores and inputs.

Emission (rule R13): with `coalesce` false every update of every row is emitted, in row order; any split of the input into
runs then gives the same rows (rule R5). With `coalesce` true a keyed operator may emit one row per key and run: the last
after-image (and the first before-image).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from flowql.compiler.plan.topology import Operator as OperatorPlan
from flowql.runtime.batch import Batch, Ints, Origins
from flowql.runtime.state.store import Store, TaskState

NO_TIME = -(2**62)  # before all times that a source may have
AT_ONCE = NO_TIME  # of a timer
OriginsOf = Callable[[Ints], Origins]


@dataclass(slots=True)
class DeadLetter:
    """A row or record that could not be processed; the task adds topic, partition, offset and raw bytes by `seq`."""

    seq: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """The record that a row was made from. offset: None where it is not known. timestamp, key, value: None where only its place is."""

    topic: str
    partition: int
    offset: int | None
    timestamp: int | None = None
    key: bytes | None = None
    value: bytes | None = None


@dataclass(frozen=True, slots=True)
class AsyncFacts:
    """Rows that wait in an operator for calls of asynchronous functions.

    is_known: False before its first run. in_flight: calls under way. parked: rows that have waited for more than a second. oldest_ms: row time of
    the first of them.
    """

    is_known: bool = True
    rows: int = 0
    in_flight: int = 0
    parked: int = 0
    oldest_ms: int | None = None


def _asleep() -> None:
    """Wakes no thread."""


@dataclass(slots=True)
class Looks:
    """Counts of a stream-table join in a micro-batch: stream rows, how many of them met a row, and the latest times of both."""

    rows: int = 0
    found: int = 0
    stream_ms: int = NO_TIME
    table_ms: int = NO_TIME


HELD = "held"  # in the metadata of a task: `MicroBatchContext.held`


@dataclass(slots=True)
class MicroBatchContext:
    """The context of an operator during one micro-batch.

    stream_times: operator id -> stream time (ms) before the run; operators update it through `advance`.
    late: operator id -> number of late rows dropped (a metric, and named in messages). behind: how far the furthest of them was
    behind stream time, in ms. looks: operator id -> what a join found in its table.
    origins: gives, by `seq`, the source records that rows of the run were read from.
    watermarks: what is known of watermarks (`flowql.runtime.topology.program`). watermark: that of the operator that is called.
    last_seq, last_ms: of the last row of the run, and the latest time of its rows.
    timers: operator id -> what it keeps of its timers, as of the run before; JSON-like values.
    partition: the task's. wall_ms: when the run began. wants_commit: an operator asks for a commit soon.
    is_tick: a run without input rows, in which rows that waited go on. retired: the records of those, by `seq`. retire_max: how many may still go
    on. refused: code and message of the one row that goes on, which leaves no result. wake: tells that the task has something to do; any thread.
    befores: whether somebody reads the before-images of the operator that is called.
    partitioners: by topic, those that keys are known to follow (`flowql.runtime.task.key_places`).
    held: operator id -> rows that wait in it for a time, as of the run before; operators change it through `hold`.
    by_row: operator id -> rows that it processed one by one (`took_by_row`).
    ticks: whether the task runs when a timer by the wall clock is due and no rows come.
    vector: None = choose by batch size and cost; True/False = forced (differential tests).
    """

    state: TaskState
    stream_times: dict[str, int] = field(default_factory=dict)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    late: dict[str, int] = field(default_factory=dict)
    coalesce: bool = True
    befores: bool = True
    vector: bool | None = None
    behind: dict[str, int] = field(default_factory=dict)
    looks: dict[str, Looks] = field(default_factory=dict)
    origins: OriginsOf | None = None
    watermarks: dict[str, int] = field(default_factory=dict)
    watermark: int | None = None
    last_seq: int = 0
    last_ms: int = 0
    timers: dict[str, Any] = field(default_factory=dict)
    partition: int = 0
    wall_ms: int = 0
    wants_commit: bool = False
    is_tick: bool = False
    retired: list[SourceRecord | None] = field(default_factory=list)
    retire_max: int = 0
    refused: tuple[str, str] | None = None
    records: Callable[[Ints], list[SourceRecord | None]] | None = None
    wake: Callable[[], None] = _asleep
    ticks: bool = True
    partitioners: dict[str, str] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    by_row: dict[str, int] = field(default_factory=dict)

    def took_by_row(self, operator: str, rows: int) -> None:
        """An operator with state processed rows one by one."""
        self.by_row[operator] = self.by_row.get(operator, 0) + rows

    def hold(self, operator: str, change: int) -> None:
        """So many more rows wait for a time in an operator, or fewer."""
        if change:
            self.held[operator] = self.held.get(operator, 0) + change

    def records_of(self, seq: Ints) -> list[SourceRecord | None]:
        """The records that rows of the run were made from, where they are known."""
        if self.is_tick:
            return [self.retired[s] if s < len(self.retired) else None for s in seq.tolist()]
        return [None] * len(seq) if self.records is None else self.records(seq)

    def add_retired(self, record: SourceRecord | None) -> int:
        """A row that has waited goes on in this run; gives its `seq`."""
        self.retired.append(record)
        return len(self.retired) - 1

    def times(self, operator: str, rowtime: Ints) -> Ints:
        """Stream time as of each row (running maximum, the row included)."""
        if not len(rowtime):
            return rowtime
        return np.maximum(np.maximum.accumulate(rowtime), self.stream_times.get(operator, NO_TIME))

    def advance(self, operator: str, rowtime: Ints) -> Ints:
        """`times`; remembers the last."""
        times = self.times(operator, rowtime)
        if len(times):
            self.stream_times[operator] = int(times[-1])
        return times

    def drop_late(self, operator: str, count: int, behind_ms: int = 0) -> None:
        if count:
            self.late[operator] = self.late.get(operator, 0) + count
            self.behind[operator] = max(self.behind.get(operator, 0), behind_ms)

    def looked_up(self, operator: str, rows: int, found: int, stream_ms: int) -> None:
        """A join looked for these rows in its table. stream_ms: the largest of their times."""
        looks = self.looks.setdefault(operator, Looks())
        looks.rows, looks.found, looks.stream_ms = (
            looks.rows + rows,
            looks.found + found,
            max(looks.stream_ms, stream_ms),
        )

    def took_table_rows(self, operator: str, latest_ms: int) -> None:
        looks = self.looks.setdefault(operator, Looks())
        looks.table_ms = max(looks.table_ms, latest_ms)

    def fail_row(self, seq: int, code: str, message: str) -> None:
        self.dead_letters.append(DeadLetter(seq, code, message))


class _NoState:
    """Implements `TaskState` for work that has none, such as decoding outside of a task."""

    def __init__(self) -> None:
        self.closing: list[Callable[[], None]] = []

    @property
    def metadata(self) -> dict[str, Any]:
        return {}

    def store(self, name: str) -> Store:
        raise AssertionError(f"store {name} is asked for where there is no state")

    def publish(self, metadata: dict[str, Any]) -> None:
        raise AssertionError("there is no state to publish")

    @property
    def revoked(self) -> bool:
        return False

    def discard(self) -> None:
        raise AssertionError("there is no state to discard")


NO_STATE = _NoState()


class RuntimeOperator(Protocol):
    """A runnable operator: one per task; holds compiled kernels and no data."""

    plan: OperatorPlan

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        """The rows this operator gives for one run; None for none. Output rows keep the `seq` of the row they stem from."""
        ...


@runtime_checkable
class Following(RuntimeOperator, Protocol):
    """An operator that is also called when its watermark has moved and no rows have come."""

    follows_watermark: bool


@runtime_checkable
class Starting(RuntimeOperator, Protocol):
    """An operator that gives rows before its first input: the result of no rows."""

    @property
    def starts(self) -> bool:
        """Whether it does."""
        ...

    def start(self, run: MicroBatchContext) -> Batch | None:
        """The rows before the first input; None if the state shows that they were emitted before."""
        ...


@runtime_checkable
class Timed(RuntimeOperator, Protocol):
    """An operator that is also called without input rows, when its timer is due."""

    due_ms: int | None  # by the wall clock; None: it waits for none


@runtime_checkable
class Waits(Timed, Protocol):
    """An operator in which rows wait until it is their turn, in runs without input rows. Any thread may ask."""

    @property
    def room(self) -> int | None:
        """How many more rows it takes; None where it does not know yet."""
        ...

    facts: AsyncFacts

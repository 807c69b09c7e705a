"""The program of a task: the contract between tasks and the operators that `flowql.runtime.topology` compiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from flowql.runtime.batch import Batch
from flowql.runtime.log.base import RawBatch
from flowql.runtime.operators.base import AsyncFacts, MicroBatchContext
from flowql.runtime.state.store import TaskState
from flowql.runtime.task.input_buffer import DecodedRows


@dataclass(frozen=True, slots=True)
class SinkRecords:
    """Records for a topic, already cut by partition."""

    topic: str
    parts: tuple[tuple[int, pa.RecordBatch], ...]
    internal: bool = False  # of a repartition


@dataclass(frozen=True, slots=True)
class ExchangeRows:
    """Rows for the partitions of a repartition."""

    topic: str
    parts: tuple[tuple[int, Batch], ...]


Output = SinkRecords | ExchangeRows


@dataclass(frozen=True, slots=True)
class InputSpec:
    """A source operator of the sub-topology. exchange: reads a repartition instead of a log topic."""

    operator: str
    topic: str
    is_table: bool
    exchange: bool


JointDecoder = Callable[[Sequence[RawBatch]], list[DecodedRows]]


@dataclass(slots=True)
class JointPart:
    """The part of one task in a joint micro-batch. batches: as for `Program.execute`; rows: of the task, over all of its batches."""

    program: Program
    batches: Mapping[str, Batch]
    rows: int
    run: MicroBatchContext


class Program(Protocol):
    """The compiled operators of one task. Owned by the thread that holds the task; holds no data between runs."""

    inputs: tuple[InputSpec, ...]
    coalesce: bool  # every reader of what this program writes sees a table (rule R13)

    @property
    def fused(self) -> bool:
        """One log input and no state: `execute_raw` replaces decode and execute."""
        ...

    @property
    def starts(self) -> bool:
        """`start` gives something."""
        ...

    def start(self, run: MicroBatchContext) -> list[Output]:
        """The first micro-batch of a task, before any input: the results of aggregates over no rows."""
        ...

    @property
    def due_ms(self) -> int | None:
        """The earliest timer, in ms of the wall clock, at which `tick` is to be called. Any thread may ask."""
        ...

    def tick(self, run: MicroBatchContext) -> list[Output]:
        """One run without input rows, when `due_ms` has passed."""
        ...

    @property
    def room(self) -> int | None:
        """How many more rows of input may come, where rows wait in its operators; None for as many as there are. Any thread may ask."""
        ...

    @property
    def waiting(self) -> list[AsyncFacts]:
        """Facts of its operators in which rows wait for calls. Any thread."""
        ...

    def decode(self, operator: str, state: TaskState, raw: RawBatch, fetched: Sequence[RawBatch]) -> DecodedRows:
        """Decode a batch for one source operator; the fetched ones that it was gathered from may be shared with other tasks."""
        ...

    def joint_decoder(self, operator: str) -> JointDecoder | None:
        """Decodes batches of several tasks for one source operator at once; None if each is to be decoded by itself."""
        ...

    def execute(self, batches: Mapping[str, Batch], run: MicroBatchContext) -> list[Output]:
        """One run: batches by source operator, rows numbered by `seq` in the order of the run."""
        ...

    @property
    def joins(self) -> bool:
        """Whether `execute_jointly` may replace `execute`."""
        ...

    def execute_jointly(self, parts: Sequence[JointPart]) -> list[list[Output]]:
        """One joint micro-batch of tasks of one sub-topology; the outputs of each."""
        ...

    def execute_raw(self, raw: RawBatch, run: MicroBatchContext) -> list[Output]:
        """One run of a fused program straight from raw records; `seq` is the row index in `raw`."""
        ...

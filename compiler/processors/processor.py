"""Processors and the context that they are given (KIP-28)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol

from flowql.compiler.functions.async_options import IN_FLIGHT, Retry

if TYPE_CHECKING:
    import pyarrow as pa

Headers = tuple[tuple[str, bytes | None], ...]
ClockKind = Literal["stream", "wall"]


class KeyValueState(Protocol):
    """A key-value store of the task that a processor runs in. What it gives are copies: only `put` and `delete` change the store."""

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key."""

    def put(self, key: Any, value: Any) -> None:
        """Sets the value of a key. None removes it."""

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Sets the value of a key unless it has one. Returns the value that it had, or None."""

    def delete(self, key: Any) -> Any:
        """Removes a key. Returns its value, or None."""

    def all(self) -> Iterator[tuple[Any, Any]]:
        """All keys and values, in the order of the keys. The store may be changed meanwhile."""

    def range(self, low: Any = None, high: Any = None) -> Iterator[tuple[Any, Any]]:
        """Keys and values with low <= key < high, in the order of the keys; None is no limit."""


class WindowState(Protocol):
    """A window store: a value for each key and start of a window, in ms. What is older than its retention is dropped as stream time goes on."""

    def get(self, key: Any, start: int, default: Any = None) -> Any:
        """The value of the window of `key` that starts at `start`."""

    def put(self, key: Any, value: Any, start: int) -> None:
        """Sets the value of a window. None removes it."""

    def fetch(self, key: Any, since: int | None = None, until: int | None = None) -> Iterator[tuple[int, Any]]:
        """Starts and values of the windows of a key with since <= start <= until, in the order of the starts."""

    def all(self) -> Iterator[tuple[Any, int, Any]]:
        """Key, start and value of every window."""


class SessionState(Protocol):
    """A session store: a value for each session of a key, which has a start and an end in ms. Sessions whose end is older than the retention
    are dropped as stream time goes on.
    """

    def put(self, key: Any, start: int, end: int, value: Any) -> None:
        """Sets the value of a session. None removes it."""

    def remove(self, key: Any, start: int, end: int) -> None:
        """Removes a session."""

    def fetch(self, key: Any) -> Iterator[tuple[int, int, Any]]:
        """Start, end and value of the sessions of a key, in the order of their ends."""

    def find(self, key: Any, earliest_end: int, latest_start: int) -> Iterator[tuple[int, int, Any]]:
        """As `fetch`, of the sessions with end >= earliest_end and start <= latest_start: those that a record may belong to."""

    def all(self) -> Iterator[tuple[Any, int, int, Any]]:
        """Key, start, end and value of every session."""


class Cancellable(Protocol):
    """A schedule of punctuations."""

    def cancel(self) -> None:
        """Ends it."""


class ProcessorContext(Protocol):
    """The task that a processor runs in, and the record that it processes. Valid within `init`, `process`, `process_batch` and
    `punctuate`, in the thread that calls these.
    """

    def forward(
        self,
        key: Any,
        value: Any,
        *,
        to: str | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Passes a record to the children of this processor, or to the child `to`, which process it before this call returns.

        timestamp: its event time in ms; default: that of the record that is processed, or of the punctuation. headers: default: those of the
        record that is processed. To a sink, `key` is the value of its key column, or a tuple of all of them, and `value` a dict by
        column name, None for a deletion (or, in a stream, for a record without a value). Columns that are not given are NULL. Raises
        TypeError, ValueError for what the columns cannot hold.
        """

    def send(
        self, sink: str, key: Any, value: Any, *, timestamp: int | None = None, headers: Headers | None = None
    ) -> None:
        """As `forward`, to any sink of the topology: by its name, or that of the stream or table that it writes."""

    def forward_batch(self, batch: pa.RecordBatch, *, to: str | None = None) -> None:
        """Passes many records to the children, which are sinks: columns by name, key columns and ROWTIME (ms) among them. Without ROWTIME
        they have the `timestamp` of this context.
        """

    def schedule(
        self, every: timedelta | int, callback: Callable[[int], None] | None = None, *, clock: ClockKind = "stream"
    ) -> Cancellable:
        """Calls `punctuate`, or another method of this processor, with the time in ms, again and again.

        every: in ms, or a timedelta. clock="stream": when stream time passes a multiple of it; several that have passed at once are one call.
        clock="wall": that long after this call and after each punctuation, also when no records come. A schedule goes on after a restart.
        """

    def store(self, name: str) -> Any:
        """A state store that the topology has given to this processor: KeyValueState, WindowState or SessionState."""

    def commit(self) -> None:
        """Asks for a commit of all that the instance has done, this record included, as soon as possible. Returns at once."""

    @property
    def name(self) -> str:
        """The name of this processor."""

    @property
    def partition(self) -> int:
        """The number of the task's partition, which is also that of the records it reads."""

    @property
    def topic(self) -> str | None:
        """The topic of the record that is processed; None in a punctuation."""

    @property
    def offset(self) -> int | None:
        """The offset of the record that is processed; None in a punctuation."""

    @property
    def source(self) -> str | None:
        """The stream or table that the record is from; None in a punctuation."""

    @property
    def timestamp(self) -> int:
        """The event time of the record that is processed, in ms; in a punctuation its time."""

    @property
    def headers(self) -> Headers:
        """The headers of the current record."""

    @property
    def previous(self) -> dict[str, Any] | None:
        """Of a row of a table: its value before; None where there was none."""

    @property
    def stream_time(self) -> int | None:
        """The latest event time that the task has processed, in ms; None before its first record."""

    @property
    def wall_time(self) -> int:
        """The time of the wall clock when this run began, in ms."""


class Processor(ABC):
    """Processes the records of one task, one at a time. An object of its class, or of the factory that the topology names, is made for
    each task.

    What has to outlast a failure or a restart belongs into a state store: objects are made anew then, and attributes are lost. State,
    outputs and positions are committed together, so each record takes effect once, whatever fails.
    """

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Called before the first record. The place for `context.store` and `context.schedule`."""
        self.context = context

    @abstractmethod
    def process(self, key: Any, value: Any) -> None:
        """A record. key: the value of the key column; a tuple where the key has several or is windowed (start and end in ms, behind them);
        None without a key. value: a dict of the other columns by name; None for a record without a value, and for a deleted row. What
        other processors forward comes as they give it.

        A record for which this raises becomes a dead letter, and nothing that it has done takes effect.
        """

    def punctuate(self, timestamp: int) -> None:  # noqa: B027  (most processors have none)
        """A scheduled time has come, in ms. An exception fails the query, which is tried again: no record is to blame."""

    def close(self) -> None:  # noqa: B027  (most processors have none)
        """The task ends, or the object is replaced after a failure."""


class BatchProcessor(Processor):
    """Processes the records of a micro-batch at once."""

    def process(self, key: Any, value: Any) -> None:
        """Never called: `process_batch` is called instead."""

    @abstractmethod
    def process_batch(self, batch: pa.RecordBatch) -> None:
        """The next records of a source: its columns by name, ROWTIME (ms) and ROWOP ('insert', 'update', 'delete'). How many come
        together differs from run to run. Its parents are sources. If it raises, it is called again with fewer, down to the one that becomes a dead letter.
        """


class AsyncProcessor(Processor):
    """Asks something outside, such as a service, about each record before it processes it, of many records at once.

    `call` is awaited outside of the task; `process` gets what it returned, in the task, with its stores. Its parents are sources that read streams.
    Attributes of the class say how calls are made: `max_in_flight` (100), `timeout` of one in seconds (30), `retry` (None, or
    `flowql.exponential()`, `flowql.fixed(5)`), and `order`: "input" (the records of a partition are processed in their order) or "key" (those of one key are).
    """

    max_in_flight: int = IN_FLIGHT
    timeout: float = 30.0
    retry: Retry | None = None
    order: Literal["input", "key"] = "input"

    @abstractmethod
    def call(self, key: Any, value: Any) -> Any:
        """A coroutine, or a function that blocks. It runs in another thread, on an object of its own: of attributes it sees those that `__init__` has
        set. What it returns has to be picklable. It is called at least once for a record, and again for records that were under way when an instance ended.
        Raises `flowql.RetryAfter` to be called again later. If all attempts fail, the record is a dead letter, and is not processed.
        """

    @abstractmethod
    def process(self, key: Any, value: Any, result: Any = None) -> None:
        """A record, as for other processors. result: what `call` returned for it; None for a record without a value, of which `call` is not asked."""

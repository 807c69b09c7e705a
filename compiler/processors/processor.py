"""Processors and the context that they are given (KIP-28)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol

from flowql.compiler.functions.asynchronous import IN_FLIGHT, Retry

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
    """The processor's task and its current record. Valid only inside `init`, `process`, `process_batch` and
    `punctuate`, in the calling thread.
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
        """Passes a record to the children, or the child `to`, which process it before this call returns.

        timestamp: event time in ms; default: the time of the current record or punctuation. headers: default: the
        current record's headers. For a sink, `key` is the key column's value, or a tuple of several, and `value` a dict
        by column name, or None for a deletion (in a stream, a record without a value). Missing columns are NULL.
        Raises TypeError, ValueError for values that do not fit the columns.
        """

    def send(
        self, sink: str, key: Any, value: Any, *, timestamp: int | None = None, headers: Headers | None = None
    ) -> None:
        """As `forward`, to any sink of the topology: by its name, or by the name of its stream or table."""

    def forward_batch(self, batch: pa.RecordBatch, *, to: str | None = None) -> None:
        """Passes records to children that are sinks: columns by name, with key columns and ROWTIME (ms; default:
        `timestamp` of this context).
        """

    def schedule(
        self, every: timedelta | int, callback: Callable[[int], None] | None = None, *, clock: ClockKind = "stream"
    ) -> Cancellable:
        """Calls `punctuate`, or another method, repeatedly with the time in ms, even after a restart.

        every: in ms, or a timedelta. clock="stream": calls when stream time passes a multiple of it, once if it passes
        several. clock="wall": calls `every` after this call and after each punctuation, even without records.
        """

    def store(self, name: str) -> Any:
        """A state store of this processor: KeyValueState, WindowState or SessionState."""

    def commit(self) -> None:
        """Requests a commit of the instance's work, including this record. Returns at once."""

    @property
    def name(self) -> str:
        """The processor's name."""

    @property
    def partition(self) -> int:
        """The partition of the task and its records."""

    @property
    def topic(self) -> str | None:
        """The current record's topic; None in a punctuation."""

    @property
    def offset(self) -> int | None:
        """The current record's offset; None in a punctuation."""

    @property
    def source(self) -> str | None:
        """The current record's stream or table; None in a punctuation."""

    @property
    def timestamp(self) -> int:
        """The event time of the current record or punctuation, in ms."""

    @property
    def headers(self) -> Headers:
        """The headers of the current record."""

    @property
    def previous(self) -> dict[str, Any] | None:
        """The previous value of a table's row, or None."""

    @property
    def stream_time(self) -> int | None:
        """The task's latest event time, in ms; None before its first record."""

    @property
    def wall_time(self) -> int:
        """The wall-clock time when this micro-batch began, in ms."""


class Processor(ABC):
    """Processes the records of one task, one at a time. Each task has an object.

    Keep state in a state store: attributes are lost after a failure or restart. State, outputs and positions are
    committed together, so each record takes effect once.
    """

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Called before the first record. Call `context.store` and `context.schedule` here."""
        self.context = context

    @abstractmethod
    def process(self, key: Any, value: Any) -> None:
        """key: the value of the key column; a tuple of the values of several key columns, or of a windowed key and its
        start and end in ms; None without a key. value: a dict of the other columns; None for a record without a value,
        and for a deleted row.
        Records of other processors arrive as forwarded.

        After an exception the record becomes a dead letter without other effects.
        """

    def punctuate(self, timestamp: int) -> None:  # noqa: B027  (most processors have none)
        """Called at a scheduled time, in ms. An exception fails the query, which retries."""

    def close(self) -> None:  # noqa: B027  (most processors have none)
        """Called when the task ends or a failure replaces the object."""


class BatchProcessor(Processor):
    """Processes the records of a micro-batch at once."""

    def process(self, key: Any, value: Any) -> None:
        """Never called: `process_batch` is called instead."""

    @abstractmethod
    def process_batch(self, batch: pa.RecordBatch) -> None:
        """The next records of a source: its columns, ROWTIME (ms) and ROWOP ('insert', 'update', 'delete'), in
        batches of varying size. Parents are sources. After an exception it is called with fewer records, down to
        the one that becomes a dead letter.
        """


class AsyncProcessor(Processor):
    """Calls an outside service for many records at once, then processes each.

    `call` runs outside the task; `process` gets its result in the task, with its stores. Parents are sources that
    read streams. Class attributes: `max_in_flight` (100), `timeout` of a call in seconds (30),
    `retry` (None, or `flowql.exponential()`, `flowql.fixed(5)`), and `order`: "input" (keeps the order of a partition)
    or "key" (of each key).
    """

    max_in_flight: int = IN_FLIGHT
    timeout: float = 30.0
    retry: Retry | None = None
    order: Literal["input", "key"] = "input"

    @abstractmethod
    def call(self, key: Any, value: Any) -> Any:
        """A coroutine, or a blocking function. It runs in another thread, on another object with only the
        attributes set by `__init__`. The result must be picklable. Calls are at least once: those in progress when
        an instance ends are repeated. Raise `flowql.RetryAfter` to repeat a call later. If all attempts fail, the
        record becomes a dead letter and is not processed.
        """

    @abstractmethod
    def process(self, key: Any, value: Any, result: Any = None) -> None:
        """As for other processors. result: the result of `call`; None for a record without a value, which makes no call."""

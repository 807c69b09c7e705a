"""The log's interface: admin, readers, consumer, transactional producer. Every implementation passes one conformance suite.

Records travel as Arrow batches. Offsets of a partition rise but may have gaps. Only committed records are ever read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
# What a producer is given: n records of one partition, in order. A null value is a tombstone.
PRODUCE_SCHEMA = pa.schema(
    [
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
    ]
)
# What a reader gives: the same with the offset in front.
RECORD_SCHEMA = pa.schema([pa.field("offset", pa.int64(), nullable=False), *PRODUCE_SCHEMA])


def no_records() -> pa.RecordBatch:
    """RECORD_SCHEMA without rows."""
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in RECORD_SCHEMA], schema=RECORD_SCHEMA)


EARLIEST = -2
LATEST = -1


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Contiguous committed records of one partition. `records` has RECORD_SCHEMA.

    A consumer may give a batch without rows: there are no more records up to next_offset (Kafka's markers of transactions). A
    reader moves its position over them by itself.

    next_offset: the position after this batch (above the last offset). size_bytes: approximate payload.
    """

    tp: TopicPartition
    records: pa.RecordBatch
    next_offset: int
    size_bytes: int

    @property
    def first_offset(self) -> int:
        return int(self.records.column(0)[0].as_py())


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as it is. config: `cleanup.policy`, `retention.ms`, ... as in Kafka."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Position:
    """A committed position of a group: the next offset to read, with metadata text (rule R3)."""

    offset: int
    metadata: str = ""


class Admin(Protocol):
    """Topic management. Calls block briefly; never made by a processing thread."""

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> TopicInfo:
        """Create a topic, or return it as it is when it exists with the same partition count; else LogError."""
        ...

    def delete_topic(self, name: str) -> None: ...

    def topics(self) -> dict[str, TopicInfo]: ...

    def begin_offset(self, tp: TopicPartition) -> int: ...

    def end_offset(self, tp: TopicPartition) -> int:
        """The offset after the last committed record."""
        ...

    def end_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The same for many at once, as of one moment; partitions that do not exist are left out."""
        ...

    def ask_end_offsets(self, tps: Sequence[TopicPartition]) -> Future[dict[TopicPartition, int]]:
        """The same without waiting for the answer."""
        ...

    def committed(self, group: str) -> dict[TopicPartition, Position]: ...


class Reader(Protocol):
    """One read position of one partition. Many may exist for a partition; each belongs to one thread."""

    tp: TopicPartition

    @property
    def position(self) -> int: ...

    def seek(self, offset: int) -> None:
        """Go to an offset, EARLIEST or LATEST. OffsetOutOfRange is raised by the next read if it is below the start."""
        ...

    def read(self, max_records: int, max_bytes: int) -> RawBatch | None:
        """The next committed records, or None at the end. Never blocks for new data; may do file I/O."""
        ...


class Consumer(Protocol):
    """A client that reads many partitions. Owned by one background thread; no other thread calls it."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions from these offsets (EARLIEST/LATEST allowed); others are dropped."""
        ...

    def seek(self, tp: TopicPartition, offset: int) -> None: ...

    def pause(self, tps: Sequence[TopicPartition]) -> None: ...

    def resume(self, tps: Sequence[TopicPartition]) -> None: ...

    def poll(self, max_records: int, max_bytes: int) -> list[RawBatch]:
        """What is there now of the assigned, unpaused partitions, round-robin; [] if nothing. Does not block.

        A LogError names the partition that cannot be read; nothing that was read of others is lost with it.
        """
        ...

    def close(self) -> None: ...


class Producer(Protocol):
    """A transactional producer. All calls come from one thread at a time.

    begin -> send* -> send_positions? -> attach_redo? -> commit | abort. Nothing is visible before commit returns;
    after commit everything is, at once. An exception from commit that is not LogFull leaves the outcome unknown, or the
    producer of no more use: the caller discards this producer, makes a new one with the same id and asks `Log.last_sequence`.
    """

    def begin(self) -> None: ...

    def send(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        """Add records (PRODUCE_SCHEMA) to the transaction."""
        ...

    def send_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None: ...

    def attach_redo(self, payload: bytes) -> None:
        """State writes that this transaction makes true; kept by the log until `Log.trim_redo` (embedded logs only)."""
        ...

    def commit(self) -> int:
        """Make the transaction durable and visible; returns its commit sequence (rises by one per commit of this id)."""
        ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Log(Protocol):
    """A log: factory of clients. `supports_redo` is False for logs that need changelog topics instead."""

    supports_redo: bool

    def admin(self) -> Admin: ...

    def reader(self, tp: TopicPartition, offset: int = EARLIEST) -> Reader: ...

    def consumer(self, client_id: str) -> Consumer: ...

    def producer(self, transactional_id: str) -> Producer:
        """A new producer; an older one with the same id is fenced: its next call raises Fenced."""
        ...

    def last_sequence(self, transactional_id: str) -> int:
        """Sequence of the last commit of that id; 0 if none."""
        ...

    def redo_after(self, transactional_id: str, sequence: int) -> Iterator[tuple[int, bytes]]:
        """Redo payloads of commits after `sequence`, in order. LogCorrupt if one of them is gone."""
        ...

    def trim_redo(self, transactional_id: str, sequence: int) -> None:
        """State up to `sequence` is durable elsewhere: redo payloads up to it may go."""
        ...

    def hold(self, transactional_id: str) -> None:
        """Become the one runtime of this directory until close; InstanceRunning (with the pid) if another is."""
        ...

    def close(self) -> None: ...

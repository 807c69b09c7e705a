"""The log's interface: admin, readers, consumer, transactional producer. Every implementation passes one conformance suite.

Records travel as Arrow batches. Offsets of a partition rise but may have gaps. Only committed records are ever read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from flowql.runtime.errors import CommitTorn

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
# Input of a producer: n records of one partition, in order. A null value is a tombstone.
PRODUCE_SCHEMA = pa.schema(
    [
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
    ]
)
# Output of a reader: the same with the offset in front.
RECORD_SCHEMA = pa.schema([pa.field("offset", pa.int64(), nullable=False), *PRODUCE_SCHEMA])


def no_records() -> pa.RecordBatch:
    """RECORD_SCHEMA without rows."""
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in RECORD_SCHEMA], schema=RECORD_SCHEMA)


EARLIEST = -2
LATEST = -1


def even_share(rows: int, most: int) -> int:
    """How many of `rows` to take first, so that all are taken in as few parts of at most `most` as can be, none of them small.

    >>> [even_share(rows, 30) for rows in (25, 33, 70)]
    [25, 17, 24]
    """
    return -(-rows // -(-rows // most)) if rows else 0


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
    def rows(self) -> int:
        return int(self.records.num_rows)

    @property
    def first_offset(self) -> int:
        return int(self.records.column(0)[0].as_py())

    @property
    def last_offset(self) -> int:
        return int(self.records.column(0)[-1].as_py())


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Keys and values of contiguous committed records of one partition, without the rest. No value: a tombstone.

    next_offset, size_bytes: as of `RawBatch`.
    """

    tp: TopicPartition
    keys: list[bytes]
    values: list[bytes | None]
    next_offset: int
    size_bytes: int

    @property
    def rows(self) -> int:
        return len(self.keys)


def largest_record(records: pa.RecordBatch) -> int:
    """Bytes of key and value together, of the largest."""
    sizes = [pc.fill_null(pc.binary_length(records.column(name)), 0) for name in ("key", "value")]
    return pc.max(pc.add(*sizes)).as_py() or 0


def latest_record(records: pa.RecordBatch) -> int:
    """The highest time (ms); 0 if there are no records."""
    return pc.max(records.column("timestamp")).as_py() or 0


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as it is. config: `cleanup.policy`, `retention.ms`, ... as in Kafka. replicas: as `topics` tells them, else 1."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. partitions: at least 1. config: as in `TopicInfo`."""

    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """id: tells a topic from another one of the same name, made before or after it; empty where the log does not know or tell it."""

    id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Position:
    """A committed position of a group: the next offset to read, with metadata text (rule R3)."""

    offset: int
    metadata: str = ""

    @property
    def commit(self) -> tuple[str, int] | None:
        """Writer and sequence of its commit, from `offset_metadata` in `flowql.runtime.commit.positions`; None if FlowQL did not write it."""
        told, by, writer = self.metadata.partition(" by=")
        return (writer, int(told.partition(" ")[0].removeprefix("seq="))) if by and told.startswith("seq=") else None


class Admin(Protocol):
    """Topic management. Calls block briefly; never made by a processing thread."""

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> TopicInfo:
        """Create a topic, or return it as it is when it exists with the same partition count; else LogError."""
        ...

    def create_topics(self, topics: Mapping[str, NewTopic]) -> dict[str, TopicInfo]:
        """As `create_topic`, for many topics by name. After an error some may exist; the call can be repeated."""
        return {name: self.create_topic(name, new.partitions, new.config) for name, new in topics.items()}

    def alter_topic(self, name: str, changes: Mapping[str, str | None]) -> TopicInfo:
        """Change options of the config; None takes one back. TopicMissing; LogError if a value makes no sense."""
        ...

    def delete_topic(self, name: str) -> None: ...

    def topics(self) -> dict[str, TopicInfo]: ...

    def drop_before(self, tp: TopicPartition, offset: int) -> None:
        """Allows the log to delete records below `offset`; it may keep them for some time. Raises LogError if `offset` is above the end."""
        ...

    def with_replaced_times(self, topics: Collection[str]) -> set[str]:
        """Those of the topics in which the log gives records the time of their arrival (LogAppendTime). Topics that do not exist are left out."""
        ...

    def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        """How many partitions these topics have at this moment; those that do not exist are left out."""
        ...

    def describe_topics(self, topics: Collection[str]) -> Future[dict[str, TopicDescription]]:
        """Identity and partitions of topics, without waiting for the answer. Topics that do not exist, or may not be described, are left out."""
        ...

    def writers(self, tp: TopicPartition) -> frozenset[str] | None:
        """Transactional ids that have written the records of a partition, since all of them were last replaced in a commit.

        None where the log does not keep account of it.
        """
        ...

    def was_compacted(self, tp: TopicPartition) -> bool | None:
        """Whether compaction has written records of a partition again, whatever the policy of the topic is now. None where the log does
        not keep account of it.
        """
        ...

    def files_of(self, tp: TopicPartition) -> frozenset[tuple[int, int]] | None:
        """The files of a partition: the first offset of each, and how often compaction has written it. A compaction replaces some of them, and
        appending only adds to them. None where the log does not tell.
        """
        ...

    def begin_offset(self, tp: TopicPartition) -> int: ...

    def begin_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The same for many at once; partitions that do not exist are left out."""
        ...

    def end_offset(self, tp: TopicPartition) -> int:
        """The offset after the last committed record."""
        ...

    def end_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The same for many at once, as of one moment; partitions that do not exist are left out."""
        ...

    def ask_end_offsets(self, tps: Sequence[TopicPartition]) -> Future[dict[TopicPartition, int]]:
        """The same without waiting for the answer."""
        ...

    def ask_written_offsets(self, tps: Sequence[TopicPartition]) -> Future[dict[TopicPartition, int]]:
        """Offsets after the last records, those of open transactions included, without waiting for the answer."""
        ...

    def torn_commits(self) -> Sequence[CommitTorn]:
        """Partitions of which brokers have lost a part of a commit, as far as producers of this log have found. Asks no broker."""
        ...

    def written_offset(self, tp: TopicPartition) -> int:
        """The offset after the last record, those of open transactions included. A reader whose position reaches it has
        seen everything that was committed before the call. Raises TopicMissing, LogUnavailable.
        """
        ...

    def committed(self, group: str) -> dict[TopicPartition, Position]: ...

    def groups(self, prefix: str) -> list[str]:
        """Names that begin with `prefix` of consumer groups with committed positions, sorted, as far as this client may see them.

        Brokers may name some that have no position any more.
        """
        ...

    def stable_positions(self, group: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, Position]:
        """Committed positions of these partitions, as stable ones: of no transaction it is open whether it moves them.

        Partitions without a position are left out. Raises LogUnavailable (retriable: ask again) while a transaction that moves
        one of them is not finished, or brokers do not answer; never waits long for either.
        """
        ...


Read = TypeVar("Read", covariant=True)


class PartitionReader(Protocol[Read]):
    """One read position of one partition. Many may exist for a partition; each belongs to one thread."""

    tp: TopicPartition

    @property
    def position(self) -> int: ...

    def seek(self, offset: int) -> None:
        """Go to an offset, EARLIEST or LATEST. OffsetOutOfRange is raised by the next read if it is below the start."""
        ...

    def read(self, max_records: int, max_bytes: int) -> Read | None:
        """The next committed records, or None at the end. Never blocks for new data; may do file I/O.

        Keys and values come in the pieces they were fetched in: the last of them may go beyond the limits.
        """
        ...

    def take(self, max_records: int, max_bytes: int) -> Read | None:
        """The next committed records that have arrived by themselves; None if there are none. The log is asked for nothing, so a
        position that is looked at again and again costs nothing while nothing is written there.
        """
        ...

    def arrived(self) -> bool:
        """Whether `read` would return without waiting. If not, the log fetches the next records, and the caller may ask again later."""
        ...

    def close(self) -> None:
        """Nothing is read ahead for it any more; a later `read` begins again where it was."""
        ...


Reader = PartitionReader[RawBatch]
KeyValueReader = PartitionReader[KeyValues]


class Consumer(Protocol):
    """A client that reads many partitions. Owned by one background thread; no other thread calls it."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions from these offsets (EARLIEST/LATEST allowed); others are dropped, and none is paused."""
        ...

    def seek(self, tp: TopicPartition, offset: int) -> None: ...

    def pause(self, tps: Sequence[TopicPartition]) -> None: ...

    def resume(self, tps: Sequence[TopicPartition]) -> None: ...

    def poll(self, max_records: int, max_bytes: int) -> list[RawBatch]:
        """The available records of the assigned, unpaused partitions, round-robin; [] if there are none. Does not block.

        It stops when less than half of a limit is left, as it would then cut small pieces from large batches.

        A LogError names the partition that cannot be read; records that were read of others are not lost.
        """
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class Producer(Protocol):
    """A transactional producer. All calls come from one thread at a time.

    begin -> repartition* -> drop_before* -> expect_end* -> append_from* -> send* -> send_positions* -> attach_redo? -> commit | abort. Nothing is visible before commit returns;
    after commit everything is, at once. An exception from commit that is neither LogFull nor EndMoved leaves the outcome unknown, or the
    producer of no more use: the caller discards this producer, makes a new one with the same id and asks `Log.last_sequence`, or
    `has_committed` where processes share the id.

    Any call may raise Fenced: a newer producer with this id exists, or the log has ended a transaction that took too long and
    shut this producer out with it.

    ends: offsets after the records of the last transaction, by partition that it wrote, where the log tells them before others commit. They
    are known before its outcome is, and also hold if that turns out later. Empty where `attach_redo` makes them unnecessary, or without transactions.
    """

    @property
    def ends(self) -> Mapping[TopicPartition, int]: ...

    def begin(self) -> None: ...

    def send(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        """Add records (PRODUCE_SCHEMA) to the transaction."""
        ...

    def send_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        """Move positions of a group with this transaction. The log knows no members of groups (`flowql.runtime.placement`)."""
        ...

    def drop_before(self, tp: TopicPartition, offset: int) -> None:
        """With this transaction the committed records below `offset` are gone: it takes their place (embedded logs only)."""
        ...

    def expect_end(self, tp: TopicPartition, offset: int) -> None:
        """The commit raises EndMoved, and nothing of it is visible, unless the partition ends here (embedded logs only).

        Records of the transaction then have known offsets, from this one on.
        """
        ...

    def append_from(self, tp: TopicPartition, source: TopicPartition) -> None:
        """With this transaction the records of another partition follow those of `tp`, ahead of what is sent to it (embedded logs only).

        The first offset of `source` becomes the end of `tp`, and distances stay as they are. It takes as long for many records as for few.
        `source` keeps its records; nothing may be written to it in this transaction.
        """
        ...

    def repartition(self, topic: str, partitions: int, offset: int, *, keeps: bool) -> None:
        """Changes the number of partitions of the topic with this transaction (embedded logs only).

        All partitions begin at `offset`, which is above the ends of the old ones, so that readers of these get OffsetOutOfRange. Committed
        positions of all groups in the topic are deleted, but for those of imports where it keeps the records.
        keeps: the records move to the partitions of their keys, merged in the order of their times; otherwise the records sent in
        this transaction replace them.
        """
        ...

    def expect_partitions(self, topic: str, partitions: int) -> None:
        """Records are partitioned by this number. On embedded logs a commit raises PartitionsDiffer if the topic has another one
        by then; without this call the number counts that the topic has when this producer first sends to it.
        """
        ...

    def attach_redo(self, payload: bytes) -> None:
        """State writes that this transaction makes true; kept by the log until `Log.trim_redo` (embedded logs only)."""
        ...

    def commit(self) -> int:
        """Make the transaction durable and visible; returns its commit sequence (rises by one per commit of this id)."""
        ...

    def has_committed(self) -> bool | None:
        """After a commit of unknown outcome, and once a newer producer with this id exists: whether the transaction was committed, as the log says.
        None if the log cannot tell any more.
        """
        ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Clients:
    """How many connections an instance has to its log, whatever the number of queries."""

    consumers: int
    producers: int
    admins: int


class Log(Protocol):
    """A log: factory of clients. `supports_redo` is False for logs that need changelog topics instead.

    drops_with_commits: whether `Producer.drop_before` can be used.
    """

    supports_redo: bool
    drops_with_commits: bool

    def admin(self) -> Admin: ...

    def reader(self, tp: TopicPartition, offset: int = EARLIEST) -> Reader: ...

    def key_values(self, tp: TopicPartition, offset: int = EARLIEST) -> KeyValueReader:
        """A reader of keys and values alone, which may cost much less than one of whole records."""
        ...

    def consumer(self, client_id: str) -> Consumer: ...

    def append(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        """Append records (PRODUCE_SCHEMA) outside of any transaction of the caller; returns when the log has them. One thread at a time."""
        ...

    def producer(self, transactional_id: str) -> Producer:
        """A new producer; an older one with the same id is fenced: its next call raises Fenced."""
        ...

    def last_sequence(self, transactional_id: str) -> int:
        """Sequence of the last commit of that id; 0 if none."""
        ...

    def redo_after(self, transactional_id: str, sequence: int) -> Iterator[tuple[int, bytes]]:
        """Redo payloads of commits after `sequence`, in order. LogCorrupt if one of them is gone."""
        ...

    def redo_place(self, transactional_id: str, sequence: int) -> str:
        """The location of the redo of a commit, for messages that ask people to act on it."""
        ...

    def trim_redo(self, transactional_id: str, sequence: int) -> None:
        """State up to `sequence` is durable elsewhere: redo payloads up to it may go."""
        ...

    def record_bytes_max(self, topic: str) -> int | None:
        """How large key and value of a record may be together for this topic; None if there is no limit, or it is not known."""
        ...

    def record_ahead_ms_max(self, topic: str) -> int | None:
        """How far the time of a record may be ahead of the clock for this topic (ms); None if there is no limit."""
        ...

    def maintain(self, now_ms: int) -> None:
        """Applies retention and compaction of the topics' configurations, as of `now_ms` (wall clock), where no broker does it. Ends fetches for
        readers that are idle.

        It may take long but blocks no reader or writer: call it in a thread of its own. Raises LogFull if there is no space to compact.
        """
        ...

    def hold(self, transactional_id: str) -> None:
        """Become the one runtime of this directory until close; InstanceRunning (with the pid) if another is."""
        ...

    def clients(self) -> Clients:
        """How many it has given out that are in use, counted."""
        ...

    def opener(self) -> Callable[[], Log] | None:
        """A picklable function with which another process opens this log to read it, too; None if no other process can."""
        ...

    def close(self) -> None: ...

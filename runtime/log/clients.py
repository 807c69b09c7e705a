"""Reader, consumer, producer and admin on top of what a log can look up and commit; the embedded and the in-memory log share them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeVar
from weakref import WeakSet

import numpy as np
import pyarrow as pa

from flowql.runtime.errors import CommitTorn, EndMoved, LogError, LogIOError, OffsetOutOfRange, TopicMissing
from flowql.runtime.log.base import (
    EARLIEST,
    LATEST,
    Admin,
    Clients,
    Consumer,
    KeyValueReader,
    KeyValues,
    Log,
    Position,
    RawBatch,
    Reader,
    TopicInfo,
    TopicPartition,
    even_share,
    no_records,
)
from flowql.runtime.log.transaction import Shape, Transaction

C = TypeVar("C")


class OpenClients:
    """Clients that are referred to and not `closed`. Any thread."""

    def __init__(self) -> None:
        self._consumers: WeakSet[object] = WeakSet()
        self._producers: WeakSet[object] = WeakSet()

    def consumer(self, client: C) -> C:
        """Count one that reads; the same."""
        self._consumers.add(client)
        return client

    def producer(self, client: C) -> C:
        """Count one that writes; the same."""
        self._producers.add(client)
        return client

    def count(self, *, admins: int = 1) -> Clients:
        return Clients(_open(self._consumers), _open(self._producers), admins)


def _open(clients: WeakSet[object]) -> int:
    """One that is closed may be kept by a cycle of references until the next collection."""
    return sum(not getattr(client, "closed", False) for client in list(clients))


# Consecutive stored batches are joined into one while both are below this; joining copies.
_JOIN_ROWS = 8_192
# Bytes of a record besides its key and value, for byte limits.
_RECORD_BYTES = 16


_Answer = TypeVar("_Answer")


def answered(ask: Callable[[], _Answer]) -> Future[_Answer]:
    """A finished future for a log that need not wait: the answer or the LogError."""
    future: Future[_Answer] = Future()
    try:
        future.set_result(ask())
    except LogError as error:
        future.set_exception(error)
    return future


class Lookup(Protocol):
    """Where a reader finds records. Safe from any thread."""

    def refresh(self) -> object:
        """See what other processes have committed. An answer that is equal to one before: nothing was committed since. None: that is not known."""
        ...

    def topics(self) -> dict[str, TopicInfo]: ...

    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        """Begin and end offset. TopicMissing."""
        ...

    def stored(self, tp: TopicPartition, offset: int) -> pa.RecordBatch | None:
        """The stored batch (RECORD_SCHEMA) that holds `offset`, or if there is a gap the next one; None at the end."""
        ...


class Committer(Protocol):
    """The part of a log that a producer commits with."""

    def refresh(self) -> object:
        """See what other processes have committed."""
        ...

    def check_epoch(self, transactional_id: str, epoch: int) -> None:
        """Fenced if a newer producer with this id is known. `commit` refreshes before it checks."""
        ...

    def check_partition(self, tp: TopicPartition) -> None:
        """TopicMissing, or LogError if the topic has no such partition."""
        ...

    def topics(self) -> dict[str, TopicInfo]: ...

    def ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions end that its only producer has just written to: a `refresh` is not needed."""
        ...

    def commit(self, transactional_id: str, epoch: int, transaction: Transaction) -> int: ...

    def last_sequence(self, transactional_id: str) -> int: ...


class LogReader:
    """One read position."""

    def __init__(self, lookup: Lookup, tp: TopicPartition, offset: int) -> None:
        self.tp = tp
        self._lookup = lookup
        self._position = 0
        lookup.refresh()  # the topic may have been made anew, or its records replaced
        lookup.bounds(tp)
        self.seek(offset)

    @property
    def position(self) -> int:
        return self._position

    def seek(self, offset: int) -> None:
        if offset in (EARLIEST, LATEST):
            self._lookup.refresh()
            begin, end = self._lookup.bounds(self.tp)
            offset = begin if offset == EARLIEST else end
        elif offset < 0:
            raise LogError(f"{self.tp}: {offset} is not an offset")
        self._position = offset

    def read(self, max_records: int, max_bytes: int, *, look: bool = True) -> RawBatch | None:
        """look: whether to look for records of other writers at the end; not needed just after `refresh`."""
        assert max_records > 0, "a read asks for at least one record"
        begin, end = self._lookup.bounds(self.tp)
        if self._position >= end:
            if not look:
                return None
            self._lookup.refresh()
            begin, end = self._lookup.bounds(self.tp)
            if self._position >= end:
                return None
        if self._position < begin:
            raise OffsetOutOfRange(
                f"{self.tp}: offset {self._position} is below the log's start {begin}: "
                f"records {self._position} to {begin - 1} are gone"
            )
        return self._gather(end, max_records, max_bytes)

    def take(self, max_records: int, max_bytes: int) -> RawBatch | None:
        """As `read`: there is nobody to ask."""
        return self.read(max_records, max_bytes)

    def arrived(self) -> bool:
        """Always true: records are in files or in memory."""
        return True

    def close(self) -> None:
        """Nothing is read ahead."""

    def _gather(self, end: int, max_records: int, max_bytes: int) -> RawBatch | None:
        pieces: list[pa.RecordBatch] = []
        rows = size = 0
        position = self._position
        while position < end and rows < max_records and (not pieces or size < max_bytes):
            stored = self._lookup.stored(self.tp, position)
            if stored is None and not pieces:  # what is left is damaged and left out
                self._position = end
            if stored is None or (pieces and (rows >= _JOIN_ROWS or stored.num_rows >= _JOIN_ROWS)):
                break
            row = _row_of(stored, position)
            share = even_share(stored.num_rows - row, max_records - rows)
            piece = stored if share == stored.num_rows else stored.slice(row, share)
            piece, piece_bytes = fitting(piece, max_bytes - size, at_least_one=not pieces)
            if not piece.num_rows:
                break
            pieces.append(piece)
            rows, size = rows + piece.num_rows, size + piece_bytes
            position = _offset_at(piece, piece.num_rows - 1) + 1
        if not pieces:
            return None
        records = pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)
        self._position = position
        return RawBatch(self.tp, records, position, size)


class ReaderOver:
    """The calls of a reader over another one that it passes on."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self.tp = reader, reader.tp

    @property
    def position(self) -> int:
        return self._reader.position

    def seek(self, offset: int) -> None:
        self._reader.seek(offset)

    def arrived(self) -> bool:
        return self._reader.arrived()

    def close(self) -> None:
        self._reader.close()


class KeyValuesOf(ReaderOver):
    """Keys and values of what another reader reads."""

    def read(self, max_records: int, max_bytes: int) -> KeyValues | None:
        batch = self._reader.read(max_records, max_bytes)
        if batch is None:
            return None
        keys, values = batch.records.column("key").to_pylist(), batch.records.column("value").to_pylist()
        return KeyValues(batch.tp, keys, values, batch.next_offset, batch.size_bytes)

    def take(self, max_records: int, max_bytes: int) -> KeyValues | None:
        return self.read(max_records, max_bytes)


def _offset_at(batch: pa.RecordBatch, row: int) -> int:
    return int(batch.column(0)[row].as_py())


def _row_of(batch: pa.RecordBatch, offset: int) -> int:
    """The first row at or after an offset."""
    if _offset_at(batch, 0) >= offset:
        return 0
    return int(np.searchsorted(batch.column(0).to_numpy(), offset))


def fitting(batch: pa.RecordBatch, max_bytes: int, *, at_least_one: bool) -> tuple[pa.RecordBatch, int]:
    """The longest head of a batch within the limit, and its size."""
    n = batch.num_rows
    ends = [_ends(batch.column(i)) for i in (2, 3)]
    size = sum(int(e[n] - e[0]) for e in ends) + n * _RECORD_BYTES
    if size <= max_bytes:
        return batch, size
    sizes = sum(e[1:].astype(np.int64) - int(e[0]) for e in ends) + np.arange(1, n + 1) * _RECORD_BYTES
    rows = max(int(np.searchsorted(sizes, max_bytes, side="right")), 1 if at_least_one else 0)
    return batch.slice(0, rows), int(sizes[rows - 1]) if rows else 0


def _ends(column: pa.BinaryArray) -> np.ndarray:
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)


@contextmanager
def naming(tp: TopicPartition) -> Iterator[None]:
    """Adds the partition to errors that name none."""
    try:
        yield
    except LogError as error:
        error.partition = error.partition or tp
        raise


class LogConsumer:
    """Reads many partitions in turn. Owned by one thread."""

    def __init__(self, lookup: Lookup, client_id: str) -> None:
        self.client_id = client_id
        self._lookup = lookup
        self._readers: dict[TopicPartition, LogReader] = {}
        self._paused: set[TopicPartition] = set()
        self._turn = 0
        self._all_read: object = None  # as of which answer of `refresh` all partitions were read to their ends

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        readers: dict[TopicPartition, LogReader] = {}
        for tp, offset in positions.items():
            with naming(tp):
                readers[tp] = LogReader(self._lookup, tp, offset)
        self._readers = readers
        self._paused.clear()
        self._turn = 0
        self._all_read = None

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._reader(tp).seek(offset)
        self._all_read = None

    def pause(self, tps: Sequence[TopicPartition]) -> None:
        self._paused.update(self._reader(tp).tp for tp in tps)

    def resume(self, tps: Sequence[TopicPartition]) -> None:
        self._paused.difference_update(tps)
        self._all_read = None

    def poll(self, max_records: int, max_bytes: int) -> list[RawBatch]:
        batches: list[RawBatch] = []
        enough_records, enough_bytes = -(-max_records // 2), -(-max_bytes // 2)  # no small pieces of large batches
        readers = list(self._readers.values())
        if not readers:
            return []
        try:
            seen = self._lookup.refresh()  # once for all partitions
        except LogError as error:
            error.partition = error.partition or readers[self._turn % len(readers)].tp
            self._turn += 1
            raise
        if seen is not None and seen == self._all_read:
            return []
        for i in range(len(readers)):
            reader = readers[(self._turn + i) % len(readers)]
            if reader.tp in self._paused:
                continue
            if max_records < enough_records or max_bytes < enough_bytes:
                self._turn = (self._turn + i) % len(readers)
                break
            try:
                before = reader.position
                batch = reader.read(max_records, max_bytes, look=False)
                if batch is None and reader.position > before:
                    batch = RawBatch(reader.tp, no_records(), reader.position, 0)
            except LogError as error:
                error.partition = (
                    error.partition or reader.tp
                )  # as `naming`, which costs as much as a look that finds nothing
                if batches:  # what was read must not get lost: the next poll starts, and fails, with this partition
                    self._turn = (self._turn + i) % len(readers)
                    break
                self._turn = (self._turn + i + 1) % len(readers)  # the others get their turn
                raise
            if batch is not None:
                batches.append(batch)
                max_records -= batch.records.num_rows
                max_bytes -= batch.size_bytes
        else:
            self._turn += 1
            self._all_read = None if batches else seen
        return batches

    def close(self) -> None:
        self._readers.clear()

    def _reader(self, tp: TopicPartition) -> Reader:
        if tp not in self._readers:
            raise LogError(f"{tp} is not assigned to consumer {self.client_id}")
        return self._readers[tp]


class LogProducer:
    """begin -> send* -> commit | abort; the work is the committer's."""

    def __init__(self, committer: Committer, transactional_id: str, epoch: int) -> None:
        self.transactional_id, self.epoch = transactional_id, epoch
        self._committer = committer
        self._transaction: Transaction | None = None
        self._failure: str | None = None
        self.ends: Mapping[TopicPartition, int] = {}
        self._counts: dict[str, int] = {}  # partitions of topics when they were first written to
        self._sequence: int | None = None  # of the last commit with this id, from the first transaction on

    def begin(self) -> None:
        self._committer.refresh()
        self._check()
        if self._transaction is not None:
            raise LogError(f"producer {self.transactional_id}: a transaction is open already")
        if self._sequence is None:
            self._sequence = self._committer.last_sequence(self.transactional_id)
        self._transaction, self.ends = Transaction(), {}

    def send(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        transaction = self._open()
        shape = transaction.shapes.get(tp.topic)
        if shape is not None:
            if not 0 <= tp.partition < shape.partitions:
                raise LogError(f"topic {tp.topic} gets {shape.partitions} partitions, none with number {tp.partition}")
        elif tp not in transaction.records:  # else it is checked already, and the commit checks it again
            self._committer.check_partition(tp)
            if (count := self._count(tp.topic)) is not None:
                transaction.counts[tp.topic] = count
        transaction.add(tp, records)

    def _count(self, topic: str) -> int | None:
        """By how many partitions it partitions; None of a topic that it may not know of."""
        if topic not in self._counts and (info := self._committer.topics().get(topic)) is not None:
            self._counts[topic] = info.partitions
        return self._counts.get(topic)

    def send_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        transaction = self._open()
        for tp in positions:
            self._committer.check_partition(tp)
        transaction.add_positions(group, positions)

    def drop_before(self, tp: TopicPartition, offset: int) -> None:
        transaction = self._open()
        self._committer.check_partition(tp)
        transaction.starts[tp] = offset

    def expect_end(self, tp: TopicPartition, offset: int) -> None:
        transaction = self._open()
        self._committer.check_partition(tp)
        transaction.ends[tp] = offset

    def append_from(self, tp: TopicPartition, source: TopicPartition) -> None:
        transaction = self._open()
        self._committer.check_partition(source)
        if tp.topic not in transaction.shapes:
            self._committer.check_partition(tp)
        transaction.sources[tp] = source

    def repartition(self, topic: str, partitions: int, offset: int, *, keeps: bool) -> None:
        transaction = self._open()
        self._committer.check_partition(TopicPartition(topic, 0))
        transaction.shapes[topic] = Shape(partitions, offset, keeps)

    def expect_partitions(self, topic: str, partitions: int) -> None:
        self._check()
        self._counts[topic] = partitions

    def attach_redo(self, payload: bytes) -> None:
        transaction = self._open()
        if transaction.redo is not None:
            raise LogError(f"producer {self.transactional_id}: this transaction has a redo payload already")
        transaction.redo = payload

    def commit(self) -> int:
        transaction = self._open()
        self._transaction = None
        try:
            sequence = self._sequence = self._committer.commit(self.transactional_id, self.epoch, transaction)
        except EndMoved:  # found before anything was written
            raise
        except LogError as e:
            if not e.retriable or isinstance(e, LogIOError):  # after that it is not known whether it is committed
                self._failure = str(e)
            raise
        self._counts |= {topic: shape.partitions for topic, shape in transaction.shapes.items()}
        if transaction.redo is None:
            self.ends = self._committer.ends(transaction.records)
        return sequence

    def has_committed(self) -> bool | None:
        return self._sequence is not None and self._committer.last_sequence(self.transactional_id) > self._sequence

    def abort(self) -> None:
        self._open()
        self._transaction = None

    def close(self) -> None:
        self._transaction = None
        self._failure = "closed"

    def _open(self) -> Transaction:
        self._check()
        if self._transaction is None:
            raise LogError(f"producer {self.transactional_id}: no transaction is open")
        return self._transaction

    def _check(self) -> None:
        self._committer.check_epoch(self.transactional_id, self.epoch)
        if self._failure is not None:
            raise LogError(f"producer {self.transactional_id} is of no more use: {self._failure}")


class LocalLog(Log, Admin, Lookup):
    """The part of the interface that every log without brokers has alike: it is its own admin, and waits for nothing.

    _lock: guards what a subclass keeps.
    """

    supports_redo = True
    drops_with_commits = True
    _lock: AbstractContextManager[object]

    def __init__(self) -> None:
        self._clients = OpenClients()

    def admin(self) -> Admin:
        return self

    def key_values(self, tp: TopicPartition, offset: int = EARLIEST) -> KeyValueReader:
        return KeyValuesOf(self.reader(tp, offset))

    def consumer(self, client_id: str) -> Consumer:
        return self._clients.consumer(LogConsumer(self, client_id))

    def append(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        """As a transaction of its own."""
        producer = self.producer(f"{tp.topic}-append")
        try:
            producer.begin()
            producer.send(tp, records)
            producer.commit()
        finally:
            producer.close()

    def clients(self) -> Clients:
        return self._clients.count()

    def record_bytes_max(self, topic: str) -> int | None:
        return None

    def record_ahead_ms_max(self, topic: str) -> int | None:
        return None

    def with_replaced_times(self, topics: Collection[str]) -> set[str]:
        """Empty: records keep their times."""
        return set()

    def torn_commits(self) -> Sequence[CommitTorn]:
        """None: a commit is whole or absent."""
        return ()

    def begin_offset(self, tp: TopicPartition) -> int:
        self.refresh()
        return self.bounds(tp)[0]

    def begin_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        self.refresh()
        return self._bounds(tps, 0)

    def ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._bounds(sorted(tps), 1)

    def end_offset(self, tp: TopicPartition) -> int:
        self.refresh()
        return self.bounds(tp)[1]

    def end_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        self.refresh()
        return self._bounds(tps, 1)

    def _bounds(self, tps: Sequence[TopicPartition], which: int) -> dict[TopicPartition, int]:
        """First offsets (0) or ends (1) of those that exist, as of one moment."""
        found = {}
        with self._lock:
            for tp in tps:
                try:  # `suppress` takes longer than the look
                    found[tp] = self.bounds(tp)[which]
                except TopicMissing:
                    continue
        return found

    def ask_end_offsets(self, tps: Sequence[TopicPartition]) -> Future[dict[TopicPartition, int]]:
        return answered(lambda: self.end_offsets(tps))

    def ask_written_offsets(self, tps: Sequence[TopicPartition]) -> Future[dict[TopicPartition, int]]:
        """No record of an open transaction is in the log."""
        return self.ask_end_offsets(tps)

    def written_offset(self, tp: TopicPartition) -> int:
        """Transactions are never seen open."""
        return self.end_offset(tp)

    def stable_positions(self, group: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, Position]:
        known = self.committed(group)
        return {tp: known[tp] for tp in tps if tp in known}


def check_topic_name(name: str) -> None:
    if not name or len(name) > 249 or name in (".", "..") or "/" in name or "\0" in name:
        raise LogError(f"{name!r} is not a topic name: 1 to 249 characters without '/'")

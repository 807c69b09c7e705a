"""EmbeddedLog: the log in a directory. Opening, seeing other processes' commits, the commit itself, admin.

A commit, as owner of the topics it writes (a flock each, for all processes): assign offsets and write data -> fsync it. Then,
under the append lock (one flock): see foreign commits -> check the epoch -> write and fsync the commit record -> apply the
record in memory. Readers see the last step only, all partitions at once. Who commits to other topics waits for the second part
only, which is short.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future

import pyarrow as pa

from flowql.runtime.errors import (
    BatchDamaged,
    Fenced,
    InstanceRunning,
    LogCorrupt,
    LogError,
    LogIOError,
    LogUnavailable,
    OffsetOutOfRange,
    PartitionGone,
    TopicMissing,
)
from flowql.runtime.log.base import (
    EARLIEST,
    Admin,
    Position,
    Producer,
    Reader,
    TopicDescription,
    TopicInfo,
    TopicPartition,
)
from flowql.runtime.log.base import Log as AnyLog
from flowql.runtime.log.clients import LocalLog, LogProducer, LogReader, answered, check_topic_name
from flowql.runtime.log.embedded.ledger import REDO, Ledger
from flowql.runtime.log.embedded.pins import pin
from flowql.runtime.log.embedded.records import (
    AdvanceStart,
    Commit,
    CreateTopic,
    DeleteTopic,
    InitProducer,
    SetConfig,
    Skip,
    TrimRedo,
)
from flowql.runtime.log.embedded.segment import MISSING
from flowql.runtime.log.embedded.state import Partition, ProducerState, Stored, Topic, topic_directory
from flowql.runtime.log.embedded.upkeep import Upkeep
from flowql.runtime.log.embedded.verify import Damage, Verified, verify
from flowql.runtime.log.embedded.writer import Writer, read_redo, redo_path
from flowql.runtime.log.files import DiskFiles, Files, Lock, size_of
from flowql.runtime.log.policy import TopicPolicy, altered
from flowql.runtime.log.repartition import followed_by, moved
from flowql.runtime.log.transaction import Transaction, check_count, check_end, check_shape, check_sources, check_start


class EmbeddedLog(LocalLog):
    """The log in the directory `path`, made if missing. Safe for many threads and many processes."""

    def __init__(self, path: str | os.PathLike[str], files: Files | None = None, *, damaged: bool = False) -> None:
        """damaged: open it also where committed bytes of segments are missing, for `verify` and `skip_damaged`."""
        super().__init__()
        self._files: Files = files or DiskFiles()
        self._directory = os.path.abspath(path)
        self._ledger = Ledger(self._files, self._directory, damaged=damaged)
        self._upkeep = Upkeep(self._files, self._directory, self._ledger)
        self._lock, self._state, self._segments = self._ledger.lock, self._ledger.state, self._ledger.segments
        self._instance: Lock | None = None
        self._runs: dict[str, int] = {}  # of producers that are the runtime's own, by transactional id

    @property
    def directory(self) -> str:
        """Where it is, an absolute path."""
        return self._directory

    # Factory of clients

    def reader(self, tp: TopicPartition, offset: int = EARLIEST) -> Reader:
        self.check_partition(tp)
        return LogReader(self, tp, offset)

    def producer(self, transactional_id: str) -> Producer:
        with self._ledger.appending():
            known = self._state.producers.get(transactional_id)
            epoch = known.epoch + 1 if known else 1
            self._ledger.write(InitProducer(transactional_id, epoch, self._runs.get(transactional_id, 0)))
        return self._clients.producer(LogProducer(self, transactional_id, epoch))

    def last_sequence(self, transactional_id: str) -> int:
        with self._fresh():
            known = self._state.producers.get(transactional_id)
            return known.sequence if known else 0

    def redo_after(self, transactional_id: str, sequence: int) -> Iterator[tuple[int, bytes]]:
        with self._fresh():
            known = self._state.producers.get(transactional_id)
            if known is None:
                return iter(())
            if known.redo_lost > sequence:
                raise LogCorrupt(
                    f"redo of {transactional_id} after commit {sequence} is asked for, but it was trimmed up to {known.redo_lost}"
                )
            wanted = [r for r in known.redo if r.sequence > sequence]
        return ((r.sequence, read_redo(self._files, self._directory, r)) for r in wanted)

    def redo_lost(self, transactional_id: str) -> int:
        """The last commit whose redo is not in the log any more; 0 if all of it is there."""
        with self._fresh():
            return self._state.producers.get(transactional_id, ProducerState()).redo_lost

    def redo_place(self, transactional_id: str, sequence: int) -> str:
        with self._lock:
            known = self._state.producers.get(transactional_id)
            found = next((r for r in known.redo if r.sequence == sequence), None) if known is not None else None
        return self._directory if found is None else f"{redo_path(self._directory, found.file)}, byte {found.start}"

    def begin_run(self, transactional_id: str, run: int) -> None:
        """The next producers of that id, the runtime's own, are of this run."""
        self._runs[transactional_id] = run

    def why_foreign(self, transactional_id: str, sequence: int, run: int) -> str:
        """See `ProducerState.why_foreign`."""
        with self._fresh():
            return self._state.producers.get(transactional_id, ProducerState()).why_foreign(sequence, run)

    def trim_redo(self, transactional_id: str, sequence: int) -> None:
        with self._ledger.owning([REDO]), self._ledger.appending():
            known = self._state.producers.get(transactional_id)
            if known is None or not any(r.sequence <= sequence for r in known.redo):
                return
            before = self._state.redo_files()
            self._ledger.write(TrimRedo(transactional_id, sequence))
            for number in sorted(before - self._state.redo_files()):
                self._segments.remove(redo_path(self._directory, number))

    def hold(self, transactional_id: str) -> None:
        path = f"{self._directory}/instance.lock"
        with self._ledger.errors():
            lock = self._files.lock(path, wait=False)
            if lock is None:
                file = self._files.open(path)
                holder = file.pread(0, 4096).decode(errors="replace").partition(" ")
                file.close()
                raise InstanceRunning(f"process {holder[0] or 'unknown'} runs {holder[2]} on {self._directory}")
            self._instance = lock
            lock.write(f"{os.getpid()} {transactional_id}")

    def close(self) -> None:
        self._ledger.close()
        if self._instance is not None:
            self._instance.release()
            self._instance = None

    def opener(self) -> None:
        """Its records come as they are in files: no other process would read them any faster."""

    def maintain(self, now_ms: int) -> None:
        self._upkeep.run(now_ms)

    def pin(self, into: str | os.PathLike[str]) -> None:
        """Keep all files of the newest commit readable in a new directory on the same file system: see `pins`."""
        pin(self._files, self._ledger, os.path.abspath(into))

    # Admin

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> TopicInfo:
        check_topic_name(name)
        TopicPolicy.of(config or {})
        if partitions < 1:
            raise LogError(f"topic {name}: {partitions} partitions")
        if name not in self.topics():
            with self._ledger.appending():
                if name not in self._state.topics:
                    topic_id = self._state.next_topic_id
                    self._files.makedirs(f"{self._ledger.topics_directory}/{topic_directory(name, topic_id)}")
                    self._files.fsync_dir(self._ledger.topics_directory)
                    self._ledger.write(CreateTopic(topic_id, name, partitions, dict(config or {})))
        with self._lock:
            info = self._topic(name).info
        if info.partitions != partitions:
            raise LogError(f"topic {name} exists with {info.partitions} partitions, not {partitions}")
        return info

    def alter_topic(self, name: str, changes: Mapping[str, str | None]) -> TopicInfo:
        with self._ledger.appending():
            topic = self._topic(name)
            config = altered(topic.info.config, changes)
            if config != topic.info.config:
                self._ledger.write(SetConfig(topic.id, config))
            return topic.info

    def delete_topic(self, name: str) -> None:
        with self._owning({name}):
            with self._ledger.appending():
                topic = self._topic(name)
                self._ledger.write(DeleteTopic(topic.id))
            for partition in topic.partitions:
                for segment in partition.segments:
                    self._segments.remove(segment.path)
            self._files.rmdir(topic.partitions[0].directory)
            self._ledger.forget_owner(topic.owner_name)

    def topics(self) -> dict[str, TopicInfo]:
        with self._fresh():
            return {name: topic.info for name, topic in self._state.topics.items()}

    def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        with self._fresh():
            return {name: topic.info.partitions for name, topic in self._state.topics.items() if name in topics}

    def describe_topics(self, topics: Collection[str]) -> Future[dict[str, TopicDescription]]:
        return answered(lambda: self._descriptions(topics))

    def _descriptions(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        with self._fresh():
            known = {name: topic for name, topic in self._state.topics.items() if name in topics}
            return {name: TopicDescription(str(topic.id), topic.info.partitions) for name, topic in known.items()}

    def writers(self, tp: TopicPartition) -> frozenset[str]:
        with self._fresh():
            return frozenset(self._partition(tp).writers)

    def was_compacted(self, tp: TopicPartition) -> bool:
        with self._fresh():
            return any(segment.cleaned_ms for segment in self._partition(tp).segments)

    def files_of(self, tp: TopicPartition) -> frozenset[tuple[int, int]]:
        with self._fresh():
            return frozenset((segment.base, segment.life) for segment in self._partition(tp).segments)

    def committed(self, group: str) -> dict[TopicPartition, Position]:
        with self._fresh():
            return self._state.committed(group)

    def groups(self, prefix: str) -> list[str]:
        with self._fresh():
            return sorted(g for g, positions in self._state.groups.items() if positions and g.startswith(prefix))

    def drop_before(self, tp: TopicPartition, offset: int) -> None:
        """Records below `offset` are gone (retention); files go as whole segments do."""
        with self._owning({tp.topic}), self._ledger.appending():
            partition = self._partition(tp)
            check_start(tp, offset, partition.end_offset)
            with self._ledger.removing([partition]):
                self._ledger.write(AdvanceStart(self._state.topics[tp.topic].id, tp.partition, offset))

    @contextlib.contextmanager
    def _fresh(self) -> Iterator[None]:
        """The state as of the last commit of any process, until the block ends."""
        self.refresh()
        with self._lock:
            yield

    # For readers

    def refresh(self) -> object:
        return self._ledger.refresh()

    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        with self._lock:
            partition = self._partition(tp)
            return partition.start_offset, partition.end_offset

    def stored(self, tp: TopicPartition, offset: int) -> pa.RecordBatch | None:
        with self._ledger.errors():
            return self._stored(tp, offset)

    def _stored(self, tp: TopicPartition, offset: int) -> pa.RecordBatch | None:
        missing = ""
        while True:
            offset = self._after_skipped(tp, offset)  # first: what is left out may be missing
            if (stored := self._locate(tp, offset)) is None:
                return None
            try:
                batch = self._segments.read(stored)
            except BatchDamaged as e:
                whose = f"offsets {stored.base} to {stored.end_offset - 1} of {tp}"
                raise BatchDamaged(e.path, e.start, e.problem, whose) from e
            except FileNotFoundError as e:
                if not self._files.exists(self._directory):
                    raise LogIOError(
                        f"{self._directory} is missing: it was moved or removed while this process has it open; end the process "
                        "(flowql stop), and start it again where the directory is now"
                    ) from e
                if stored.path == missing:
                    raise BatchDamaged(stored.path, stored.start, MISSING, f"from offset {offset} of {tp} on") from e
                missing = stored.path  # gone, or written again by compaction: what the commit log says now decides
                self.refresh()
                begin, _ = self.bounds(tp)
                if offset < begin:
                    raise OffsetOutOfRange(f"{tp}: records {offset} to {begin - 1} are gone") from e
                continue
            if batch.column(0)[-1].as_py() >= offset:
                return batch
            offset = stored.end_offset  # compaction left a gap there

    def _after_skipped(self, tp: TopicPartition, offset: int) -> int:
        with self._lock:
            return self._partition(tp).after_skipped(offset)

    def skipped(self, tp: TopicPartition) -> list[tuple[int, int]]:
        """Ranges of damaged records that readers leave out: first offset and end."""
        with self._fresh():
            return list(self._partition(tp).skipped)

    def is_complete(self, tp: TopicPartition) -> bool:
        """Whether the files of its segments have all committed bytes. Their content is not looked at."""
        with self._fresh():
            segments = [(s.path, s.length) for s in self._partition(tp).segments]
        try:
            return all(size_of(self._files, path) >= length for path, length in segments)
        except FileNotFoundError:
            return False

    def stored_bytes(self) -> int:
        """Committed bytes of all segments."""
        with self._fresh():
            return sum(s.length for t in self._state.topics.values() for p in t.partitions for s in p.segments)

    def verify(self, advance: Callable[[int], None] = lambda n: None) -> Verified:
        """Read all there is and compare it with its checksums. advance: told of each segment's bytes that were read."""
        self.refresh()
        return verify(self._files, self._ledger, advance)

    def skip_damaged(self, damages: Sequence[Damage]) -> None:
        """From now on readers leave these records out, and so do rebuilds."""
        with self._ledger.appending():
            for d in damages:
                topic = self._topic(d.tp.topic)
                self._ledger.write(Skip(topic.id, d.tp.partition, d.first, d.end))

    def _locate(self, tp: TopicPartition, offset: int) -> Stored | None:
        """Where the batch lies that holds an offset unless there is a gap; None at the end."""
        with self._lock:
            self._ledger.check_usable()
            partition = self._partition(tp)
            if offset >= partition.end_offset:
                return None
            segment = partition.segment_of(offset)
            if not segment.covers(offset):
                try:
                    self._segments.load_index(segment)
                except FileNotFoundError:  # reading it will say so
                    return Stored(segment.path, 0, 0, 0, 0)
            return segment.locate(offset)

    # For producers

    def check_partition(self, tp: TopicPartition) -> None:
        with self._lock:
            if tp.topic not in self._state.topics:
                self.refresh()
            self._partition(tp)

    def check_epoch(self, transactional_id: str, epoch: int) -> None:
        with self._lock:
            self._ledger.check_usable()
            newest = self._state.producers[transactional_id].epoch
        if newest != epoch:
            raise Fenced(f"producer {transactional_id} has epoch {epoch}, but a newer one has epoch {newest}")

    def commit(self, transactional_id: str, epoch: int, transaction: Transaction) -> int:
        batches = transaction.batches()
        self.refresh()
        self.check_epoch(transactional_id, epoch)
        check_sources(transaction)
        changed = (*(tp for tp, _ in batches), *transaction.starts, *transaction.ends)
        topics = {tp.topic for tp in (*changed, *transaction.sources, *transaction.sources.values())}
        with self._owning(topics | transaction.shapes.keys(), redo=transaction.redo is not None):
            for topic, count in transaction.counts.items():
                check_count(topic, count, self._topic(topic).info.partitions)
            shaped = self._shaped(transaction)
            for topic in (t for t, shape in transaction.shapes.items() if shape.keeps):
                first = moved(self, topic, len(self._topic(topic).partitions), len(shaped[topic]))
                batches = followed_by(first, batches)
            for tp in (*(tp for tp, _ in batches), *transaction.sources):
                if tp.topic not in shaped:
                    self._partition(tp)
            for tp, offset in transaction.starts.items():
                check_start(tp, offset, self._partition(tp).end_offset)
            for tp, offset in transaction.ends.items():
                check_end(tp, offset, self._partition(tp).end_offset)
            sources = self._sources(transaction)
            writer = Writer(self._files, self._segments, self._directory, self._state)
            with self._undoing(writer):
                record = writer.write(transactional_id, epoch, transaction, batches, shaped)
                self._make_durable(writer)
            with self._ledger.appending():
                self.check_epoch(transactional_id, epoch)
                for _, tp in transaction.positions:
                    self._partition(tp)
                if self._sources(transaction) != sources:
                    raise LogUnavailable("segments that were to be linked have been compacted")
                partitions = [self._partition(tp) for tp in transaction.starts]
                partitions += [p for topic in shaped for p in self._topic(topic).partitions]
                with self._ledger.removing(partitions), self._undoing(writer):
                    self._name(writer, record)
            return record.sequence

    def _sources(self, transaction: Transaction) -> list[list[str]]:
        """The segments that are to be linked. Compaction, which owns no topic, may put others in their place."""
        with self._lock:
            found = [self._partition(tp).visible() for tp in transaction.sources.values()]
            for segment in (s for segments in found for s in segments if not s.covers(s.base)):
                self._segments.load_index(segment)
            return [[s.path for s in segments] for segments in found]

    def _shaped(self, transaction: Transaction) -> dict[str, list[Partition]]:
        """The partitions of the topics that a transaction repartitions, as they will be."""
        found = {}
        for name, shape in transaction.shapes.items():
            topic = self._topic(name)
            check_shape(name, shape, {TopicPartition(name, p.number): p.end_offset for p in topic.partitions})
            found[name] = topic.reshaped(shape.partitions, shape.offset)
        return found

    def _make_durable(self, writer: Writer) -> None:
        writer.make_durable()

    def _name(self, writer: Writer, record: Commit) -> None:
        """The commit point: what `writer` has made durable is named."""
        self._ledger.write(record)

    @contextlib.contextmanager
    def _undoing(self, writer: Writer) -> Iterator[None]:
        """After an OSError the record is not in the commit log; where that is unknown the error is LogCorrupt."""
        try:
            yield
        except OSError:
            with contextlib.suppress(OSError):  # see Writer.undo
                writer.undo()
            raise

    @contextlib.contextmanager
    def _owning(self, names: Collection[str], *, redo: bool = False) -> Iterator[None]:
        """Own topics as they are now, and the redo. TopicMissing."""
        while True:
            if any(name not in self._state.topics for name in names):
                self.refresh()
            with self._lock:
                topics = [self._topic(name) for name in names]
            with self._ledger.owning([*(t.owner_name for t in topics), *([REDO] if redo else [])]):
                self.refresh()
                with self._lock:
                    stay = all(self._state.topics.get(t.info.name) is t for t in topics)
                if stay:
                    yield
                    return

    def _topic(self, name: str) -> Topic:
        topic = self._state.topics.get(name)
        if topic is None:
            raise TopicMissing(f"there is no topic {name}")
        return topic

    def _partition(self, tp: TopicPartition) -> Partition:
        partitions = self._topic(tp.topic).partitions
        if not 0 <= tp.partition < len(partitions):
            raise PartitionGone(f"topic {tp.topic} has {len(partitions)} partitions, none with number {tp.partition}")
        return partitions[tp.partition]


def skipped_records(log: AnyLog, positions: Mapping[TopicPartition, int]) -> int:
    """Damaged records of an embedded log that were left out on the way to these positions."""
    admin = log.admin()
    if not isinstance(admin, EmbeddedLog):
        return 0
    return sum(min(end, at) - first for tp, at in positions.items() for first, end in admin.skipped(tp) if first < at)


def left_out(admin: Admin, topics: Collection[str]) -> str:
    """A partition of these topics of an embedded log that has damaged records, which readers leave out, in words; empty without one."""
    found = (tp for tp in _embedded(admin, topics) if admin.skipped(tp))  # type: ignore[attr-defined]
    return next((f"damaged records of {tp} are left out" for tp in found), "")


def incomplete(admin: Admin, topics: Collection[str]) -> str:
    """A partition of these topics of an embedded log that has not all its bytes, in words; empty without one."""
    found = (tp for tp in _embedded(admin, topics) if not admin.is_complete(tp))  # type: ignore[attr-defined]
    return next((f"records of {tp} are gone: a segment is missing or too short" for tp in found), "")


def _embedded(admin: Admin, topics: Collection[str]) -> list[TopicPartition]:
    """All partitions of these topics, if the log is an embedded one."""
    if not isinstance(admin, EmbeddedLog):
        return []
    counts = admin.partition_counts(topics)
    return [TopicPartition(topic, p) for topic, n in counts.items() for p in range(n)]

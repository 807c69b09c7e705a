"""The topics that state can be brought back from: a compacted changelog per store, and the records of tasks (rule R3).

Metadata topic, one partition: key = task id, value = (format, commit sequence, partition, stores, metadata), null when the
task was dropped. Each commit ends with a record of its own, key `@` + transactional id, value = (format, sequence, complete):
complete says that no commit since the first one went without changelogs. The first commit of a member after it has applied a newer plan has one
more, key `!` + transactional id, value = (format, number of the deployment): it writes nothing more for what that plan does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flowql.runtime import formats
from flowql.runtime.errors import LogError, StateError
from flowql.runtime.log.base import (
    PRODUCE_SCHEMA,
    Admin,
    Log,
    RawBatch,
    TopicDescription,
    TopicPartition,
)
from flowql.runtime.state.frozen import FrozenEpoch
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.positions import KEPT_MS, ChangelogPosition, StorePartition
from flowql.runtime.state.values import decode_value, encode_value

_POLICY = "cleanup.policy"
COMPACTED = {_POLICY: "compact"}
# Settings of changelogs. A position here is used for half as long as tombstones stay there (`flowql.runtime.state.positions`).
CHANGELOG = {**COMPACTED, KEPT_MS: str(7 * 86_400_000)}
_READ_ROWS, _READ_BYTES = 20_000, 16 << 20
Describe = Callable[[Collection[str]], "Future[dict[str, TopicDescription]]"]
_APPLIED = "!"
_TAIL_RECORDS = 64  # the last commit record is looked for among so many records first


def changelog_topic(application_id: str, store: str) -> str:
    return f"{application_id}-{in_topic_name(store)}-changelog"


def in_topic_name(name: str) -> str:
    """A name that may carry the number of a generation, as Kafka takes it in names of topics.

    >>> in_topic_name("CTAS_A-aggregate-1@2")
    'CTAS_A-aggregate-1.g2'
    """
    return name.replace("@", ".g")


def metadata_topic(application_id: str) -> str:
    return f"{application_id}-metadata"


class RecordUnreadable(StateError):
    """A record of the metadata topic that another version of FlowQL has written, in another format."""


class ChangelogWriter:
    """Writes the state changes of a commit, beside its outputs. complete: commits up to now are all covered. writer: its transactional id.

    applied: the number of the deployment that a member has applied; 0 for none. describe: asks for the identity of changelog topics.
    written: the format in which records of a kind are written.
    """

    def __init__(
        self,
        application_id: str,
        *,
        complete: bool,
        describe: Describe,
        writer: str | None = None,
        applied: Callable[[], int] = lambda: 0,
        written: Callable[[str], int] = formats.newest,
    ) -> None:
        self._id, self._complete, self._writer = application_id, complete, writer or application_id
        self._topics, self._written = TopicIds(describe), written
        self._applied, self._told, self._told_by = applied, 0, 0  # what was told last, and by which commit

    def records(
        self, frozen: FrozenEpoch, sequence: int, now_ms: int
    ) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """Changelog records, then the records of tasks, then that of the commit."""
        self._topics.look({changelog_topic(self._id, store) for store, _ in frozen.changelog_partitions()})
        for store, partition, rows, states in frozen.changelog_columns():
            yield TopicPartition(changelog_topic(self._id, store), partition), records_of(rows, states, now_ms)
        keys, number = [t.encode() for t in frozen.drops.tasks], self._written("task")
        values: list[bytes | None] = [None] * len(keys)
        for task_id, record in frozen.tasks.items():
            keys.append(task_id.encode())
            values.append(encode_value((number, sequence, record.partition, record.stores, record.metadata)))
        keys.append(_commit_key(self._writer))
        values.append(encode_value((number, sequence, self._complete)))
        if (applied := self._applied()) != self._told:
            self._told, self._told_by = applied, sequence
        if self._told and sequence <= self._told_by:  # also if that commit is sent again
            keys.append(f"{_APPLIED}{self._writer}".encode())
            values.append(encode_value((number, self._told)))
        yield TopicPartition(metadata_topic(self._id), 0), records_of(keys, values, now_ms)

    def reached(
        self, frozen: FrozenEpoch, sequence: int, ends: Mapping[TopicPartition, int]
    ) -> dict[StorePartition, ChangelogPosition]:
        """Where the stores of a commit are in their changelogs after it. ends: of what it has written (`Producer.ends`)."""
        found: dict[StorePartition, ChangelogPosition] = {}
        for store, partition in frozen.changelog_partitions():
            tp = TopicPartition(changelog_topic(self._id, store), partition)
            end, topic_id = ends.get(tp), self._topics.known.get(tp.topic)
            if end is not None and topic_id is not None:
                found[store, partition] = ChangelogPosition(topic_id, end, frozen.as_of_ms, self._writer, sequence)
        return found


class TopicIds:
    """Identities of topics, asked for without waiting. `look` comes before a commit sends records, so if a topic is made again, an offset in the
    new one is known with the old id at worst, and not the other way round.
    """

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self._asked: Future[dict[str, TopicDescription]] | None = None
        self.known: dict[str, str] = {}

    def look(self, topics: AbstractSet[str]) -> None:
        """Ask for topics that are not known, and take an answer that has come."""
        with suppress(LogError):
            self._take()
            missing = topics - self.known.keys()
            if missing and self._asked is None:
                self._asked = self._describe(missing)
                self._take()

    def _take(self) -> None:
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            self.known |= {name: told.id for name, told in asked.result().items() if told.id}


@dataclass(frozen=True, slots=True)
class WrittenTask:
    """A task as the metadata topic knows it: as of which commit."""

    sequence: int
    record: TaskRecord


def read_tasks(log: Log, application_id: str) -> dict[str, WrittenTask]:
    """All tasks, from the metadata topic."""
    written = WrittenTasks(log, application_id)
    written.read_on()
    return written.tasks


class WrittenTasks:
    """All tasks and the last commit of each writer as the metadata topic tells, read on from where it was."""

    def __init__(self, log: Log, application_id: str) -> None:
        self.tasks: dict[str, WrittenTask] = {}
        self.sequences: dict[str, int] = {}
        self.applied: dict[str, int] = {}  # by writer, the deployment that it has applied
        self.committed_ms: dict[str, int] = {}  # by writer, when its last commit was; by its wall clock
        tp = TopicPartition(metadata_topic(application_id), 0)
        self._reader = log.reader(tp, log.admin().begin_offset(tp))

    def read_on(self) -> None:
        """Take in what was committed since the last call. RecordUnreadable for one of another format, again at each call."""
        begin = self._reader.position
        while (batch := self._reader.read(_READ_ROWS, _READ_BYTES)) is not None:
            offsets, times = batch.records.column(0).to_pylist(), batch.records.column("timestamp").to_pylist()
            try:
                for offset, ms, (key, value) in zip(offsets, times, changes(batch), strict=True):
                    self._take(name := key.decode(), value, f"{batch.tp}, offset {offset}")
                    if name.startswith("@"):
                        self.committed_ms[name[1:]] = ms
            except RecordUnreadable:
                self._reader.seek(begin)
                raise
            begin = self._reader.position

    def _take(self, name: str, value: bytes | None, place: str) -> None:
        if name.startswith("@"):
            if value is not None:
                self.sequences[name[1:]] = int(_fields(value, place)[0])
        elif name.startswith(_APPLIED):
            if value is not None:
                self.applied[name[1:]] = int(_fields(value, place)[0])
        elif value is None:
            self.tasks.pop(name, None)
        else:
            sequence, partition, stores, metadata = _fields(value, place)
            self.tasks[name] = WrittenTask(sequence, TaskRecord(partition, tuple(stores), metadata))


def is_complete(log: Log, application_id: str) -> bool:
    """Whether all state up to the last commit can be brought back from changelogs. RecordUnreadable if their last record cannot be read."""
    last = log.last_sequence(application_id)
    if last == 0:
        return True
    sequence, complete = last_written(log, application_id)
    return complete and sequence >= last  # at least once, a commit may be written and not be counted yet


def last_written(log: Log, application_id: str) -> tuple[int, bool]:
    """The last commit in the metadata topic, 0 if there is none, and whether it says that changelogs are complete. RecordUnreadable."""
    key, found = _commit_key(application_id), None
    for batches in _tails(log, application_id):
        for batch in batches:
            found = dict(changes(batch)).get(key) or found
        if found is not None:
            sequence, complete = _fields(found, f"{metadata_topic(application_id)}-0, the last commit")
            return int(sequence), bool(complete)
    return 0, False


def last_commit_ms(log: Log, application_id: str) -> int | None:
    """When the application last committed, by the wall clock of its writer; None if it never has, or no record tells."""
    found = None
    for batches in _tails(log, application_id):
        for batch in batches:
            found = int(batch.records.column("timestamp")[batch.records.num_rows - 1].as_py())
        if found is not None:
            break
    return found


def _tails(log: Log, application_id: str) -> Iterator[Iterator[RawBatch]]:
    """The last records of the metadata topic, then more and more of them, up to all."""
    if metadata_topic(application_id) not in log.admin().topics():
        return
    tp, back = TopicPartition(metadata_topic(application_id), 0), _TAIL_RECORDS
    begin, end = log.admin().begin_offset(tp), log.admin().end_offset(tp)
    yield _read(log, tp, max(begin, end - back))
    while end - back > begin:
        back *= 8
        yield _read(log, tp, max(begin, end - back))


def changelogs_of(application_id: str, record: TaskRecord) -> list[TopicPartition]:
    """Where the rows of a task are in the log."""
    return [TopicPartition(changelog_topic(application_id, store), record.partition) for store in record.stores]


def lost_records(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
    """Partitions of topics that were created compacted and do not hold all that was written to them, each with what is wrong.

    Compaction keeps the log start offset at 0: one above it shows that a retention deleted records. A topic with another policy was
    altered, or a broker created it at the first record.
    """
    wanted = sorted(set(partitions))
    if not wanted:
        return {}
    topics = admin.topics()
    unlisted = {tp.topic for tp in wanted} - topics.keys()
    gone = (
        unlisted - admin.partition_counts(unlisted).keys()
    )  # a broker that has just come back may not list a topic yet
    begins = admin.begin_offsets([tp for tp in wanted if tp.topic not in gone])
    found: dict[TopicPartition, str] = {}
    for tp in wanted:
        policy = topics[tp.topic].config.get(_POLICY, "compact") if tp.topic in topics else "compact"
        if tp.topic in gone:
            found[tp] = f"the topic {tp.topic} is gone"
        elif "compact" not in policy:
            found[tp] = f"the topic {tp.topic} has {_POLICY}={policy} and not compact"
        elif tp not in begins:
            found[tp] = f"{tp} is gone"
        elif begins[tp]:
            found[tp] = f"{tp} has lost its records before offset {begins[tp]}"
    return found


def changes(batch: RawBatch) -> list[tuple[bytes, bytes | None]]:
    """Fetched records as pairs of key and value."""
    records = batch.records
    return list(zip(records.column("key").to_pylist(), records.column("value").to_pylist(), strict=True))


def _read(log: Log, tp: TopicPartition, start: int) -> Iterator[RawBatch]:
    reader = log.reader(tp, start)
    while (batch := reader.read(_READ_ROWS, _READ_BYTES)) is not None:
        yield batch


def _commit_key(application_id: str) -> bytes:
    return f"@{application_id}".encode()


def _fields(value: bytes, place: str) -> list[Any]:
    """The fields of a record of the metadata topic, without its format number."""
    version, *fields = decode_value(value)
    if not formats.reads("task", version):
        raise RecordUnreadable(
            f"{place}: the record has format {version}, as another version of FlowQL writes it; this one reads {formats.newest('task')}: run the "
            "version that wrote it, or another app_id"
        )
    return fields


def records_of(keys: Sequence[bytes], values: Sequence[bytes | None], now_ms: int) -> pa.RecordBatch:
    """PRODUCE_SCHEMA, of one time and without headers."""
    n = len(keys)
    arrays = [
        pa.repeat(pa.scalar(now_ms, pa.int64()), n),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.nulls(n, PRODUCE_SCHEMA.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA)

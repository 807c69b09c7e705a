"""An epoch of a Spark query into the log: all its records, its number and its counters in one transaction. No pyspark.

The committed epochs of query Q are the position of group `<application id>-spark-Q` at the one partition of topic `<application id>-places`:
its offset is the next epoch, its metadata say which run (checkpoint) counts so and what has been counted. What Q has read are
the group's other positions. An epoch that is there already is skipped, so Spark may give it again after a crash. Two writers of one
query cannot both commit an epoch: the producer of the second fences that of the first, and the committed epochs are read after that. All of
this is the same on the embedded log and on Kafka.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowql.runtime.clock import SystemClock
from flowql.runtime.config import LetterRetention
from flowql.runtime.errors import Fenced, LogError, StateError
from flowql.runtime.log.base import PRODUCE_SCHEMA, Admin, Log, Position, Producer, TopicPartition
from flowql.runtime.spark.function_counts import FUNCTIONS, counters_of
from flowql.runtime.spark.key_places import KEYS
from flowql.runtime.spark.log_offsets import LogRange, read_range
from flowql.runtime.spark.shapes import DEAD, NOTE, SINK
from flowql.runtime.task import dead_letters

_CHUNK_ROWS = 65_536
_KEYS = pa.schema([PRODUCE_SCHEMA.field("key"), PRODUCE_SCHEMA.field("timestamp"), pa.field("lives", pa.bool_())])


def replace_with(
    log: Log, producer: Producer, replaces: Mapping[TopicPartition, int], new: Iterable[tuple[TopicPartition, pa.Array]]
) -> dict[TopicPartition, int]:
    """In a compacted topic the keys that the new results do not have get tombstones in the transaction, and the embedded log drops old records with it.

    Brokers delete records on demand, but not together with a commit, and none of a topic that is only compacted. So on Kafka the records of other
    topics are deleted after the commit (`replaced`), and until then a reader sees both.

    Writes a replacement's part of the transaction; returns the number of tombstones. replaces: where old records end; new: keys of the new ones.
    """
    for tp, offset in replaces.items() if log.drops_with_commits else ():
        producer.drop_before(tp, offset)
    policies = _policies(log, replaces)
    tables = {tp: offset for tp, offset in replaces.items() if "compact" in policies[tp.topic]}
    kept: dict[TopicPartition, list[pa.Array]] = {}
    for tp, keys in new:
        if tp in tables:
            kept.setdefault(tp, []).append(keys)
    sent: dict[TopicPartition, int] = {}
    for tp, offset in tables.items():
        found = tombstones(log, tp, offset, kept.get(tp, []))
        if found.num_rows:
            producer.send(tp, found)
            sent[tp] = found.num_rows
    return sent


def replaced(log: Log, replaces: Mapping[TopicPartition, int]) -> None:
    """Finishes a replacement after the commit; may be repeated."""
    if log.drops_with_commits:
        return
    policies = _policies(log, replaces)
    for tp, offset in replaces.items():
        if "delete" in policies[tp.topic] and log.admin().begin_offset(tp) < offset:
            log.admin().drop_before(tp, offset)


def drop_all(log: Log, topic: str, writer: str) -> None:
    """All records there are in a topic are gone. writer: transactional id, for tombstones."""
    admin = log.admin()
    tps = [TopicPartition(topic, p) for p in range(admin.partition_counts([topic])[topic])]
    begins, ends = admin.begin_offsets(tps), admin.end_offsets(tps)
    held = {tp: end for tp, end in ends.items() if begins[tp] < end}
    if not held:
        return
    producer = log.producer(writer)
    try:
        producer.begin()
        replace_with(log, producer, held, ())
        producer.commit()
    finally:
        producer.close()
    replaced(log, held)


def tombstones(log: Log, tp: TopicPartition, before: int, kept: Iterable[pa.Array]) -> pa.RecordBatch:
    """PRODUCE_SCHEMA: one for each key that has a value below an offset and is not among `kept`."""
    rows = pa.Table.from_batches(_keys(log, tp, before), _KEYS)
    last = rows.group_by("key", use_threads=False).aggregate([("timestamp", "max"), ("lives", "last")])
    gone = last.filter(pc.and_(last.column("lives_last"), pc.is_valid(last.column("key"))))
    for keys in kept:
        gone = gone.filter(pc.invert(pc.is_in(gone.column("key"), value_set=keys)))
    n = gone.num_rows
    columns = [gone.column("timestamp_max").combine_chunks(), gone.column("key").combine_chunks()]
    empty = [pa.nulls(n, PRODUCE_SCHEMA.field(name).type) for name in ("value", "headers")]
    return pa.RecordBatch.from_arrays([*columns, *empty], schema=PRODUCE_SCHEMA)


def _keys(log: Log, tp: TopicPartition, before: int) -> Iterator[pa.RecordBatch]:
    wanted = LogRange(tp.topic, tp.partition, log.admin().begin_offset(tp), before)
    for raw in read_range(log, wanted, _CHUNK_ROWS):
        records = raw.records
        lives = pc.is_valid(records.column("value"))
        yield pa.RecordBatch.from_arrays([records.column("key"), records.column("timestamp"), lives], schema=_KEYS)


def _policies(log: Log, tps: Iterable[TopicPartition]) -> dict[str, set[str]]:
    """`cleanup.policy` of topics; brokers delete records on demand where it has `delete`."""
    wanted = {tp.topic for tp in tps}
    topics = log.admin().topics() if wanted else {}
    said = {t: topics[t].config.get("cleanup.policy", "delete") if t in topics else "delete" for t in wanted}
    return {topic: {word.strip() for word in policy.split(",")} for topic, policy in said.items()}


_FENCED_TRIES = 5  # each means that another writer of the same query came in between


def epochs_topic(application_id: str) -> str:
    """The topic of one partition at which the positions of queries are their epochs."""
    return f"{application_id}-places"


@dataclass(frozen=True, slots=True)
class Target:
    """Whose epochs these are. run: identity of the checkpoint that numbers them; application_id: whose dead letters."""

    query: str
    run: str = ""
    application_id: str = "flowql"

    @property
    def group(self) -> str:
        """The group of its epochs and of what it has read, and the transactional id of its writer."""
        return f"{self.application_id}-spark-{self.query}"

    @property
    def epochs(self) -> TopicPartition:
        return TopicPartition(epochs_topic(self.application_id), 0)

    @property
    def dead_letters(self) -> TopicPartition:
        return TopicPartition(dead_letters.topic_name(self.application_id), 0)


@dataclass(frozen=True, slots=True)
class CommittedEpochs:
    """How far a query's results are in the log. counters: sums over all its epochs, `records_in`, `late`, ..."""

    run: str
    next_epoch: int
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EmittedRecords:
    """One emitted row, decoded: records (PRODUCE_SCHEMA) for a partition, in the order of (source, seq)."""

    kind: str
    topic: str
    partition: int
    source: int
    seq: int
    records: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Appended:
    """The outcome of an epoch. skipped: it was in the log before."""

    records: int
    skipped: bool


def committed_epochs(log: Log, target: Target) -> CommittedEpochs | None:
    """The epochs that a query has committed; None if it never committed an epoch to this log."""
    position = log.admin().stable_positions(target.group, [target.epochs]).get(target.epochs)
    if position is None:
        return None
    said = json.loads(position.metadata)
    return CommittedEpochs(said["run"], position.offset, said["counters"])


def ensure_own_topics(admin: Admin, application_id: str) -> None:
    """The topics that epochs need beside those of the plan. How long dead letters are kept a deployment says."""
    wanted: dict[str, dict[str, str]] = {
        dead_letters.topic_name(application_id): dead_letters.topic_config(LetterRetention()),
        epochs_topic(application_id): {"cleanup.policy": "compact"},
    }
    for name in wanted.keys() - admin.partition_counts(list(wanted)).keys():
        admin.create_topic(name, 1, wanted[name])


def append(
    log: Log,
    target: Target,
    epoch: int,
    pieces: Sequence[EmittedRecords],
    notes: Sequence[Mapping[str, Any]],
    positions: Mapping[TopicPartition, int] | None = None,
    *,
    replaces: Mapping[TopicPartition, int] | None = None,
) -> Appended:
    """Commit one epoch by a writer of its own; see `Writer.append`."""
    writer = Writer(log, target)
    try:
        return writer.append(epoch, pieces, notes, positions, replaces=replaces)
    finally:
        writer.close()


class Writer:
    """Commits epochs of one query. One thread at a time.

    It keeps its producer, as on Kafka making one takes longer than a commit, and with it what it knows of its epochs: who
    commits another epoch has fenced the producer.
    """

    def __init__(self, log: Log, target: Target) -> None:
        self.target = target
        self._log = log
        self._producer: Producer | None = None
        self._committed: CommittedEpochs | None = None

    def append(
        self,
        epoch: int,
        pieces: Sequence[EmittedRecords],
        notes: Sequence[Mapping[str, Any]],
        positions: Mapping[TopicPartition, int] | None = None,
        *,
        replaces: Mapping[TopicPartition, int] | None = None,
    ) -> Appended:
        """Commit one epoch: all of it, once, or nothing.

        positions: what has been read with it; replaces: records below go with it. StateError if epochs are missing before this
        one, or if an unfinished run of another checkpoint would be continued.
        """
        for _ in range(_FENCED_TRIES):
            try:
                appended = self._append(self._made(), epoch, pieces, notes, positions or {}, replaces or {})
                replaced(self._log, replaces or {})
                return appended
            except Fenced:
                self.close()
            except BaseException:  # what became of the transaction the next one looks up
                self.close()
                raise
        raise Fenced(f"query {self.target.query}: another process keeps writing its results; is it running twice?")

    def close(self) -> None:
        """An epoch may still come: it begins with a new producer."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _made(self) -> Producer:
        if self._producer is None:
            ensure_own_topics(self._log.admin(), self.target.application_id)
            self._producer = self._log.producer(self.target.group)
            # After the producer was made: who committed before that is seen, who comes later is fenced.
            self._committed = committed_epochs(self._log, self.target)
        return self._producer

    def _append(
        self,
        producer: Producer,
        epoch: int,
        pieces: Sequence[EmittedRecords],
        notes: Sequence[Mapping[str, Any]],
        positions: Mapping[TopicPartition, int],
        replaces: Mapping[TopicPartition, int],
    ) -> Appended:
        target, committed = self.target, self._committed
        counted = Counter(_continued(committed, target, epoch))
        if committed is not None and committed.run == target.run and epoch < committed.next_epoch:
            return Appended(0, skipped=True)
        producer.begin()
        records = letters = 0
        for piece in sorted(pieces, key=lambda p: (p.source, p.seq)):
            if piece.kind == DEAD:
                letters += piece.records.num_rows
                producer.send(target.dead_letters, dead_letters.written_at(piece.records, SystemClock().wall_ms()))
            else:
                records += piece.records.num_rows
                producer.send(TopicPartition(piece.topic, piece.partition), piece.records)
        if replaces:  # tombstones at the end: they have the last times of rows that are gone, and would hold new rows back where inputs are merged by time
            new = ((TopicPartition(p.topic, p.partition), p.records.column("key")) for p in pieces if p.kind == SINK)
            replace_with(self._log, producer, replaces, new)
        for note in notes:
            counted.update(_counters(note))
        told = [note["dead"] for note in notes if "dead" in note]  # a record may have several letters
        counted.update(records_appended=records, dead_letters=sum(told) if told else letters)
        metadata = json.dumps({"run": target.run, "counters": counted}, separators=(",", ":"))
        read = {tp: Position(at) for tp, at in positions.items()}
        producer.send_positions(target.group, {target.epochs: Position(epoch + 1, metadata), **read})
        producer.commit()
        self._committed = CommittedEpochs(target.run, epoch + 1, counted)
        return Appended(records, skipped=False)


def _continued(committed: CommittedEpochs | None, target: Target, epoch: int) -> Mapping[str, int]:
    """The counters to go on from. A new run begins with epoch 0."""
    if committed is None or committed.run != target.run:
        if epoch:
            found = (
                "none" if committed is None else f"run {committed.run or '(unnamed)'} at epoch {committed.next_epoch}"
            )
            raise StateError(
                f"query {target.query}: epoch {epoch} of run {target.run or '(unnamed)'} cannot be the first in this log (found: {found})"
            )
        return {}
    if epoch > committed.next_epoch:
        raise StateError(
            f"query {target.query}: epoch {epoch} comes after {committed.next_epoch - 1}: results between are missing"
        )
    return committed.counters


def _counters(note: Mapping[str, Any]) -> dict[str, int]:
    """The numbers of a note worth summing; what is counted per operator (`late`) is added up."""
    found = counters_of(note)
    for name, value in note.items():
        if name in ("partition", "subtopology", "since_start", FUNCTIONS, KEYS):
            continue
        if isinstance(value, Mapping):
            value = sum(value.values())
        if isinstance(value, int):
            found[name] = value
    return found


def split(batches: Iterable[pa.RecordBatch]) -> tuple[list[EmittedRecords], list[Mapping[str, Any]]]:
    """EMITTED rows as pieces and notes. The records are views of the rows' bytes."""
    pieces: list[EmittedRecords] = []
    notes: list[Mapping[str, Any]] = []
    for batch in batches:
        kinds, topics, partitions, sources, seqs = (batch.column(i).to_pylist() for i in range(5))
        for i, (kind, payload) in enumerate(zip(kinds, batch.column("ipc"), strict=True)):
            if kind == NOTE:
                notes.append(json.loads(payload.as_py()))
            elif kind in (SINK, DEAD):
                with pa.ipc.open_stream(payload.as_buffer()) as reader:
                    pieces += [
                        EmittedRecords(kind, topics[i], partitions[i], sources[i], seqs[i], part) for part in reader
                    ]
            else:
                raise LogError(f"a row of kind {kind!r} has come to the sink; only {SINK}, {DEAD} and {NOTE} end there")
    return pieces, notes

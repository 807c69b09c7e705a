"""An epoch of a Spark query into the log: all its records, its place and its counters in one transaction. No pyspark.

The place of query Q is the position of group `spark/Q` at partition 0 of the dead-letter topic, a topic that is always there:
its offset is the next epoch, its metadata say which run (checkpoint) counts so and what has been counted. An epoch that is there
already is skipped, so Spark may give it again after a crash. Two writers of one query cannot both commit an epoch: the producer
of the second fences that of the first, and the place is read after that.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from runtime.errors import Fenced, LogError, StateError
from runtime.log.base import Log, Position, Producer, TopicPartition
from runtime.spark.shapes import DEAD, NOTE, SINK
from runtime.task import dead_letters

_FENCED_TRIES = 5  # each means that another writer of the same query came in between


@dataclass(frozen=True, slots=True)
class Target:
    """Whose epochs these are. run: identity of the checkpoint that numbers them; application_id: whose dead letters."""

    query: str
    run: str = ""
    application_id: str = "flowql"

    @property
    def group(self) -> str:
        return f"spark/{self.query}"

    @property
    def inputs_group(self) -> str:
        """The group that holds what has been read, for lag and hand-over."""
        return f"spark/{self.query}/inputs"

    @property
    def dead_letters(self) -> TopicPartition:
        return TopicPartition(dead_letters.topic_name(self.application_id), 0)


@dataclass(frozen=True, slots=True)
class Place:
    """How far a query's results are in the log. counters: sums over all its epochs, `records_in`, `late`, ..."""

    run: str
    next_epoch: int
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Piece:
    """One emitted row, decoded: records (PRODUCE_SCHEMA) for a partition, in the order of (source, seq)."""

    kind: str
    topic: str
    partition: int
    source: int
    seq: int
    records: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of an epoch. skipped: it was in the log before."""

    records: int
    dead: int
    skipped: bool


def place_of(log: Log, target: Target) -> Place | None:
    """The committed place of a query; None if it never committed an epoch to this log."""
    position = log.admin().committed(target.group).get(target.dead_letters)
    if position is None:
        return None
    said = json.loads(position.metadata)
    return Place(said["run"], position.offset, said["counters"])


def append_emitted(
    log: Log,
    target: Target,
    epoch: int,
    batches: Iterable[pa.RecordBatch],
    positions: Mapping[TopicPartition, int] | None = None,
) -> Appended:
    """Commit one epoch of EMITTED rows that are here in memory; see `append`."""
    pieces, notes = split(batches)
    return append(log, target, epoch, pieces, notes, positions)


def append(
    log: Log,
    target: Target,
    epoch: int,
    pieces: Sequence[Piece],
    notes: Sequence[Mapping[str, Any]],
    positions: Mapping[TopicPartition, int] | None = None,
    *,
    replaces: Mapping[TopicPartition, int] | None = None,
) -> Appended:
    """Commit one epoch: all of it, once, or nothing. positions: what has been read with it; replaces: records below go with it.

    StateError if epochs are missing before this one, or if an unfinished run of another checkpoint would be continued.
    """
    log.admin().create_topic(target.dead_letters.topic, 1)
    for _ in range(_FENCED_TRIES):
        producer = log.producer(target.group)
        try:
            return _append(log, producer, target, epoch, pieces, notes, positions or {}, replaces or {})
        except Fenced:
            continue
        finally:
            producer.close()
    raise Fenced(f"query {target.query}: another process keeps writing its results; is it running twice?")


def _append(
    log: Log,
    producer: Producer,
    target: Target,
    epoch: int,
    pieces: Sequence[Piece],
    notes: Sequence[Mapping[str, Any]],
    positions: Mapping[TopicPartition, int],
    replaces: Mapping[TopicPartition, int],
) -> Appended:
    place = place_of(
        log, target
    )  # after the producer was made: who committed before that is seen, who comes later is fenced
    counted = Counter(_continued(place, target, epoch))
    if place is not None and place.run == target.run and epoch < place.next_epoch:
        return Appended(0, 0, skipped=True)
    producer.begin()
    for tp, offset in replaces.items():
        producer.drop_before(tp, offset)
    records = dead = 0
    for piece in sorted(pieces, key=lambda p: (p.source, p.seq)):
        if piece.kind == DEAD:
            dead += piece.records.num_rows
            producer.send(target.dead_letters, piece.records)
        else:
            records += piece.records.num_rows
            producer.send(TopicPartition(piece.topic, piece.partition), piece.records)
    for note in notes:
        counted.update(_counters(note))
    counted.update(records_appended=records, dead_letters=dead)
    metadata = json.dumps({"run": target.run, "counters": counted}, separators=(",", ":"))
    producer.send_positions(target.group, {target.dead_letters: Position(epoch + 1, metadata)})
    if positions:
        producer.send_positions(target.inputs_group, {tp: Position(at) for tp, at in positions.items()})
    producer.commit()
    return Appended(records, dead, skipped=False)


def _continued(place: Place | None, target: Target, epoch: int) -> Mapping[str, int]:
    """The counters to go on from. A new run begins with epoch 0."""
    if place is None or place.run != target.run:
        if epoch:
            found = "none" if place is None else f"run {place.run or '(unnamed)'} at epoch {place.next_epoch}"
            raise StateError(
                f"query {target.query}: epoch {epoch} of run {target.run or '(unnamed)'} cannot be the first in this log (found: {found})"
            )
        return {}
    if epoch > place.next_epoch:
        raise StateError(
            f"query {target.query}: epoch {epoch} comes after {place.next_epoch - 1}: results between are missing"
        )
    return place.counters


def _counters(note: Mapping[str, Any]) -> dict[str, int]:
    """The numbers of a note worth summing; what is counted per operator (`late`) is added up."""
    found = {}
    for name, value in note.items():
        if name in ("partition", "subtopology", "since_start"):
            continue
        if isinstance(value, Mapping):
            value = sum(value.values())
        if isinstance(value, int):
            found[name] = value
    return found


def split(batches: Iterable[pa.RecordBatch]) -> tuple[list[Piece], list[Mapping[str, Any]]]:
    """EMITTED rows as pieces and notes. The records are views of the rows' bytes."""
    pieces: list[Piece] = []
    notes: list[Mapping[str, Any]] = []
    for batch in batches:
        kinds, topics, partitions, sources, seqs = (batch.column(i).to_pylist() for i in range(5))
        for i, (kind, payload) in enumerate(zip(kinds, batch.column("ipc"), strict=True)):
            if kind == NOTE:
                notes.append(json.loads(payload.as_py()))
            elif kind in (SINK, DEAD):
                with pa.ipc.open_stream(payload.as_buffer()) as reader:
                    pieces += [Piece(kind, topics[i], partitions[i], sources[i], seqs[i], part) for part in reader]
            else:
                raise LogError(f"a row of kind {kind!r} has come to the sink; only {SINK}, {DEAD} and {NOTE} end there")
    return pieces, notes

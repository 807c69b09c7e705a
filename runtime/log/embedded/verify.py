"""Everything in the files of a log against its checksums. Reads only; readers and writers go on meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from flowql.runtime.errors import BatchDamaged, LogCorrupt
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded.ledger import Ledger
from flowql.runtime.log.embedded.segment import MISSING
from flowql.runtime.log.embedded.state import Partition, Segment, Stored
from flowql.runtime.log.embedded.writer import read_redo
from flowql.runtime.log.files import Files


@dataclass(frozen=True, slots=True)
class Damage:
    """Records that cannot be read: offsets first to below end of a partition. skipped: readers leave them out already."""

    tp: TopicPartition
    path: str
    start: int
    first: int
    end: int
    problem: str
    skipped: bool = False


@dataclass(slots=True)
class Verified:
    """Counts of the verified parts of a log, and the damage found."""

    segments: int = 0
    batches: int = 0
    bytes: int = 0
    damages: list[Damage] = field(default_factory=list)
    other: list[str] = field(default_factory=list)  # of redo files, a sentence each


def verify(files: Files, ledger: Ledger, advance: Callable[[int], None] = lambda n: None) -> Verified:
    """The commit log was verified when it was read."""
    found = Verified()
    with ledger.lock:
        topics = [(t.info.name, list(t.partitions)) for t in ledger.state.topics.values()]
        redo = [r for p in ledger.state.producers.values() for r in p.redo]
    ledger.segments.forget_verified()
    for name, partitions in topics:
        for partition in partitions:
            for segment in list(partition.segments):
                tp = TopicPartition(name, partition.number)
                try:
                    found.damages += _of_segment(ledger, tp, partition, segment, found)
                except FileNotFoundError:
                    ledger.refresh()
                    if _is_named(ledger, name, partition, segment):  # else compacted or dropped meanwhile
                        whole = Stored(segment.path, 0, segment.length, segment.base, segment.end_offset)
                        found.damages.append(_damage(tp, partition, whole, MISSING))
                advance(segment.length)
    for each in redo:
        try:
            read_redo(files, ledger.directory, each)
        except LogCorrupt as e:
            found.other.append(str(e))
    return found


def _is_named(ledger: Ledger, topic: str, partition: Partition, segment: Segment) -> bool:
    with ledger.lock:
        known = ledger.state.topics.get(topic)
        return known is not None and partition in known.partitions and segment in partition.segments


def _of_segment(
    ledger: Ledger, tp: TopicPartition, partition: Partition, segment: Segment, found: Verified
) -> Iterator[Damage]:
    found.segments += 1
    with ledger.lock:
        try:
            if not segment.covers(segment.base):
                ledger.segments.load_index(segment)
        except BatchDamaged as e:  # what lies before the batches that are known cannot be found
            known = segment.bases[0] if segment.bases else segment.end_offset
            first = Stored(e.path, e.start, segment.length, segment.base, known)
            yield _damage(tp, partition, first, e.problem)
        stored = [segment.locate(base) for base in segment.bases]
    for each in stored:
        found.batches += 1
        found.bytes += each.stop - each.start
        try:
            ledger.segments.read(each)
        except BatchDamaged as e:
            yield _damage(tp, partition, each, e.problem)


def _damage(tp: TopicPartition, partition: Partition, stored: Stored, problem: str) -> Damage:
    skipped = partition.after_skipped(stored.base) >= stored.end_offset
    return Damage(tp, stored.path, stored.start, stored.base, stored.end_offset, problem, skipped)

"""Positions in a log as Spark's sources keep them: {"topic": {"0": 17}}, the next offset per partition. No pyspark.

The same form as that of Spark's Kafka source, so checkpoints of both read alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.runtime.batch import Ints
from flowql.runtime.errors import LogError, OffsetOutOfRange, PartitionsChanged, TopicMissing
from flowql.runtime.log.base import EARLIEST, LATEST, Log, RawBatch, TopicPartition
from flowql.runtime.spark.log_address import Address, shared_log

Offsets = dict[str, dict[str, int]]
READ_BYTES = 16 << 20  # per batch: Spark's Java side keeps a whole one


@dataclass(frozen=True, slots=True)
class LogRange:
    """Offsets `start` (inclusive) to `end` (exclusive) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def partition_offsets(positions: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The same by partition."""
    return {TopicPartition(t, int(p)): offset for t, at in positions.items() for p, offset in at.items()}


def begins(address: Address, topics: Collection[str]) -> Offsets:
    """The first offset of each partition of these topics that is still there."""
    return bounds(shared_log(address), topics)[0]


def ends(address: Address, topics: Collection[str]) -> Offsets:
    """The offset after the last committed record of each partition, as of one moment."""
    return bounds(shared_log(address), topics)[1]


def bounds(log: Log, topics: Collection[str]) -> tuple[Offsets, Offsets]:
    """First offsets and ends of all partitions of the topics. TopicMissing."""
    admin = log.admin()
    counts = admin.partition_counts(topics)
    for topic in topics:
        if topic not in counts:
            raise TopicMissing(f"there is no topic {topic}")
    tps = [TopicPartition(topic, p) for topic in topics for p in range(counts[topic])]
    first, after = admin.begin_offsets(tps), admin.end_offsets(tps)
    for tp in tps:
        if tp not in first or tp not in after:
            raise TopicMissing(f"there is no topic partition {tp}")
    return _by_topic(topics, first), _by_topic(topics, after)


def begun_at(first: Offsets, after: Offsets, starts: Mapping[str, Mapping[str, int]]) -> Offsets:
    """`starts` where they are within a topic, else its begin."""
    found: Offsets = {}
    for topic, at in first.items():
        wanted = starts.get(topic, {})
        found[topic] = {p: max(b, w) if (w := wanted.get(p, b)) <= after[topic][p] else b for p, b in at.items()}
    return found


def capped(after: Offsets, ends: Mapping[str, Mapping[str, int]]) -> Offsets:
    """`after`, but of topics in `ends` no further than there."""
    return {t: {p: min(end, ends.get(t, {}).get(p, end)) for p, end in at.items()} for t, at in after.items()}


def _by_topic(topics: Collection[str], offsets: Mapping[TopicPartition, int]) -> Offsets:
    found: Offsets = {topic: {} for topic in topics}
    for tp, offset in offsets.items():
        found[tp.topic][str(tp.partition)] = offset
    return found


def resolve(log: Log, topics: Collection[str], given: Mapping[str, Mapping[str, int]], default: int) -> Offsets:
    """Positions for all partitions: those given (EARLIEST and LATEST allowed), else `default`, which is one of the two.

    LogError for a topic or partition that is not there, or a position outside the log.
    """
    first, after = bounds(log, topics)
    for topic, positions in given.items():
        if topic not in first:
            raise LogError(f"offsets are given for topic {topic}, which is not read ({', '.join(sorted(topics))})")
        if unknown := sorted(positions.keys() - first[topic].keys()):
            raise LogError(f"topic {topic} has {len(first[topic])} partitions, none with number {unknown[0]}")
    symbols = {EARLIEST: first, LATEST: after}
    resolved: Offsets = {}
    for topic in topics:
        resolved[topic] = {}
        for p in first[topic]:
            offset = given.get(topic, {}).get(p, default)
            resolved[topic][p] = symbols[offset][topic][p] if offset in symbols else offset
    _check_within(resolved, first, after)
    return resolved


def check_positions(log: Log, topics: Collection[str], positions: Offsets) -> Offsets:
    """Ends of the topics, after a check that a query can go on at `positions` (from its checkpoint)."""
    first, after = bounds(log, topics)
    if positions.keys() != first.keys():
        raise LogError(
            f"the checkpoint has positions of topics {', '.join(sorted(positions))}, "
            f"but {', '.join(sorted(first))} are read: start the query from a new checkpoint"
        )
    for topic, at in positions.items():
        if len(at) != len(first[topic]):
            raise PartitionsChanged(
                f"{topic} has {len(first[topic])} partitions, and had {len(at)} when the query began: keys may be in other partitions than their state; "
                "--rebuild  with flowql run or flowql deploy recomputes it",
                len(first[topic]),
            )
    _check_within(positions, first, after)
    return after


def _check_within(positions: Offsets, first: Offsets, after: Offsets) -> None:
    for topic, at in positions.items():
        for p, offset in at.items():
            if offset < first[topic][p]:
                raise OffsetOutOfRange(
                    f"{topic}-{p}: offset {offset} is below the log's start {first[topic][p]}: "
                    f"records {offset} to {first[topic][p] - 1} are gone"
                )
            if offset > after[topic][p]:
                raise OffsetOutOfRange(
                    f"{topic}-{p}: offset {offset} is above the log's end {after[topic][p]}: the topic was created again"
                )


def limited(start: Offsets, end: Offsets, rows: int) -> Offsets:
    """`end`, but at most about `rows` records after `start`, shared between partitions by what each has left.

    By share, so that partitions and topics that were filled side by side are read side by side: less is buffered to merge them.
    Every partition with records moves by at least one. A rest of an eighth goes along: it would take a micro-batch of its own.
    """
    left = {(t, p): end[t][p] - offset for t, at in start.items() for p, offset in at.items()}
    total = sum(left.values())
    if total <= rows + rows // 8:
        return end
    return {
        t: {
            p: offset + min(left[t, p], max(1, left[t, p] * rows // total)) if left[t, p] else offset
            for p, offset in at.items()
        }
        for t, at in start.items()
    }


def aligned(log: Log, start: Offsets, end: Offsets, rows: int) -> Offsets:
    """As `limited`, but all partitions up to one time: what merges them by the times of their records sees those that follow as later ones.

    A record counts from the greatest time in its partition so far, as it does where partitions are merged (`flowql.runtime.task.merge`).
    """
    starts, ends = partition_offsets(start), partition_offsets(end)
    left = {tp: ends[tp] - at for tp, at in starts.items() if ends[tp] > at}
    total = sum(left.values())
    if total <= rows + rows // 8:
        return end
    heads = {tp: _head(log, tp, starts[tp], ends[tp], max(1, rows // len(left))) for tp in left}
    open_ = [int(times[-1]) for tp, (_, times, after) in heads.items() if after < ends[tp]]
    until = min(open_, default=None)
    found: Offsets = {t: dict(at) for t, at in start.items()}
    for tp, (offsets, times, after) in heads.items():
        taken = len(times) if until is None else int(times.searchsorted(until))
        found[tp.topic][str(tp.partition)] = after if taken == len(times) else int(offsets[taken])
    # As many records of one time as that: all of it is read at once.
    return aligned(log, start, end, rows * 2) if found == start else found


def _head(log: Log, tp: TopicPartition, start: int, end: int, rows: int) -> tuple[Ints, Ints, int]:
    """About `rows` records from an offset on: their offsets, their times as they count, and where the next ones begin."""
    at, offsets, times = start, list[Ints](), list[Ints]()
    while at < end and sum(map(len, times)) < rows:
        after = min(end, at + rows)
        for raw in read_range(log, LogRange(tp.topic, tp.partition, at, after), rows):
            offsets.append(raw.records.column("offset").to_numpy())
            times.append(raw.records.column("timestamp").to_numpy())
        at = after
    none = np.empty(0, np.int64)
    return np.concatenate([none, *offsets]), np.maximum.accumulate(np.concatenate([none, *times])), at


def ranges(start: Offsets, end: Offsets) -> list[LogRange]:
    """The non-empty ranges between two positions, one per partition."""
    wanted = (LogRange(topic, int(p), first, end[topic][p]) for topic, at in start.items() for p, first in at.items())
    return [r for r in wanted if r.start < r.end]


def up_to_now(log: Log, wanted: LogRange) -> LogRange:
    """From the beginning of the partition, which a compaction may have moved, to its end now."""
    admin, tp = log.admin(), wanted.tp
    return replace(wanted, start=admin.begin_offset(tp), end=admin.end_offsets([tp])[tp])


def read_range(log: Log, wanted: LogRange, chunk_rows: int) -> Iterator[RawBatch]:
    """The records of a range, in order, in batches of at most `chunk_rows`.

    The range was promised by whoever planned it: OffsetOutOfRange if its end is not there.
    """
    reader = log.reader(wanted.tp, wanted.start)
    try:
        while reader.position < wanted.end:
            raw = reader.read(min(chunk_rows, wanted.end - reader.position), READ_BYTES)
            if raw is None:
                if reader.position >= wanted.end:  # what was left is no record
                    return
                raise OffsetOutOfRange(f"{wanted.tp}: records {reader.position} to {wanted.end - 1} are not in the log")
            if raw.next_offset > wanted.end:
                kept = _rows_below(raw.records, wanted.end)
                if kept:
                    yield RawBatch(raw.tp, raw.records.slice(0, kept), wanted.end, raw.size_bytes)
                return
            yield raw
    finally:
        reader.close()


def _rows_below(records: pa.RecordBatch, end: int) -> int:
    return int(pc.sum(pc.less(records.column("offset"), end)).as_py())


def topic_list(text: str) -> Sequence[str]:
    """Topics from a comma list, in order, each once."""
    topics = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not topics:
        raise LogError("option topics names no topic")
    return topics

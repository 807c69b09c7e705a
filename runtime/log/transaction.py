"""The records that a producer collects between begin and commit, before a log makes it durable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from flowql.runtime.errors import EndMoved, LogError, PartitionsDiffer
from flowql.runtime.log.base import PRODUCE_SCHEMA, Position, TopicPartition

# Batches of a partition below this are joined into one, so that readers and the vector kernels see large batches;
# above it a copy costs more than it saves. A joined batch stays below the second pair of limits.
_SMALL_ROWS = 4_096
_JOINED_ROWS_MAX = 65_536
_JOINED_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True)
class Shape:
    """The new number of partitions of a topic, all of which begin at `offset`. See `Producer.repartition`."""

    partitions: int
    offset: int
    keeps: bool


class Transaction:
    """References to the records, positions and redo payload of one transaction; nothing is copied until commit.

    starts: the new first offset of partitions whose older records it replaces. ends: where partitions must end before it.
    sources: whose records follow in a partition, ahead of its own. shapes: of topics that it repartitions. counts: the numbers of partitions that its records were partitioned by.
    """

    __slots__ = ("counts", "ends", "positions", "records", "redo", "shapes", "sources", "starts")

    def __init__(self) -> None:
        self.records: dict[TopicPartition, list[pa.RecordBatch]] = {}
        self.positions: dict[tuple[str, TopicPartition], Position] = {}
        self.starts: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.sources: dict[TopicPartition, TopicPartition] = {}
        self.shapes: dict[str, Shape] = {}
        self.counts: dict[str, int] = {}
        self.redo: bytes | None = None

    def add(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        if records.num_rows:
            self.records.setdefault(tp, []).append(conform(records))

    def add_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        self.positions.update({(group, tp): p for tp, p in positions.items()})

    def batches(self) -> list[tuple[TopicPartition, list[pa.RecordBatch]]]:
        """Per partition the batches to store, small ones joined.

        Partitions with few records are joined in one go, of which each gets a slice: a commit of many partitions has thousands of small batches.
        """
        found: dict[TopicPartition, list[pa.RecordBatch]] = {}
        few: list[tuple[TopicPartition, list[pa.RecordBatch]]] = []
        rows = 0
        for tp, batches in self.records.items():
            mine = sum([b.num_rows for b in batches])
            if len(batches) == 1 or mine >= _SMALL_ROWS:
                found[tp] = join_small(batches)
                continue
            if rows + mine > _JOINED_ROWS_MAX:
                found |= _joined_in_one_go(few)
                few, rows = [], 0
            few.append((tp, batches))
            rows += mine
        found |= _joined_in_one_go(few)
        return [(tp, found[tp]) for tp in self.records]


def conform(records: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with PRODUCE_SCHEMA; LogError if a column differs or a timestamp is missing."""
    if not records.schema.equals(PRODUCE_SCHEMA, check_metadata=True):
        if records.schema.names != PRODUCE_SCHEMA.names or records.schema.types != PRODUCE_SCHEMA.types:
            raise LogError(f"records have columns {records.schema.to_string()}, expected {PRODUCE_SCHEMA.to_string()}")
        records = pa.RecordBatch.from_arrays(records.columns, schema=PRODUCE_SCHEMA)
    if records.column(0).null_count:
        raise LogError("a record has no timestamp")
    return records


def join_small(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same rows in fewer batches."""
    if len(batches) == 1:
        return batches
    joined: list[pa.RecordBatch] = []
    run: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        small = batch.num_rows < _SMALL_ROWS
        nbytes = batch.nbytes if small else 0
        if run and (not small or rows + batch.num_rows > _JOINED_ROWS_MAX or size + nbytes > _JOINED_BYTES_MAX):
            joined.append(_concat(run))
            run, rows, size = [], 0, 0
        if small:
            run.append(batch)
            rows, size = rows + batch.num_rows, size + nbytes
        else:
            joined.append(batch)
    if run:
        joined.append(_concat(run))
    return joined


def _joined_in_one_go(
    few: Sequence[tuple[TopicPartition, list[pa.RecordBatch]]],
) -> dict[TopicPartition, list[pa.RecordBatch]]:
    """One batch for each partition, unless they are too large together: then each partition is joined alone."""
    if not few:
        return {}
    table = pa.Table.from_batches([b for _, batches in few for b in batches])
    if table.nbytes > _JOINED_BYTES_MAX:
        return {tp: join_small(batches) for tp, batches in few}
    (whole,) = table.combine_chunks().to_batches()
    found, start = dict[TopicPartition, list[pa.RecordBatch]](), 0
    for tp, batches in few:
        rows = sum([b.num_rows for b in batches])
        found[tp], start = [whole.slice(start, rows)], start + rows
    return found


def _concat(run: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(run) == 1:
        return run[0]
    (joined,) = pa.Table.from_batches(run).combine_chunks().to_batches()
    return joined


def check_start(tp: TopicPartition, offset: int, end: int) -> None:
    """Whether the records below `offset` may go; LogError if there are not so many."""
    if offset > end:
        raise LogError(f"{tp}: {offset} is above the end {end}")


def check_end(tp: TopicPartition, expected: int, end: int) -> None:
    """EndMoved unless the partition ends where the transaction expects it to."""
    if expected != end:
        raise EndMoved(
            f"{tp} ends at {end}, not at {expected}: another process has written to it while its records were replaced"
        )


def check_sources(transaction: Transaction) -> None:
    """LogError if the records of a partition are to follow in another one, and the transaction changes that partition, too."""
    changed = {tp.topic for tp in (*transaction.records, *transaction.starts, *transaction.sources)}
    for tp, source in transaction.sources.items():
        if source.topic in changed | transaction.shapes.keys():
            raise LogError(f"{tp}: the records of {source} cannot follow, as this transaction changes {source.topic}")


def check_count(topic: str, expected: int, partitions: int) -> None:
    """PartitionsDiffer unless the topic has as many partitions as the records of the transaction were partitioned by."""
    if expected != partitions:
        raise PartitionsDiffer(
            f"topic {topic} has {partitions} partitions by now, not {expected}: these records were partitioned by the old number; "
            "begin again with a new producer"
        )


def check_shape(topic: str, shape: Shape, ends: Mapping[TopicPartition, int]) -> None:
    """LogError unless the new partitions begin above all the old ones."""
    if shape.partitions < 1:
        raise LogError(f"topic {topic}: {shape.partitions} partitions")
    last = max(ends.values())
    if shape.offset <= last:
        raise LogError(
            f"topic {topic}: new partitions cannot begin at {shape.offset}, because an old one ends at {last}"
        )


def max_timestamp(records: pa.RecordBatch) -> int:
    return int(records.column(0).to_numpy().max())

"""Changes of a commit to whole partitions: records that take the place of others, topics with another number of partitions."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from flowql.runtime.log.base import Producer, TopicPartition
from flowql.runtime.log.clients import naming


@dataclass(frozen=True, slots=True)
class Replacement:
    """Records that take the place of others in a partition, at the swap of a generation.

    end: where the partition ends before. drops: whether all records before it go; else these follow them. They are all records of `source`
    (of which the first offset and the end are known), whose first offset becomes `end`, or else `batches`, of PRODUCE_SCHEMA, written as
    they are. is_new: the partition is one of a `PartitionChange`.
    """

    tp: TopicPartition
    end: int
    drops: bool
    batches: tuple[pa.RecordBatch, ...] = ()
    source: MovedRecords | None = None
    is_new: bool = False

    @property
    def new_end(self) -> int:
        if self.source is not None:
            return self.end + self.source.end - self.source.begin
        return self.end + sum(b.num_rows for b in self.batches)


@dataclass(frozen=True, slots=True)
class MovedRecords:
    """A partition whose records follow in another one, and where it begins and ends."""

    tp: TopicPartition
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """Another number of partitions for a topic, which begin at `offset`. ends: where the old ones end, if that matters.

    keeps: its records are moved by their keys; else `Replacement`s take their place.
    """

    topic: str
    partitions: int
    offset: int
    keeps: bool = False
    ends: tuple[tuple[TopicPartition, int], ...] = ()


def reshape_topic(producer: Producer, r: PartitionChange) -> None:
    """Into the transaction that is under way."""
    with naming(TopicPartition(r.topic, 0)):
        producer.repartition(r.topic, r.partitions, r.offset, keeps=r.keeps)
        for tp, end in r.ends:
            producer.expect_end(tp, end)


def replace_records(producer: Producer, r: Replacement) -> None:
    """Into the transaction that is under way. EndMoved, at its commit, if another program has written to the partition."""
    with naming(r.tp):
        if not r.is_new:
            producer.expect_end(r.tp, r.end)
        if r.drops:
            producer.drop_before(r.tp, r.end)
        if r.source is not None:
            producer.expect_end(r.source.tp, r.source.end)
            producer.append_from(r.tp, r.source.tp)
        for batch in r.batches:
            producer.send(r.tp, batch)

"""What a commit does to whole partitions: records that take the place of others, topics with another number of partitions."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from flowql.runtime.log.base import Producer, TopicPartition
from flowql.runtime.log.clients import naming


@dataclass(frozen=True, slots=True)
class Replacement:
    """Records that take the place of others in a partition, at the swap of a generation.

    end: where the partition ends before. drops: whether all records before it go; else these follow them. batches: of PRODUCE_SCHEMA,
    written as they are: the record n of them all has the offset end + n. is_new: the partition is one of a `Reshape`.
    """

    tp: TopicPartition
    end: int
    drops: bool
    batches: tuple[pa.RecordBatch, ...]
    is_new: bool = False

    @property
    def new_end(self) -> int:
        return self.end + sum(b.num_rows for b in self.batches)


@dataclass(frozen=True, slots=True)
class Reshape:
    """Another number of partitions for a topic, which begin at `offset`. ends: where the old ones end, if that matters.

    keeps: its records are moved by their keys; else `Replacement`s take their place.
    """

    topic: str
    partitions: int
    offset: int
    keeps: bool = False
    ends: tuple[tuple[TopicPartition, int], ...] = ()


def reshape_topic(producer: Producer, r: Reshape) -> None:
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
        for batch in r.batches:
            producer.send(r.tp, batch)

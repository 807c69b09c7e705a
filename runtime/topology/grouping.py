"""Which partitions are read by one task: the interface of KIP-28's `PartitionGrouper`, and the grouping that there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from flowql.runtime.log.base import TopicPartition


class UnevenPartitions(ValueError):
    """Topics whose partitions cannot be grouped."""


class PartitionGrouper(Protocol):
    """Groups partitions: each group is read by one task, whose number is its place and the partition of its changelogs and repartitions.

    A partition is in one group alone, and in the same one at every call for the same topics: the state of its keys is there.
    """

    def group(self, partitions: Mapping[str, int]) -> Sequence[frozenset[TopicPartition]]:
        """The groups of topics with these numbers of partitions. Raises UnevenPartitions."""
        ...


class CoPartitioned:
    """Partitions with the same number in all topics. Rows of one key meet, as producers place equal keys in equal partitions."""

    def group(self, partitions: Mapping[str, int]) -> Sequence[frozenset[TopicPartition]]:
        if len(set(partitions.values())) > 1:
            raise UnevenPartitions(", ".join(f"{t} has {n}" for t, n in partitions.items()))
        count = next(iter(partitions.values()), 0)
        return [frozenset(TopicPartition(topic, n) for topic in partitions) for n in range(count)]


GROUPER: PartitionGrouper = CoPartitioned()

"""Which partitions are read by one task."""

from __future__ import annotations

import pytest

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.topology.grouping import CoPartitioned, UnevenPartitions


def test_every_partition_is_in_the_group_of_its_number() -> None:
    groups = CoPartitioned().group({"orders": 3, "users": 3})
    assert groups == [{TopicPartition("orders", n), TopicPartition("users", n)} for n in range(3)]


def test_nothing_is_read_by_no_task() -> None:
    assert CoPartitioned().group({}) == []


def test_topics_of_different_size_are_named() -> None:
    with pytest.raises(UnevenPartitions, match="orders has 3, users has 2"):
        CoPartitioned().group({"orders": 3, "users": 2})

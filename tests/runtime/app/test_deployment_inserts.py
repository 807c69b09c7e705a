"""Rows of INSERT VALUES after the record of what was deployed is lost: they are not written a second time."""

from __future__ import annotations

import pytest

from flowql.compiler.plan.deployed import Deployed
from flowql.runtime.app.deployment import inserted
from flowql.runtime.errors import LogError
from flowql.runtime.log.base import TopicPartition
from tests.runtime.app.harness import InstanceHarness

SQL = """
CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE STREAM T (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='t', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=2);
"""
ROWS = "INSERT INTO S (K, V) VALUES (1, 10); INSERT INTO S (K, V) VALUES (2, 20);"
COUNTS = {"s": 2, "t": 2}


def rows(world: InstanceHarness, deployed: Deployed, after: Deployed, **planned: int) -> int:
    """How many are written."""
    world.instance.deployed = deployed
    return sum(batch.num_rows for _, batch in inserted(world.instance, after, planned))


def test_rows_that_may_be_there_are_refused_where_nobody_knows() -> None:
    world = InstanceHarness(SQL + ROWS)
    after = world.instance.deployed
    assert len(world.values("s")) == 2
    assert rows(world, after, after, **COUNTS) == 0, "they are known"
    with pytest.raises(
        LogError, match="rows of INSERT VALUES were written to s by a deployment whose record is damaged"
    ):
        rows(world, Deployed(forgotten=True), after, **COUNTS)
    assert rows(world, Deployed(), after, **COUNTS) == 2


def test_rows_into_a_topic_that_only_others_have_written_are_new() -> None:
    world = InstanceHarness(SQL + ROWS)
    after = world.instance.deployed
    fresh = InstanceHarness(SQL)
    fresh.send("s", [(1, {"V": 10}, 0), (2, {"V": 10}, 0)])
    assert rows(fresh, Deployed(forgotten=True), after, **COUNTS) == 2


def test_a_topic_is_looked_at_as_far_as_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    world = InstanceHarness(SQL + ROWS)
    after, asked = world.instance.deployed, list[TopicPartition]()

    def writers(tp: TopicPartition) -> None:
        """Brokers do not say."""
        asked.append(tp)

    monkeypatch.setattr(world.log, "writers", writers)
    assert rows(world, Deployed(forgotten=True), after, **COUNTS) == 2
    assert asked == [TopicPartition("s", 0), TopicPartition("s", 1)]
    rows(world, Deployed(forgotten=True), after)
    assert len(asked) == 2

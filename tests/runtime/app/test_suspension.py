"""Which readers of a partition stop when it cannot be read, by where they are."""

from __future__ import annotations

import pytest

from flowql.runtime.app.query_state import FAILED, RUNNING, STOPPED, QueryState
from flowql.runtime.app.suspension import unreadable
from flowql.runtime.errors import LogDenied, LogError, LogUnavailable, OffsetAboveEnd, OffsetOutOfRange, TopicMissing
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.topology.query import replaced
from tests.runtime.app.harness import InstanceHarness

S = TopicPartition("s", 0)
SQL = """
CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM T (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='t', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM A AS SELECT K, V FROM S;
CREATE STREAM B AS SELECT K, V FROM S;
CREATE STREAM C AS SELECT K, V FROM S;
CREATE STREAM D AS SELECT K, V FROM T;
"""


class Away(MemoryLog):
    """Does not answer while it is `away`."""

    away = False

    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        if self.away:
            raise LogUnavailable("no answer")
        return super().bounds(tp)


def states(world: InstanceHarness, at: tuple[int, int, int], error: LogError) -> list[QueryState]:
    """Of A, B, C, which read s-0 from these offsets on, and of D, which reads another topic, after the error."""
    tasks = [task for q in "ABC" for task in world.instance.queries[f"CSAS_{q}"].built.tasks]
    inputs = [i for task in tasks for i in task.logs.values() if i.tp == S]
    assert len(inputs) == 3
    for i, offset in zip(inputs, at, strict=True):
        i.reset(offset)
    unreadable(world.instance, S, error)
    return [world.instance.query_states.of(f"CSAS_{q}").state for q in "ABCD"]


@pytest.fixture
def world() -> InstanceHarness:
    """Ten records in s-0, of which five are gone."""
    world = InstanceHarness(SQL, log=Away())
    world.producer.begin()
    world.producer.send(S, world.encode([(1, {"V": v}, v) for v in range(10)]))
    world.producer.commit()
    world.settle()
    world.log.drop_before(S, 5)
    return world


def test_who_reads_on_at_the_end_goes_on_and_who_is_beyond_stops(world: InstanceHarness) -> None:
    assert states(world, (9, 10, 11), OffsetAboveEnd("made anew")) == [RUNNING, RUNNING, STOPPED, RUNNING]


def test_who_is_before_the_gap_stops(world: InstanceHarness) -> None:
    assert states(world, (4, 5, 6), OffsetOutOfRange("gone")) == [STOPPED, RUNNING, RUNNING, RUNNING]


@pytest.mark.parametrize("error", [TopicMissing("deleted"), LogError("damaged")])
def test_of_what_is_gone_or_damaged_all_readers_stop(world: InstanceHarness, error: LogError) -> None:
    assert states(world, (5, 10, 11), error) == [STOPPED, STOPPED, STOPPED, RUNNING]
    known = {i for q in world.instance.polling._inputs.values() for i in map(id, q)}
    stopped = [i for q in "ABC" for t in world.instance.queries[f"CSAS_{q}"].built.tasks for i in t.logs.values()]
    assert not known & set(map(id, stopped)), "of the other partition, too: a query stops as a whole"
    assert "CSAS_A" in world.instance.query_states.having(STOPPED)


def test_below_no_start_that_is_known_all_readers_stop() -> None:
    world = InstanceHarness(SQL)
    assert states(world, (0, 1, 2), OffsetOutOfRange("gone")) == [STOPPED, STOPPED, STOPPED, RUNNING]


def test_who_began_with_the_topic_that_is_there_goes_on(world: InstanceHarness) -> None:
    tasks = [t for q in "ABC" for t in world.instance.queries[f"CSAS_{q}"].built.tasks]
    for i, known in zip([i for t in tasks for i in t.logs.values() if i.tp == S], ("old", "new", ""), strict=True):
        i.topic_id = known
    assert states(world, (5, 6, 7), replaced(S, "new")) == [STOPPED, RUNNING, RUNNING, RUNNING]


def test_what_may_not_be_read_is_tried_again_by_all_readers_of_the_topic(world: InstanceHarness) -> None:
    assert states(world, (5, 10, 11), LogDenied("not allowed")) == [FAILED, FAILED, FAILED, RUNNING]
    assert "LogDenied: not allowed" in world.instance.query_states.of("CSAS_A").reason


@pytest.mark.parametrize("error", [OffsetAboveEnd("made anew"), OffsetOutOfRange("gone")])
def test_while_brokers_are_away_nobody_stops(world: InstanceHarness, error: LogError) -> None:
    assert isinstance(world.log, Away)
    world.log.away = True
    assert states(world, (0, 10, 11), error) == [RUNNING] * 4


def test_a_query_that_has_stopped_keeps_its_reason(world: InstanceHarness) -> None:
    states(world, (5, 10, 11), TopicMissing("the first"))
    states(world, (5, 10, 11), LogDenied("the second"))
    assert "the first" in world.instance.query_states.of("CSAS_A").reason

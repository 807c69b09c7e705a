"""The main consumer: which of its partitions it reads next, how much of them, and when it raises what is wrong with one."""

from __future__ import annotations

import pytest

from flowql.runtime.errors import LogDenied, LogError, LogUnavailable
from flowql.runtime.log.base import EARLIEST, LATEST, TopicPartition
from flowql.runtime.log.kafka.log import KafkaConsumer
from flowql.runtime.log.kafka.reading import SharedReading
from tests.runtime.log.kafka.test_reading import A0, A1, B0, Fetches, records, shared

__all__ = ["shared"]  # the fixture


def consumer_of(shared: SharedReading, client: Fetches) -> KafkaConsumer:
    return KafkaConsumer(shared.admin, lambda: client, "c")  # type: ignore[arg-type,return-value]


def polled(consumer: KafkaConsumer, most: int = 100, size: int = 1 << 20) -> list[tuple[TopicPartition, list[int]]]:
    return [(b.tp, b.records.column(0).to_pylist()) for b in consumer.poll(most, size)]


def test_partitions_take_turns_and_a_poll_ends_at_half_of_a_limit(shared: SharedReading) -> None:
    client = Fetches()
    consumer = consumer_of(shared, client)
    consumer.assign({A0: 2, A1: EARLIEST, B0: LATEST})
    assert client.told("start") == [(A0, 2, False), (A1, 2, False), (B0, 10, False)]
    client.waiting = {tp: [records(tp, 2, 10)] for tp in (A0, A1)} | {B0: [records(B0, 10, 12)]}
    assert polled(consumer, 5) == [(A0, [2, 3, 4, 5, 6])]
    assert polled(consumer, 6) == [(A1, [2, 3, 4, 5, 6, 7])]
    assert polled(consumer, 4) == [(B0, [10, 11]), (A0, [7, 8])]
    assert polled(consumer, 100) == [(A1, [8, 9]), (A0, [9])]
    assert polled(consumer, 100) == []


def test_a_paused_partition_keeps_what_was_fetched_until_it_is_resumed(shared: SharedReading) -> None:
    client = Fetches()
    consumer = consumer_of(shared, client)
    assert polled(consumer) == []
    consumer.assign({A0: 2, A1: 2})
    consumer.pause([A0])
    client.waiting = {A0: [records(A0, 2, 4)], A1: [records(A1, 2, 3)]}
    assert polled(consumer) == [(A1, [2])]
    consumer.resume([A0])
    assert polled(consumer) == [(A0, [2, 3])]
    for call in (lambda: consumer.pause([B0]), lambda: consumer.seek(B0, 1)):
        with pytest.raises(LogError, match="B-0 is not assigned to consumer c"):
            call()
    consumer.pause([A0])
    consumer.assign({A0: 4})
    assert client.told("stop")[-1] == [A1]
    assert client.told("start") == [(A0, 2, False), (A1, 2, False)], "what is at its place goes on"
    client.waiting = {A0: [records(A0, 4, 5)]}
    assert polled(consumer) == [(A0, [4])], "none is paused after an assignment"
    consumer.seek(A0, EARLIEST)
    assert client.told("start")[2:] == [(A0, 2, False)]
    consumer.close()
    assert client.closed
    assert polled(consumer) == []


def test_an_error_is_raised_when_nothing_is_lost_with_it(shared: SharedReading) -> None:
    client = Fetches()
    consumer = consumer_of(shared, client)
    consumer.assign({A0: 2, A1: 2})
    client.waiting = {A0: [records(A0, 2, 3), records(A0, 3, 4)]}
    client.cursors[A1].error = LogDenied("no")
    assert polled(consumer) == [(A0, [2])]
    with pytest.raises(LogDenied):
        polled(consumer)
    assert polled(consumer) == [(A0, [3])], "the other one gets its turn"
    client.cursors[A1].error, client.cursors[A1].trouble = None, LogUnavailable("not yet")
    with pytest.raises(LogUnavailable):
        polled(consumer)
    assert polled(consumer) == []


def test_a_partition_whose_brokers_are_away_is_read_from_an_offset_that_is_known(shared: SharedReading) -> None:
    client = Fetches()
    consumer = consumer_of(shared, client)
    shared.admin.refusal = LogUnavailable("away")  # type: ignore[attr-defined]
    consumer.assign({A0: 0})
    assert client.told("start") == [(A0, 0, False)]
    shared.admin.refusal = LogUnavailable("away")  # type: ignore[attr-defined]
    with pytest.raises(LogUnavailable) as raised:
        consumer.assign({A1: EARLIEST})
    assert raised.value.partition == A1
    shared.admin.refusal = LogDenied("no")  # type: ignore[attr-defined]
    with pytest.raises(LogDenied):
        consumer.assign({A1: 5})

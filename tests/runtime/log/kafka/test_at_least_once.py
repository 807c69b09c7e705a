"""A commit without transactions: each step is there before the next begins, and nothing is counted that is not there."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from flowql.runtime.errors import Fenced, LogError, LogUnavailable, RecordRefused
from flowql.runtime.log.base import Position, TopicPartition
from flowql.runtime.log.kafka import producer as kafka_producer
from flowql.runtime.log.kafka.at_least_once import AtLeastOnceProducer
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.producer import sequence_of, sequence_partition
from tests.runtime.log.records import batch

A0, LAST = TopicPartition("A", 0), TopicPartition("app-metadata", 0)
COUNTER = sequence_partition("app")


class Groups:
    def __init__(self, steps):
        self.sequence, self.steps = 4, steps

    def committed_positions(self, group, tps):
        return {COUNTER: Position(0, f"seq={self.sequence}")}

    def commit_positions(self, group, positions):
        self.steps.append(("positions", sorted(positions)))
        self.sequence = sequence_of(positions[COUNTER]) if COUNTER in positions else self.sequence
        assert positions.get(COUNTER, Position(0)).offset == 0, (
            "its topic has no records: Kafka's tools would show a negative lag"
        )


class Client:
    """Says in which order it is used. left: what a flush does not get rid of."""

    def __init__(self, config, logger=None):
        self.on_delivery, self.steps, self.left, self.undelivered = config["on_delivery"], [], 0, None
        Client.made = self

    def produce(self, topic, *_):
        self.steps.append(topic)

    def flush(self, seconds):
        self.steps.append("flush")
        if self.undelivered is not None:
            message = type("Message", (), {"topic": lambda self: "A", "partition": lambda self: 0})()
            self.on_delivery(KafkaError(self.undelivered), message)
        return self.left

    def poll(self, seconds): ...
    def purge(self, **_): ...


class Admin:
    made = ()

    def create_topics(self, topics):
        ((name, new),) = topics.items()
        Admin.made = (name, new.partitions, new.config)

    def check_partition(self, tp): ...
    def forget(self, topic): ...


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr(kafka_producer, "ProducerClient", Client)
    groups = Groups([])
    producer = AtLeastOnceProducer(Connection("nowhere:1"), Admin(), "app", COUNTER, groups, LAST.topic)
    groups.steps = Client.made.steps
    producer.begin()
    producer.send(LAST, batch([b"task"]))
    producer.send(A0, batch([b"1"]))
    producer.send_positions("app", {A0: Position(7)})
    return producer, Client.made, groups


def test_what_is_counted_has_one_partition_and_calls_belong_to_a_commit(made):
    assert Admin.made == (COUNTER.topic, 1, {"cleanup.policy": "compact"})
    producer, client, _ = made
    with pytest.raises(LogError, match="a commit is open already"):
        producer.begin()
    producer.abort()
    for call in (
        producer.abort,
        producer.commit,
        lambda: producer.send(A0, batch([b"1"])),
        lambda: producer.send_positions("app", {A0: Position(7)}),
    ):
        with pytest.raises(LogError, match="no commit is open"):
            call()
    producer.begin()
    client.steps.clear()
    assert producer.commit() == 5
    assert client.steps == ["flush", "flush", ("positions", [COUNTER])], "nothing is left of what was aborted"
    producer.close()
    assert producer.closed
    with pytest.raises(LogError, match="no commit is open"):
        producer.commit()


def test_positions_come_after_tasks_and_tasks_after_records(made):
    producer, client, _ = made
    assert producer.commit() == 5
    assert client.steps == ["A", "flush", LAST.topic, "flush", ("positions", [A0, COUNTER])]
    producer.begin()
    assert producer.commit() == 6


def test_a_commit_is_counted_after_the_positions_of_all_groups(made):
    producer, client, _ = made
    for group in ("a-group", "z-group"):
        producer.send_positions(group, {A0: Position(7)})
    producer.commit()
    assert client.steps[-3:] == [("positions", [A0]), ("positions", [A0]), ("positions", [A0, COUNTER])]


def test_a_record_that_is_not_taken_moves_no_position(made):
    producer, client, groups = made
    client.undelivered = KafkaError.MSG_SIZE_TOO_LARGE
    with pytest.raises(RecordRefused) as raised:
        producer.commit()
    assert raised.value.partition == A0
    assert (client.steps, groups.sequence) == (["A", "flush"], 4)


def test_brokers_that_do_not_answer_move_no_position(made):
    producer, client, groups = made
    client.left = 1
    with pytest.raises(LogUnavailable):
        producer.commit()
    assert (client.steps, groups.sequence) == (["A", "flush"], 4)


def test_another_instance_is_noticed_before_anything_is_counted(made):
    producer, _, groups = made
    groups.sequence = 9
    with pytest.raises(Fenced):
        producer.commit()


@pytest.mark.parametrize("name", ["poll", "flush"])
def test_a_fatal_error_of_the_client_is_the_engines(made, monkeypatch, name):
    """The client raises it from where reports are asked for."""
    producer, client, _ = made

    def fails(_seconds):
        raise KafkaException(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, None, True))

    monkeypatch.setattr(client, name, fails)
    with pytest.raises(LogError):
        producer.commit()

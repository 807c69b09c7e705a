"""What a member has lost is not assigned to its client behind the group's back: the group would never hand it out to it again."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from flowql.runtime.clock import SystemClock
from flowql.runtime.log.base import GroupChange, TopicPartition
from flowql.runtime.log.kafka.fetching import FetchClient
from flowql.runtime.log.kafka.member import KafkaMember

TPS = [TopicPartition("t", p) for p in range(2)]


class Client:
    """Keeps an assignment as the client library does, and is told within `consume` that its group has given the member up."""

    def __init__(self) -> None:
        self.assigned: set[tuple[str, int]] = set()
        self.loses = False
        self.arriving: list[Message] = []

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self.callbacks = callbacks

    def assignment(self) -> list[KafkaPartition]:
        return [KafkaPartition(*place) for place in sorted(self.assigned)]

    def incremental_assign(self, partitions: list[KafkaPartition]) -> None:
        self.assigned |= {(p.topic, p.partition) for p in partitions}

    def incremental_unassign(self, partitions: list[KafkaPartition]) -> None:
        places = {(p.topic, p.partition) for p in partitions}
        if not places <= self.assigned:
            raise KafkaException("one of them is not in the assignment, and none was taken out of it")
        self.assigned -= places

    def consume(self, _count: int, _timeout: float) -> list[Any]:
        if self.loses:
            self.callbacks["on_lost"](self, self.assignment())
        arrived, self.arriving = self.arriving, []
        return arrived

    def memberid(self) -> str:
        return "m"

    def consumer_group_metadata(self) -> bytes:
        return b"epoch"

    def pause(self, partitions: list[KafkaPartition]) -> None:
        del partitions

    seek = resume = pause


def member_that_reads() -> tuple[FetchClient, Client]:
    client, fetches = Client(), FetchClient.__new__(FetchClient)
    fetches._client, fetches.cursors, fetches._clock = client, {}, SystemClock()  # type: ignore[assignment]
    fetches.member = KafkaMember(client, "group", lambda tps: dict.fromkeys(tps, 0))  # type: ignore[arg-type]
    fetches.member.subscribe(["t"], lambda: None)
    client.callbacks["on_assign"](client, [KafkaPartition(tp.topic, tp.partition) for tp in TPS])
    fetches.start_all(dict.fromkeys(TPS, 0))
    return fetches, client


def test_partitions_that_were_silent_as_they_were_lost_are_not_assigned_again() -> None:
    """A process that is suspended beyond its session finds both at once; a member that came back read nothing for ever."""
    fetches, client = member_that_reads()
    for cursor in fetches.cursors.values():
        cursor.started_ms = -10_000_000
    client.loses = True
    fetches.pump()
    assert (client.assigned, fetches.cursors) == (set(), {})
    assert fetches.member is not None
    assert fetches.member.events()[-1].change is GroupChange.LOST


def test_what_the_client_has_given_up_does_not_keep_the_rest_assigned() -> None:
    """It unassigns all that it is told to, or nothing; and without an unassignment it waits for ever."""
    fetches, client = member_that_reads()
    client.assigned.discard(("t", 0))
    client.callbacks["on_lost"](client, [KafkaPartition(tp.topic, tp.partition) for tp in TPS])
    assert client.assigned == set()
    assert fetches.member is not None
    assert fetches.member.owned == set()


def test_a_partition_whose_reader_begins_at_its_end_is_known_to_be_read() -> None:
    """Else it would count as silent, and be started again every few seconds as long as nothing is written to it."""
    fetches, client = member_that_reads()
    fetches.start_all(dict.fromkeys(TPS, 5))
    client.arriving = [end_of(TPS[0], 5), end_of(TPS[1], 4)]
    fetches.pump()
    at_end, moved = (fetches.cursors[tp] for tp in TPS)
    assert (at_end.ended, at_end.started_ms, at_end.fetched) == (True, None, 5)
    assert (moved.ended, moved.started_ms is None, moved.fetched) == (False, False, 5), "of before it was moved"
    client.arriving = [end_of(TPS[0], 7)]
    fetches.pump()
    assert (at_end.ended, at_end.fetched) == (True, 7), "only markers of transactions came"


def end_of(tp: TopicPartition, offset: int) -> Message:
    ended = KafkaError(KafkaError._PARTITION_EOF)
    return Message(topic=tp.topic, partition=tp.partition, offset=offset, error=ended)

"""Membership of the main consumer in the application's group: KIP-848, with the assignor `range` on the brokers' side.

The client calls back from inside `consume` and `poll`, in the thread that called those; calls of other threads on the same client
wait meanwhile. So a REVOKE waits there, in a loop that lets the owner's thread go on with what it is asked (rule R8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Consumer as KafkaClient
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from runtime.errors import LogError
from runtime.log.base import GroupChange, GroupEvent, GroupMetadata, TopicPartition
from runtime.log.kafka import errors
from runtime.log.kafka.connection import LOGGER

Begins = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
SETTINGS = {"group.protocol": "consumer", "group.remote.assignor": "range"}


class KafkaMember:
    """Owned by the thread of the client. What it owns is assigned to the client at once, but paused until somebody reads it.

    begins: where partitions begin.
    """

    def __init__(self, client: KafkaClient, group: str, begins: Begins) -> None:
        self.owned: set[TopicPartition] = set()
        self.leaving: set[TopicPartition] = set()  # of an open REVOKE
        self._client, self._group, self._begins = client, group, begins
        self._serve: Callable[[], None] = lambda: None
        self._events: list[GroupEvent] = []
        self._proof = GroupMetadata(group, "")
        self._closing = False

    def subscribe(self, topics: Sequence[str], serve: Callable[[], None]) -> None:
        self._serve = serve
        with errors.naming(f"group {self._group} cannot be joined"):
            self._client.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def events(self) -> list[GroupEvent]:
        if self._client.memberid() and (now := self._metadata()) != self._proof:
            self._add(GroupChange.EPOCH, ())
            assert self._proof == now
        out, self._events = self._events, []
        return out

    def acknowledge(self) -> None:
        self.leaving = set()

    def close(self) -> None:
        """From now on nothing waits: closing the client gives everything back."""
        self._closing = True
        self.leaving = set()

    def _assigned(self, client: KafkaClient, partitions: list[KafkaPartition]) -> None:
        """From where they begin, though nothing is to be read from there: without an offset the client would look for a committed
        one, and the fetch from one below the start that may leave before it is paused would make it give the partition up.
        """
        tps = _places(partitions)
        try:
            begins = self._begins(tps)
        except LogError as error:  # brokers are away
            LOGGER.warning("%s", error)
            begins = {}
        client.incremental_assign([KafkaPartition(tp.topic, tp.partition, begins.get(tp, 0)) for tp in tps])
        client.pause(partitions)
        self.owned |= set(tps)
        self._add(GroupChange.ASSIGN, tps)

    def _revoked(self, client: KafkaClient, partitions: list[KafkaPartition]) -> None:
        tps = _places(partitions)
        if not self._closing:
            self.leaving = set(tps)
            self._add(GroupChange.REVOKE, tps)
            while self.leaving:
                self._serve()
        self._give_up(client, partitions)

    def _lost(self, client: KafkaClient, partitions: list[KafkaPartition]) -> None:
        tps = tuple(sorted(self.owned))
        self._give_up(client, partitions)
        self.owned = set()
        self._add(GroupChange.LOST, tps)

    def _give_up(self, client: KafkaClient, partitions: list[KafkaPartition]) -> None:
        self.owned -= set(_places(partitions))
        try:
            client.incremental_unassign(partitions)
        except KafkaException as error:  # it has given them up by itself
            LOGGER.warning("%s", error)

    def _add(self, change: GroupChange, tps: tuple[TopicPartition, ...]) -> None:
        self._proof = self._metadata()
        self._events.append(GroupEvent(change, tps, self._proof))

    def _metadata(self) -> GroupMetadata:
        return GroupMetadata(self._group, self._client.memberid() or "", bytes(self._client.consumer_group_metadata()))


def _places(partitions: Sequence[KafkaPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(p.topic, p.partition) for p in partitions))

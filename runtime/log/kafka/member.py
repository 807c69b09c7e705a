"""Membership of the main consumer in the application's group: KIP-848, with the assignor `range` on the brokers' side.

The client calls back from inside `consume` and `poll`, in the thread that called those; calls of other threads on the same client
wait meanwhile. So a REVOKE waits there, in a loop that lets the owner's thread go on with what it is asked (rule R8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confluent_kafka import Consumer as KafkaClient
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from runtime.log.base import GroupChange, GroupEvent, GroupMetadata, TopicPartition
from runtime.log.kafka import errors
from runtime.log.kafka.connection import LOGGER

SETTINGS = {"group.protocol": "consumer", "group.remote.assignor": "range"}


class KafkaMember:
    """Owned by the thread of the client. What it owns is assigned to the client at once, but paused until somebody reads it."""

    def __init__(self, client: KafkaClient, group: str) -> None:
        self.owned: set[TopicPartition] = set()
        self.leaving: set[TopicPartition] = set()  # of an open REVOKE
        self._client, self._group = client, group
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
        """From offset 0, though nothing is read from there: without an offset the client would look for a committed one."""
        client.incremental_assign([KafkaPartition(p.topic, p.partition, 0) for p in partitions])
        client.pause(partitions)
        tps = _places(partitions)
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

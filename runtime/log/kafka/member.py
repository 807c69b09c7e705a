"""Membership of the main consumer in the application's group: KIP-848, with the assignor `range` on the brokers' side.

The client calls back from inside `consume` and `poll`, in the thread that called those; calls of other threads on the same client
wait meanwhile. So a REVOKE waits there, in a loop in which the thread of the owner continues to serve requests (rule R8).

The client takes any assignment as the answer to a callback in its queue, and offers no way to ask whether one waits there. After an
assignment by the member itself (`assign_anew`) the next callback may therefore have been answered before it was served: the brokers may have
reassigned partitions with uncommitted work. No newer group metadata is handed out until the queue is empty, and if a callback
was in it the member leaves its group and joins it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from confluent_kafka import Consumer as KafkaClient
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from flowql.runtime.errors import LogError
from flowql.runtime.log.base import GroupChange, GroupEvent, GroupMetadata, TopicPartition
from flowql.runtime.log.kafka import errors
from flowql.runtime.log.kafka.connection import LOGGER

Begins = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
Callback = Callable[[KafkaClient, list[KafkaPartition]], None]
SETTINGS = {"group.protocol": "consumer", "group.remote.assignor": "range"}


class KafkaMember:
    """Only the thread of the client uses it. Owned partitions are assigned to the client at once, but paused until they are read.

    begins: where partitions begin.
    """

    def __init__(self, client: KafkaClient, group: str, begins: Begins) -> None:
        self.owned: set[TopicPartition] = set()
        self.leaving: set[TopicPartition] = set()  # of an open REVOKE
        self._client, self._group, self._begins = client, group, begins
        self._serve: Callable[[], None] = lambda: None
        self._events: list[GroupEvent] = []
        self._topics: list[str] = []
        self._group_metadata = GroupMetadata(group, "")
        self._closing = False
        self._anew = False  # the next callback may have been answered by an assignment of its own
        self._doubtful: set[TopicPartition] = set()  # of such callbacks

    def subscribe(self, topics: Sequence[str], serve: Callable[[], None]) -> None:
        self._topics, self._serve, self._closing = list(topics), serve, False
        assigned, revoked, lost = (self._contained(call) for call in (self._assigned, self._revoked, self._lost))
        with errors.naming(f"group {self._group} cannot be joined"):
            self._client.subscribe(self._topics, on_assign=assigned, on_revoke=revoked, on_lost=lost)

    def leave(self) -> None:
        """Gives all partitions back until the next `subscribe`; until then callbacks are answered without waiting for an acknowledgement."""
        tps = tuple(sorted(self.owned | self._doubtful))
        self._anew, self._doubtful = False, set()
        self.close()
        with errors.naming(f"group {self._group} cannot be left"):
            self._client.unsubscribe()
        self.owned = set()
        self._add(GroupChange.LOST, tps)

    def assign_anew(self, place: KafkaPartition) -> None:
        """Assigns an owned partition again that the client has stopped fetching. Raises KafkaException."""
        self._anew = True
        with suppress(KafkaException):  # it is not assigned
            self._client.incremental_unassign([place])
        self._client.incremental_assign([place])

    def served_all(self) -> bool:
        """The client's queue was empty: callbacks that come now were not in it. False if one has come that may have been answered
        before, and the membership is to be begun anew (`leave`, `join_again`).
        """
        self._anew = False
        return not self._doubtful

    def join_again(self) -> None:
        """After `leave`."""
        self.subscribe(self._topics, self._serve)

    def events(self) -> list[GroupEvent]:
        if not self._anew and self._client.memberid() and (now := self._metadata()) != self._group_metadata:
            self._add(GroupChange.EPOCH, (), now)  # a newer one is found the next time
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
        if self._anew:
            self._doubtful |= set(tps)
        else:
            self._add(GroupChange.ASSIGN, tps)

    def _revoked(self, client: KafkaClient, partitions: list[KafkaPartition]) -> None:
        tps = _places(partitions)
        if self._anew:
            self._doubtful |= set(tps)
        elif not self._closing:
            self.leaving = set(tps)
            self._add(GroupChange.REVOKE, tps)
            while self.leaving:
                self._serve()
        self._give_up(client, partitions)

    def _lost(self, client: KafkaClient, partitions: list[KafkaPartition]) -> None:
        tps = tuple(sorted(self.owned))
        self._give_up(client, client.assignment())  # the group never hands out to it again what stayed assigned
        self.owned = set()
        if not self._closing:
            self._add(GroupChange.LOST, tps)

    def _contained(self, call: Callback) -> Callback:
        """A callback that raises nothing while the client is being closed: the client would make a SystemError of it."""

        def contained(client: KafkaClient, partitions: list[KafkaPartition]) -> None:
            try:
                call(client, partitions)
            except Exception as error:
                if not self._closing:
                    raise
                LOGGER.warning("as the consumer is closed: %s: %s", type(error).__name__, error)

        return contained

    def _give_up(self, client: KafkaClient, partitions: list[KafkaPartition]) -> None:
        """Answers the callback. The client accepts that only if all of these partitions are assigned, and it may have stopped fetching some."""
        gone, assigned = set(_places(partitions)), _places(client.assignment())
        self.owned -= gone
        try:
            client.incremental_unassign([KafkaPartition(tp.topic, tp.partition) for tp in assigned if tp in gone])
        except KafkaException as error:
            LOGGER.warning("%s", error)

    def _add(
        self, change: GroupChange, tps: tuple[TopicPartition, ...], group_metadata: GroupMetadata | None = None
    ) -> None:
        self._group_metadata = group_metadata or self._metadata()
        self._events.append(GroupEvent(change, tps, self._group_metadata))

    def _metadata(self) -> GroupMetadata:
        return GroupMetadata(self._group, self._client.memberid() or "", bytes(self._client.consumer_group_metadata()))


def _places(partitions: Sequence[KafkaPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(p.topic, p.partition) for p in partitions))

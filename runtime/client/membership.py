"""The membership of a main consumer in its application's group: a state machine fed by what the log says.

Source: the consumer group member state machine of the consumer threading refactor; the style of `MemberState` in Apache Kafka.
The log does the wire and the heartbeats; this keeps what is owned, and when to ask for more.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum

from flowql.runtime.errors import LogError, RuntimeFailure
from flowql.runtime.log.base import Consumer, GroupChange, GroupEvent, TopicPartition


class IllegalMemberTransition(RuntimeFailure):
    """A member was about to go where it cannot come from: a mistake in the engine or the log."""


class MemberState(Enum):
    """NEW: not asked for. JOINING: asked, or lost and asked again. JOINED: known to the group, nothing to do. ASSIGNING: a revoke
    is not acknowledged yet; what is assigned comes after it. TERMINATING, TERMINATED: leaving, gone.
    """

    NEW = "new"
    JOINING = "joining"
    JOINED = "joined"
    ASSIGNING = "assigning"
    TERMINATING = "terminating"
    TERMINATED = "terminated"

    def to(self, following: MemberState) -> MemberState:
        """The next state, if it may follow this one."""
        if following is not self and self not in _PREVIOUS[following]:
            raise IllegalMemberTransition(f"a {self.value} member cannot become {following.value}")
        return following


_PREVIOUS: dict[MemberState, frozenset[MemberState]] = {
    MemberState.NEW: frozenset(),
    MemberState.JOINING: frozenset({MemberState.NEW, MemberState.JOINED, MemberState.ASSIGNING}),
    MemberState.JOINED: frozenset({MemberState.JOINING, MemberState.ASSIGNING}),
    MemberState.ASSIGNING: frozenset({MemberState.JOINING, MemberState.JOINED}),
    MemberState.TERMINATING: frozenset(
        {MemberState.NEW, MemberState.JOINING, MemberState.JOINED, MemberState.ASSIGNING}
    ),
    MemberState.TERMINATED: frozenset({MemberState.TERMINATING}),
}


class Membership:
    """The membership in the group. Only the background thread calls it."""

    def __init__(self, consumer: Consumer) -> None:
        self.state = MemberState.NEW
        self.owned: set[TopicPartition] = set()
        self.leaving: set[TopicPartition] = set()
        self._consumer = consumer
        self._wanted: tuple[str, tuple[str, ...]] | None = None  # group and topics that the log was not told yet
        self._last: tuple[str, tuple[str, ...]] | None = None  # that it was told last
        self._away = self._left = False  # to be no member for now; the log was told

    @property
    def joins(self) -> bool:
        """Whether the consumer is or becomes a member; else it reads the partitions it is assigned by the application."""
        return self._wanted is not None or self.state is not MemberState.NEW

    @property
    def readable(self) -> set[TopicPartition]:
        return self.owned - self.leaving

    def join(self, group: str, topics: tuple[str, ...]) -> None:
        """With the next `poll`: inside of a callback the log cannot be told."""
        self._wanted = group, topics

    def poll(self, serve: Callable[[], None]) -> None:
        """Tell the log what is wanted. serve: see `Consumer.subscribe`."""
        if self._away:
            if not self._left and self.state is not MemberState.NEW:
                with suppress(LogError):  # with the next one
                    self._consumer.leave_group()
                    self._left = True
            return
        if self._left:
            self._left, self._wanted = False, self._wanted or self._last
        if self._wanted is None:
            return
        (group, topics), self._wanted = self._wanted, None
        self._last = group, topics
        if self.state is MemberState.NEW:
            self.state = self.state.to(MemberState.JOINING)
        self._consumer.subscribe(group, topics, serve)

    def stay_away(self, *, away: bool) -> None:
        """With the next `poll`: inside of a callback, which waits no more, the log cannot be told."""
        self._away = away
        if away:
            self.acknowledge()

    def take(self) -> list[GroupEvent]:
        """Events since the last call."""
        if self.state is MemberState.NEW:
            return []
        events = self._consumer.group_events()
        for event in events:
            self._apply(event)
        return events

    def acknowledge(self) -> None:
        """Completes the pending revocation."""
        if not self.leaving:  # it was lost meanwhile
            return
        self.owned -= self.leaving
        self.leaving = set()
        self.state = self.state.to(MemberState.JOINED)
        self._consumer.acknowledge_revoke()

    def terminate(self) -> None:
        """Leave; closing the client does it. A revoke that waits does so no more."""
        if self.state is MemberState.TERMINATED:
            return
        self.acknowledge()
        self.state = self.state.to(MemberState.TERMINATING).to(MemberState.TERMINATED)

    def _apply(self, event: GroupEvent) -> None:
        tps = set(event.partitions)
        if event.change is GroupChange.LOST:
            self.owned, self.leaving = set(), set()
            self.state = self.state.to(MemberState.JOINING)
            return
        if event.change is GroupChange.ASSIGN:
            assert not tps & self.owned, f"{sorted(tps & self.owned)} assigned twice"
            self.state = self.state.to(MemberState.ASSIGNING)
            self.owned |= tps
        elif event.change is GroupChange.REVOKE:
            assert tps <= self.owned, f"{sorted(tps - self.owned)} revoked, and not owned"
            self.leaving |= tps
        self.state = self.state.to(MemberState.ASSIGNING if self.leaving else MemberState.JOINED)

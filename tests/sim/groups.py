"""A group as its coordinator keeps it: members with epochs, partitions by `range`, and committed positions (KIP-848).

A partition belongs to one member. It goes to the next one after the first has given it up, or was given up itself because it was
silent for `SESSION_MS`. A proof of membership counts while the member is known and its epoch is that of the proof; nobody checks
what the member owns. So a member that was given up and came back could commit what others have now: the instance must not, and
here that is an error of the simulation. (Positions of topics that no member reads are nobody's.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from flowql.runtime.clock import Clock
from flowql.runtime.errors import StaleMember
from flowql.runtime.log.base import Position, TopicPartition

SESSION_MS = 400


class Violation(BaseException):
    """What must never happen has happened. Not an Exception: no code of the engine may handle it."""


@dataclass(slots=True)
class Membership:
    """owned: assigned, and not given up. epoch: that of the group when it last had nothing to give up."""

    topics: tuple[str, ...]
    heard_ms: int
    epoch: int = 0
    owned: set[TopicPartition] = field(default_factory=set)
    target: set[TopicPartition] = field(default_factory=set)


def token_of(member: str, epoch: int) -> bytes:
    return f"{member}:{epoch}".encode()


class Group:
    def __init__(self, clock: Clock, partitions_of: Callable[[Iterable[str]], dict[str, int]]) -> None:
        self.clock, self._partitions_of = clock, partitions_of
        self.epoch = 0
        self.members: dict[str, Membership] = {}
        self.positions: dict[TopicPartition, Position] = {}
        self.pending: dict[Any, dict[TopicPartition, Position]] = {}  # of transactions that are not finished
        self.on_moved: Callable[[dict[TopicPartition, Position]], None] = lambda positions: None

    def join(self, member: str, topics: tuple[str, ...]) -> None:
        """Become a member, or change what one reads."""
        known = self.members.get(member)
        if known is None:
            self.members[member] = Membership(topics, self.clock.timer_ms())
        elif known.topics != topics:
            known.topics = topics
        self._assign()

    def leave(self, member: str) -> None:
        if self.members.pop(member, None) is not None:
            self._assign()

    def heartbeat(self, member: str, owned: set[TopicPartition]) -> tuple[int, set[TopicPartition]] | None:
        """owned: what the client has. Its epoch and what it is to have, or None for one that is not known (any more)."""
        known = self.members.get(member)
        if known is None:
            return None
        known.heard_ms = self.clock.timer_ms()
        self._refresh(known)
        known.owned &= owned | known.target
        if known.owned <= known.target:
            known.epoch = self.epoch
            taken = {tp for name, m in self.members.items() if name != member for tp in m.owned}
            known.owned |= known.target - taken
        return known.epoch, known.owned & known.target

    def expire(self) -> None:
        now = self.clock.timer_ms()
        for name in [n for n, m in self.members.items() if now - m.heard_ms > SESSION_MS]:
            self.leave(name)

    def check(self, token: bytes, positions: Iterable[TopicPartition], *, fences: bool) -> None:
        """StaleMember if the proof does not count."""
        name, _, epoch = token.decode().rpartition(":")
        known = self.members.get(name)
        if not fences:
            return
        if known is None:
            raise StaleMember(f"{name} is no member (any more)")
        if known.epoch != int(epoch):
            raise StaleMember(f"{name} has epoch {known.epoch}, not {epoch}")
        given = {topic for m in self.members.values() for topic in m.topics}
        others = sorted({tp for tp in positions if tp.topic in given} - known.owned)
        if others:
            raise Violation(f"{name} commits {others[0]}, which it does not own")

    def move(self, positions: dict[TopicPartition, Position]) -> None:
        self.positions.update(positions)
        self.on_moved(positions)

    def owner_of(self, tp: TopicPartition) -> str | None:
        return next((name for name, m in self.members.items() if tp in m.owned), None)

    def _refresh(self, member: Membership) -> None:
        """New topics or partitions of what is read."""
        counts = self._partitions_of(member.topics)
        known = {tp.topic for m in self.members.values() for tp in m.target}
        if not counts.keys() <= known:
            self._assign()

    def _assign(self) -> None:
        """Partitions with one number go to one member, where subscriptions and counts agree."""
        self.epoch += 1
        for m in self.members.values():
            m.target = set()
        for topic in sorted({t for m in self.members.values() for t in m.topics}):
            counts = self._partitions_of([topic])
            readers = [m for _, m in sorted(self.members.items()) if topic in m.topics]
            if not counts:
                continue
            each, more = divmod(counts[topic], len(readers))
            first = 0
            for n, m in enumerate(readers):
                size = each + (n < more)
                m.target |= {TopicPartition(topic, p) for p in range(first, first + size)}
                first += size

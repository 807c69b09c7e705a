"""Heartbeats of members: records outside of transactions, in a topic of one partition that keeps an hour of them.

The topic is the clock of the members that read it. A member is silent when `MISSED_MAX` heartbeats of the *reader* came after its last one. So
neither a frozen reader nor brokers that take nothing make other members look dead: no heartbeat of the reader came meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace

from flowql.runtime.formats import FIRST, Ranges, reads
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.placement.record import read_fields

BEAT_MS = 750  # between two heartbeats; KIP-848 has 5 s, and sessions of 45 s
MISSED_MAX = 4
TOPIC = {"cleanup.policy": "delete", "retention.ms": "3600000", "segment.ms": "600000"}


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """joined: the number of the placement as of which it is a member. applied: it holds nothing that this placement does not grant.
    beat: counts those that come at intervals; others tell of a change. leaving: it holds nothing and wants nothing. warm: partitions of others
    whose tasks it could begin soon, since its copies of their state are near the end. formats: the numbers of formats that it reads.
    format: that of this record. rack: where it runs, so that copies are kept elsewhere; empty if that is not set.
    """

    member: str
    joined: int
    applied: int
    beat: int
    leaving: bool = False
    warm: tuple[TopicPartition, ...] = ()
    formats: Ranges = field(default_factory=dict)
    format: int = FIRST
    rack: str = ""

    def encode(self) -> tuple[bytes, bytes]:
        """Key and value of a record."""
        return self.member.encode(), json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Heartbeat:
        """ValueError, TypeError."""
        found = read_fields(cls, value)
        if not reads("heartbeat", found.format):
            raise ValueError(f"heartbeat format {found.format} is of another version")
        return replace(found, warm=tuple(TopicPartition(*at) for at in found.warm))


class Heartbeats:
    """The heartbeats that one member has read, in the order of the topic."""

    def __init__(self, reader: str) -> None:
        self._reader, self._own = reader, 0  # how many heartbeats of the reader were read
        self._last: dict[str, Heartbeat] = {}
        self._heard: dict[str, int] = {}  # of each member, after how many of the reader

    def take(self, values: Iterable[bytes | None]) -> bool:
        """Records in order. True if one says more than that its member is alive. What cannot be read is of another version, and tells nothing."""
        is_news = False
        for value in values:
            try:
                heard = Heartbeat.decode(value or b"")
            except (ValueError, TypeError, AttributeError):
                continue
            before = self._last.get(heard.member)
            if before is not None and heard.joined < before.joined:
                continue  # of a process that was replaced
            if heard.member == self._reader and (before is None or heard.beat != before.beat):
                self._own += 1
            is_news |= before is None or replace(before, beat=heard.beat) != heard
            self._last[heard.member], self._heard[heard.member] = heard, self._own
        return is_news

    def last(self, member: str) -> Heartbeat | None:
        return self._last.get(member)

    def is_silent(self, member: str) -> bool:
        """A member that was never heard counts from the first heartbeat of the reader on."""
        return self._own - self._heard.get(member, 0) >= MISSED_MAX

    @property
    def is_late(self) -> bool:
        """A member may be silent soon, or has been so for a short time."""
        return any(MISSED_MAX // 2 <= self._own - heard <= 2 * MISSED_MAX for heard in self._heard.values())

    def members(self) -> set[str]:
        """Everybody who was ever heard."""
        return set(self._last)


def heartbeat_topic(application_id: str) -> TopicPartition:
    """The topic's one partition."""
    return TopicPartition(f"{application_id}-heartbeats", 0)

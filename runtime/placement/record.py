"""The placement: the owner of each partition, as one record in a compacted topic of one partition.

Records are numbered. Only the leader writes them, as the owner of the producer with one transactional id, so they are one history.
A partition is *in transit* while its owner has to release it: then `next` names another member, or nobody.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import NamedTuple, TypeVar

from flowql.runtime.log.base import TopicPartition

NOBODY = ""
KEY = b"placement"
T = TypeVar("T")


def read_fields(cls: type[T], value: bytes) -> T:
    """An object whose fields a record of JSON holds. Fields that a newer version has added are left out. ValueError, TypeError."""
    data = json.loads(value)
    return cls(**{f.name: data[f.name] for f in fields(cls) if f.name in data})  # type: ignore[arg-type]


class Place(NamedTuple):
    """Who owns a partition, and who is to own it: the same member, another one, or `NOBODY`."""

    owner: str
    next: str

    @property
    def in_transit(self) -> bool:
        return self.owner != self.next


@dataclass(frozen=True, slots=True)
class Placement:
    """One record. leader: who wrote it. plan: the deployment whose partitions are placed.

    copies: members that keep copies of the state of tasks that read a partition, besides its owner.
    dead: of members that were given up, the number of the record that says so; one that has joined at this number or later is another.
    fencing: members of `dead` whose producers may not be fenced yet. What they own is nobody's until a later record.
    formats: the formats in which members write, by kind of record, where it is not the first one (`flowql.runtime.formats`).
    """

    number: int = 0
    leader: str = ""
    plan: int = 0
    places: Mapping[TopicPartition, Place] = field(default_factory=dict)
    copies: Mapping[TopicPartition, tuple[str, ...]] = field(default_factory=dict)
    dead: Mapping[str, int] = field(default_factory=dict)
    fencing: frozenset[str] = frozenset()
    formats: Mapping[str, int] = field(default_factory=dict)

    def owners(self) -> set[str]:
        """Members that own a partition."""
        return {place.owner for place in self.places.values()}

    def owned_by(self, member: str) -> set[TopicPartition]:
        """Those that it has to release included."""
        if member in self.fencing:
            return set()
        return {tp for tp, place in self.places.items() if place.owner == member}

    def granted_to(self, member: str) -> set[TopicPartition]:
        """Partitions whose tasks it may run."""
        return {tp for tp in self.owned_by(member) if not self.places[tp].in_transit}

    def copied_by(self, member: str) -> set[TopicPartition]:
        """Partitions of others whose tasks it keeps copies of."""
        return {tp for tp, members in self.copies.items() if member in members} - self.owned_by(member)

    def encode(self) -> bytes:
        """Members are named once: a place is one index, or two while it is in transit."""
        named = [*self.places.values(), *self.copies.values()]
        names = sorted({name for members in named for name in members})
        index = {name: n for n, name in enumerate(names)}
        topics: dict[str, dict[int, int | list[int]]] = {}
        for tp, (owner, following) in sorted(self.places.items()):
            at = index[owner] if owner == following else [index[owner], index[following]]
            topics.setdefault(tp.topic, {})[tp.partition] = at
        copies: dict[str, dict[int, list[int]]] = {}
        for tp, members in sorted(self.copies.items()):
            copies.setdefault(tp.topic, {})[tp.partition] = [index[name] for name in members]
        fields = {
            "number": self.number,
            "leader": self.leader,
            "plan": self.plan,
            "members": names,
            "topics": topics,
            "copies": copies,
            "dead": dict(self.dead),
            "fencing": sorted(self.fencing),
            "formats": dict(self.formats),
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Placement:
        data = json.loads(value)
        names, places = data["members"], dict[TopicPartition, Place]()
        for topic, partitions in data["topics"].items():
            for partition, at in partitions.items():
                owner, following = at if isinstance(at, list) else (at, at)
                places[TopicPartition(topic, int(partition))] = Place(names[owner], names[following])
        copies = {
            TopicPartition(topic, int(partition)): tuple(names[n] for n in at)
            for topic, partitions in data["copies"].items()
            for partition, at in partitions.items()
        }
        dead, fencing, formats = data["dead"], frozenset(data["fencing"]), data.get("formats", {})
        return cls(data["number"], data["leader"], data["plan"], places, copies, dead, fencing, formats)


class PlacementChange(Enum):
    """A change of the partitions of a member.

    ASSIGN: these are owned in addition.
    REVOKE: these have to be given up. They stay owned, and their positions may be committed, until the member acknowledges it; no other
    member is assigned them before that.
    LOST: this member was given up, and all its partitions may have other owners. Results of them must not be committed. ASSIGN follows when
    it is a member again. A REVOKE that was not acknowledged is void.
    """

    ASSIGN = "assign"
    REVOKE = "revoke"
    LOST = "lost"


class PlacementEvent(NamedTuple):
    """One change, in the order in which they happened. partitions: sorted."""

    change: PlacementChange
    partitions: tuple[TopicPartition, ...]


def placement_topic(application_id: str) -> TopicPartition:
    """The topic's one partition."""
    return TopicPartition(f"{application_id}-placement", 0)

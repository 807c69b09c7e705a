"""The leader's decisions: from one placement to the next, from what members say and what the plan needs. Nothing here does I/O.

A partition of a living member goes to another one in two records: in the first it is in transit, so its owner commits, closes the task and says
that it has applied this record; the second gives it to the next owner. A partition of a member that is silent takes three steps: a record that gives
the member up, the fence of its transactional id, and a record with new owners. In this order no owner can commit after it was replaced:
a producer that it makes after the fence is made after the first record, which it reads before it commits (`PlacementStep.confirm`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from flowql.runtime import formats
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.placement.balance import Unit, balanced
from flowql.runtime.placement.heartbeats import Heartbeat
from flowql.runtime.placement.record import NOBODY, Place, Placement

# A member that was given up and has not come back for so many records is forgotten. Should it come back all the same, its producer is fenced.
DEAD_RECORDS = 1_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """Partitions to be placed. plan: the number of the deployment. topics: all that its queries read; partitions of those
    that are in no unit just now (a query that is stopped) stay with a member, together with those of their number. stateful: partitions that
    tasks with state read. standbys: how many other members keep copies of it.
    """

    plan: int
    units: Collection[Unit] = field(default_factory=tuple)
    topics: frozenset[str] = frozenset()
    stateful: frozenset[TopicPartition] = frozenset()
    standbys: int = 0


def giving_up(now: Placement, alive: Collection[str]) -> Placement | None:
    """The record that gives up owners that are not alive; None if there are none."""
    gone = now.owners() - set(alive) - now.fencing
    if not gone:
        return None
    number = now.number + 1
    return replace(now, number=number, dead={**now.dead, **dict.fromkeys(gone, number)}, fencing=now.fencing | gone)


def next_placement(
    now: Placement, alive: Mapping[str, Heartbeat], wanted: Wanted | None, leader: str
) -> Placement | None:
    """The record that follows, once all members of `now.fencing` are fenced; None if nothing changes.

    wanted: None while the leader knows no plan. If the newest plan is not known to the leader yet, it moves nothing.
    """
    places, copies = dict(now.places), dict(now.copies)
    if wanted is None or wanted.plan < now.plan:
        heir = _least_loaded(now, alive)
        for tp, place in now.places.items():
            if _owner(now, place, alive) is None:
                places[tp] = Place(heir, heir)
    else:
        copies = {}
        _place(now, places, copies, alive, wanted)
    dead = {m: n for m, n in now.dead.items() if m not in alive and now.number - n < DEAD_RECORDS}
    plan = now.plan if wanted is None else max(now.plan, wanted.plan)
    agreed = formats.agreed_by((beat.formats for beat in alive.values()), now.formats)
    following = replace(
        now, leader=leader, plan=plan, places=places, copies=copies, dead=dead, fencing=frozenset(), formats=agreed
    )
    return None if following == now else replace(following, number=now.number + 1)


def _place(
    now: Placement,
    places: dict[TopicPartition, Place],
    copies: dict[TopicPartition, tuple[str, ...]],
    alive: Mapping[str, Heartbeat],
    wanted: Wanted,
) -> None:
    units = [*wanted.units]
    placed = {tp for unit in units for tp in unit}
    left: dict[int, set[TopicPartition]] = {}
    for tp in now.places:
        if tp not in placed and tp.topic in wanted.topics:
            left.setdefault(tp.partition, set()).add(tp)
    units += map(frozenset, left.values())
    releasing = _releasing(now, alive)
    current: dict[Unit, str] = {}
    for unit in units:
        at = Counter(m for tp in sorted(unit) if (m := _heading_for(now, tp, alive)) is not None)
        if at:
            current[unit] = at.most_common(1)[0][0]
        elif (holder := _holder(now, unit, alive)) is not None:
            current[unit] = holder
    load = Counter[str]()
    for unit, member in sorted(balanced(units, alive, current).items(), key=lambda of: min(of[0])):
        stateful = not unit.isdisjoint(wanted.stateful)
        target = (
            current[unit] if stateful and _stays(now, unit, current.get(unit), member, alive, releasing) else member
        )
        for tp in unit:
            places[tp] = _towards(now, tp, target, alive)
        if stateful:
            kept = _standbys(now, unit, target, alive, wanted.standbys, load)
            kept += [member] if member not in (target, *kept) else []
            copies |= dict.fromkeys(unit, tuple(kept)) if kept else {}
    for tp in now.places:
        if tp not in placed and tp.topic not in wanted.topics:
            place = _towards(now, tp, NOBODY, alive)
            if place.owner == NOBODY:
                del places[tp]
            else:
                places[tp] = place


def _holder(now: Placement, unit: Unit, alive: Mapping[str, Heartbeat]) -> str | None:
    """Who has a copy of what is nobody's, the nearest to its end first."""
    first = min(unit)
    holders = [m for m in now.copies.get(first, ()) if m in alive]
    return min(holders, key=lambda m: (first not in alive[m].warm, m), default=None)


def _stays(
    now: Placement, unit: Unit, at: str | None, member: str, alive: Mapping[str, Heartbeat], releasing: Collection[str]
) -> bool:
    """Whether a living member goes on with a unit that is to move: until the next owner has its state (KIP-441) and the present one has
    released the units that are in transit, as a new record would keep those in transit.
    """
    moves = any(tp in now.places and now.places[tp].in_transit and _owner(now, now.places[tp], alive) for tp in unit)
    return at not in (None, member) and not moves and (min(unit) not in alive[member].warm or at in releasing)


def _releasing(now: Placement, alive: Mapping[str, Heartbeat]) -> set[str]:
    """Members that have not yet released all partitions that are in transit."""
    owners = {_owner(now, place, alive) for place in now.places.values() if place.in_transit}
    return {m for m in owners if m is not None and alive[m].applied < now.number}


def _standbys(
    now: Placement, unit: Unit, owner: str, alive: Mapping[str, Heartbeat], number: int, load: Counter[str]
) -> list[str]:
    """Members of racks that have no copy yet, then those that have one already, then those that have least. Copies that others have stay until
    the new ones are warm.
    """
    had = [m for m in now.copies.get(min(unit), ()) if m in alive and m != owner]
    chosen, racks = list[str](), {alive[owner].rack}
    while len(chosen) < min(number, len(alive) - 1):
        others = [m for m in alive if m != owner and m not in chosen]
        chosen.append(min(others, key=lambda m: (alive[m].rack in racks, m not in had, load[m], m)))
        racks.add(alive[chosen[-1]].rack)
    load.update(chosen)
    cold = sum(min(unit) not in alive[m].warm for m in chosen)
    warm = [m for m in had if m not in chosen and min(unit) in alive[m].warm]
    return chosen + warm[:cold]


def _towards(now: Placement, tp: TopicPartition, member: str, alive: Mapping[str, Heartbeat]) -> Place:
    """The partition's place on its way to a member: it changes its owner at once if it has none, or if the owner has released it."""
    place = now.places.get(tp)
    owner = None if place is None else _owner(now, place, alive)
    if place is None or owner is None or owner == member:
        return Place(member, member)
    released = place.in_transit and alive[owner].applied >= now.number
    return Place(member, member) if released else Place(owner, member)


def _owner(now: Placement, place: Place, alive: Mapping[str, Heartbeat]) -> str | None:
    """Who owns it and has to release it; None if it is free."""
    return place.owner if place.owner in alive and place.owner not in now.fencing else None


def _heading_for(now: Placement, tp: TopicPartition, alive: Mapping[str, Heartbeat]) -> str | None:
    place = now.places.get(tp)
    if place is None:
        return None
    return place.next if place.next in alive else _owner(now, place, alive)


def _least_loaded(now: Placement, alive: Collection[str]) -> str:
    load = Counter({m: 0 for m in alive})
    load.update(place.owner for place in now.places.values() if place.owner in load)
    return min(load, key=lambda m: (load[m], m))

"""Numbers of the formats of records that members of a group read from each other.

Members announce in their heartbeats which numbers they read. The leader writes into the placement the highest number that all living members read,
and members write records in that format. An agreed number never falls, as such records stay: a member that does not read it leaves its group.
Placements, and the numbers in heartbeats, have no format: fields are only added to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flowql.compiler.plan.topology import PLAN_FORMAT

FIRST = 1  # of members whose version announces nothing
Ranges = Mapping[str, Sequence[int]]  # by kind of record, the lowest and the highest number
READ: Ranges = {
    "plan": (FIRST, PLAN_FORMAT),  # records of deployments
    "task": (FIRST, 1),  # records of tasks, and rows of their changelogs
    "envelope": (FIRST, 1),  # records of repartitions
    "heartbeat": (FIRST, 1),
}


def read() -> Ranges:
    """The numbers that this version reads."""
    return READ


def newest(kind: str) -> int:
    return read()[kind][1]


def reads(kind: str, number: int) -> bool:
    """Whether this version reads records of a kind in this format."""
    return kind in read() and read()[kind][0] <= number <= read()[kind][1]


def agreed_by(members: Iterable[Ranges], before: Mapping[str, int]) -> dict[str, int]:
    """The highest number of each kind that all members read, as far as it is above the first one. before: agreed numbers, which never fall."""
    known, kinds = list(members), sorted({*before, *read()})
    common = {kind: min((m[kind][1] if kind in m else FIRST for m in known), default=FIRST) for kind in kinds}
    found = {kind: max(common[kind], before.get(kind, FIRST)) for kind in kinds}
    return {kind: number for kind, number in found.items() if number > FIRST}


def unread_by(member: Ranges, agreed: Mapping[str, int]) -> list[str]:
    """Kinds of records that a member cannot read as they are written now."""
    found = {kind: member.get(kind, (FIRST, FIRST)) for kind in sorted({*member, *agreed})}
    return [kind for kind, (low, high) in found.items() if not low <= agreed.get(kind, FIRST) <= high]

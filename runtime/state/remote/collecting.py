"""Deletes objects of a task that no checkpoint needs any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from flowql.runtime.remote.objects import ObjectDamaged, ObjectInfo, ObjectMissing, Objects
from flowql.runtime.state.remote.manifest import kind_of, lease_name, place_of, read_manifest, term_name

KEPT_MS = 3_600_000  # how long after it was replaced a manifest and its objects stay
LEASE_MS = 3_600_000  # a reader renews its lease far more often


@dataclass(frozen=True, slots=True)
class Garbage:
    """names: what can be deleted; size: its bytes. kept: objects that are needed; newest: term of the newest manifest, 0 if there is none."""

    names: Sequence[str]
    size: int
    kept: int
    newest: int


def write_lease(objects: Objects, folder: str, reader: str, number: int, names: Sequence[str]) -> None:
    """Says that these objects are still read by somebody who may own no task. number: rises, so that no moment is without a lease. RemoteError."""
    name = lease_name(folder, reader, number)
    objects.put_new(name, msgspec.msgpack.encode(list(names)))
    former = lease_name(folder, reader, 0).rpartition("-")[0]
    mine = (found.name for found in objects.list(f"{folder}/leases") if found.name.rpartition("-")[0] == former)
    objects.delete([old for old in mine if old < name])


def garbage_of(objects: Objects, folder: str, kept_ms: int = KEPT_MS) -> Garbage:
    """Finds what can be deleted of a task. A manifest that was replaced stays for `kept_ms`, and objects that no manifest names stay as long after their upload.

    The store's own clock counts: times of objects are compared with that of the newest one. RemoteError.
    """
    found = list(objects.list(folder))
    now_ms = max((o.modified_ms for o in found), default=0)
    by_kind: dict[str, list[ObjectInfo]] = {}
    for o in found:
        by_kind.setdefault(kind_of(o.name), []).append(o)
    manifests = sorted(by_kind.get("manifests", ()), key=lambda o: o.name)
    old = [a for a, b in pairwise(manifests) if now_ms - b.modified_ms >= kept_ms]
    leases = by_kind.get("leases", ())
    over = [lease for lease in leases if now_ms - lease.modified_ms >= LEASE_MS]
    needed: set[str] = set()
    for manifest in manifests[len(old) :]:
        needed |= _needed(objects, manifest.name)
    for lease in leases:
        if lease not in over:
            needed |= set(_lease(objects, lease.name))
    data = [o for kind in ("runs", "rows") for o in by_kind.get(kind, ())]
    unused = [o for o in data if o.name not in needed and now_ms - o.modified_ms >= kept_ms]
    newest = place_of(manifests[-1].name)[0] if manifests else 0
    terms = [o for o in by_kind.get("terms", ()) if o.name < term_name(folder, newest)]
    gone = [*old, *over, *unused, *terms]
    return Garbage([o.name for o in gone], sum(o.size for o in gone), len(found) - len(gone), newest)


def dropped(objects: Objects, folder: str, now_ms: int, kept_ms: int = KEPT_MS) -> Garbage:
    """All objects of a task that is no longer deployed, `kept_ms` after its last object was written.

    now_ms: by the store's own clock, that of the newest object of the application. RemoteError.
    """
    found = list(objects.list(folder))
    if any(now_ms - o.modified_ms < kept_ms for o in found):
        return Garbage((), 0, len(found), 0)
    return Garbage([o.name for o in found], sum(o.size for o in found), 0, 0)


def _needed(objects: Objects, name: str) -> set[str]:
    """The objects that a manifest names; none if it has been deleted meanwhile. RemoteError, ManifestUnreadable."""
    try:
        return set(read_manifest(objects, name).objects())
    except (ObjectMissing, ObjectDamaged):
        return set()


def _lease(objects: Objects, name: str) -> list[str]:
    try:
        return msgspec.msgpack.decode(objects.get(name), type=list[str])
    except (ObjectMissing, msgspec.DecodeError):  # it was renewed or is over; another error ends the collection
        return []

"""Removal of what no manifest needs any more, an hour after that: a restore that has begun must find what its manifest names."""

from __future__ import annotations

from collections.abc import Iterator

from flowql.runtime.backup.manifest import piece_name
from flowql.runtime.backup.place import ManifestName, Place
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.remote.objects import ObjectMissing

KEPT = 8  # manifests of instances; those of commands stay until somebody deletes them
GRACE_MS = 3_600_000
COMMAND_GRACE_MS = 24 * 3_600_000  # of what commands have uploaded, which name it last, after hours maybe


class Collector:
    """The removal in one place, by the process that has its newest term."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._since: dict[str, int] = {}  # when an object was first seen to be superfluous
        self._named: dict[str, frozenset[str]] = {}  # by manifest that stays, its objects
        self._grace: dict[str, int] = {}  # by term, as it is in names

    def collect(self, now_ms: int) -> Iterator[None]:
        """One round, in steps. now_ms: by the timer. RemoteError."""
        manifests = self._place.manifests()
        stay = [m for m in manifests if m.by == "command"] + [m for m in manifests if m.by == "instance"][:KEPT]
        self._named = {m.object: self._named[m.object] for m in stay if m.object in self._named}
        for name in stay:
            if name.object not in self._named:
                named = self._objects_of(name)
                if named is None:  # a newer version wrote it, or it is damaged: it may need anything
                    return
                self._named[name.object] = named
                yield
        needed = {m.object for m in stay}.union(*self._named.values())
        there = {m.object for m in manifests}
        for found in self._place.objects.list(f"{self._place.folder}/files"):
            there.add(found.name)
        yield
        self._since = {name: self._since.get(name, now_ms) for name in there - needed}
        due = [name for name, since in self._since.items() if since + self._grace_of(name) <= now_ms]
        due.sort(key=lambda name: "/manifests/" not in name)  # first what names the others
        if due:
            self._place.objects.delete(due)

    def _grace_of(self, name: str) -> int:
        """For how long a superfluous object stays."""
        if "/manifests/" in name:
            return GRACE_MS
        term = name.rpartition("-")[2]
        if term not in self._grace:
            self._grace[term] = COMMAND_GRACE_MS if self._is_of_command(term) else GRACE_MS
        return self._grace[term]

    def _is_of_command(self, term: str) -> bool:
        try:
            return self._place.role(int(term, 16)) == "command"
        except (ValueError, ObjectMissing):  # the command failed, and has removed what it could
            return False

    def _objects_of(self, name: ManifestName) -> frozenset[str] | None:
        try:
            manifest, _ = self._place.read(name)
        except RuntimeFailure as error:
            if error.retriable:
                raise
            return None
        return frozenset(piece_name(self._place.folder, path, piece) for path, piece in manifest.pieces())

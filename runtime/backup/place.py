"""The backups of one application in a store of objects: which there are, and the next term of who writes there.

Each process that writes takes a term, by a put that fails if another process has taken it. Its manifests have the term in their names, so they
sort above those of all processes before it. A process that was given up and still writes changes nothing: its names are its own.
"""

from __future__ import annotations

from itertools import islice
from typing import Literal, NamedTuple

from flowql.runtime.backup.continuing import Known
from flowql.runtime.backup.manifest import Manifest, ManifestDamaged, decode_manifest, folder_of
from flowql.runtime.remote.objects import Objects

Role = Literal["instance", "command"]
_LOOKED_AT = 10_000  # objects of other applications


class ManifestName(NamedTuple):
    """The place of a manifest among others: a greater one is newer. by: who made it."""

    term: int
    number: int
    by: Role
    object: str


class Place:
    """All calls may raise RemoteError. Any thread."""

    def __init__(self, objects: Objects, application_id: str) -> None:
        self.objects, self.application_id, self.folder = objects, application_id, folder_of(application_id)

    @property
    def url(self) -> str:
        return self.objects.url

    def manifests(self) -> list[ManifestName]:
        """The newest first."""
        found = (_manifest_name(o.name) for o in self.objects.list(f"{self.folder}/manifests"))
        return sorted((name for name in found if name is not None), reverse=True)

    def read(self, name: ManifestName) -> tuple[Manifest, Known]:
        """RemoteError, ManifestDamaged, ManifestUnreadable."""
        data = self.objects.get(name.object)
        return self.decoded(name, data), Known.of(name.object, data)

    def decoded(self, name: ManifestName, data: bytes) -> Manifest:
        """ManifestDamaged, ManifestUnreadable."""
        manifest = decode_manifest(data, name.object)
        if manifest.application_id != self.application_id:
            raise ManifestDamaged(f"{name.object} is of {manifest.application_id}")
        return manifest

    def put(self, name: ManifestName, data: bytes) -> bool:
        """Everything that the manifest names is there. Returns False if the name is taken."""
        return self.objects.put_new(name.object, data)

    def name(self, term: int, number: int, by: Role) -> ManifestName:
        return ManifestName(term, number, by, f"{self.folder}/manifests/{term:016x}-{number:016x}-{by}")

    def take_term(self, role: Role) -> int:
        """The next term, which is this process's alone."""
        term = max((self._terms(0)), default=0)
        manifests = self.manifests()
        term = max(term, manifests[0].term if manifests else 0)
        while True:
            term += 1
            if self.objects.put_new(self.term_name(term), role.encode()):
                return term

    def later(self, term: int) -> list[Role]:
        """Who has taken a term after this one."""
        return [self.role(later) for later in self._terms(term)]

    def _terms(self, after: int) -> list[int]:
        names = (o.name.rpartition("/")[2] for o in self.objects.list(f"{self.folder}/terms"))
        return sorted(t for t in map(_term, names) if t > after)

    def role(self, term: int) -> Role:
        """Who has taken a term."""
        return "command" if self.objects.get(self.term_name(term)) == b"command" else "instance"

    def term_name(self, term: int) -> str:
        """The object that says that a term is taken."""
        return f"{self.folder}/terms/{term:016x}"

    def applications(self) -> list[str]:
        """Folders of other applications, and of whatever else is there."""
        return sorted({o.name.partition("/")[0] for o in islice(self.objects.list(""), _LOOKED_AT)})


def _term(name: str) -> int:
    """0 for an object that no version of FlowQL has put there."""
    try:
        return int(name, 16)
    except ValueError:
        return 0


def _manifest_name(name: str) -> ManifestName | None:
    """None for an object that no version of FlowQL has put there."""
    words = name.rpartition("/")[2].split("-")
    if len(words) != 3 or words[2] not in ("instance", "command"):
        return None
    by: Role = "command" if words[2] == "command" else "instance"
    try:
        return ManifestName(int(words[0], 16), int(words[1], 16), by, name)
    except ValueError:
        return None

"""Which backups stay, and what can be deleted: for commands, which remember nothing from one run to the next.

Times of objects decide, by the store's own clock. `collecting` is the same for an instance, which remembers when it first saw that something is needed no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from flowql.runtime.backup.collecting import COMMAND_GRACE_MS, GRACE_MS, KEPT
from flowql.runtime.backup.manifest import piece_name
from flowql.runtime.backup.place import ManifestName, Place
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.state.remote.manifest import Garbage


@dataclass(frozen=True, slots=True)
class Keep:
    """The backups of commands that stay: the `count` newest, and those younger than `age_ms`. None: there is no such rule; without any all stay."""

    count: int | None = None
    age_ms: int | None = None

    def over_since(self, at: int, modified_ms: Sequence[int]) -> float:
        """When the backup with this index, from the newest on, was no longer kept; infinite while it is. modified_ms: of all of them."""
        rules: list[float] = []
        if self.count is not None:
            rules.append(modified_ms[at - self.count] if at >= self.count else inf)
        if self.age_ms is not None:
            rules.append(modified_ms[at] + self.age_ms)
        return max(rules) if rules and at else inf


def superfluous(place: Place, keep: Keep) -> Garbage:
    """Manifests that are not kept any more, and objects that only they name, or nobody.

    A manifest stays for an hour after that, because a restore may have begun with it. An object that no manifest names stays for a day after its upload, because a backup
    that is being made names it last. RemoteError, ManifestDamaged, ManifestUnreadable: then it is not known what is needed.
    """
    found = {o.name: o for o in place.objects.list(place.folder)}
    now_ms = max((o.modified_ms for o in found.values()), default=0)
    manifests = [m for m in place.manifests() if m.object in found]
    modified = {name: o.modified_ms for name, o in found.items()}
    gone = [
        *_over([m for m in manifests if m.by == "command"], keep, modified, now_ms),
        *_over([m for m in manifests if m.by == "instance"], Keep(KEPT), modified, now_ms),
    ]
    needed = {name for m in manifests if m not in gone for name in _named(place, m)}
    were = {name for m in gone for name in _named(place, m, readable=False)}
    names = [m.object for m in gone]
    for name, o in found.items():
        is_old = name in were or now_ms - o.modified_ms >= COMMAND_GRACE_MS
        if "/files/" in name and name not in needed and is_old:
            names.append(name)
    return Garbage(names, sum(found[n].size for n in names), len(found) - len(names), 0)


def _over(backups: Sequence[ManifestName], keep: Keep, modified: Mapping[str, int], now_ms: int) -> list[ManifestName]:
    """backups: the newest first."""
    times = [modified[m.object] for m in backups]
    return [m for at, m in enumerate(backups) if keep.over_since(at, times) + GRACE_MS <= now_ms]


def _named(place: Place, name: ManifestName, *, readable: bool = True) -> Iterator[str]:
    """The objects of a manifest. readable: an error if it cannot be read; else it names none."""
    try:
        manifest, _ = place.read(name)
    except RuntimeFailure as error:
        if readable or error.retriable:
            raise
        return
    yield from (piece_name(place.folder, path, piece) for path, piece in manifest.pieces())

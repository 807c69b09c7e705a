"""`manifest.json`: what a backup is of, and the size and SHA-256 of each of its files. Its own digest is its last entry.

It is written last and gets its name by a rename, so a directory without one holds no backup.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from flowql.errors import CommandError

FILE = "manifest.json"
FORMAT = 1
TORN, OTHER = "FQ5701", "FQ5705"
_ANOTHER = "restore another backup; nothing was changed"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file: its path in the backup and in the data directory, its bytes and their SHA-256 (hexadecimal)."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole backup.

    commit: the sequence of the last commit in the log, whose results a restore gives. state_commit: that of the copied state; the
    log has the redo of the commits between the two. deployed_at: when the plan was deployed, None before the first deployment.
    Times are ISO-8601 in UTC.
    """

    flowql: str
    application_id: str
    commit: int
    state_commit: int
    deployed_at: str | None
    taken_at: str
    folders: tuple[str, ...]
    files: tuple[Entry, ...]
    format: int = FORMAT

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.files)

    def to_data(self) -> dict[str, Any]:
        """The public JSON: without the list of files."""
        data = asdict(self) | {"files": len(self.files), "bytes": self.size}
        del data["folders"], data["format"]
        return data


def rendered(manifest: Manifest) -> bytes:
    """The file's bytes."""
    data = asdict(manifest)
    return _text(data | {"sha256": hashlib.sha256(_text(data)).hexdigest()})


def read_manifest(folder: Path) -> Manifest:
    """CommandError if the directory holds no whole manifest, or one of a newer format."""
    path = folder / FILE
    if not folder.is_dir():
        raise CommandError(
            f"{folder} is no directory", code=TORN, help="name a directory that `flowql backup` has made"
        )
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        title = f"{folder} holds no whole backup: {path} is missing, which is written last"
        raise CommandError(title, code=TORN, help=_ANOTHER) from None
    try:
        data = json.loads(found)
        version = data["format"]
    except (ValueError, KeyError, TypeError):
        raise _changed(path) from None
    if isinstance(version, int) and version > FORMAT:
        title = f"{folder} is a backup of format {version}, made by FlowQL {data.get('flowql')}; this program reads format {FORMAT}"
        raise CommandError(title, code=OTHER, help="restore it with that version of FlowQL")
    try:
        del data["sha256"]
        manifest = Manifest(
            **{**data, "folders": tuple(data["folders"]), "files": tuple(Entry(**e) for e in data["files"])}
        )
    except (KeyError, TypeError):
        raise _changed(path) from None
    if rendered(manifest) != found:
        raise _changed(path)
    _check_paths(manifest, path)
    return manifest


def _changed(path: Path) -> CommandError:
    return CommandError(f"{path} is not as `flowql backup` wrote it", code=TORN, help=_ANOTHER)


def _check_paths(manifest: Manifest, path: Path) -> None:
    """Nothing is ever written outside the data directory, whatever the manifest says."""
    for name in (*manifest.folders, *(entry.path for entry in manifest.files)):
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or not parts.parts:
            raise CommandError(f"{path} names a file outside the backup: {name}", code=TORN, help=_ANOTHER)


def _text(data: dict[str, Any]) -> bytes:
    return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode()

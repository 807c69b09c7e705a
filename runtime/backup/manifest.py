"""The manifest of a backup: what it is of, and where each byte of its files is.

<application>/instance/terms/<term>                                          who has taken a term
<application>/instance/manifests/<term>-<number>                             this
<application>/instance/files/<file>/<start>-<length>-<checksum>-<term>       some bytes of a file

term, number: 16 hexadecimal digits each, so names rise with time. All of these are written once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from flowql.runtime.errors import RuntimeFailure

FORMAT = 2  # 1 was a directory with a copy of each file
_UNSAFE = re.compile(r"[^A-Za-z0-9._/-]")


class Piece(NamedTuple):
    """Bytes of a file that are one object. sha256: hexadecimal. term: of who uploaded it."""

    start: int
    length: int
    sha256: str
    term: int

    @property
    def end(self) -> int:
        return self.start + self.length


class FileEntry(NamedTuple):
    """A file: its path in the data directory, its bytes, and the pieces that follow each other from its first byte to its last."""

    path: str
    size: int
    pieces: Sequence[Piece]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A whole backup.

    commit: the sequence of the last commit in the log, whose results a restore gives. state_commit: that of the state; the log has the
    redo of the commits between the two. unlogged: of the state, how many writes there were that no redo leads to. deployed_at: when the plan was deployed, None before the first deployment. by: who made it.
    Times are ISO-8601 in UTC.
    """

    flowql: str
    application_id: str
    commit: int
    state_commit: int
    deployed_at: str | None
    taken_at: str
    by: str
    folders: Sequence[str]
    files: Sequence[FileEntry]
    unlogged: int = -1

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.files)

    def pieces(self) -> Iterator[tuple[str, Piece]]:
        """All pieces, each with the path of its file."""
        for entry in self.files:
            for piece in entry.pieces:
                yield entry.path, piece


class _Envelope(msgspec.Struct, frozen=True):
    """format and flowql come first and never change their meaning."""

    format: int
    flowql: str
    sha256: str
    manifest: msgspec.Raw


class ManifestDamaged(RuntimeFailure, code="FQ5701"):
    """It is not what was written."""


class ManifestUnreadable(RuntimeFailure, code="FQ5705"):
    """A newer version of FlowQL wrote it."""


def encode_manifest(manifest: Manifest) -> bytes:
    body = msgspec.json.encode(manifest)
    sha256 = hashlib.sha256(body).hexdigest()
    return msgspec.json.encode(_Envelope(FORMAT, manifest.flowql, sha256, msgspec.Raw(body)))


def decode_manifest(data: bytes, name: str) -> Manifest:
    """ManifestDamaged, ManifestUnreadable. name: for the message."""
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
    except msgspec.DecodeError as error:
        raise ManifestDamaged(f"{name} is not as it was written") from error
    if envelope.format > FORMAT:
        raise ManifestUnreadable(
            f"{name} has format {envelope.format}, made by FlowQL {envelope.flowql}; this program reads format {FORMAT}"
        )
    body = bytes(envelope.manifest)
    if hashlib.sha256(body).hexdigest() != envelope.sha256 or msgspec.json.encode(envelope) != data:
        raise ManifestDamaged(f"{name} is not as it was written")
    try:
        manifest = msgspec.json.decode(body, type=Manifest)
    except msgspec.DecodeError as error:
        raise ManifestDamaged(f"{name} is not a valid manifest: {error}") from error
    if manifest.flowql != envelope.flowql:  # the checksum covers only the manifest's
        raise ManifestDamaged(f"{name} is not as it was written")
    _check_paths(manifest, name)
    return manifest


def _check_paths(manifest: Manifest, name: str) -> None:
    """Nothing is ever written outside the data directory, whatever the manifest says."""
    for path in (*manifest.folders, *(entry.path for entry in manifest.files)):
        parts = PurePosixPath(path)
        if parts.is_absolute() or ".." in parts.parts or not parts.parts:
            raise ManifestDamaged(f"{name} names a file outside the data directory: {path}")


def folder_of(application_id: str) -> str:
    """Where everything of an instance is.

    >>> folder_of("shop")
    'shop/instance'
    """
    return f"{quote(application_id, safe='')}/instance"


def piece_name(folder: str, path: str, piece: Piece) -> str:
    """The object of a piece. Characters that a store may change are replaced, and the checksum of the path tells such paths apart.

    >>> piece_name("shop/instance", "log/redo-000000000000.bin", Piece(0, 5, "0123456789abcdef" * 4, 7))
    'shop/instance/files/log/redo-000000000000.bin/0-5-0123456789abcdef-0000000000000007'
    """
    safe = _UNSAFE.sub("_", path)
    if safe != path:
        safe += f"-{hashlib.sha256(path.encode()).hexdigest()[:8]}"
    return f"{folder}/files/{safe}/{piece.start}-{piece.length}-{piece.sha256[:16]}-{piece.term:016x}"

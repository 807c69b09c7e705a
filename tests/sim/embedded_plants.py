"""Bugs to plant in the uploads of the embedded log. Found where its machine is lost (`--lost embedded`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from flowql.runtime.app.uploads import InstanceUploads
from flowql.runtime.backup import pieces, pinned
from flowql.runtime.backup.collecting import Collector
from flowql.runtime.backup.manifest import FileEntry, Manifest
from flowql.runtime.backup.pieces import PieceUploads, Source
from flowql.runtime.backup.pinned import UPLOAD, Held, held, pin, pinned_log, unpin
from flowql.runtime.log.embedded.named import Named

_upload, _manifest, _pinned_files = PieceUploads.upload, InstanceUploads._manifest, pinned.pinned_files


class _Forgetful:
    """Says that it has written."""

    def put_new(self, _name: str, _data: bytes) -> bool:
        return True


def _files_later(uploads: PieceUploads, source: Source) -> Iterator[int]:
    """The manifest does not wait for segments to be there."""
    objects = uploads._objects
    if source.path.endswith(".arrows"):
        uploads._objects = _Forgetful()  # type: ignore[assignment]
    try:
        yield from _upload(uploads, source)
    finally:
        uploads._objects = objects


def _cut_short(files: Any, directory: str) -> list[Named]:
    """The last bytes of segments are missing."""
    found = _pinned_files(files, directory)
    return [replace(n, length=n.length - 8) if n.path.endswith(".arrows") else n for n in found]


def _log_of_before(uploads: InstanceUploads, files: Held, log: Sequence[FileEntry], at_ms: int) -> Manifest:
    """State is copied after a commit that the log of this manifest does not have."""
    if files.state and uploads._newest is not None:
        log = [f for f in uploads._newest.files if f.path.startswith("log/")]
    return _manifest(uploads, files, log, at_ms)


def _state_of_long_ago(uploads: InstanceUploads) -> Held:
    """State is copied once, although redo after it is trimmed."""
    unpin(uploads._data_dir, UPLOAD)
    if uploads._state_commit >= 0:
        uploads._log.pin(pinned_log(uploads._data_dir, UPLOAD))
    else:
        uploads._copied_commit = pin(uploads._data_dir, uploads._log, uploads._state, UPLOAD)
    return held(uploads._data_dir, uploads._app, UPLOAD)


Plants = dict[str, tuple[object, str, Callable[..., object]]]
EMBEDDED_PLANTS: Plants = {
    "manifest-before-files": (PieceUploads, "upload", _files_later),
    "segments-cut-short": (pinned, "pinned_files", _cut_short),
    "log-older-than-state": (InstanceUploads, "_manifest", _log_of_before),
    "log-newer-than-state": (InstanceUploads, "_hold", _state_of_long_ago),
    "file-deleted-too-early": (Collector, "_objects_of", lambda _collector, _name: frozenset()),
    "same-name-same-bytes": (pieces, "_identity", lambda path, *, grows: path),
}

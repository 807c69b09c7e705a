"""Which manifest a data directory goes on from: a note in it, so that only what its own log has done since follows in the store.

Without the note, or with one that is behind the store, the directory has another history: an empty one after a loss of the disk, say, or a copy
that somebody has brought back. Its uploads would hide what was there, so there are none.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from flowql.runtime.remote.folder import sync_folder

_FILE = "uploaded.json"  # in `log`, with which it belongs together


class Known(NamedTuple):
    """A manifest: its object and the SHA-256 of its bytes, as another place may have one of the same name."""

    object: str
    sha256: str

    @classmethod
    def of(cls, name: str, data: bytes) -> Known:
        return cls(name, hashlib.sha256(data).hexdigest())


class Note(NamedTuple):
    """bases: made from this log, or this log from it; the last one may not have been written. over: newer ones that a restore has passed over."""

    bases: Sequence[Known] = ()
    over: Sequence[Known] = ()


def read_note(data_dir: Path) -> Note:
    """An empty one if there is none, or none that can be read."""
    try:
        return msgspec.json.decode((data_dir / "log" / _FILE).read_bytes(), type=Note)
    except (FileNotFoundError, msgspec.DecodeError):
        return Note()


def write_note(data_dir: Path, note: Note) -> None:
    """Durable when it returns. Comes before a manifest is written, as the answer to that may be lost."""
    path = data_dir / "log" / _FILE
    new = path.with_suffix(".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, msgspec.json.encode(note))
        os.fsync(fd)
    finally:
        os.close(fd)
    new.replace(path)
    sync_folder(path.parent)

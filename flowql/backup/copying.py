"""Copies files with their SHA-256, durable when a call returns. All writes go through the log's `Files`, whose faults tests use."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from flowql.backup.manifest import Entry
from flowql.backup.verify import CHUNK_BYTES, Advance
from flowql.runtime.errors import LogCorrupt
from flowql.runtime.log.files import Files


@dataclass(frozen=True, slots=True)
class Part:
    """The first `size` bytes of `source`, to become the file `path` of a copy."""

    source: str
    path: str
    size: int


def copy_part(files: Files, part: Part, into: Path, advance: Advance) -> Entry:
    """Copy a file to a new name; the directory is there. LogCorrupt if the source is shorter."""
    source, digest, at = files.open(part.source), hashlib.sha256(), 0
    try:
        target = files.open(str(into / part.path), create=True, write=True)
        try:
            while at < part.size:
                chunk = source.pread(at, min(CHUNK_BYTES, part.size - at))
                if not chunk:
                    raise LogCorrupt(f"{part.source} has {at} bytes, but {part.size} are committed")
                target.pwrite(at, [chunk])
                digest.update(chunk)
                at += len(chunk)
                advance(len(chunk))
            target.fsync()
        finally:
            target.close()
    finally:
        source.close()
    return Entry(part.path, part.size, digest.hexdigest())


def make_folders(files: Files, into: Path, folders: Iterable[str]) -> None:
    for folder in folders:
        files.makedirs(str(into / folder))


def make_names_durable(files: Files, into: Path, folders: Iterable[str]) -> None:
    """Names in these directories, in `into`, and its own."""
    for folder in sorted(folders, reverse=True):
        files.fsync_dir(str(into / folder))
    files.fsync_dir(str(into))
    files.fsync_dir(str(into.parent))

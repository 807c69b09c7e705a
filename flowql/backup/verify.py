"""Whether each file of a backup is what its manifest says. Reads every byte."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from flowql.backup.manifest import TORN, Manifest
from flowql.errors import CommandError

CHUNK_BYTES = 1 << 20
Advance = Callable[[int], None]  # by so many bytes


def check_backup(folder: Path, manifest: Manifest, advance: Advance) -> None:
    """CommandError that names the first file that is not as it was written."""
    for problem in problems(folder, manifest, advance):
        raise CommandError(problem, code=TORN, help="restore another backup; nothing was changed")


def problems(folder: Path, manifest: Manifest, advance: Advance = lambda n: None) -> Iterator[str]:
    """A sentence for each file that is missing, of another size or changed. Sizes are looked at first: that takes no time."""
    wrong = {e.path: found for e in manifest.files if (found := _wrong_size(folder / e.path, e.size))}
    yield from wrong.values()
    for entry in manifest.files:
        if entry.path not in wrong and _digest(folder / entry.path, advance) != entry.sha256:
            yield f"{folder / entry.path} is not as it was written: its SHA-256 is another one"


def _wrong_size(path: Path, expected: int) -> str:
    if not path.is_file():
        return f"{path} is missing from the backup"
    size = path.stat().st_size
    return f"{path} has {size:,} bytes instead of {expected:,}" if size != expected else ""


def _digest(path: Path, advance: Advance) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):  # what the disk holds, not what was just written to memory
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            advance(len(chunk))
    return digest.hexdigest()

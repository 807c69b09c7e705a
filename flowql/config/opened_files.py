"""Which files of a project its modules open to read while they are imported: what a function computes depends on them as on its source."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowql.runtime.functions.workers import DataFile, digest_of

_CODE = (".py", ".pyc", ".so")
_lock = threading.Lock()  # guards _installed and _watched
_installed = False
_watched: tuple[int, set[str]] | None = None  # a thread, and the paths that it has opened


@contextmanager
def opened_files() -> Iterator[set[str]]:
    """Within, the paths that this thread opens to read, as they were said. One thread at a time. Python has no way to take its hook back."""
    global _installed, _watched
    paths: set[str] = set()
    with _lock:
        if not _installed:
            sys.addaudithook(_note)
            _installed = True
        _watched = threading.get_ident(), paths
    try:
        yield paths
    finally:
        _watched = None


def _note(event: str, args: tuple[object, ...]) -> None:
    watched = _watched
    if watched is None or event != "open" or watched[0] != threading.get_ident():
        return
    path, _, flags = args
    if isinstance(path, str | bytes) and isinstance(flags, int) and flags & os.O_ACCMODE == os.O_RDONLY:
        watched[1].add(os.path.abspath(os.fsdecode(path)))


def data_files(root: Path, paths: set[str]) -> tuple[DataFile, ...]:
    """Those in the project's folder that are no code, with what is in them now. One that does not exist counts too: it may come."""
    folder = os.path.abspath(root)
    return tuple(DataFile(p, digest_of(p)) for p in sorted(paths) if _is_data(folder, p))


def _is_data(root: str, path: str) -> bool:
    if not path.startswith(root + os.sep) or path.endswith(_CODE) or os.path.isdir(path):
        return False
    parts = path[len(root) + 1 :].split(os.sep)
    return not any(p.startswith(".") or p in ("site-packages", "dist-packages", "__pycache__") for p in parts)

"""Copies of committed state: hard links to the files of the physical store, made in milliseconds.

For readers of many rows. Unlike a snapshot, a copy does not keep old versions of rows in the store, and other processes can open it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from flowql.runtime.errors import StateError
from flowql.runtime.state.catalog import read_stores
from flowql.runtime.state.layout import MARKER, decode_number
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.rocks import MIB, RocksPhysical, open_rocks
from flowql.runtime.state.runs.reader import RunsReader
from flowql.runtime.state.snapshot import SharedSnapshot, StateSnapshot

_CACHE_BYTES = 8 * MIB  # each block is read once


def copy_of(state: StateManager, path: Path) -> StateCopy:
    """The last commit, in a new directory of the same file system. Raises StateError where there can be no copy; then nothing is left in `path`."""
    with state.snapshot() as snapshot:
        owned = snapshot.owned
    copied(state, path)
    try:
        return StateCopy(path, owned, remove=True)
    except StateError:
        shutil.rmtree(path, ignore_errors=True)
        raise


def copied(state: StateManager, path: Path) -> None:
    """Makes the files of a copy, see `copy_of`. Commits wait some milliseconds."""
    try:
        state.flush()  # so that little is left to write while the next commit waits
        state.checkpoint(path)
    except StateError:
        shutil.rmtree(path, ignore_errors=True)
        raise


class StateCopy(StateSnapshot):
    """The commit in `path`. remove: the files go when it is closed."""

    def __init__(self, path: Path, owned: frozenset[str] | None, *, remove: bool) -> None:
        """owned: as of `StateSnapshot`. Raises StateError if there is no state in `path`."""
        self.path = path
        physical = _Copied(open_rocks(path, cache_bytes=_CACHE_BYTES, read_only=True), path if remove else None)
        sequence = decode_number(physical.get(MARKER), 0)
        super().__init__(SharedSnapshot(RunsReader(physical), read_stores(physical), sequence), owned)


class _Copied:
    """Implements `PhysicalSnapshot` over a read-only database. removed: a folder that `close` deletes."""

    def __init__(self, db: RocksPhysical, removed: Path | None) -> None:
        self._db, self._rows, self._removed = db, db.snapshot(), removed
        self.get, self.multi_get = db.get, db.multi_get
        self.scan, self.chunks = self._rows.scan, self._rows.chunks

    def close(self) -> None:
        self._rows.close()
        self._db.close()
        if self._removed is not None:
            shutil.rmtree(self._removed, ignore_errors=True)

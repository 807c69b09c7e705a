"""The local tables of a target as one process changes them: opened with the first statement, and kept for the next."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from flowql.runtime.errors import StateDamaged, StateError
from flowql.runtime.log.base import Log
from flowql.runtime.state.rocks import RocksPhysical, open_rocks
from flowql.runtime.topology.row_store import RowStores, StoresInDatabase, StoresInMemory
from flowql.runtime.topology.table_writer import TableWriters

CACHE_BYTES, WRITE_BUFFER_BYTES = 16 << 20, 8 << 20


class LocalTables:
    """Any thread."""

    def __init__(
        self, open_log: Callable[[], Log], application_id: str, writer: str, folder: Path | None = None
    ) -> None:
        """writer: tells this process apart from others. folder: where it alone keeps the rows of the tables; None: in memory."""
        self._open_log, self._application_id, self._writer, self._folder = open_log, application_id, writer, folder
        self._lock = threading.Lock()  # guards the one below
        self._writers: TableWriters | None = None

    def writers(self) -> TableWriters:
        with self._lock:
            if self._writers is None:
                log = self._open_log()
                stores = StoresInMemory() if self._folder is None else _stores_in(self._folder)
                self._writers = TableWriters(log, self._application_id, self._writer, stores)
            return self._writers

    def close(self) -> None:
        """No statement may be in progress."""
        with self._lock:
            writers, self._writers = self._writers, None
        if writers is not None:
            writers.close()
            writers.log.close()


def folder_of(data_dir: Path, name: str) -> Path:
    """Where a process of a target keeps rows of tables. Everything in it can be read again from the log."""
    return data_dir / "tables" / name


def _stores_in(folder: Path) -> RowStores:
    try:
        return StoresInDatabase(_opened(folder))
    except StateError:  # another process has it open, or the disk takes no files
        return StoresInMemory()


def _opened(folder: Path) -> RocksPhysical:
    try:
        return open_rocks(folder, cache_bytes=CACHE_BYTES, write_buffer_bytes=WRITE_BUFFER_BYTES)
    except StateDamaged:
        shutil.rmtree(folder, ignore_errors=True)
        return open_rocks(folder, cache_bytes=CACHE_BYTES, write_buffer_bytes=WRITE_BUFFER_BYTES)

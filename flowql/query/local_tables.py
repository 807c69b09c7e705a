"""The local tables of a target as one process changes them: opened with the first statement, and kept for the next."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from flowql.compiler.plan.topology import Plan
from flowql.query.answer import Done
from flowql.query.bound_changes import BoundChanges
from flowql.query.changing import begin_change, wall_ms
from flowql.runtime.errors import StateDamaged, StateError
from flowql.runtime.log.base import Log
from flowql.runtime.state.rocks import RocksPhysical, open_rocks
from flowql.runtime.topology.row_store import RowStores, StoresInDatabase, StoresInMemory
from flowql.runtime.topology.table_writer import FULL, TableWriters

if TYPE_CHECKING:
    from flowql.compiler.driver import DialectName

MEMORY_SHARE = 8  # rows in memory take an eighth of the target's memory at most
OWNERS = 4  # tables that are written at the same time by statements for which no thread waits
CACHE_BYTES, WRITE_BUFFER_BYTES = 16 << 20, 8 << 20


class LocalTables:
    """Any thread."""

    def __init__(
        self,
        open_log: Callable[[], Log],
        application_id: str,
        writer: str,
        folder: Path | None = None,
        memory: int | None = None,
    ) -> None:
        """writer: tells this process apart from others. folder: where it alone keeps the rows of the tables; None: in memory. memory: of the
        target, in bytes, of which rows may take a share where the disk of the folder takes none.
        """
        self._open_log, self._application_id, self._writer, self._folder = open_log, application_id, writer, folder
        self._memory_max = None if memory is None else memory // MEMORY_SHARE
        self.bound = BoundChanges()
        self._owners = ThreadPoolExecutor(OWNERS, "tables")
        self._lock = threading.Lock()  # guards the one below
        self._writers: TableWriters | None = None

    def writers(self) -> TableWriters:
        with self._lock:
            if self._writers is None:
                log = self._open_log()
                stores = StoresInMemory() if self._folder is None else _stores_in(self._folder, self._memory_max)
                self._writers = TableWriters(log, self._application_id, self._writer, stores, self._memory_max)
            return self._writers

    def status(self) -> dict[str, int]:
        """Entries of `status` about kept rows."""
        with self._lock:
            used = 0 if self._writers is None else self._writers.memory_bytes
        return {
            "tables_memory_bytes": used,
            "tables_memory_bytes_max": CACHE_BYTES + 2 * WRITE_BUFFER_BYTES + (self._memory_max or 0),
        }

    def begin(
        self,
        text: str,
        plan: Plan,
        dialect: DialectName,
        *,
        one_returns: bool = False,
        after: Callable[[], None] | None = None,
    ) -> Future[Done] | None:
        """Begins a statement without waiting for it, as one transaction; the future has its outcome. None for a statement that may have to wait for
        more than its table: use `carry_out`. plan: the serving one. one_returns: as there. after: see `TableWriters.begin`.
        """
        if not self._lock.acquire(blocking=False):  # the log is being opened
            return None
        tables = self._writers
        self._lock.release()
        if tables is None:
            return None
        found = self.bound.known(text, plan.by_name, dialect)
        if found is None or (one_returns and not found[1].returning):
            return None
        return begin_change(tables, *found, wall_ms(), self._own, after)

    def _own(self, carry_out: Callable[[], None]) -> None:
        try:
            self._owners.submit(carry_out)
        except RuntimeError:  # `close` waits for the owner of the table, and statements wait for it too
            carry_out()

    def close(self) -> None:
        """No statement may be in progress."""
        self._owners.shutdown()
        with self._lock:
            writers, self._writers = self._writers, None
        if writers is not None:
            writers.close()
            writers.log.close()


def folder_of(data_dir: Path, name: str) -> Path:
    """Where a process of a target keeps rows of tables. Everything in it can be read again from the log."""
    return data_dir / "tables" / name


def _stores_in(folder: Path, memory_max: int | None) -> RowStores:
    try:
        return StoresInDatabase(_opened(folder))
    except StateError:  # another process has it open, or the disk takes no files
        return StoresInMemory(memory_max, FULL)


def _opened(folder: Path) -> RocksPhysical:
    try:
        return open_rocks(folder, cache_bytes=CACHE_BYTES, write_buffer_bytes=WRITE_BUFFER_BYTES)
    except StateDamaged:
        shutil.rmtree(folder, ignore_errors=True)
        return open_rocks(folder, cache_bytes=CACHE_BYTES, write_buffer_bytes=WRITE_BUFFER_BYTES)

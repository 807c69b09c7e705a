"""Limits of all interactive queries of a process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from flowql.config.sections import InteractiveQuerySettings
from flowql.runtime.budget import MIB, QUERY_PROCESS_BYTES_MIN, MemoryBudget, query_process_bytes

MEMORY_BYTES_DEFAULT = MemoryBudget(1 << 30).interactive_query_bytes


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits of all interactive queries of a process together; rows and time in `settings` are limits of one.

    memory_bytes: of DuckDB, and as much again of rows outside it. folder: where queries spill; None: nowhere.
    """

    memory_bytes: int = MEMORY_BYTES_DEFAULT
    settings: InteractiveQuerySettings = field(default_factory=InteractiveQuerySettings)
    folder: Path | None = None

    @classmethod
    def of(cls, budget: MemoryBudget, settings: InteractiveQuerySettings, data_dir: Path | None) -> QueryLimits:
        """The limits for a target. budget: that of the target."""
        return cls(budget.interactive_query_bytes, settings, data_dir)

    @property
    def registered_bytes(self) -> int:
        """A relation up to this is asked as it was read; larger ones become tables of DuckDB, which can spill them."""
        return min(4 * MIB, self.memory_bytes // 16)

    @property
    def processes(self) -> int:
        """How many child processes answer queries at the same time."""
        return 2 if query_process_bytes(self.memory_bytes) >= 2 * QUERY_PROCESS_BYTES_MIN else 1

    @property
    def process_bytes(self) -> int:
        """The memory that such a process may use beyond its idle size, in bytes."""
        return query_process_bytes(self.memory_bytes) // self.processes

    @property
    def of_process(self) -> QueryLimits:
        """The limits in such a process: DuckDB's two thirds, as rows outside it and what it does not count need the rest."""
        return replace(self, memory_bytes=2 * self.process_bytes // 3)

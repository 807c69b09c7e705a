"""Limits of all interactive queries of a process."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from flowql.config.sections import InteractiveQuerySettings
from flowql.runtime.budget import MIB, MemoryBudget

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
    def of(cls, memory_bytes: int, settings: InteractiveQuerySettings, data_dir: Path | None) -> QueryLimits:
        """The limits for a target. memory_bytes: the whole budget of the target."""
        return cls(MemoryBudget(memory_bytes).interactive_query_bytes, settings, data_dir)

    @property
    def registered_bytes(self) -> int:
        """A relation up to this is asked as it was read; larger ones become tables of DuckDB, which can spill them."""
        return min(4 * MIB, self.memory_bytes // 16)

    @property
    def process_bytes(self) -> int:
        """What a child process that answers a query may take beside what it has when it is idle: DuckDB, and rows outside it."""
        return 2 * self.memory_bytes

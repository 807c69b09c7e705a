"""How much memory decoded rows of state take: those that wait for a commit, and how many of others may be kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from flowql.runtime.batch import Ints
from flowql.runtime.budget import StateLimits

# Measured on rows of one and of ten columns: two tuples, their objects, and an entry of a dictionary that is half full.
ROW_BYTES, FACTOR = 350, 3
FIRST_BYTES = ROW_BYTES + FACTOR * 32  # taken for a row before there was a commit
SAMPLE = 64  # rows of a commit that are looked at


class StateMemory:
    """Counts rows, and learns from commits how large they are. Written under the epoch lock, read by any thread.

    Rows of tasks that were withdrawn count until the next commit. Those of tasks with `counts` False do not count, and nothing is learned of
    their size.
    """

    def __init__(self, limits: StateLimits) -> None:
        self._limits = limits
        self._filling = self._frozen = 0  # rows of the epoch that is being filled, and of the one that is cut
        self.row_bytes = FIRST_BYTES

    @property
    def size_bytes(self) -> int:
        return (self._filling + self._frozen) * self.row_bytes

    @property
    def full(self) -> bool:
        """There is no more room until a commit."""
        return self.size_bytes >= self._limits.uncommitted_bytes

    @property
    def cached_rows_max(self) -> int:
        """Maximum number of cached rows of all caches together."""
        return self._limits.cache_bytes // self.row_bytes

    def add(self, rows: int) -> None:
        self._filling += rows

    def cut(self) -> None:
        self._filling, self._frozen = 0, self._filling

    def revert(self) -> None:
        self._filling = self._frozen = 0

    @property
    def has_reserve(self) -> bool:
        """At least half of the room is free."""
        return 2 * self.size_bytes < self._limits.uncommitted_bytes

    def applied(self, sizes: Iterable[Sequence[int] | Ints]) -> None:
        """The frozen epoch is committed. sizes: bytes of key and value of each row that counts, store by store."""
        self._frozen = 0
        known = [np.asarray(of_store, np.int64) for of_store in sizes]
        rows = np.concatenate(known) if known else np.zeros(0, np.int64)
        sample = rows[:: max(1, len(rows) // SAMPLE)]
        if len(sample) < SAMPLE // 2:  # a commit of few rows is of one task
            return
        seen = ROW_BYTES + FACTOR * int(sample.sum()) // len(sample)
        self.row_bytes += (seen - self.row_bytes) // 4 if seen < self.row_bytes else seen - self.row_bytes

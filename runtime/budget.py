"""One budget of memory, divided over everything in an instance that grows with load."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
PROCESS_BYTES = (
    240 * MIB
)  # the interpreter, libraries and threads of an instance without queries (135), and mapped parts of the log
QUERY_PROCESS_IDLE_BYTES = (
    64 * MIB
)  # a child process for interactive queries, which is warm: its own memory, without the libraries that it shares
INTERACTIVE_QUERY_BYTES_MIN = 32 * MIB  # with less, DuckDB cannot sort what it could spill
QUERY_PROCESS_BYTES_MIN = 64 * MIB  # of a child process, for the same reason
_FIXED = PROCESS_BYTES + QUERY_PROCESS_IDLE_BYTES
# Parts of 64. Each bounds what it names; together they are the budget without the process.
_FETCH, _INPUT, _OUTPUT, _LAYERS, _CACHE, _BLOCKS, _INTERACTIVE, _PROCESSES = 2, 7, 7, 8, 7, 8, 5, 7
_FREE = 6  # what the C library and Python keep of what was given back, until the process exceeds its budget (`flowql.runtime.app.allocator`)
assert 2 * _FETCH + _INPUT + _OUTPUT + _LAYERS + _CACHE + _BLOCKS + 2 * _INTERACTIVE + _PROCESSES + _FREE == 64


RUN_ROWS_MIN = 1_000  # a run costs about 1 ms, a row 2 us


@dataclass(frozen=True, slots=True)
class StateLimits:
    """Limits of the decoded rows of all stores together: rows that are not committed, and rows that are kept for the next look-up.

    run_rows_min: a commit of fewer rows of a store writes them one by one.
    """

    uncommitted_bytes: int = 128 * MIB
    cache_bytes: int = 160 * MIB
    run_rows_min: int = RUN_ROWS_MIN


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """The shares of an instance's parts in `memory_bytes`, the limit of the whole process.

    >>> MemoryBudget(1 << 30).interactive_query_bytes >> 20
    56
    """

    memory_bytes: int

    def _share(self, parts: int) -> int:
        return max(self.memory_bytes - _FIXED, self.memory_bytes // 2) * parts // 64

    @property
    def counts_query_process(self) -> bool:
        """Whether the parts leave room for a child process that waits for interactive queries."""
        return self.memory_bytes - _FIXED >= self.memory_bytes // 2

    @property
    def fetch_buffer_bytes(self) -> int:
        """Fetched records that are not distributed yet, of each of the two clients."""
        return self._share(_FETCH)

    @property
    def input_buffer_bytes(self) -> int:
        """For all tasks together; a task may use its share and borrow what others leave."""
        return self._share(_INPUT)

    @property
    def uncommitted_output_bytes(self) -> int:
        """The pending epoch: processing waits while it is larger. As much may be in the epoch that is committed."""
        return self._share(_OUTPUT) // 2

    @property
    def state(self) -> StateLimits:
        """Processing waits while rows of state that take more than that are not committed."""
        return StateLimits(self._share(_LAYERS), self._share(_CACHE))

    @property
    def block_cache_bytes(self) -> int:
        """RocksDB's cache, its write buffers included."""
        return self._share(_BLOCKS)

    @property
    def write_buffer_bytes(self) -> int:
        return self.block_cache_bytes // 2

    @property
    def interactive_query_bytes(self) -> int:
        """Memory of DuckDB for all interactive queries together, and as much again of rows on their way into it and out of it. What they need beyond goes
        to disk, or is an error.
        """
        return max(INTERACTIVE_QUERY_BYTES_MIN, self._share(_INTERACTIVE))

    @property
    def query_process_bytes(self) -> int:
        """All child processes of interactive queries, beyond their idle size."""
        return query_process_bytes(self.interactive_query_bytes)


def query_process_bytes(interactive_query_bytes: int) -> int:
    """As `MemoryBudget.query_process_bytes`, for this share of interactive queries in the process of the instance."""
    return max(QUERY_PROCESS_BYTES_MIN, interactive_query_bytes * _PROCESSES // _INTERACTIVE)

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
GATEWAY_PROCESS_BYTES = 100 * MIB  # the interpreter and libraries of the gateway, without pages that it shares
FOLLOWED_STATE_BYTES_MIN = 36 * MIB
INTERACTIVE_QUERY_BYTES_MIN = 32 * MIB  # with less, DuckDB cannot sort what it could spill
QUERY_PROCESS_BYTES_MIN = 64 * MIB  # of a child process, for the same reason
_FIXED = PROCESS_BYTES + QUERY_PROCESS_IDLE_BYTES
# Parts of 64. Each bounds what it names; together they are the budget without the process.
_FETCH, _INPUT, _OUTPUT, _LAYERS, _CACHE, _BLOCKS, _INTERACTIVE, _PROCESSES = 2, 7, 7, 8, 7, 8, 5, 7
_FREE = 6  # what the C library and Python keep of what was given back, until the process exceeds its budget (`flowql.runtime.app.allocator`)
assert 2 * _FETCH + _INPUT + _OUTPUT + _LAYERS + _CACHE + _BLOCKS + 2 * _INTERACTIVE + _PROCESSES + _FREE == 64
# Parts beside the 64 if the instance has a gateway, which has its own interactive queries and keeps unused memory as well.
_FOLLOWED, _GATEWAY_FREE = 6, 2


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
    """The shares of an instance's parts in `memory_bytes`, the limit of the whole process and its gateway.

    has_gateway: whether a process serves the ports of `api` and `pg`.

    >>> MemoryBudget(1 << 30).interactive_query_bytes >> 20
    56
    """

    memory_bytes: int
    has_gateway: bool = False

    def _share(self, parts: int) -> int:
        of = 64 + (_FOLLOWED + 2 * _INTERACTIVE + _GATEWAY_FREE if self.has_gateway else 0)
        return max(self.memory_bytes - self._fixed, self.memory_bytes // 2) * parts // of

    @property
    def _fixed(self) -> int:
        return _FIXED + (GATEWAY_PROCESS_BYTES if self.has_gateway else 0)

    @property
    def counts_query_process(self) -> bool:
        """Whether the parts leave room for a child process that waits for interactive queries."""
        return self.memory_bytes - self._fixed >= self.memory_bytes // 2

    @property
    def gateway_bytes(self) -> int:
        """Private memory of the gateway; 0 without one. As for the instance, it can get larger than its part for a moment."""
        if not self.has_gateway:
            return 0
        return GATEWAY_PROCESS_BYTES + 2 * self.interactive_query_bytes + self.followed_state_bytes

    @property
    def instance_bytes(self) -> int:
        """Memory of the process of the instance."""
        return max(self.memory_bytes - self.gateway_bytes, self.memory_bytes // 2)

    @property
    def followed_state_bytes(self) -> int:
        """The copy of the state that the gateway follows: RocksDB's cache, tables of runs, and merged rows."""
        return max(FOLLOWED_STATE_BYTES_MIN, self._share(_FOLLOWED))

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

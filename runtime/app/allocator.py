"""How the process keeps memory that it will need again for the next batch.

A batch's columns are arrays of some 100 KiB. As it comes, the C library maps each of them afresh and gives it back when the
batch is done, or trims its heap: every page of every batch is then a fault again. Once the process is near its budget, what it keeps unused is returned to the system.

Arrow's arrays are the C library's, too: Arrow's own allocator (mimalloc) keeps pages for each thread and each size, which no other thread can return. With
the thirty threads of an instance it held 47 MB where 0.2 MB were used, and 2.2 MB at most had been.
"""

from __future__ import annotations

import ctypes
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

# malloc.h of glibc: parameters of mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
MAPPED_FROM_BYTES = 32 << 20  # the largest that all versions of glibc take
TRIMMED_FROM_BYTES = 256 << 20  # of free memory at the end of one heap
NEAR = 0.85  # of the budget: from here on unused memory is returned
# Measured: 38 MB of 16 heaps are returned in 4 ms, in which threads that allocate from the same heap wait; 0.2 ms if there is nothing.
LOOK_MS, AGAIN_MS = 500, 5_000
_PAGES = Path("/proc/self/statm")


def keep_memory(heaps: int = 0) -> bool:
    """Let the allocator reuse memory instead of returning it, and Arrow use it. Returns False where it cannot be told (it is not glibc).

    heaps: how many heaps all threads share, each of which keeps memory of its own; 0 for the C library's choice, eight for each processor.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    pa.set_memory_pool(pa.system_memory_pool())
    wishes = [(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES), (_M_TRIM_THRESHOLD, TRIMMED_FROM_BYTES)]
    if heaps:
        wishes.append((_M_ARENA_MAX, heaps))
    return all([mallopt(ctypes.c_int(parameter), ctypes.c_int(value)) == 1 for parameter, value in wishes])


class UnusedMemory:
    """A step of its own thread: returns memory that the allocators keep unused while the process is near its budget.

    Heaps of threads are never trimmed by themselves: `free` returns memory at the end of the main heap only, and one interactive query's rows
    are spread over the heaps of all threads that read them.
    """

    def __init__(self, budget_bytes: int, used: Callable[[], int] | None = None) -> None:
        """used: the memory that counts, in bytes; None for the resident memory."""
        self._near_bytes, self._used = int(NEAR * budget_bytes), used
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform.startswith("linux") else None

    def run_once(self, now_ms: int) -> int:
        if (resident_bytes() if self._used is None else self._used()) < self._near_bytes:
            return LOOK_MS
        self.give_back()
        return AGAIN_MS

    def give_back(self) -> None:
        pa.default_memory_pool().release_unused()
        if self._trim is not None:
            self._trim(ctypes.c_size_t(0))


def resident_bytes() -> int:
    """Resident memory of this process in bytes; 0 where the system does not report it."""
    return _pages()[0] * resource.getpagesize()


def private_bytes() -> int:
    """As `resident_bytes`, without pages of files, which processes share."""
    resident, of_files = _pages()
    return (resident - of_files) * resource.getpagesize()


def _pages() -> tuple[int, int]:
    """Resident pages, and those of files among them."""
    try:
        _, resident, of_files, *_ = map(int, _PAGES.read_text().split())
    except OSError:
        return 0, 0
    return resident, of_files

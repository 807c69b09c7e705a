"""How the process keeps memory that it will need again for the next batch.

A batch's columns are arrays of some 100 KiB. As it comes, the C library maps each of them afresh and gives it back when the
batch is done, or trims its heap: every page of every batch is then a fault again. `python -m flowql.bench.kernels` prints the
faults beside the times.
"""

from __future__ import annotations

import ctypes
import sys

# malloc.h of glibc: parameters of mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
MAPPED_FROM_BYTES = 32 << 20  # the largest that all versions of glibc take
TRIMMED_FROM_BYTES = 256 << 20  # of free memory at the end of one heap


def keep_memory() -> bool:
    """Let the allocator reuse memory instead of returning it. False where it cannot be told (it is not glibc)."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wishes = ((_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES), (_M_TRIM_THRESHOLD, TRIMMED_FROM_BYTES))
    return all([mallopt(ctypes.c_int(parameter), ctypes.c_int(value)) == 1 for parameter, value in wishes])

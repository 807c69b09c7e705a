"""Memory of a batch is used again for the next one."""

from __future__ import annotations

import subprocess
import sys

import pytest

_FAULTS = """
import resource, sys, threading
import numpy as np
from runtime.app.allocator import keep_memory
if sys.argv[1] == "keep" and not keep_memory():
    print(-1)
    raise SystemExit
counted = []
def batches():
    for run in range(40):
        if run == 10:
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        columns = [np.ones(20_000 * (1 + k), np.int64) for k in range(8)]
        del columns
    counted.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)
thread = threading.Thread(target=batches)
thread.start()
thread.join()
print(counted[0])
"""


def _faults(how: str) -> int:
    return int(subprocess.run([sys.executable, "-c", _FAULTS, how], capture_output=True, text=True, check=True).stdout)


def test_a_thread_reuses_the_memory_of_its_batches() -> None:
    kept = _faults("keep")
    if kept < 0:
        pytest.skip("the C library of this machine has no mallopt")
    assert kept * 10 < _faults("return"), kept

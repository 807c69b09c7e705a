"""Memory of a batch is used again for the next one; near the budget what is unused is returned."""

from __future__ import annotations

import ctypes
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from flowql.runtime.app import allocator
from flowql.runtime.app.allocator import AGAIN_MS, LOOK_MS, UnusedMemory, keep_memory, resident_bytes

_FAULTS = """
import resource, sys, threading
import numpy as np
from flowql.runtime.app.allocator import keep_memory
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


_RETURNED = """
import sys, threading
from flowql.runtime.app.allocator import AGAIN_MS, LOOK_MS, UnusedMemory, keep_memory, resident_bytes, keep_memory, resident_bytes
if not keep_memory():
    print(-1)
    raise SystemExit
def rows():
    kept = [bytes(2_000) for _ in range(20_000)]
    pinned.append(bytes(2_000))  # at the end of the heap of this thread, which cannot shrink
pinned = []
threads = [threading.Thread(target=rows) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
before = resident_bytes()
assert UnusedMemory(before * 2).run_once(0) == LOOK_MS
assert resident_bytes() >= before
assert UnusedMemory(before).run_once(0) == AGAIN_MS
print(before - resident_bytes())
"""


def test_near_the_budget_threads_return_memory_they_do_not_use() -> None:
    returned = int(subprocess.run([sys.executable, "-c", _RETURNED], capture_output=True, text=True, check=True).stdout)
    if returned < 0:
        pytest.skip("the C library of this machine has no mallopt")
    assert returned > 50 << 20


_COLUMNS = """
import threading
import pyarrow as pa
from flowql.runtime.app.allocator import UnusedMemory, keep_memory, resident_bytes
if not keep_memory():
    print(-1)
    raise SystemExit
done, end = threading.Barrier(9), threading.Event()
def batches():
    for size in (1_000, 9_000, 50_000, 200_000):
        columns = [pa.allocate_buffer(size) for _ in range(4_000_000 // size)]
        for column in columns:
            memoryview(column).cast("B")[:] = bytes([1]) * size
        del column, columns
    done.wait()
    end.wait()
threads = [threading.Thread(target=batches, daemon=True) for _ in range(8)]
before = resident_bytes()
for t in threads:
    t.start()
done.wait()
UnusedMemory(1).give_back()
print(resident_bytes() - before)
"""


def test_memory_of_columns_of_all_threads_is_returned_as_well() -> None:
    """Arrow's own allocator keeps it for the thread that used it, which may never need it again."""
    kept = int(subprocess.run([sys.executable, "-c", _COLUMNS], capture_output=True, text=True, check=True).stdout)
    if kept == -1:
        pytest.skip("the C library of this machine has no mallopt")
    assert kept < 10 << 20


def test_both_allocators_are_told_to_return_all(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    pool = SimpleNamespace(release_unused=lambda: told.append("Arrow"))
    monkeypatch.setattr(allocator, "pa", SimpleNamespace(default_memory_pool=lambda: pool))
    memory = UnusedMemory(1 << 50)
    monkeypatch.setattr(memory, "_trim", lambda size: told.append(size.value))
    assert (memory.run_once(0), told) == (LOOK_MS, [])
    memory._near_bytes = 1
    assert (memory.run_once(0), told) == (AGAIN_MS, ["Arrow", 0])
    monkeypatch.setattr(memory, "_trim", None)
    memory.give_back()
    assert told == ["Arrow", 0, "Arrow"], "the C library of this machine has no such call"


def test_the_c_library_is_told_from_which_sizes_on_memory_is_mapped_and_trimmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """glibc takes no larger size for mappings, and answers 1 for what it takes."""
    told, answers = list[tuple[int, int]](), list[int]()

    def mallopt(parameter: ctypes.c_int, value: ctypes.c_int) -> int:
        told.append((parameter.value, value.value))
        return answers.pop(0)

    library = SimpleNamespace(mallopt=mallopt)
    monkeypatch.setattr(allocator, "ctypes", SimpleNamespace(CDLL=lambda name: library, c_int=ctypes.c_int))
    for given, kept in (([1, 1], True), ([0, 1], False), ([1, 0], False)):
        told.clear()
        answers[:] = given
        assert keep_memory() == kept
        assert told == [(-3, 32 << 20), (-1, allocator.TRIMMED_FROM_BYTES)]
    monkeypatch.setattr(allocator, "ctypes", SimpleNamespace(CDLL=lambda name: SimpleNamespace()))
    assert keep_memory() is False
    monkeypatch.setattr(allocator, "sys", SimpleNamespace(platform="darwin"))
    assert keep_memory() is False
    assert UnusedMemory(100)._trim is None


def test_memory_is_returned_from_a_share_of_the_budget_on(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, returned = UnusedMemory(100), list[int]()
    monkeypatch.setattr(memory, "give_back", lambda: returned.append(1))
    for resident, wait_ms in ((84, LOOK_MS), (85, AGAIN_MS), (101, AGAIN_MS)):
        monkeypatch.setattr(allocator, "resident_bytes", lambda resident=resident: resident)
        assert memory.run_once(0) == wait_ms
    assert len(returned) == 2


def test_resident_memory_is_that_of_the_system_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_PAGES", tmp_path / "statm")
    assert resident_bytes() == 0
    (tmp_path / "statm").write_text("900 30 7 1 0 5 0\n")
    assert resident_bytes() == 30 * resource.getpagesize()

"""kill -9 in the middle of commits: rows, marker and redo give exactly the last commit of the log."""

import random
import signal
import struct
import subprocess
import sys
import time

import pytest

from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.reader import open_readonly
from flowql.runtime.state.rocks import open_rocks
from tests.runtime.state.support import table

pytestmark = pytest.mark.turns("long")

CHILD = """
import os, struct, sys, threading
from flowql.runtime.clock import SystemClock
from flowql.runtime.state.columns.packed import pack
from flowql.runtime.state.columns.values import RowValues, ValueLayout
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.state.runs import merging
from tests.runtime.state.support import publish, table
from tests.runtime.state.test_kill import rows_of

merging.FAN_IN, LAYOUT = 2, ValueLayout((("integer",), ("object",)))
manager = StateManager(open_rocks(sys.argv[1] + "/db", write_buffer_bytes=1 << 20))
task = manager.open_task("q", 0, [table()])
log = os.open(sys.argv[1] + "/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def merge():
    merger = manager.merger(SystemClock())
    while True:
        merger.run_once(0)

threading.Thread(target=merge, daemon=True).start()
for n in range(1, 10**6):
    rows = rows_of(n)
    if sys.argv[2] == "rows":
        task.store("T").put_many(list(rows), list(rows.values()))
    else:
        keys = pack(task.store("T").entry.codec.encode_many(rows))
        task.store("T").append(keys, RowValues.of(LAYOUT, list(rows.values())))
    publish(manager, task, {"at": n})
    frozen = manager.cut()
    redo = frozen.redo()
    os.write(log, struct.pack(">QI", n, len(redo)) + redo)
    manager.apply(frozen, n)
    if n % 5 == 0:
        manager.flush()
    os.write(1, b".")
"""


def rows_of(n):
    """What commit `n` writes: each third one little, which is no run where others are."""
    return {(f"k{(n * 7 + i) % 9000}",): (n, "x" * 40) for i in range(2500 if n % 3 else 200)}


def read_log(path):
    data, at, out = path.read_bytes(), 0, []
    while at + 12 <= len(data):
        n, size = struct.unpack_from(">QI", data, at)
        if at + 12 + size > len(data):
            break
        out.append((n, data[at + 12 : at + 12 + size]))
        at += 12 + size
    return out


def expected(commits):
    rows = {}
    for n in range(1, commits + 1):
        rows.update(rows_of(n))
    return rows


@pytest.mark.crash
@pytest.mark.parametrize(
    ("seed", "written"), [(1, "rows"), (2, "rows"), (3, "columns"), (4, "columns"), (5, "columns")]
)
def test_after_kill_9_state_is_exactly_the_last_commit(tmp_path, seed, written):
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path), written], stdout=subprocess.PIPE)
    try:
        dice = random.Random(seed)
        child.stdout.read(dice.randint(2, 9 if written == "rows" else 60))
        time.sleep(dice.random() * 0.02)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    redo = read_log(tmp_path / "log")
    rows = expected(len(redo))
    with open_readonly(tmp_path / "db", redo) as seen:
        assert seen.sequence == len(redo)
        assert dict(seen.scan("T")) == rows
    manager = StateManager(open_rocks(tmp_path / "db"))
    flushed = manager.applied_sequence
    assert flushed >= len(redo) // 5 * 5 - 5
    for n, payload in redo:
        manager.replay_all([(n, payload)])
        assert manager.applied_sequence == max(n, flushed)
    task = manager.open_task("q", 0, [table()])
    assert dict(task.store("T").scan()) == rows
    assert task.metadata == {"at": len(redo)}
    manager.close()

"""The beat file: what another process can tell of an instance that does not help it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flowql.runtime.app.beat_file import ENDED, FILE, RUNNING, BeatFile, Text, read
from flowql.runtime.app.freeze import note_death, read_frozen
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.turns("long")

ORDERS = Text.of(query="TOTALS@2", id="TOTALS", definition="d1", task="TOTALS@2/0_1", inputs=["ORDERS-1", "PRICES-1"])

# Beats, begins a micro-batch, and then keeps the interpreter lock: with processor time or without.
FREEZES = """
import ctypes, sys, threading, time
from pathlib import Path
from flowql.runtime.app.beat_file import BeatFile, RUNNING, Text
file = BeatFile(Path(sys.argv[1]))
file.become(RUNNING)
slot = file.slot("processing-0")
def beat():
    while True:
        file.beat()
        time.sleep(0.02)
threading.Thread(target=beat, daemon=True).start()
slot.begin_round(threading.get_ident(), threading.get_native_id())
slot.begin_micro_batch(Text.of(query="Q", id="Q", definition="d", task="Q/0_0", inputs=["T-0"]), [41])
print("begun", flush=True)
if sys.argv[2] == "freeze":
    pow(7, 10**8)
elif sys.argv[2] == "block":
    ctypes.PyDLL(None).sleep(100)
time.sleep(100)
"""


@pytest.fixture
def begun(tmp_path):
    """Starts a process that does something after its micro-batch began."""
    processes = []

    def start(what):
        command = [sys.executable, "-c", FREEZES, str(tmp_path), what]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        processes.append(process)
        assert process.stdout.readline() == b"begun\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def until(tmp_path, holds):
    """The first snapshot that is as wanted."""
    for _ in range(2_000):
        if (found := read(tmp_path)) is not None and holds(found):
            return found
        time.sleep(0.01)
    raise AssertionError(read(tmp_path))


def test_what_is_noted_is_read(tmp_path):
    file = BeatFile(tmp_path)
    slot, commit = file.slot("processing-0"), file.slot("commit")
    assert read(tmp_path).activities == ()
    slot.begin_round(17, 117)
    commit.begin_round(18, 118)
    slot.begin_micro_batch(ORDERS, [5, -1])
    found = read(tmp_path)
    assert (found.pid, found.is_alive, found.is_stopped, found.frozen_s) == (os.getpid(), True, False, 0.0)
    assert [(a.step, a.thread) for a in found.activities] == [("processing-0", 17), ("commit", 18)]
    (one,) = found.micro_batches
    assert (one.query, one.id, one.definition, one.task) == ("TOTALS@2", "TOTALS", "d1", "TOTALS@2/0_1")
    assert one.positions == {"ORDERS-1": 5, "PRICES-1": -1}
    slot.end_round()
    assert [a.step for a in read(tmp_path).activities] == ["commit"]
    file.become(ENDED)
    assert read(tmp_path).state == ENDED


def test_names_of_any_length_and_many_inputs_are_noted(tmp_path):
    slot = BeatFile(tmp_path).slot("s" * 100)
    names = [f"{'é' * 300}-{n}" for n in range(40)]
    text = Text.of(query="q" * 5_000, id="é" * 5_000, definition="d", task="t", inputs=names)
    slot.begin_round(1, 1)
    slot.begin_micro_batch(text, range(40))
    (one,) = read(tmp_path).micro_batches
    assert (one.query, one.definition, one.step) == ("q" * 200, "d", "s" * 64)
    assert [name[-3:] for name in one.positions] == [f"é-{n}" for n in range(len(one.positions))]
    assert list(one.positions.values()) == list(range(len(one.positions)))
    assert one.positions


def test_a_file_of_another_kind_tells_nothing(tmp_path):
    assert read(tmp_path) is None
    for content in (b"", b"x" * 100, bytes(300_000), b"FLOWQLBT" + bytes(300_000)):
        (tmp_path / FILE).write_bytes(content)
        assert read(tmp_path) is None


def test_a_later_process_with_the_same_number_is_another(tmp_path, monkeypatch):
    from flowql.runtime.app import beat_file

    BeatFile(tmp_path)
    times = beat_file.process_times(os.getpid())
    monkeypatch.setattr(beat_file, "process_times", lambda pid: times._replace(started=times.started + 1))
    assert not read(tmp_path).is_alive


def test_a_frozen_interpreter_uses_processor_time_without_a_beat(tmp_path, begun):
    process = begun("freeze")
    found = until(tmp_path, lambda s: s.frozen_s > 0)
    assert (found.pid, found.state) == (process.pid, RUNNING)
    assert [(a.query, a.positions) for a in found.micro_batches] == [("Q", {"T-0": 41})]
    process.kill()
    process.wait()
    found = until(tmp_path, lambda s: not s.is_alive)
    assert (found.frozen_s, found.micro_batches[0].task) == (0.0, "Q/0_0")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the state of a process in /proc")
def test_a_stopped_process_is_not_frozen(tmp_path, begun):
    process = begun("wait")
    process.send_signal(signal.SIGSTOP)
    found = until(tmp_path, lambda s: s.silent_s > 2.5)
    assert (found.is_stopped, found.frozen_s) == (True, 0.0)
    process.send_signal(signal.SIGCONT)
    assert not until(tmp_path, lambda s: s.silent_s < 1).is_stopped


def test_a_lock_that_is_held_without_processor_time_is_silence_alone(tmp_path, begun):
    begun("block")
    found = until(tmp_path, lambda s: s.silent_s > 2.5)
    assert not found.is_stopped
    assert found.frozen_s < 0.5


def test_a_reader_never_sees_half_of_what_is_written(tmp_path):
    """Two texts and their positions in turns, in another process: each reading has one of them."""
    writes = """
import sys
from pathlib import Path
from flowql.runtime.app.beat_file import BeatFile, Text
slot = BeatFile(Path(sys.argv[1])).slot("p")
texts = [Text.of(query=c * 100, id=c, definition=c, task=c, inputs=[c]) for c in "ab"]
slot.begin_round(1, 1)
print("begun", flush=True)
while True:
    for n, text in enumerate(texts):
        slot.begin_round(1, 1)
        slot.begin_micro_batch(text, [n])
"""
    process = subprocess.Popen([sys.executable, "-c", writes, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
    seen = set()
    try:
        assert process.stdout.readline() == b"begun\n"
        for _ in range(1_000):
            for one in read(tmp_path).micro_batches:
                assert set(one.query) == {one.id}
                seen.add((one.id, tuple(one.positions)))
    finally:
        process.kill()
        process.communicate()
    assert seen
    assert seen <= {("a", ("a",)), ("b", ("b",))}


def test_a_death_in_a_joint_micro_batch_is_one_of_each_of_its_tasks(tmp_path, monkeypatch):
    """Which of them it was is not known, and the second death tells."""
    from flowql.runtime.app import beat_file

    slot = BeatFile(tmp_path).slot("processing-0")
    inputs = ["T-1", "U-1", "T-12", "T-2"]
    slot.begin_round(1, 1)
    text = Text.of(query="Q@2", id="Q", definition="d", task="Q@2/0_1", inputs=inputs, others=[12, 2])
    slot.begin_micro_batch(text, [5, 6, 7, 8])
    (one,) = read(tmp_path).micro_batches
    assert (one.task, one.others) == ("Q@2/0_1", ("Q@2/0_12", "Q@2/0_2"))
    times = beat_file.process_times(os.getpid())
    monkeypatch.setattr(beat_file, "process_times", lambda pid: times._replace(started=times.started + 1))
    note_death(tmp_path)
    assert [(f.task, f.positions, f.died) for f in read_frozen(tmp_path)] == [
        ("Q@2/0_1", {"T-1": 5, "U-1": 6}, True),
        ("Q@2/0_12", {"T-12": 7}, True),
        ("Q@2/0_2", {"T-2": 8}, True),
    ]

"""When an instance counts as frozen, and which thread is to blame."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowql.runtime.app.beat_file import RUNNING, STARTING, Activity, Snapshot
from flowql.runtime.app.freeze import (
    FILE,
    KEPT_MAX,
    FreezeWatch,
    Frozen,
    Limits,
    Load,
    culprit,
    forget_frozen,
    innermost,
    read_frozen,
    write_frozen,
)

LIMITS = Limits(5.0, 60.0)
WAITS, WORKS, BLOCKS = Load(0.0, 60), Load(1.0, 0), Load(0.0, 0)


def batch(native: int, query: str, batch_s: float | None) -> Activity:
    return Activity(f"processing-{native}", native, native, 9.0, batch_s, query, query, "d", f"{query}/0_0", {})


def seen(beats: int = 7, silent_s: float = 6.0, used_s: float = 0.0, **more: object) -> Snapshot:
    made = Snapshot(1, 1.0, RUNNING, beats, silent_s, used_s, True, False, (batch(1, "A", 6.0), batch(2, "B", 8.0)))
    return made._replace(**more)


def looked(*snapshots: Snapshot, every_s: float = 0.5) -> str:
    watch = FreezeWatch(LIMITS)
    return [watch.look(s, n * every_s) for n, s in enumerate(snapshots)][-1]


@pytest.mark.parametrize(
    ("snapshots", "frozen"),
    [
        ([seen(used_s=4.9)], False),
        ([seen(used_s=5.0)], True),
        ([seen(used_s=5.0, silent_s=1.0)], False),  # other threads work without the lock on many processors
        ([seen(used_s=5.0, is_stopped=True)], False),
        ([seen(used_s=5.0, is_alive=False)], False),
        ([seen(used_s=5.0, state=STARTING)], False),
        ([seen(used_s=30.0, state=STARTING)], True),
        ([seen(used_s=3.0)] * 18, False),
        ([seen(used_s=3.0)] * 19, True),  # the machine is busy: it is noticed within 10 s nevertheless
        ([seen(used_s=2.9)] * 60, False),
        ([seen()] * 120, False),
        ([seen()] * 122, True),
        ([seen(n) for n in range(200)], False),
        ([seen(is_stopped=True)] * 200, False),
        ([*[seen()] * 120, seen(is_stopped=True), *[seen()] * 100], False),
    ],
)
def test_an_instance_is_frozen_by_what_it_used_or_by_silence(snapshots: list[Snapshot], frozen: bool) -> None:
    assert bool(looked(*snapshots)) is frozen


def test_time_in_which_the_watchdog_did_not_run_does_not_count() -> None:
    """The machine slept, or the container was paused with both."""
    assert not looked(*[seen()] * 100, every_s=3_600.0)


@pytest.mark.parametrize(
    ("loads", "query"),
    [
        ({1: WORKS, 2: WAITS, 3: WAITS}, "A"),
        ({1: BLOCKS, 2: WAITS, 3: WAITS}, "A"),
        ({1: WAITS, 2: WAITS, 3: WORKS}, None),  # an HTTP thread, or the compiler
        ({1: WAITS, 2: WAITS, 3: BLOCKS}, None),
        ({1: WORKS, 2: WORKS, 3: WAITS}, "B"),  # the one that takes longer
        ({}, "B"),
    ],
)
def test_the_thread_that_keeps_the_lock_is_to_blame(loads: dict[int, Load], query: str | None) -> None:
    found = culprit(seen(), loads)
    assert (None if found is None else found.query) == query


def test_what_is_written_down_is_kept_until_it_is_forgotten(tmp_path: Path) -> None:
    assert read_frozen(tmp_path) == []
    made = [Frozen(n, 1, "w", "p", "Q", "Q", "d", "t", {"T-0": 5, "U-0": -1}, "f", "x") for n in range(KEPT_MAX + 5)]
    for one in made:
        write_frozen(tmp_path, one)
    assert read_frozen(tmp_path) == made[-KEPT_MAX:]
    assert made[0].position == "T-0 offset 5"
    forget_frozen(tmp_path)
    assert read_frozen(tmp_path) == []
    (tmp_path / FILE).write_text("[{}]")
    assert read_frozen(tmp_path) == []


def test_the_innermost_code_of_a_thread_is_found_in_a_traceback() -> None:
    trace = 'Thread 0x00007f0000000001 (most recent call first):\n  File "/p/a b.py", line 12 in parse\n  File "x", line 1 in y\n'
    assert innermost(trace, 0x7F0000000001) == "a b.py:12 parse"
    assert innermost(trace, 0x7F0000000002) == ""
    assert innermost("Current thread 0x00007f0000000001 (most recent call first):", 0x7F0000000001) == ""

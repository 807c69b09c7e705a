"""What happens to those who wait when a thread of the instance dies."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from flowql.runtime.app import hung, threads
from flowql.runtime.app.freeze import Frozen, read_frozen, write_frozen
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_isolation import COPY, SOURCE, rows


def test_a_dead_commit_thread_ends_waits_with_its_error_and_stops_processing() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + COPY, live=True)
    world.send("s", rows(0, 10))
    world.settle()
    world.log.producer("flowql")  # a newer producer of the same application: the next commit is fenced
    world.send("s", rows(10, 10))
    start = time.monotonic()
    with pytest.raises(RuntimeFailure, match="another instance of this application has taken over"):
        world.until(lambda: world.instance.wait(world.instance.commit.request()) < 0, "fenced")
    assert time.monotonic() - start < 10, "not after the timeout of the wait"
    assert world.instance.manager.acquire("test") is None, "what cannot be committed is not computed"
    assert world.instance.stop() == []
    assert len(world.values("COPY")) == 10, "nothing uncommitted got out"


def test_every_loop_is_a_named_thread_and_all_end() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + COPY, live=True, threads=3)
    names = [s.name for s in world.instance.steps()]
    assert len(set(names)) == len(names)
    assert [n for n in names if n.startswith("processing")] == ["processing-0", "processing-1", "processing-2"]
    assert {"consumer-main", "consumer-restore", "polling", "commit", "cleanup", "memory", "watchdog"} <= set(names)
    assert world.instance.stop() == []


def test_what_the_watchdog_process_wrote_down_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def slowly(data_dir: Path) -> list[Frozen]:
        found = read_frozen(data_dir)
        time.sleep(0.3)  # another thread would read it, too
        return found

    log = MemoryLog()
    with InstanceHarness(SOURCE.format(n=1) + COPY, live=True, log=log) as world:
        world.settle()
    at = ("run", "COPY", "COPY", "its text", "COPY/0_0", {"s-0": 0}, "f.py:1 f")
    write_frozen(tmp_path, Frozen(1, 42, "no thread could run for 3 s", *at, ""))
    monkeypatch.setattr(hung, "read_frozen", slowly)
    instance = Instance(log, MemoryPhysical(), SystemClock(), InstanceConfig(data_dir=tmp_path))
    instance.start()
    try:
        instance.deployer.resume()
    finally:
        assert instance.stop() == []
    assert [m for m in caplog.messages if "no thread could run for 3 s" in m] == ["no thread could run for 3 s"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux shows names of threads in /proc")
def test_the_operating_system_knows_the_threads_by_name() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + COPY, live=True, threads=2)
    expected = {f"fq-{s.name}"[:15] for s in world.instance.steps()}
    limit = time.monotonic() + 30
    while not expected <= (seen := _native_names()) and time.monotonic() < limit:
        time.sleep(0.01)
    assert expected <= seen
    assert len(expected) == len(world.instance.steps()), "no two are cut to the same name"
    assert world.instance.stop() == []


def _native_names() -> set[str]:
    found: set[str] = set()
    for comm in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # a thread that has just ended
            found.add(comm.read_text().strip())
    return found


def test_a_commit_that_is_asked_for_does_not_wait_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "WAIT_MS_MAX", 1_000)
    with InstanceHarness(SOURCE.format(n=1) + COPY, live=True, latency_target_ms=3_000) as world:
        world.settle()
        waited = 0.0
        for _ in range(5):
            time.sleep(0.05)  # its thread waits again
            start = time.monotonic()
            world.instance.wait(world.instance.commit.request())
            waited += time.monotonic() - start
        assert waited < 3, "five times between two commits are five seconds"

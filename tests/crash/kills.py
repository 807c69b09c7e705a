"""Kill -9 at random moments: a process runs the project over a throttled source, is killed and started again, to the same end."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.rocks import open_rocks
from tests.crash.contents import CommittedContents, contents_of, differences
from tests.crash.project import append, create_topics, customers, orders

PER_TRANSACTION = 10
END_S = 60.0


@dataclass(frozen=True, slots=True)
class Shape:
    """One run: how many orders (made from `seed`), over how many seconds, how many kills (at times made from `moments`)."""

    orders: int
    seconds: float
    kills: int
    seed: int
    moments: int = 0
    threads: int = 2


@dataclass(slots=True)
class Report:
    """What a run saw. recovered: starts that found commits of an earlier life."""

    kills: int
    commits: int
    seconds: float
    differences: list[str]


def undisturbed(folder: Path, shape: Shape) -> CommittedContents:
    """The same input, nobody killed, as fast as it goes."""
    prepare(folder)
    log = EmbeddedLog(folder / "log")
    for parts in orders(shape.orders, shape.seed, 500):
        append(log, parts)
    log.close()
    (folder / "ended").touch()
    done = subprocess.run(command(folder, shape), timeout=END_S, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return read_outcome(folder)


def disturbed(
    folder: Path, shape: Shape, expected: CommittedContents, say: Callable[[str], None] = lambda text: None
) -> Report:
    """Kill until the source has ended and `shape.kills` are done; then let it finish."""
    rng = random.Random(f"kills {shape.moments}")
    prepare(folder)
    start, kills = time.monotonic(), 0
    with _source(folder, shape):
        while kills < shape.kills:
            _life(folder, shape, rng)
            kills += 1
            say(f"killed {kills} times after {time.monotonic() - start:.1f} s")
    (folder / "ended").touch()
    done = subprocess.run(command(folder, shape), timeout=END_S, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {shape.seed}: {done.stderr}"
    log = EmbeddedLog(folder / "log")
    commits = log.last_sequence("flowql")
    log.close()
    return Report(kills, commits, time.monotonic() - start, differences(expected, read_outcome(folder)))


def read_outcome(folder: Path) -> CommittedContents:
    """From the files of an ended run."""
    log = EmbeddedLog(folder / "log")
    state = StateManager(open_rocks(folder / "state"))
    try:
        return contents_of(log, state.snapshot())
    finally:
        state.close()
        log.close()


def prepare(folder: Path) -> None:
    log = EmbeddedLog(folder / "log")
    create_topics(log.admin())
    append(log, customers())
    log.close()


def command(folder: Path, shape: Shape) -> list[str]:
    return [sys.executable, "-m", "tests.crash.workload", str(folder), str(shape.threads)]


def _life(folder: Path, shape: Shape, rng: random.Random) -> None:
    """Start it, kill it: mostly while it works, sometimes while it starts."""
    early = rng.random() < 0.25
    moment = rng.uniform(0.05, 1.5) if early else rng.uniform(0.0, 1.0)
    child = subprocess.Popen(command(folder, shape), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        if not early and child.stdout.readline() != "ready\n":
            child.wait()
            raise AssertionError(f"seed {shape.seed}: {child.stderr.read()}")
        time.sleep(moment)
        broken = child.poll()
        assert broken is None, f"seed {shape.seed}: ended with {broken}: {child.stderr.read()}"
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()


@contextmanager
def _source(folder: Path, shape: Shape) -> Iterator[None]:
    """Append the orders over `shape.seconds` from a thread; ends with all of them appended."""
    failures: list[BaseException] = []

    def produce() -> None:
        try:
            log = EmbeddedLog(folder / "log")
            parts = list(orders(shape.orders, shape.seed, PER_TRANSACTION))
            start = time.monotonic()
            for n, part in enumerate(parts):
                time.sleep(max(0.0, start + n * shape.seconds / len(parts) - time.monotonic()))
                append(log, part)
            log.close()
        except BaseException as error:  # belongs to the run, which must not pass without its input
            failures.append(error)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failures:
        raise failures[0]

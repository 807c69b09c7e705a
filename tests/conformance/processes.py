"""Queries in processes of their own, on files: a process is killed with -9 before one of its writes to the log, and the next one
goes on from what is on disk. Which write is drawn by seed from all that an undisturbed process makes."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import SystemClock, VirtualClock
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.files import DiskFile, DiskFiles
from flowql.runtime.state.rocks import open_rocks
from tests.conformance.case_engine import (
    FEED,
    CaseEngine,
    QueryFailed,
    Record,
    Shape,
    Step,
    alone,
    check,
    create_topics,
    send,
    settle,
)
from tests.conformance.functions import registered

WRITES, FAILED = "writes", "failed"  # files in which a process leaves how many writes it made, or why it failed
LIFE_S, CASE_S = 60, 300


@dataclass(frozen=True, slots=True)
class Work:
    """What a process is to do: a query over these steps of input. functions: those of the case that are not the product's."""

    folder: Path
    shape: Shape
    query: QueryPlan
    plan: Plan
    steps: list[Step]
    functions: Sequence[str]


@dataclass(slots=True)
class KilledCaseEngine(CaseEngine):
    """Runs each query once undisturbed and once in a process that is killed and succeeded by another."""

    case: dict[str, Any] = field(default_factory=dict)

    def process(self, query: QueryPlan, plan: Plan, feed: list[tuple[str, Record]], sinks: list[str]) -> None:
        steps, functions = self.shape.steps(feed), self.case.get("needs_test_functions", [])
        with tempfile.TemporaryDirectory(prefix="flowql-conformance-") as name:
            undisturbed, killed = (
                Work(Path(name, n), self.shape, query, plan, steps, functions) for n in ("undisturbed", "killed")
            )
            _succeed(undisturbed)
            writes = int((undisturbed.folder / WRITES).read_text())
            moment = random.Random(f"{self.shape.kill} {self.case['id']} {query.id}").randint(1, writes)
            code = _life(killed, moment)
            # Threads may find more to write together, and so come to their end with fewer writes.
            assert code == -signal.SIGKILL or (self.shape.threads and code == 0), f"write {moment}: ended with {code}"
            _succeed(killed)
            log = EmbeddedLog(killed.folder / "log")
            self.collect(log, sinks)
            log.close()


@cache
def _context() -> ForkServerContext:
    """Processes begin as copies of one that has loaded the engine and has no threads."""
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__, "pandas"])  # pyarrow imports pandas with its first array
    return context


def _succeed(work: Work) -> None:
    code = _life(work)
    failed = work.folder / FAILED
    if failed.exists():
        raise QueryFailed(failed.read_text())
    assert code == 0, f"the process ended with {code}"


def _life(work: Work, die_at: int | None = None) -> int | None:
    """A process from its start to its end; its exit code."""
    process = _context().Process(target=live, args=(work, die_at))
    process.start()
    try:
        process.join(LIFE_S)
        return process.exitcode
    finally:
        process.kill()
        process.join()


def live(work: Work, die_at: int | None) -> None:
    """Do what is not done yet of the work."""
    files = Mortal(die_at)
    try:
        work.folder.mkdir(exist_ok=True)
        with registered(work.functions):
            _run(work, EmbeddedLog(work.folder / "log", files))
        (work.folder / WRITES).write_text(str(files.writes))
    except BaseException as error:
        (work.folder / FAILED).write_text(f"{error}\n{traceback.format_exc()}")
        raise


def _run(work: Work, log: EmbeddedLog) -> None:
    create_topics(log, work.query, work.plan, work.shape)
    physical = open_rocks(work.folder / "state")
    threads = bool(work.shape.threads)
    instance = Instance(log, physical, SystemClock() if threads else VirtualClock(), work.shape.config)
    done = _started(instance) if threads else _driven(instance)
    if not instance.resume().queries:
        instance.deploy(alone(work.query, work.plan, log))
    done(work)
    for step in work.steps[log.last_sequence(FEED) :]:
        send(log, step, work.shape)
        done(work)
    if threads:
        instance.stop()
    else:
        instance.close()


def _started(instance: Instance) -> Callable[[Work], None]:
    instance.start()
    return lambda work: settle(instance, work.query)


def _driven(instance: Instance) -> Callable[[Work], None]:
    driver = Driver(instance)

    def done(work: Work) -> None:
        driver.run_until_idle()
        driver.commit()  # a step at a time: what is not committed would be merged by time with what comes next
        check(instance, work.query)

    return done


class Mortal(DiskFiles):
    """A file system whose process is killed before its n-th write. fsyncs are writes, too."""

    def __init__(self, die_at: int | None) -> None:
        super().__init__()
        self._die_at = die_at
        self.writes = 0

    def count(self) -> None:
        self.writes += 1
        if self.writes == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def open(self, path: str, *, create: bool = False, write: bool = False) -> DiskFile:
        flags = os.O_RDWR if write or create else os.O_RDONLY
        return MortalFile(path, flags | (os.O_CREAT if create else 0), self)

    def rename(self, source: str, target: str) -> None:
        self.count()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self.count()
        super().unlink(path)

    def makedirs(self, path: str) -> None:
        self.count()
        super().makedirs(path)


class MortalFile(DiskFile):
    def __init__(self, path: str, flags: int, files: Mortal) -> None:
        super().__init__(path, flags)
        self._files = files

    def pwrite(self, offset: int, parts: Sequence[Any]) -> None:
        self._files.count()
        super().pwrite(offset, parts)

    def fsync(self) -> None:
        self._files.count()
        super().fsync()

    def truncate(self, length: int) -> None:
        self._files.count()
        super().truncate(length)

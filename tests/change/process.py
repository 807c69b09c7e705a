"""The engine under test as a process: real threads, RocksDB, the embedded log on a real disk, and kill -9; talked to as the commands do."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from flowql.compiler.plan.deployed import Deployed
from flowql.compiler.plan.partitions import as_wanted
from flowql.compiler.plan.priorities import Priority
from flowql.compiler.plan.topology import Plan
from flowql.deploy.control import NewPriority
from flowql.deploy.request import DeployRequest
from flowql.errors import CommandError
from flowql.query.errors import QueryError
from flowql.query.interactive import broken_off
from flowql.runtime.errors import LogError
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.server.address import LOST
from flowql.server.client import Client
from flowql.server.ending import end_instance
from flowql.server.on_runtime import RuntimeEngine
from flowql.server.running import NotAnswering, connect
from tests.change.machine import Killed, Life
from tests.change.places import State, of_query, rows_of_table
from tests.change.zygote import ANSWERED, ASKED, ERRORS, Job, Zygote, put, settings_at

START_S, REST_S, LEFTOVER_S = 60.0, 150.0, 20.0
LOOK_S = 0.005
ROUND_S = 0.02
T = TypeVar("T")
TAIL = 12  # lines of what a process said before its end


@cache
def _zygote() -> Zygote:
    return Zygote()


class Ended(Exception):
    """The process has ended by itself."""


class ProcessEngine:
    """As `engine.Engine`, for a story. folder: its own. `boot` starts it for the first time."""

    kafka = ""

    def __init__(self, rng: random.Random, folder: Path, plant: str | None = None) -> None:
        self.rng, self.folder, self.plant = rng, folder, plant
        self.data_dir = folder / "data"
        self.log = EmbeddedLog(self.data_dir / "log")
        self.life = Life()
        self.deaths = 0
        self.near_records, self.together_ms = 50_000, 5_000
        self.shot_early = 0.0  # how often it dies while it starts
        self._began = time.monotonic()
        self._asked = 0
        self._pid, self._client = 0, None
        self._down = threading.Event()
        self._passing = threading.Lock()  # guards which process is meant, and whether it is to be down
        self.look: Callable[[], None] = lambda: None

    @property
    def rounds(self) -> str:
        """How long it has taken."""
        return f"{time.monotonic() - self._began:.1f} s, not"

    @property
    def client(self) -> Client:
        client = self._client
        if client is None:  # as seen by another thread
            raise Killed
        return client

    @property
    def record(self) -> Deployed:
        return self._told(lambda: self.client.deployed()[0])

    @property
    def plan(self) -> Plan:
        return self.record.serving

    @property
    def deployed(self) -> Plan:
        return self.record.plan

    def partitions(self) -> Mapping[str, int]:
        return as_wanted(self.record, {name: info.partitions for name, info in self.log.topics().items()})

    # -- results

    def rows(self, name: str) -> State:
        return self.queried(name)

    def queried(self, name: str) -> State:
        return rows_of_table(self._told(lambda: self.client.query(f"SELECT * FROM {name}")))

    def rows_of(self, front: RuntimeEngine, name: str) -> State:
        """Of another engine, as this one's are seen."""
        return of_query(front, name)

    def together(self, names: Sequence[str]) -> dict[str, State]:
        """What one interactive query about all of them is answered from."""
        parts = ", ".join(f"(SELECT list(T) FROM {name} T) AS R{n}" for n, name in enumerate(names))
        (row,) = self._told(lambda: self.client.query(f"SELECT {parts}")).to_pylist()
        tables = [pa.Table.from_pylist(row[f"R{n}"] or []) for n in range(len(names))]
        return {name: rows_of_table(table) for name, table in zip(names, tables, strict=True)}

    # -- commands

    def deploy(self, wanted: Plan, asked: DeployRequest, *, served: bool) -> None:
        del served
        self._told(lambda: self.client.deploy(wanted, asked), refused=LogError)

    def settle(self, *, promote: bool) -> None:
        if self.record.held:
            self._told(lambda: (self.client.promote if promote else self.client.abandon)(None))

    def diff(self, name: str) -> dict[str, Any]:
        return self._told(lambda: self.client.diff(name))

    def set_priority(self, query: str, priority: Priority, *, served: bool) -> None:
        del served
        self._told(lambda: self.client.set_priority(NewPriority(query, priority)))

    def pause(self, query: str, *, paused: bool, served: bool) -> None:
        del served
        self._told(lambda: self.client.pause([query], paused=paused))

    def _told(self, act: Callable[[], T], refused: type[Exception] = AssertionError) -> T:
        """Killed, if it dies meanwhile."""
        pid = self._pid
        try:
            return act()
        except (CommandError, QueryError) as error:
            if error.code == LOST or error.title == broken_off().title:  # asked as it ended
                self._await_end(pid)
                if self._pid != pid:  # another thread has seen its end
                    raise Killed from error
                self.check_alive()
                raise AssertionError(f"it lives, and does not answer: {error.title}") from error
            raise refused(f"{error.code}: {error.title}") from error

    # -- time

    def turn(self, rounds: int) -> None:
        self._wait(lambda: False, rounds * ROUND_S)

    def rest(self) -> None:
        """Until all input is processed, and every change is whole."""
        self._asked += 1
        put(self.folder / ASKED, str(self._asked))
        if not self._wait(lambda: self._answer()[0] == self._asked, REST_S):
            raise AssertionError(f"it does not come to rest: {json.dumps(self.client.status()['queries'], indent=1)}")

    def leftovers(self) -> list[str]:
        """What a change should have taken away with it, soon after."""
        until = time.monotonic() + LEFTOVER_S
        while True:
            self.rest()
            tasks = self._answer()[1]
            topics = sorted(t for t in self.log.topics() if "@" in t or "-staging" in t or "-letters-of-" in t)
            if not topics and not tasks:
                return []
            if time.monotonic() > until:
                return [f"left over: topics {topics}, tasks {tasks}"]
            time.sleep(0.05)

    def _answer(self) -> tuple[int, list[str]]:
        path = self.folder / ANSWERED
        asked, tasks = json.loads(path.read_text()) if path.exists() else (0, [])
        return asked, tasks

    def _wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """False after so long. Killed, if it dies meanwhile."""
        until = time.monotonic() + seconds
        while not done():
            self.check_alive()
            if time.monotonic() > until:
                return False
            time.sleep(LOOK_S)
        return True

    # -- life and death

    @contextmanager
    def mortal(self, after_s: float | None) -> Iterator[None]:
        """Shot dead after so long, unless all is done by then."""
        if after_s is None:
            yield
            return
        timer = threading.Timer(after_s, self._shoot, [self._pid])
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            if self._down.is_set():
                self._await_end(self._pid)

    def _shoot(self, pid: int) -> None:
        with self._passing:
            if pid == self._pid:
                self._down.set()
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def check_alive(self) -> None:
        """Killed, or Ended."""
        if not self.alive:
            if self._down.is_set():
                raise Killed
            raise Ended(self.last_words())

    @property
    def alive(self) -> bool:
        return _lives(self._pid)

    def _await_end(self, pid: int) -> None:
        """Its socket is closed before the process is gone."""
        until = time.monotonic() + START_S
        while _lives(pid) and time.monotonic() < until:
            time.sleep(LOOK_S)

    def check_ours(self) -> None:
        """A command that found nobody alive has started an instance of its own, which nobody steers: it dies. Killed, Ended."""
        other = connect(self.data_dir)
        if other is not None and other.address.pid != self._pid:
            self._pid = other.address.pid
            self._shoot(self._pid)
            self._await_end(self._pid)
            other.close()
        self.check_alive()

    def await_end(self) -> None:
        """A command says that it is gone. Killed, Ended."""
        self._await_end(self._pid)
        self.check_alive()

    def kill(self, *, loses_state: bool = False) -> None:
        """What is left of it, perhaps with its state."""
        self.deaths += 1
        if self.alive:
            self._down.set()
            os.kill(self._pid, signal.SIGKILL)
        self._await_end(self._pid)
        if loses_state:
            shutil.rmtree(self.data_dir / "state", ignore_errors=True)

    def restart(self) -> None:
        """Stopped in order, and started again."""
        self._down.set()
        self._told(lambda: end_instance(self.data_dir))
        self.reopen()

    def reopen(self) -> None:
        """May be killed again."""
        self._close_client()
        job = Job(settings_at(self.data_dir).dumps(), str(self.folder), self.near_records, self.together_ms,
                  self.rng.choice((20, None, None)), self.plant)  # fmt: skip
        with self._passing:
            self._pid = _zygote().fork(job)
            self._down.clear()
        with self.mortal(self.rng.uniform(0.02, 0.4) if self.rng.random() < self.shot_early else None):
            if not self._wait(self._listens, START_S):
                raise AssertionError(f"it does not start: {self.last_words()}")
        self.check_alive()

    def _listens(self) -> bool:
        with suppress(NotAnswering):  # it takes long to start
            self._client = connect(self.data_dir)
        if self._client is not None and self._client.address.pid != self._pid:
            self._close_client()
        return self._client is not None

    def _close_client(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    def last_words(self) -> str:
        """What the processes have written, at the end."""
        files = (self.folder / ERRORS, self.data_dir / "instance.log")
        lines = [line for f in files if f.exists() for line in f.read_text().splitlines()[-TAIL:]]
        return "\n".join(lines)

    def close(self) -> list[str]:
        """Stopped in order; what is wrong with that."""
        wrong = []
        if self.alive and self._client is not None:
            try:
                end_instance(self.data_dir)
            except CommandError as error:
                wrong = [f"it does not stop: {error.title}"]
        if self.alive:
            os.kill(self._pid, signal.SIGKILL)
            self._await_end(self._pid)
        self._close_client()
        self.log.close()
        return wrong


def _lives(pid: int) -> bool:
    """One that is dead holds its files until the last of its threads is gone."""
    with suppress(ChildProcessError):  # one that a command has started is ours to wait for
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

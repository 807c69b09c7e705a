"""The process that simulates monitoring for a benchmark: `flowql top` in a terminal, and users of shells that send queries over HTTP.

Lines on stdin start and stop the monitoring: `begin`, `end`. Each is answered by a line; that of `end` has the results as JSON.
"""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from flowql.bench.measuring import BenchFailed
from flowql.server.client import Client
from flowql.server.running import connect

ROWS = 20_000  # of the table they ask


@dataclass(frozen=True, slots=True)
class UserQuery:
    """A query of a user, with {n} for some key; chosen with probability `weight` / sum of all weights."""

    name: str
    weight: int
    sql: str


USER_QUERIES = (
    UserQuery("a row by its key", 6, "SELECT * FROM spent WHERE id = '{n}'"),
    UserQuery("the first rows", 2, "SELECT * FROM spent LIMIT 20"),
    UserQuery("how many rows", 1, "SELECT COUNT(*) AS n FROM spent"),
    UserQuery("the ten highest", 1, "SELECT id, total FROM spent ORDER BY total DESC LIMIT 10"),
)


@dataclass(slots=True)
class Seen:
    """Results of the monitoring. looks: pieces of output that top wrote; answers_ms: durations of answers, by interactive query; cpu_s:
    processor time of their own processes.
    """

    looks: int = 0
    cpu_s: float = 0.0
    answers_ms: dict[str, list[float]] = field(default_factory=dict)

    @property
    def answers(self) -> int:
        return sum(map(len, self.answers_ms.values()))

    def add(self, other: Seen) -> None:
        self.looks += other.looks
        self.cpu_s += other.cpu_s
        for name, times in other.answers_ms.items():
            self.answers_ms.setdefault(name, []).extend(times)


class Clock:
    """Seconds during which monitoring was on. It stops between phases, so that all phases have the same rate of interactive queries, however short they are."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._before_s, self._since_s = 0.0, -1.0

    def begin(self) -> None:
        with self._changed:
            self._since_s = time.monotonic()
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._before_s, self._since_s = self.now_s, -1.0

    def wait(self, until_s: float) -> float:
        """Until that time has come and there are watchers; the time."""
        with self._changed:
            while self._since_s < 0 or self.now_s < until_s:
                self._changed.wait(None if self._since_s < 0 else until_s - self.now_s)
            return self.now_s

    @property
    def now_s(self) -> float:
        return self._before_s + (time.monotonic() - self._since_s if self._since_s >= 0 else 0.0)


class Crowd:
    """One thread for each user, and `flowql top`, which is stopped (SIGSTOP) between phases."""

    def __init__(self, folder: Path, users: int, think_s: float) -> None:
        self._folder, self._think_s = folder, think_s
        self._clock, self._lock = Clock(), threading.Lock()
        self._seen = Seen()
        for n in range(users):
            threading.Thread(target=self._ask, args=(n,), daemon=True).start()
        self._terminal, inside = pty.openpty()
        program = [sys.executable, "-c", "from flowql.cli import main; main()", "top", "-p", str(folder)]
        self._top = subprocess.Popen(program, stdin=inside, stdout=inside, env={**os.environ, "TERM": "xterm"})
        os.read(self._terminal, 1)  # it has drawn something
        threading.Thread(target=self._look, daemon=True).start()
        self._top.send_signal(signal.SIGSTOP)
        self._process, self._cpu_s = psutil.Process(self._top.pid), 0.0

    def obey(self) -> None:
        """Until the other side is gone."""
        print("ready", flush=True)
        for word in sys.stdin:
            if word.strip() == "begin":
                self._take()
                self._clock.begin()
                self._top.send_signal(signal.SIGCONT)
                print("begun", flush=True)
            else:
                self._clock.end()
                self._top.send_signal(signal.SIGSTOP)
                print(json.dumps(asdict(self._take())), flush=True)
        self._top.kill()

    def _take(self) -> Seen:
        with self._lock:
            seen, self._seen = self._seen, Seen()
        before, self._cpu_s = self._cpu_s, time.process_time() + sum(self._process.cpu_times()[:2])
        seen.cpu_s = self._cpu_s - before
        return seen

    def _ask(self, number: int) -> None:
        rnd, client = random.Random(number), self._client()
        due_s = rnd.uniform(0, self._think_s)
        while True:
            now_s = self._clock.wait(due_s)
            (query,) = rnd.choices(USER_QUERIES, [q.weight for q in USER_QUERIES])
            start = time.perf_counter()
            client.query(query.sql.format(n=rnd.randrange(ROWS)))
            took_ms = round((time.perf_counter() - start) * 1000, 2)
            with self._lock:
                self._seen.answers_ms.setdefault(query.name, []).append(took_ms)
            due_s = now_s + self._think_s * rnd.uniform(0.5, 1.5)

    def _look(self) -> None:
        while os.read(self._terminal, 65_536):
            with self._lock:
                self._seen.looks += 1

    def _client(self) -> Client:
        found = connect(self._folder)
        assert found is not None, "the instance runs"
        return found


class Watchers:
    """The controlling side: starts that process, and starts and stops its monitoring."""

    def __init__(self, folder: Path, users: int, think_s: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.crowd", str(folder), str(users), str(think_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._said()

    def begin(self) -> None:
        self._tell("begin")

    def end(self) -> Seen:
        """What they saw since they began."""
        return Seen(**json.loads(self._tell("end")))

    def close(self) -> None:
        self._process.communicate()  # it ends with its input, and takes top along

    def _tell(self, word: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self._said()

    def _said(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchFailed("the watchers have ended")
        return line


def lines_of(answers_ms: Mapping[str, Sequence[float]]) -> list[str]:
    """How long people waited, by interactive query."""
    lines = [f"{'query':20}{'answers':>9}{'median ms':>11}{'longest':>9}"]
    for q in USER_QUERIES:
        times = sorted(answers_ms.get(q.name, ()))
        if times:
            lines.append(f"{q.name:20}{len(times):>9}{times[len(times) // 2]:>11.1f}{times[-1]:>9.1f}")
    return lines


if __name__ == "__main__":
    Crowd(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])).obey()

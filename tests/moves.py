"""How far the code travels on five trips: functions called, files, moves from file to file, and depth.

    python -m tests.moves

Counted are the frames of compiler, runtime and flowql; those of libraries between them are passed over. A move goes from one file into
another, by a call or back from it. Each trip is made once before it is counted, so that imports and caches are not part of it.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal

import flowql
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from tests.runtime.app.harness import InstanceHarness

ROOT = str(Path(__file__).parents[1].resolve())
FOLDERS = tuple(f"{ROOT}/{f}/" for f in ("compiler", "runtime", "flowql"))
KSQL = """CREATE STREAM orders (id INT KEY, customer STRING, amount INT) WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE spent AS SELECT customer, SUM(amount) AS total FROM orders WHERE amount > 10 GROUP BY customer EMIT CHANGES;"""
STANDARD = """CREATE TABLE orders (id INT PRIMARY KEY, customer TEXT, amount INT);
CREATE VIEW spent AS SELECT customer, SUM(amount) AS total FROM orders WHERE amount > 10 GROUP BY customer;"""
QUESTION = "SELECT customer, SUM(amount) AS total FROM orders WHERE amount > 10 GROUP BY customer"
PROJECT = "name: moves\ndialect: standard\nsql: orders.sql\ntargets: {main: {data_dir: data, threads: 1}}\n"


@dataclass(slots=True)
class Trip:
    """What was called: functions, calls of them, files, moves between them, and the deepest stack."""

    name: str
    functions: set[CodeType] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    calls: int = 0
    moves: int = 0
    depth: int = 0

    def row(self) -> tuple[str, ...]:
        numbers = (len(self.functions), self.calls, len(self.files), self.moves, self.depth)
        return (self.name, *(f"{n:,}" for n in numbers))


class _Counting:
    """A profile function of one thread. stack: of each frame, the file if it is one of ours."""

    def __init__(self, trip: Trip, real: dict[str, str]) -> None:
        self._trip, self._real, self._stack = trip, real, list[str]()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (file := self._file(frame.f_code.co_filename)):
            trip, stack = self._trip, self._stack
            trip.calls += 1
            trip.functions.add(frame.f_code)
            trip.files.add(file)
            trip.moves += 2 * (bool(stack) and stack[-1] != file)
            stack.append(file)
            trip.depth = max(trip.depth, len(stack))
        elif event == "return" and self._stack and self._file(frame.f_code.co_filename):
            self._stack.pop()

    def _file(self, name: str) -> str:
        """The real path of a file of ours, which is reached by links, too; else empty."""
        if name not in self._real:
            path = str(Path(name).resolve())
            self._real[name] = path if path.startswith(FOLDERS) else ""
        return self._real[name]


@contextmanager
def counted(name: str, *, threads: bool = False) -> Iterator[Trip]:
    """threads: those that begin meanwhile count as well."""
    trip, real = Trip(name), dict[str, str]()

    def begin(frame: FrameType, event: str, argument: Any) -> None:
        counting = _Counting(trip, real)
        sys.setprofile(counting)
        counting(frame, event, argument)

    if threads:
        threading.setprofile(begin)
    sys.setprofile(_Counting(trip, real))
    try:
        yield trip
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def trips() -> list[Trip]:
    """All of them, each on its second time."""
    return [
        _compiled("two ksqlDB statements to a plan", KSQL, "ksql"),
        _compiled("two standard statements to a plan", STANDARD, "standard"),
        _epoch(),
        *_deployed_and_asked(),
    ]


def _twice(name: str, act: Callable[[], object], *, threads: bool = False) -> Trip:
    act()
    with counted(name, threads=threads) as trip:
        act()
    return trip


def _compiled(name: str, sql: str, dialect: Literal["ksql", "standard"]) -> Trip:
    return _twice(name, lambda: compile_project([SourceText("orders.sql", sql)], dialect=dialect).plan)


def _epoch() -> Trip:
    """One record through a query, up to the commit of what it gives."""
    with InstanceHarness(KSQL) as harness:
        assert harness.driver is not None
        harness.send("orders", [(1, {"CUSTOMER": "ann", "AMOUNT": 20}, 0)])
        harness.driver.run_until_caught_up()
        harness.send("orders", [(2, {"CUSTOMER": "ann", "AMOUNT": 30}, 1)])
        with counted("one record to an epoch") as trip:
            harness.driver.run_until_caught_up()
    return trip


def _deployed_and_asked() -> Iterator[Trip]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "flowql.yaml").write_text(PROJECT)
        (folder / "orders.sql").write_text(STANDARD)
        with flowql.Instance(folder) as instance:
            instance.connection.execute("INSERT INTO orders VALUES (1, 'ann', 20)")
            views = (f"CREATE VIEW spent{n} AS {QUESTION};\n" for n in range(2))

            def deploy() -> None:
                with (folder / "orders.sql").open("a") as file:
                    file.write("\n" + next(views))
                instance.connection.deploy()

            yield _twice("deploy of one more view", deploy, threads=True)
        with flowql.connect(
            folder
        ) as connection:  # its answer is computed in this process, as far as no child is needed
            yield _twice("interactive query of a stopped instance", lambda: connection.sql(QUESTION), threads=True)


def table(rows: list[tuple[str, ...]]) -> str:
    """Aligned: the first column to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))) for r in rows
    )


def main() -> None:
    print(table([("trip", "functions", "calls", "files", "moves", "depth"), *(t.row() for t in trips())]))


if __name__ == "__main__":
    main()

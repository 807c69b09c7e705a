"""Runs the tests of a mutant in a fork of a process that has loaded the libraries: those that call what is changed, those of its module and then the quick ones first.

A pytest process of its own took two to six seconds before its first test, and the test that notices a mutant was as likely the last as the first.
The first run of the tests, without a mutant, writes down which test calls which function. A change within a function is judged by the tests that call it; one of a
constant or a class, or of what only other processes call, by all tests, those that call anything of its file first. Of them as many are run as
took half of the limit, so that only a test that hangs comes to its end.
"""

from __future__ import annotations

import ast
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import psutil
import pytest

# What no mutant changes, and starts no thread when it is loaded (pyarrow does).
os.environ["OPENBLAS_NUM_THREADS"] = "1"
LIBRARIES = ("numpy", "duckdb", "rocksdict", "sqlglot", "confluent_kafka", "hypothesis", "typer")
OWN = ("tests", "flowql")


@dataclass(slots=True)
class Calls:
    """Of a run without mutants: seconds of each test, and the tests that called each function: by file, and the function's first line."""

    seconds: dict[str, float] = field(default_factory=dict)
    by_file: dict[str, dict[int, set[str]]] = field(default_factory=dict)

    def of_function(self, file: str, function: int) -> list[str]:
        """The tests that called the function with this first line: those of the module, then the quick ones first."""
        found = self._quick_first(self.by_file.get(file, {}).get(function, set()))
        return sorted(found, key=lambda test: not _is_of(test, file))

    def of_file(self, file: str) -> list[str]:
        """The tests that called any function of the file, the quick ones first."""
        return self._quick_first(set[str]().union(*self.by_file.get(file, {}).values()))

    def others(self, file: str) -> list[str]:
        """The tests that called nothing of the file, the quick ones first: other processes may call it."""
        return self._quick_first(set(self.seconds).difference(self.of_file(file)))

    def within(self, tests: Sequence[str], limit_s: float) -> list[str]:
        """The first of these tests, as many as took no longer, and at least one."""
        took = accumulate(self.seconds.get(test, 0.0) for test in tests)
        return [test for n, (test, s) in enumerate(zip(tests, took, strict=True)) if n == 0 or s <= limit_s]

    def _quick_first(self, tests: set[str]) -> list[str]:
        return sorted(tests, key=lambda test: (self.seconds.get(test, 0.0), test))


def _is_of(test: str, file: str) -> bool:
    """Whether a test is in a file with the name of the module: tests/runtime/app/test_deploy.py::... for runtime/app/deployment.py."""
    subject, module = Path(test.partition("::")[0]).stem.removeprefix("test_"), Path(file).stem
    return subject.startswith(module) or module.startswith(subject)


class Chosen:
    """Plugin: the named tests in their order, and no others."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._rank = {test: n for n, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self._rank), key=lambda item: self._rank[item.nodeid])


class Recording:
    """Plugin: which test calls which function of the tree."""

    def __init__(self, tree: Path) -> None:
        self._tree = f"{tree}/flowql/"
        self._seen: dict[str, set[CodeType]] = {}
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        seen = self._seen[item.nodeid] = set[CodeType]()
        add = seen.add

        def trace(frame: FrameType, event: str, argument: Any) -> None:
            add(frame.f_code)

        begun = time.perf_counter()
        threading.settrace(trace)
        sys.settrace(trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self._seconds[item.nodeid] = time.perf_counter() - begun

    def calls(self) -> Calls:
        found = Calls(self._seconds)
        for test, codes in self._seen.items():
            for code in codes:
                if code.co_filename.startswith(self._tree):
                    file = code.co_filename.removeprefix(self._tree)
                    file = file if file.startswith(("compiler/", "runtime/")) else f"flowql/{file}"
                    found.by_file.setdefault(file, {}).setdefault(code.co_firstlineno, set()).add(test)
        return found


def load_libraries() -> None:
    for name in LIBRARIES:
        import_module(name)


def record(tree: Path, tests: Sequence[str], limit_s: float) -> Calls | None:
    """A run without mutants, None if it is not green within the limit."""
    recording = Recording(tree)

    def run() -> object:
        if pytest.main(_arguments(tests), plugins=[recording]) != 0:
            return None
        calls = recording.calls()
        number = {
            test: n for n, test in enumerate(calls.seconds)
        }  # a name is a hundred bytes, and there are a million calls
        return [
            calls.seconds,
            {f: {n: [number[test] for test in t] for n, t in lines.items()} for f, lines in calls.by_file.items()},
        ]

    answer = in_fork(tree, run, limit_s, {"PYTHONDONTWRITEBYTECODE": ""})
    if answer is None:
        return None
    seconds, by_file = answer
    names = list(seconds)
    return Calls(
        seconds, {f: {int(n): {names[i] for i in t} for n, t in lines.items()} for f, lines in by_file.items()}
    )


def judge(tree: Path, limit_s: float, calls: Calls, file: str, line: int) -> bool:
    """Whether a test that is chosen for this line fails, the process ends, or the limit passes."""
    function = first_line_of_function((tree / file).read_text(encoding="utf-8"), line)
    tests = calls.of_function(file, function) if function is not None else []
    chosen = calls.within(tests or [*calls.of_file(file), *calls.others(file)], limit_s / 2)
    files = sorted({test.partition("::")[0] for test in chosen})

    def run() -> object:
        return int(pytest.main(_arguments(files), plugins=[Chosen(chosen)]))

    ended = in_fork(tree, run, limit_s, {"PYTHONDONTWRITEBYTECODE": "1"})
    return ended not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def first_line_of_function(source: str, line: int) -> int | None:
    """Of the innermost function that has the line in its body; its decorators belong to it, its defaults do not."""
    found = None
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if node.body[0].lineno <= line <= (node.end_lineno or node.lineno) and (found is None or first > found):
                found = first
    return found


def _arguments(tests: Sequence[str]) -> list[str]:
    # Libraries are loaded before pytest could rewrite their assertions.
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return ["-x", "-q", "-p", "no:cacheprovider", "--no-header", *quiet, *tests]


def in_fork(tree: Path, run: Callable[[], object], limit_s: float, environment: Mapping[str, str]) -> Any:
    """What `run` returns in a fork that imports from the tree; None if it ends otherwise, or not within the limit."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            _enter(tree, environment)
            answer = json.dumps(run()).encode()
            for thread in threading.enumerate():  # a process does not end before them
                if thread is not threading.current_thread() and not thread.daemon:
                    thread.join()
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(answer)
            signal.pause()  # until it is ended, with the processes that its tests started and did not end
        finally:
            os._exit(0)
    os.close(writing)
    answer = _read(reading, time.monotonic() + limit_s)
    os.close(reading)
    process = psutil.Process(child)
    for left in (*process.children(recursive=True), process):
        with suppress(psutil.NoSuchProcess):
            left.kill()
    os.waitpid(child, 0)
    return json.loads(answer) if answer else None


def _enter(tree: Path, environment: Mapping[str, str]) -> None:
    os.chdir(tree)
    os.environ.update({"PYTHONPATH": str(tree), "TURNS": "all", **environment})
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    for name in [n for n in sys.modules if n.partition(".")[0] in OWN]:
        del sys.modules[name]
    own = {Path(__file__).resolve().parents[2], tree}
    sys.path[:] = [str(tree), *(p for p in sys.path if Path(p).resolve() not in own)]


def _read(pipe: int, until_s: float) -> bytes:
    """All that comes until the other end is closed; empty if it is not in time."""
    got = bytearray()
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, until_s - time.monotonic()))
        if not ready:
            return b""
        part = os.read(pipe, 1 << 16)
        if not part:
            return bytes(got)
        got += part

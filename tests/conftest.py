"""Golden files: `golden(name, text)` compares with tests/golden/<name>; `pytest --update-golden` rewrites them.

Tests that take turns: of a group of long tests from end to end a few run each time, others from commit to commit, so that a run can be
repeated elsewhere. `make test TURNS=all` runs all, a number as TURNS draws others. Whoever selects no more of a group than run each time
gets all of what was selected.
In some groups files take turns as a whole; in "long" are files of no other group that take longest, of which one in seven runs each time. In
the group "cases" each test is a group of its own: of its parameters a quarter run each time.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter
from hypothesis import HealthCheck, settings

from flowql.runtime.app.threads import GC_THRESHOLD
from tests.dealing import SERVICES, Dealing
from tests.kafka_broker import kafka, kafka_broker, own_broker

__all__ = ["kafka", "kafka_broker", "own_broker"]  # fixtures of all tests
# Processes of pytest-xdist are given a terminal's size; tests with a terminal have one of their own.
for size in ("COLUMNS", "LINES"):
    os.environ.pop(size, None)
# A machine under load is no reason to fail: nothing here is about time.
settings.register_profile("tests", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")
FILES_SHOWN, FILES_SHOWN_S = 40, 300.0
GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what the tests see into tests/golden")


# What takes long begins first, or the last of it would be waited for by one worker alone: longest first.
LONG = (*SERVICES, "crash", "sim", "slow")


# How many of a group run each time.
TURNS = {
    "spark": 1,
    "files": 1,
    "kafka": 1,
    "load": 1,
    "pages": 1,
    "plants": 2,
    "worlds": 2,
    "disks": 2,
    "stories": 2,
    "processes": 1,
    "sessions": 1,
    "functions": 1,
    "instances": 2,
    "servers": 1,
    "queries": 1,
    "long": 11,
}
BY_FILE = {
    "sessions",
    "functions",
    "instances",
    "servers",
    "queries",
    "long",
}  # groups whose files take turns as a whole
CASES = "cases"  # the group whose members are the parameters of one test
PART = 4  # of a group without a number, one in so many runs each time


def pytest_configure(config: pytest.Config) -> None:
    """Before the processes of pytest-xdist begin, which inherit it."""
    os.environ["TURNS"] = os.environ.get("TURNS") or _commit() or str(random.randrange(1 << 20))


def _commit() -> str:
    """The commit that is checked out, or nothing where that cannot be told."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=8", "HEAD"]
    with suppress(OSError):
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return ""


def take_turns(items: list[pytest.Item], turns: str) -> None:
    if turns == "all":
        return
    groups: dict[str, dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        if (mark := item.get_closest_marker("turns")) is not None:
            group = mark.args[0]
            whole = item.nodeid.partition("[")[0] if group == CASES else group
            groups[whole][str(item.path) if group in BY_FILE else item.nodeid].append(item)
    for group, members in groups.items():
        number = TURNS.get(group, -(-len(members) // PART))
        drawn = random.Random(f"{turns} {group}").sample(sorted(members), min(number, len(members)))
        for item in (i for name, of_it in members.items() if name not in drawn for i in of_it):
            item.add_marker(pytest.mark.skip(f"not its turn with TURNS={turns}; TURNS=all runs all"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    take_turns(items, os.environ["TURNS"])
    places = {i.path: len(LONG) for i in items}
    for item in items:
        places[item.path] = min(
            [places[item.path], *(LONG.index(m.name) for m in item.iter_markers() if m.name in LONG)]
        )
    items.sort(key=lambda i: places[i.path])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadfile":
        return None
    return Dealing(config, log)


def pytest_collection_finish() -> None:
    """What is loaded and collected by now lives for ever: collections that visit it took a tenth of the processor time of all tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """The files that take longest, as all of a file runs in one process."""
    seconds: Counter[str] = Counter()
    for report in (r for of_kind in terminalreporter.stats.values() for r in of_kind if hasattr(r, "duration")):
        seconds[report.nodeid.partition("::")[0]] += report.duration
    if (total := seconds.total()) > FILES_SHOWN_S:
        terminalreporter.write_sep("=", f"{FILES_SHOWN} longest files of {total:.0f} s")
        for file, spent in seconds.most_common(FILES_SHOWN):
            terminalreporter.write_line(f"{spent:7.1f}s {file}")


def pytest_unconfigure() -> None:
    gc.unfreeze()  # libraries complain of what they made and the end of the process does not free


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    def check(name: str, text: str) -> None:
        file = GOLDEN / name
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert file.exists(), f"no golden file {name}: run with --update-golden and look at the difference"
        assert text == file.read_text(encoding="utf-8")

    return check

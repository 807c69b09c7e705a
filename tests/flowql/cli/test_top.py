"""The picture of `top` at several widths, its order and filter, its keys; and all of it in a real terminal."""

from __future__ import annotations

import copy
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from rich.console import Console

from flowql.cli.monitoring.columns import BY_KEY, COLUMNS, fitting, matching, ordered
from flowql.cli.monitoring.screen import Screen
from flowql.cli.monitoring.table import View, text_of
from flowql.errors import CommandError
from flowql.server.address import read_address
from tests.flowql.cli.program import Program

WAIT_S = 60
NUMBERS = {"records_in": 0, "records_out": 0, "dead_letters": 0, "late_records": 0, "errors": 0}


def query(name: str, priority: str = "normal", weight: int = 4, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": name,
        "state": "running",
        "priority": priority,
        "weight": weight,
        "lag": 0,
        **NUMBERS,
    }
    found |= {"last_error": None, "rate_in": 0.0, "rate_out": 0.0, "latency_ms": None, "cpu": 0.0, "share": None}
    found |= {"entitled": None, "state_bytes": 0, "waits": {"for": "input", "whom": []}}
    return found | more


STATUS: dict[str, Any] = {
    "instance": {
        **{"pid": 4711, "engine": "runtime", "log": "embedded", "uptime_s": 8040.2, "memory_bytes": 199_000_000},
        **{"cpu_s": 99.5, "commit_ms": 3.4, "blocked": None},
    },
    "queries": [
        query(
            *("CSAS_ALARMS", "critical", 64),
            **{"rate_in": 998.4, "rate_out": 12.25, "latency_ms": {"p50": 13.5, "p99": 45.3}, "cpu": 0.021},
            **{"share": 0.0123, "entitled": 0.0131, "records_in": 1_234_567},
        ),
        query(
            *("CTAS_SPENT_PER_CUSTOMER_AND_HOUR", "normal", 4),
            **{"rate_in": 14_918.6, "rate_out": 1188.8, "latency_ms": {"p50": 724.1, "p99": 12_400.0}, "cpu": 0.61},
            **{"share": 0.741, "entitled": 0.7902, "lag": 91_250, "state_bytes": 7_340_032, "records_in": 99_000_000},
            **{"waits": {"for": "processor", "whom": ["CTAS_HISTORY"]}},
        ),
        query("CTAS_HISTORY", "batch", 1, share=0.2467, entitled=0.1967, lag=4_000_000, waits=None, cpu=0.2, errors=3),
        query(
            "CTAS_BROKEN",
            state="failed",
            errors=12,
            last_error="ValueError: no luck",
            waits={"for": "restart", "whom": []},
        ),
        query("CTAS_REST", state="paused", lag=10, waits={"for": "resume", "whom": []}),
    ],
}


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_picture_is_as_agreed(golden: Callable[[str, str], None], width: int) -> None:
    shown = text_of(STATUS, View(), width)
    assert max(len(line) for line in shown.splitlines()) <= width
    golden(f"cli/top_{width}.txt", shown)


def test_what_rocksdb_counts_is_a_line_of_its_own() -> None:
    status = copy.deepcopy(STATUS)
    calls = {"multi_get": {"count": 10, "seconds": 0.1, "p50_ms": 0.2, "p99_ms": 1.5}}
    found = {"cache_hits": 990, "cache_misses": 10, "files_bytes": 5 << 20, "stall_s": 0.0, "calls": calls}
    status["instance"]["state"] = found | {"compactions": 0, "pending_compaction_bytes": 0}
    line = "state 5.0M  99% of blocks from the cache  look-ups p99 1.50ms"
    assert text_of(status, View(), 200).splitlines()[1] == line
    status["instance"]["state"] |= {"cache_hits": 0, "cache_misses": 0, "compactions": 1, "stall_s": 2.0}
    status["instance"]["state"]["pending_compaction_bytes"] = 3 << 20
    line = "state 5.0M  - of blocks from the cache  look-ups p99 1.50ms  3.0M to be compacted  writes held up for 2.0s"
    assert text_of(status, View(), 200).splitlines()[1] == line


def test_skipped_records_have_a_column_where_there_are_any() -> None:
    assert "SKIP" not in text_of(STATUS, View(), 200)
    status = copy.deepcopy(STATUS)
    status["queries"][0]["skipped_records"] = 12_345
    heading, first = text_of(status, View(sort="query"), 200).splitlines()[2:4]
    assert first.split()[heading.split().index("SKIP")] == "12.3k"


@pytest.mark.parametrize("width", range(30, 210, 7))
def test_numbers_are_whole_or_not_there(width: int) -> None:
    queries = STATUS["queries"]
    columns = fitting(queries, width)
    assert columns[0].key == "query"
    heading, *lines = text_of(STATUS, View(), width).splitlines()[2:]
    for q, line in zip(View().select(STATUS), lines, strict=False):
        for column in columns:
            if not column.left:
                assert column.text(q) in line.split()
    assert [c.heading for c in columns] == heading.split()


def test_the_largest_come_first_names_from_a_on_and_what_is_unknown_last() -> None:
    queries = STATUS["queries"]
    assert [q["id"] for q in ordered(queries, "lag")][:2] == ["CTAS_HISTORY", "CTAS_SPENT_PER_CUSTOMER_AND_HOUR"]
    assert [q["id"] for q in ordered(queries, "p99", reverse=True)][:2] == [
        "CSAS_ALARMS",
        "CTAS_SPENT_PER_CUSTOMER_AND_HOUR",
    ]
    assert ordered(queries, "query")[0]["id"] == "CSAS_ALARMS"
    assert ordered(queries, "doing")[0]["id"] == "CTAS_BROKEN"
    assert {q["id"] for q in ordered(queries, "share")[-2:]} == {"CTAS_BROKEN", "CTAS_REST"}
    for column in COLUMNS:
        assert {q["id"] for q in ordered(queries, column.key)} == {q["id"] for q in queries}


def test_a_filter_looks_at_id_class_and_state() -> None:
    def found(text: str) -> list[str]:
        return [q["id"] for q in matching(STATUS["queries"], text)]

    assert found("hist") == ["CTAS_HISTORY"]
    assert found("Critical") == ["CSAS_ALARMS"]
    assert found("failed") == ["CTAS_BROKEN"]
    assert found("nope") == []
    assert "no query has 'nope'" in text_of(STATUS, View(filter="nope"), 80)


class Watched:
    """A screen over statuses that a test changes, as text."""

    def __init__(self) -> None:
        self.status: dict[str, Any] | None = copy.deepcopy(STATUS)
        self.screen = Screen(self._look, View(), 2.0)
        self.screen.refresh()

    def _look(self) -> dict[str, Any]:
        if self.status is None:
            raise CommandError("the instance has stopped", code="FQ5306")
        return copy.deepcopy(self.status)

    def press(self, *keys: str) -> str:
        for key in keys:
            self.screen.press(key)
        return self.text()

    def text(self, width: int = 100, height: int = 30) -> str:
        console = Console(width=width, height=height, color_system=None, highlight=False)
        with console.capture() as captured:
            console.print(self.screen.show(width, height))
        return captured.get()


def test_keys_sort_filter_pause_and_quit() -> None:
    watched = Watched()
    assert "by share" in watched.text()
    assert "by cpu" in watched.press("s")
    assert "by share" in watched.press("left")
    assert "reversed" in watched.press("r")
    assert "filter: hix_" in watched.press("/", "h", "i", "x")
    shown = watched.press("backspace", "enter")
    assert "CTAS_HISTORY" in shown
    assert "CSAS_ALARMS" not in shown
    assert "CSAS_ALARMS" in watched.press("escape")
    assert "every 4 s" in watched.press("+")
    assert "every 2 s" in watched.press("-")
    assert "PAUSED" in watched.press("p")
    assert watched.screen.still
    assert "PAUSED" not in watched.press(" ")
    assert "GOT/DUE     share" in watched.press("?")
    watched.press("q")
    assert watched.screen.ended


def test_more_queries_than_lines_can_be_moved_through() -> None:
    watched = Watched()
    assert watched.status is not None
    watched.status["queries"] = [query(f"CTAS_Q{n:02}") for n in range(50)]
    watched.screen.refresh()
    assert len(watched.text(height=20).splitlines()) <= 20
    assert "CTAS_Q00" in watched.text(height=20)
    for key in ["down"] * 3:
        watched.screen.press(key)
    assert "CTAS_Q00" not in watched.text(height=20)
    for key in ["page down"] * 9:
        watched.screen.press(key)
    shown = watched.text(height=20)
    assert "CTAS_Q49" in shown
    assert "CTAS_Q30" not in shown


def test_an_instance_that_is_gone_is_said_to_be_and_comes_back() -> None:
    watched = Watched()
    status, watched.status = watched.status, None
    watched.screen.refresh()
    assert "the instance has stopped; waiting for one to come back" in watched.text()
    assert "CTAS_HISTORY" in watched.text(), "what was seen last stays"
    watched.status = status
    watched.screen.refresh()
    assert "stopped" not in watched.text()


def test_colour_only_on_a_terminal(flowql: Program, shop: Path) -> None:
    flowql("deploy", "-p", str(shop))
    shown = flowql("top", "--once", "-p", str(shop))
    assert shown.code == 0
    assert "\x1b" not in shown.out
    assert "CTAS_SPENT_PER_HOUR" in shown.out
    document = json.loads(flowql("top", "--once", "-o", "json", "--filter", "large", "-p", str(shop)).out)
    assert [q["id"] for q in document["queries"]] == ["CSAS_LARGE_ORDERS"]
    assert flowql("top", "--sort", "nope", "-p", str(shop)).code == 2


def test_nothing_to_watch(flowql: Program, shop: Path) -> None:
    shown = flowql("top", "-p", str(shop))
    assert shown.code == 1
    assert "FQ5306" in shown.err
    assert "flowql deploy" in shown.err


@pytest.mark.turns("processes")
@pytest.mark.parametrize("columns", [80, 200])
def test_in_a_terminal(flowql: Program, shop: Path, columns: int) -> None:
    """Typed by a person: it starts, obeys, survives the end of the instance, and leaves the terminal as it was."""
    flowql("deploy", "-p", str(shop))
    program = "from flowql.cli import main; main()"
    env = {**os.environ, "TERM": "xterm-256color"}
    env.pop("NO_COLOR", None)
    terminal = pexpect.spawn(
        sys.executable,
        ["-c", program, "top", "--interval", "0.2", "-p", str(shop)],
        dimensions=(24, columns),
        env=env,
        timeout=WAIT_S,
        encoding="utf-8",
    )
    terminal.logfile_read = seen = io.StringIO()
    terminal.expect("CTAS_SPENT_PER_HOUR")
    terminal.expect("by share")
    terminal.send("s")
    terminal.expect("by cpu")
    terminal.send("/large\r")
    terminal.expect("only 'large'")
    assert ("P50" in seen.getvalue()) == (columns == 200)
    flowql("stop", "-p", str(shop))
    terminal.expect("the instance has stopped; waiting")
    terminal.send("q")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    assert re.search(r"\x1b\[\?1049l", terminal.before), "the screen from before is back"


@pytest.fixture
def shop(flowql: Program, tmp_path: Path) -> Iterator[Path]:
    assert flowql("init", str(tmp_path / "shop"), "--template", "ksqldb").code == 0
    yield tmp_path / "shop"
    if read_address(tmp_path / "shop" / ".flowql" / "default") is not None:
        flowql("stop", "-p", str(tmp_path / "shop"))


def test_every_column_has_a_key_of_its_own() -> None:
    assert len(BY_KEY) == len(COLUMNS)

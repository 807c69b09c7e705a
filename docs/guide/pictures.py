"""Draws docs/guide/top.svg, docs/guide/deploy.svg and docs/guide/shell.svg from real runs.

    python -m docs.guide.pictures [top] [deploy] [shell]

top.svg: `flowql top` over four queries of different priorities that always have work. deploy.svg: a session in a terminal, in which an
edit of a view is checked and deployed. shell.svg: statements in `flowql shell`. Commands, output and figures are real; only the number of the process is replaced.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pexpect
from rich.console import Console, RenderableType
from rich.text import Text

from benchmarks.isolation import plan_of
from flowql.bench.nexmark_input import write_log
from flowql.cli.monitoring.screen import Screen
from flowql.cli.monitoring.table import View
from flowql.deploy.settings import Settings
from flowql.server.host import Host

FOLDER = Path(__file__).parent
PROCESS = 4711
TOP_WIDTH, TOP_HEIGHT, EVENTS, WATCH_S, LOOK_S = 118, 9, 3_000_000, 16.0, 2.0
TERMINAL_WIDTH, COMMAND_S = 96, 300

# The same work four times, so that priorities alone make the difference.
QUERIES = (
    "CREATE STREAM BID (AUCTION BIGINT, BIDDER BIGINT, PRICE BIGINT, CHANNEL STRING, URL STRING, EXTRA STRING) WITH (KAFKA_TOPIC='bid', VALUE_FORMAT='JSON');"
    + "".join(
        f"""
CREATE TABLE {name} WITH (PRIORITY='{priority}') AS
  SELECT AUCTION, COUNT(*) AS N, SUM(PRICE) AS TOTAL, MAX(REPLACE(UCASE(URL), 'HTTP', 'X')) AS LAST,
         MIN(SUBSTRING(LCASE(EXTRA), 3)) AS FIRST, AVG(ROUND(SQRT(PRICE * LEN(URL)), 2)) AS MEAN
  FROM BID GROUP BY AUCTION;
"""
        for name, priority in (("ALERTS", "critical"), ("PRICES", "high"), ("TRENDS", "normal"), ("ARCHIVE", "batch"))
    )
)

BEFORE = (
    "flowql init shop",
    "cd shop",
    "flowql topic import orders orders.jsonl --key customer --timestamp ordered_at",
    "flowql deploy",
)
SHOWN = (
    "sed -i 's/amount >= 100/amount >= 50/' queries.sql",
    "flowql plan",
    "flowql deploy",
    'flowql query "SELECT * FROM large_orders ORDER BY id"',
)
STATEMENTS = (
    "SELECT customer, orders, spent FROM spent_per_hour ORDER BY spent DESC LIMIT 3;",
    "SELECT items FROM orders;",
    "\\d large_orders",
    "PRINT orders FROM BEGINNING LIMIT 2;",
)


def drawn(title: str, width: int, picture: RenderableType) -> str:
    """An SVG of what a terminal of that width shows."""
    console = Console(file=io.StringIO(), record=True, width=width, force_terminal=True, color_system="truecolor")
    console.print(picture)
    svg = console.export_svg(title=title)
    # No fonts from the network: a reader's own font of fixed width is used.
    return re.sub(r"@font-face\s*{[^}]*}\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)


def top(folder: Path) -> str:
    """The screen of `flowql top` after some seconds of work."""
    write_log(folder, EVENTS, ["bid"])
    host = Host(Settings(folder, "shop", 2, 512 << 20))
    host.start()
    try:
        host.service.deploy(plan_of(QUERIES))
        screen = Screen(host.service.status, View(), LOOK_S)
        until = time.monotonic() + WATCH_S
        while time.monotonic() < until:
            screen.refresh()
            time.sleep(LOOK_S)
    finally:
        host.close()
    assert screen.status is not None
    screen.status = {**screen.status, "instance": {**screen.status["instance"], "pid": PROCESS}}
    return drawn("flowql top", TOP_WIDTH, screen.show(TOP_WIDTH, TOP_HEIGHT + 2))


def deploy(folder: Path) -> str:
    """A session in which an edit is checked and deployed."""
    bash = _bash(folder)
    try:
        for command in BEFORE:
            _typed(bash, command)
        lines = [line for command in SHOWN for line in (_prompt(command), _output(_typed(bash, command))) if line]
        _typed(bash, "flowql stop")
    finally:
        bash.close(force=True)
    return drawn("an edit is deployed", TERMINAL_WIDTH, Text("\n").join(lines))


def shell(folder: Path) -> str:
    """Statements in the shell, one of them with a mistake. A terminal without control sequences keeps each line as it was printed."""
    bash = _bash(folder)
    try:
        for command in BEFORE:
            _typed(bash, command)
        bash.sendline("PAGER=cat TERM=dumb flowql shell")
        bash.expect_exact("shop> ")
        lines = [_output(bash.before)]
        for statement in STATEMENTS:
            bash.sendline(statement)
            bash.expect_exact("shop> ")
            lines += [
                Text.assemble("shop> ", (statement, "bold")),
                _output(bash.before.removeprefix(statement).lstrip()),
            ]
        bash.sendline("\\q")
        bash.expect_exact("PROMPT>")
        _typed(bash, "flowql stop")
    finally:
        bash.close(force=True)
    return drawn("flowql shell", TERMINAL_WIDTH, Text("\n").join(lines))


def _bash(folder: Path) -> pexpect.spawn:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env: Mapping[str, str] = {**os.environ, "PATH": path, "PS1": "PROMPT>", "TERM": "xterm-256color"}
    bash = pexpect.spawn(
        "bash",
        ["--norc", "--noprofile"],
        cwd=folder,
        env=env,
        encoding="utf-8",
        echo=False,
        timeout=COMMAND_S,
        dimensions=(40, TERMINAL_WIDTH),
    )
    bash.expect_exact("PROMPT>")
    _typed(bash, "bind 'set enable-bracketed-paste off'")
    return bash


def _typed(bash: pexpect.spawn, command: str) -> str:
    bash.sendline(command)
    bash.expect_exact("PROMPT>")
    time.sleep(1)  # what was deployed is committed
    return str(bash.before)


def _prompt(command: str) -> Text:
    return Text.assemble(("$ ", "bold green"), (command, "bold"))


def _output(printed: str) -> Text:
    """The text that stays on the screen. A line that was drawn again counts once."""
    lines = [line.rpartition("\r")[2] for line in printed.replace("\r\n", "\n").rstrip("\n").split("\n")]
    return Text.from_ansi(re.sub(r"process \d+", f"process {PROCESS}", "\n".join(lines)))


PICTURES: Mapping[str, Callable[[Path], str]] = {"top": top, "deploy": deploy, "shell": shell}

if __name__ == "__main__":
    for picture in sys.argv[1:] or PICTURES:
        with tempfile.TemporaryDirectory() as made:
            (FOLDER / f"{picture}.svg").write_text(PICTURES[picture](Path(made)), encoding="utf-8")

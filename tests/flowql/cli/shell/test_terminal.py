"""The shell as a person has it: a real process on a real terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flowql.server.host import Host
from flowql.topics.codecs import KeyWriter, ValueWriter
from flowql.topics.records import parse_record
from tests.flowql.cli.terminal import Terminal
from tests.flowql.topics.writing import write_records

pytestmark = pytest.mark.turns("long")


@pytest.fixture
def terminal(host: Host, folder: Path) -> Iterator[Terminal]:
    made = Terminal(folder, "shell")
    yield made
    made.child.close(force=True)


def add_row(host: Host, key: str, value: str) -> None:
    log = host.engine.instance.log
    record = parse_record(f"{key}:{value}", KeyWriter(None), ValueWriter(None), 1)
    write_records(log, "s", 1, [record], "a person")


def test_an_evening_at_the_shell(terminal: Terminal, host: Host, folder: Path) -> None:
    terminal.awaits("1 query, process")
    terminal.awaits("demo>")
    terminal.types("SELECT K, V\r")  # goes on
    terminal.awaits("->")
    terminal.ask("FROM S WHERE V > 5;", "K   V\r\nb  22\r\n(1 row)")
    terminal.types("SELECT count(*) AS ROWS_OF_S FROM CTAS\t")  # one name begins so: it is completed
    terminal.awaits("_A-aggregate-1")
    terminal.ask(";", "ROWS_OF_S")
    terminal.ask("SELECT NOPE FROM S EMIT CHANGES;", "       ^^^^ unknown column")
    terminal.ask("\\d A", "\r\ncolumn  type")
    terminal.ask("SELECT i FROM range(60) t(i);", "paged: 59\r\npaged: (60 rows)")
    terminal.types("SELECT * FROM S EMIT CHANGES;\r")
    terminal.awaits("listening; Ctrl-C ends")
    add_row(host, "new", '{"V": 777}')
    terminal.awaits("new  777\r\n")
    terminal.child.sendintr()
    terminal.awaits("1 row\r\n")
    terminal.awaits("demo>")
    terminal.types("SELECT never_sent")
    terminal.awaits("never_sent")
    terminal.interrupts()  # drops what is typed
    terminal.recalls("EMIT CHANGES;")
    terminal.interrupts()
    terminal.child.sendeof()
    assert terminal.ends() == 0
    history = folder / "state" / "flowql" / "history"
    assert "WHERE V > 5" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_a_subscription_ends_in_order(host: Host, folder: Path) -> None:
    terminal = Terminal(folder, "subscribe", "A")
    terminal.awaits("listening; Ctrl-C ends")
    add_row(host, "new", '{"V": 7}')
    terminal.awaits("put     new  1\r\n")
    terminal.child.sendintr()
    terminal.awaits("1 row")
    assert terminal.ends() == 0

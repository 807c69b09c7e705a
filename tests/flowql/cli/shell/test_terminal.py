"""The shell as a person has it: a real process on a real terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from flowql.server.host import Host
from flowql.topics.codecs import KeyWriter, ValueWriter
from flowql.topics.records import parse_record, write_records

WAIT_S = 120
PROGRAM = "from flowql.cli import main; main()"


class Terminal:
    """What is typed and what comes back. The prompt is drawn with cursor movements, so only its first word is looked for."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        env = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "TERM": "xterm", "PAGER": "cat"}
        env |= {"NO_COLOR": "1", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.child = pexpect.spawn(
            sys.executable,
            ["-c", PROGRAM, *arguments],
            cwd=str(folder),
            env=env,
            encoding="utf-8",
            dimensions=(40, 120),
            timeout=WAIT_S,
        )

    def awaits(self, text: str) -> None:
        self.child.expect_exact(text)

    def types(self, text: str) -> None:
        self.child.send(text)

    def ask(self, text: str, answer: str) -> None:
        """Type at the prompt, and wait for an answer and the next prompt."""
        self.types(f"{text}\r")
        self.awaits("\x1b[?2004l")  # it is handed over: what follows is the answer
        self.awaits(answer)
        self.awaits("demo>")

    def interrupts(self) -> None:
        """Ctrl-C at the prompt: a new one comes."""
        self.child.sendintr()
        self.awaits("\x1b[?2004h")
        self.awaits("demo>")

    def recalls(self, text: str) -> None:
        """Ask for the last statement until it comes: the history is read while the prompt is there already."""
        for _ in range(WAIT_S):
            self.types("\x10")
            if self.child.expect_exact([text, pexpect.TIMEOUT], timeout=1) == 0:
                return
        raise AssertionError(f"{text!r} is not in the history")


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
    terminal.ask("\\d A", "column  type")
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
    terminal.child.expect(pexpect.EOF)
    terminal.child.close()
    assert terminal.child.exitstatus == 0
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
    terminal.child.expect(pexpect.EOF)
    terminal.child.close()
    assert terminal.child.exitstatus == 0

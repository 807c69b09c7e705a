"""The program in a process of its own, on a terminal of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pexpect

WAIT_S = 120
PROGRAM = "from flowql.cli import main; main()"


class Terminal:
    """What is typed and what comes back. The prompt is drawn with cursor movements, so only its first word is looked for."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        env = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "TERM": "xterm", "PAGER": "sed 's/^/paged: /'"}
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

    def ends(self) -> int:
        """Wait for the end of the program; its exit code."""
        self.child.expect(pexpect.EOF)
        self.child.close()
        return int(self.child.exitstatus)

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

"""Single keys from a terminal, without waiting for a line."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

ESCAPE, ENTER, BACKSPACE = "escape", "enter", "backspace"
_NAMES = {"\x1b": ESCAPE, "\r": ENTER, "\n": ENTER, "\x7f": BACKSPACE, "\b": BACKSPACE}
_SEQUENCES = {"[A": "up", "[B": "down", "[C": "right", "[D": "left", "[5~": "page up", "[6~": "page down"}
_SEQUENCES |= {"OA": "up", "OB": "down", "OC": "right", "OD": "left"}


class Keys:
    """Keys as they are pressed. Without a terminal there are none, and waiting is all that is left."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def wait(self, seconds: float) -> list[str]:
        """The keys pressed, as soon as there are some; none after `seconds`. A letter is itself, others have names."""
        if self._fd is None:
            select.select([], [], [], seconds)
            return []
        readable, _, _ = select.select([self._fd], [], [], seconds)
        return keys_of(os.read(self._fd, 1024).decode(errors="ignore")) if readable else []


def keys_of(text: str) -> list[str]:
    r"""The bytes of a terminal as keys.

    >>> keys_of("q\x1b[Ba\x7f\x1b")
    ['q', 'down', 'a', 'backspace', 'escape']
    """
    found = []
    while text:
        head, text = text[0], text[1:]
        sequence = next((s for s in _SEQUENCES if head == "\x1b" and text.startswith(s)), None)
        if sequence is not None:
            found.append(_SEQUENCES[sequence])
            text = text[len(sequence) :]
        elif head in _NAMES or head.isprintable():
            found.append(_NAMES.get(head, head))
    return found


@contextmanager
def reading_keys() -> Iterator[Keys]:
    """Take keys from standard input while the block runs; Ctrl-C still interrupts."""
    if not sys.stdin.isatty():
        yield Keys(None)
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield Keys(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)

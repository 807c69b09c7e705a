"""`top` in a terminal: looks at the instance again and again, shows what it sees, and obeys keys meanwhile."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from flowql.cli.monitoring.columns import COLUMNS
from flowql.cli.monitoring.table import FAINT, STYLES, View, picture
from flowql.errors import CommandError

# --- Single keys from a terminal, without waiting for a line ---

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


Status = Mapping[str, Any]
HELP = """\
q           quit                      p or blank  stop and continue the display
s  left  right   sort by another column        r  turn the order
/           show only queries with this text in id, class or state; Escape shows all
up  down    move through the queries  + -         look less, or more often
?           this help                 GOT/DUE     share of the processor, and what its weight entitles it to"""
INTERVAL_S_MIN, INTERVAL_S_MAX = 0.1, 60.0
KEYS_LINE = "q quit  s sort  r reverse  / filter  p pause  +/- interval  ? help"


@dataclass(slots=True)
class Screen:
    """The content of the screen. look: the status now; CommandError while there is no instance."""

    look: Callable[[], Status]
    view: View
    interval_s: float
    status: Status | None = None
    lost: str = ""  # why there is no newer status
    cpu: float | None = None
    still: bool = False
    typing: str | None = None  # the filter that is being typed
    helping: bool = False
    ended: bool = False
    _seen: tuple[float, float] | None = field(default=None)

    def refresh(self) -> None:
        """Refresh. The last display stays if the instance does not respond."""
        try:
            status = self.look()
        except CommandError as error:
            self.lost = error.title
            self._seen = None
            return
        self.lost = ""
        cpu_s, now = status["instance"]["cpu_s"], time.monotonic()
        same = self.status is not None and self.status["instance"]["pid"] == status["instance"]["pid"]
        if same and self._seen is not None and now > self._seen[0]:
            self.cpu = (cpu_s - self._seen[1]) / (now - self._seen[0])
        self.status, self._seen = status, (now, cpu_s)

    def press(self, key: str) -> None:
        """Obey a key."""
        if self.typing is not None:
            self._type(key)
        elif key in _ACTIONS:
            _ACTIONS[key](self)

    def _type(self, key: str) -> None:
        assert self.typing is not None
        if key == ENTER:
            self.view.filter, self.typing = self.typing, None
        elif key == ESCAPE:
            self.typing = None
        else:
            self.typing = self.typing[:-1] if key == BACKSPACE else self.typing + key * (len(key) == 1)

    def sort_by_next(self, step: int) -> None:
        keys = [c.key for c in COLUMNS]
        self.view.sort, self.view.reverse = keys[(keys.index(self.view.sort) + step) % len(keys)], False

    def scroll(self, step: int) -> None:
        self.view.first = max(0, self.view.first + step)

    def slow_down(self, factor: float) -> None:
        self.interval_s = max(INTERVAL_S_MIN, min(INTERVAL_S_MAX, self.interval_s * factor))

    def show(self, width: int, height: int) -> RenderableType:
        """The whole screen."""
        foot = [Text(HELP, FAINT)] if self.helping else [Text(self._foot()[:width], FAINT)]
        if self.lost:
            foot.insert(0, Text(f"{self.lost}; waiting for one to come back"[:width], STYLES["failed"]))
        used = sum(len(f.plain.splitlines()) for f in foot) + 1
        if self.status is None:
            return Group(Text(""), *foot)
        return Group(
            picture(self.status, self.view, width, height=max(4, height - used), cpu=self.cpu), Text(""), *foot
        )

    def _foot(self) -> str:
        if self.typing is not None:
            return f"filter: {self.typing}_   Enter takes it, Escape leaves it as it was"
        said = [f"every {self.interval_s:g} s", f"by {self.view.sort}{' reversed' if self.view.reverse else ''}"]
        if self.view.filter:
            said.append(f"only {self.view.filter!r}")
        if self.still:
            said.insert(0, "PAUSED")
        return f"{'  '.join(said)}   {KEYS_LINE}"


def _toggle(name: str) -> Callable[[Screen], None]:
    return lambda screen: setattr(screen, name, not getattr(screen, name))


def _set(name: str, value: Any) -> Callable[[Screen], None]:
    return lambda screen: setattr(screen, name, value)


_ACTIONS: Mapping[str, Callable[[Screen], None]] = {
    "q": _set("ended", True),
    "p": _toggle("still"),
    " ": _toggle("still"),
    "?": _toggle("helping"),
    "h": _toggle("helping"),
    "s": lambda screen: screen.sort_by_next(1),
    "right": lambda screen: screen.sort_by_next(1),
    "left": lambda screen: screen.sort_by_next(-1),
    "r": lambda screen: setattr(screen.view, "reverse", not screen.view.reverse),
    "/": lambda screen: setattr(screen, "typing", screen.view.filter),
    ESCAPE: lambda screen: setattr(screen.view, "filter", ""),
    "up": lambda screen: screen.scroll(-1),
    "down": lambda screen: screen.scroll(1),
    "page up": lambda screen: screen.scroll(-10),
    "page down": lambda screen: screen.scroll(10),
    "+": lambda screen: screen.slow_down(2),
    "-": lambda screen: screen.slow_down(0.5),
}


def run(screen: Screen, keys: Keys, console: Console) -> None:
    """Until a key ends it."""
    with Live(console=console, screen=True, auto_refresh=False, transient=True) as live:
        next_s = time.monotonic()
        while not screen.ended:
            if time.monotonic() >= next_s:
                if not screen.still:
                    screen.refresh()
                next_s = time.monotonic() + screen.interval_s
            live.update(screen.show(console.width, console.height), refresh=True)
            for key in keys.wait(max(0.0, next_s - time.monotonic())):
                screen.press(key)

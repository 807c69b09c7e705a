"""Lines on the screen: as they are when they fit, else through a pager."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice

DEFAULT = "less -S"  # a row stays a line; arrows go to the side


def page(lines: Iterable[str], *, paging: bool) -> None:
    """Write lines to stdout; through $PAGER when they are more, or longer, than the terminal shows and `paging` is on."""
    waiting = iter(lines)
    width, height = shutil.get_terminal_size()
    head = list(islice(waiting, height)) if paging else []
    command = shlex.split(os.environ.get("PAGER") or DEFAULT)
    fits = len(head) < height - 1 and all(len(line) <= width for line in head)
    if not paging or fits or not command or shutil.which(command[0]) is None:
        sys.stdout.writelines(f"{line}\n" for line in chain(head, waiting))
        sys.stdout.flush()
        return
    _through(command, chain(head, waiting))


def _through(command: list[str], lines: Iterator[str]) -> None:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, encoding="utf-8")
    assert process.stdin is not None
    try:
        process.stdin.writelines(f"{line}\n" for line in lines)
        process.stdin.close()
    except (BrokenPipeError, KeyboardInterrupt):  # seen enough
        pass
    finally:
        while True:
            try:
                process.wait()
                break
            except KeyboardInterrupt:  # it is the pager's
                continue

"""The processes that a test has started."""

from __future__ import annotations

from contextlib import suppress

import psutil


def children_that_run(program: str, of: int | None = None) -> list[psutil.Process]:
    """Children, at any depth, that have `program` in their command line. One may end at any moment while it is looked at."""
    found = []
    for child in psutil.Process(of).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # of a zombie, too
            if program in " ".join(child.cmdline()):
                found.append(child)
    return found

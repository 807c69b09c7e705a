"""A progress bar for operations longer than a second; none without a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

_AFTER_S = 1.0


@contextmanager
def progress(title: str, total: int | None = None, *, in_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """Gives `advance(n)`. The bar is on stderr, so that results stay clean. in_bytes: the numbers are shown as sizes.

    >>> with progress("reading", 2) as advance:
    ...     advance(1)
    """
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield lambda n: None
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn() if in_bytes else MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task(title, total=total)
    began, started = time.monotonic(), False

    def advance(n: int) -> None:
        nonlocal started
        bar.advance(task, n)
        if not started and time.monotonic() - began > _AFTER_S:
            bar.start()
            started = True

    try:
        yield advance
    finally:
        if started:
            bar.stop()

"""How many records the run of this thread has: among several, a call that took long to fail ends the run.

A run is not interrupted. With some thousand records of which every third takes a timeout to fail, it would take hours, and whoever wants to stop or
remove its query would wait for that. So the run ends with the first of them, and its records are processed one by one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flowql.compiler.functions.registry import RunTooLong

_local = threading.local()


@contextmanager
def run_of(records: Callable[[], int]) -> Iterator[None]:
    """Within, a run of so many records is under way in this thread."""
    _local.records, _local.over = records, None
    try:
        yield
    finally:
        _local.records = _local.over = None


def is_of_several() -> bool:
    """Whether the run of this thread has more than one record."""
    records = getattr(_local, "records", None)
    return records is not None and records() > 1


def run_too_long(why: str) -> RunTooLong:
    """What ends it. DuckDB passes no exceptions on from functions that it calls: see `raise_if_over`."""
    _local.over = RunTooLong(why)
    return _local.over


def raise_if_over() -> None:
    """Raises what has ended the run of this thread."""
    over: RunTooLong | None = getattr(_local, "over", None)
    if over is not None:
        _local.over = None
        raise over

"""Facts about this thread's micro-batch for calls of functions: how many records it has, and whether its query gives way to others.

Among several records, a call that took long to fail ends the run: a run is not interrupted, thousands of records of which every third fails after
a timeout would take hours, and stopping or removing the query would wait for them. So the first such failure ends the run, and its records are processed one at a time.
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


@contextmanager
def giving_way(gives_way: bool) -> Iterator[None]:
    """Within, this thread works for a query of class `batch`: processes that it starts for functions have a lower priority."""
    _local.gives_way = gives_way
    try:
        yield
    finally:
        _local.gives_way = False


def gives_way() -> bool:
    """Whether this thread works for a query of class `batch`."""
    return getattr(_local, "gives_way", False)


def is_of_several() -> bool:
    """Whether the run of this thread has more than one record."""
    records = getattr(_local, "records", None)
    return records is not None and records() > 1


def run_too_long(why: str) -> RunTooLong:
    """The exception that ends the run of this thread. DuckDB converts exceptions of its functions to text, so `raise_if_over` raises it again."""
    _local.over = RunTooLong(why)
    return _local.over


def raise_if_over() -> None:
    """Raises the RunTooLong that a function raised inside DuckDB."""
    over: RunTooLong | None = getattr(_local, "over", None)
    if over is not None:
        _local.over = None
        raise over

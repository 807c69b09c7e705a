"""Rows that a query did not use, in words: late rows, dead letters, skipped records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flowql.cli.monitoring.amounts import duration
from flowql.runtime.clock import iso_time

_KINDS = (
    ("late_records", "late row", "late rows"),
    ("dead_letters", "dead letter", "dead letters"),
    ("skipped_records", "skipped record", "skipped records"),
)


def lost_text(query: Mapping[str, Any]) -> str:
    """The words for an entry of `status`; empty if nothing is lost.

    >>> lost_text({"late_records": 1200, "dead_letters": 1, "skipped_records": 0})
    '1,200 late rows, 1 dead letter'
    """
    counts = ((query.get(key) or 0, one, many) for key, one, many in _KINDS)
    return ", ".join(f"{n:,} {one if n == 1 else many}" for n, one, many in counts if n)


LATE_COLUMNS = ("operator", "partition", "late rows", "furthest behind", "stream time")


def late_rows(query: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    """A row for each operator and partition of an entry of `status` that dropped late rows."""
    for each in query.get("late") or ():
        behind = duration(each["behind_ms"]) if each["behind_ms"] else ""
        yield each["operator"], each["partition"], each["rows"], behind, shown_moment(each["stream_time"])


def shown_moment(ms: int) -> str:
    """ISO-8601 in UTC; the number itself where no calendar has it."""
    try:
        return iso_time(ms)
    except (ValueError, OverflowError, OSError):
        return str(ms)

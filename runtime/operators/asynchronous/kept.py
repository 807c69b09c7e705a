"""Rows that wait, as values of a store."""

from __future__ import annotations

from typing import Any

from flowql.runtime.operators.asynchronous.station import Pending, Waiting
from flowql.runtime.operators.base import SourceRecord
from flowql.runtime.state.store import Value

_FIXED = 13  # values in front of the row


def to_value(row: Waiting, now_ms: int) -> Value:
    """The row, how it came, the record it was read from, and which of its calls have failed. now_ms: by the wall clock."""
    failed = tuple([n for c in row.calls.values() if c.failed or c.due_ms for n in (c.place, c.failed, c.due_ms)])
    source: tuple[Any, ...] = (None,) * 6
    if row.source is not None:
        s = row.source
        source = (s.topic, s.partition, s.offset, s.timestamp, s.key, s.value)
    head = (now_ms, row.rowtime, row.op, row.since_ms, row.delayed, failed or None, row.headers)
    return (*head, *source, *row.row)


def from_value(number: int, value: Value, now_ms: int) -> Waiting:
    """As it was kept. Of its calls only those that have failed or wait for a time are there: no longer than was left of it when it was kept, if the
    clock was set back since.
    """
    kept_ms, rowtime, op, since_ms, delayed, failed, headers = value[:7]
    topic, partition, offset, timestamp, key, raw = value[7:_FIXED]
    back_ms = max(0, kept_ms - now_ms)
    source = None if topic is None else SourceRecord(topic, partition, offset, timestamp, key, raw)
    row = Waiting(
        number, tuple(value[_FIXED:]), rowtime, op, None, since_ms - back_ms, source, headers, delayed=delayed
    )
    parts = failed or ()
    for n in range(0, len(parts), 3):
        place, count, due_ms = parts[n : n + 3]
        row.calls[place] = Pending(row, place, count, due_ms - back_ms if due_ms else 0)
    return row

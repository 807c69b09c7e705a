"""Reads the placement, for members and for whoever asks who runs what."""

from __future__ import annotations

import json
from contextlib import closing

from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.base import EARLIEST, Log, Reader
from flowql.runtime.placement.heartbeats import heartbeat_topic
from flowql.runtime.placement.record import KEY, Placement, placement_topic
from flowql.runtime.state.changelog import changes

ALIVE_MS = 10_000
_READ_ROWS, _READ_BYTES = 10_000, 1 << 24


def placement_reader(log: Log, application_id: str) -> Reader:
    """From the first record on that compaction has left."""
    return log.reader(placement_topic(application_id), EARLIEST)


def newest_placement(reader: Reader, *, to_end: bool = True) -> Placement | None:
    """The newest of the records that follow and are visible; None if none do. to_end: the log is asked where they end."""
    newest, read = None, reader.read if to_end else reader.take
    while (batch := read(_READ_ROWS, _READ_BYTES)) is not None:
        newest = dict(changes(batch)).get(KEY) or newest
    return None if newest is None else Placement.decode(newest)


def read_placement(log: Log, application_id: str) -> Placement | None:
    """As of everything that was committed before this call; None if no member has run yet. LogUnavailable: ask again."""
    tp = placement_topic(application_id)
    if not log.admin().partition_counts([tp.topic]):
        return None
    with closing(placement_reader(log, application_id)) as reader:
        end = log.admin().written_offset(tp)
        newest = newest_placement(reader)
        check_end(reader, end)
    return newest


def living(log: Log, application_id: str, now_ms: int) -> list[str]:
    """Members with a heartbeat in the last `ALIVE_MS`, by the wall clocks of both sides, sorted; for commands."""
    tp = heartbeat_topic(application_id)
    if not log.admin().partition_counts([tp.topic]):
        return []
    last: dict[str, int | None] = {}
    with closing(log.reader(tp, EARLIEST)) as reader:
        while (batch := reader.read(_READ_ROWS, _READ_BYTES)) is not None:
            times, values = (batch.records.column(name).to_pylist() for name in ("timestamp", "value"))
            for ms, value in zip(times, values, strict=True):
                beat = json.loads(value)
                last[beat["member"]] = None if beat["leaving"] else ms
    return sorted(m for m, ms in last.items() if ms is not None and now_ms - ms < ALIVE_MS)


def check_end(reader: Reader, end: int) -> None:
    """LogUnavailable if what is below the offset `end` was not visible yet."""
    if reader.position < end:
        raise LogUnavailable(f"{reader.tp}: offset {end - 1} is not visible yet")

"""Reads the placement, for members and for whoever asks who runs what."""

from __future__ import annotations

import json
from contextlib import closing

from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.base import EARLIEST, Log
from flowql.runtime.placement.heartbeats import heartbeat_topic
from flowql.runtime.placement.record import KEY, Placement, placement_topic
from flowql.runtime.state.changelog import changes

ALIVE_MS = 10_000
_READ_ROWS, _READ_BYTES = 10_000, 1 << 24


class PlacementReader:
    """Records of the placement, from the first one on that compaction has left. One thread at a time."""

    def __init__(self, log: Log, application_id: str) -> None:
        self._reader = log.reader(placement_topic(application_id), EARLIEST)
        self._newest: bytes | None = None  # read, and not handed out

    def newer(self, *, to_end: bool = False) -> Placement | None:
        """The newest record since the last call, of those that are visible; None if none came. After a LogError nothing is lost.

        to_end: the log is asked where they end.
        """
        read = self._reader.read if to_end else self._reader.take
        while (batch := read(_READ_ROWS, _READ_BYTES)) is not None:
            self._newest = dict(changes(batch)).get(KEY) or self._newest
        newest, self._newest = self._newest, None
        return None if newest is None else Placement.decode(newest)

    def check_end(self, end: int) -> None:
        """LogUnavailable if what is below the offset `end` was not visible yet."""
        if self._reader.position < end:
            raise LogUnavailable(f"{self._reader.tp}: offset {end - 1} is not visible yet")

    def close(self) -> None:
        self._reader.close()


def read_placement(log: Log, application_id: str) -> Placement | None:
    """As of everything that was committed before this call; None if no member has run yet. LogUnavailable: ask again."""
    tp = placement_topic(application_id)
    if not log.admin().partition_counts([tp.topic]):
        return None
    with closing(PlacementReader(log, application_id)) as reader:
        end = log.admin().written_offset(tp)
        newest = reader.newer(to_end=True)
        reader.check_end(end)
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

"""Stream time that is ahead of the wall clock: a record with a time far in the future makes all later ones of its partition late."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flowql.runtime.task.task import Task

AHEAD_MS_MIN = 60_000  # clocks of machines differ


def ahead_of_clock(tasks: Iterable[Task], wall_ms: int) -> list[dict[str, Any]]:
    """Of each partition whose stream time is: `partition`, `stream_time`, `ahead_ms` (their names are public)."""
    times: dict[int, int] = {}
    for task in tasks:
        known = task.state.metadata.get("stream_times", {})
        found = [ms for name, ms in known.items() if not name.endswith("#due")]  # that is what a join waits for
        times[task.id.partition] = max([times.get(task.id.partition, 0), *found])
    return [
        {"partition": partition, "stream_time": ms, "ahead_ms": ms - wall_ms}
        for partition, ms in sorted(times.items())
        if ms - wall_ms > AHEAD_MS_MIN
    ]

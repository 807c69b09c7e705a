"""Sessions of clicks: a visit ends when its visitor does nothing for half an hour, and is written once, with the pages in the order of their times.

SQL's session windows count and sum; the path through the pages, and one record per visit, take a processor with a session store.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from flowql import Processor, ProcessorContext, SessionStore, Topology

GAP_MS = 30 * 60_000
GRACE_MS = 10 * 60_000  # for clicks that come late


@dataclass
class Visit:
    """Pages with their times in ms, in the order of these."""

    times: list[int]
    pages: list[str]


class Collect(Processor):
    """Keeps the visits that are going on, and writes those that are over."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.visits = context.store("visits")
        context.schedule(timedelta(minutes=1), self.close_visits)

    def process(self, key: Any, value: Any) -> None:
        """A click joins all visits that it is near, which may be two: then they were one."""
        now = self.context.timestamp
        steps = [(now, value["PAGE"])]
        for start, end, visit in list(self.visits.find(key, now - GAP_MS, now + GAP_MS)):
            steps += zip(visit.times, visit.pages, strict=True)
            self.visits.remove(key, start, end)
        steps.sort()
        times, pages = [ms for ms, _ in steps], [page for _, page in steps]
        self.visits.put(key, times[0], times[-1], Visit(times, pages))

    def close_visits(self, timestamp: int) -> None:
        for key, start, end, visit in list(self.visits.all()):
            if timestamp - end > GAP_MS + GRACE_MS:
                self.visits.remove(key, start, end)
                found = {
                    "BEGAN": start,
                    "SECONDS": (end - start) // 1000,
                    "CLICKS": len(visit.pages),
                    "PATH": visit.pages,
                }
                self.context.forward(key, found, timestamp=end)


visits = (
    Topology("VISITS")
    .add_source("clicks", "CLICKS")
    .add_processor("collect", Collect, "clicks")
    .add_state_store(SessionStore("visits", key=str, value=Visit), "collect")
    .add_sink("over", "VISITS_OVER", "collect")
)

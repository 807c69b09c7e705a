"""Parcels on their way: scans at depots, how long each parcel waited, and what became of it. All queries are streams in Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from flowql import StreamsBuilder, TumblingWindow, col, fn, when

HOUR_MS = 3_600_000


@dataclass
class Scan:
    """A scanner has read a label. codes: what it has seen, as `damaged|wet`."""

    depot: str
    kind: str
    codes: str | None
    at: int


@dataclass
class Fault:
    """A fault of a parcel, and the place where it was seen."""

    depot: str
    fault: str


def faults(scan: Scan) -> Iterator[Fault]:
    """One for each code that is no note."""
    for code in (scan.codes or "").split("|"):
        if code and not code.startswith("note:"):
            yield Fault(scan.depot, code)


streams = StreamsBuilder("PARCELS")
scans = streams.stream(
    "SCANS", topic="scans", key={"parcel": str}, value=Scan, partitions=2, key_format="KAFKA", timestamp="at"
)
depots = streams.table("DEPOTS", topic="depots", key={"depot": str}, value={"city": str}, partitions=2)

arrivals, departures = scans.branch(col("kind") == "in", col("kind") == "out")

# How long a parcel lay in a depot: its departure, with the arrival that is older. Both are by parcel.
waits = (
    departures.map_values("depot", left=col("at"))
    .join_prior(arrivals.map_values("at", there=col("depot")), within=timedelta(days=7))
    .filter(col("depot") == col("there"))
    .map_values("depot", hours=(col("left") - col("at")) / HOUR_MS)
)
waits.to("WAITS", priority="high")

# Faults by city: a row for each, counted per day.
by_city = scans.flat_map_values(faults).join(depots, on="depot").group_by("city", "fault")
by_city.window(TumblingWindow(timedelta(days=1))).count("n").to("FAULTS_PER_DAY", key_format="JSON")

# Where each parcel was seen last.
last = scans.group_by_key().aggregate(
    depot=fn.LATEST_BY_OFFSET(col("depot")), kind=fn.LATEST_BY_OFFSET(col("kind")), scans=fn.COUNT()
)
last.map_values("depot", "scans", state=when(col("kind") == "out", "on its way").otherwise("in a depot")).to("PARCELS")

"""Cases of the comparison: a query, its input, and the topics of the input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from flowql.bench.nexmark import bids
from flowql.bench.nexmark_input import PARTITIONS, produce
from flowql.bench.nexmark_people import MAKERS, counts
from flowql.bench.oracle import EXPECTED
from flowql.runtime.log.base import Log

JOIN_FACTOR = 10  # queries without bids read the persons and auctions of a longer timeline: they are 8 % of the events
WIDE = 32


@dataclass(frozen=True, slots=True)
class Case:
    """spread: bidders are drawn evenly from this many ids; 0: Nexmark's own hot bidders. partitions: of inputs and results."""

    query: str
    spread: int = 0
    partitions: int = PARTITIONS

    @property
    def name(self) -> str:
        """As tables show it.

        >>> Case("qc").name, Case("qc", spread=1_000_000).name, Case("q5", partitions=32).name
        ('qc', 'qc, 1,000,000 keys', 'q5, 32 partitions')
        """
        keys = f", {self.spread:,} keys" if self.spread else ""
        return f"{self.query}{keys}" + (f", {self.partitions} partitions" if self.partitions != PARTITIONS else "")

    @property
    def topics(self) -> tuple[str, ...]:
        return EXPECTED[self.query].reads

    def prefix(self, events: int) -> str:
        """The names of its input topics begin with this."""
        return f"nexmark-{self.timeline(events)}-{self.spread}-{self.partitions}-"

    def timeline(self, events: int) -> int:
        """The number of bids up to which its input goes, for `events` bids."""
        return events if "bid" in self.topics else events * JOIN_FACTOR

    def records(self, events: int) -> int:
        return sum(counts(self.timeline(events))[topic] for topic in self.topics)

    def rows(self, topic: str, events: int) -> Iterator[pa.RecordBatch]:
        """The input that `topic` holds."""
        if topic == "bid":
            return bids(events, spread=self.spread)
        return MAKERS[topic](counts(self.timeline(events))[topic])

    def inputs(self, events: int) -> Mapping[str, pa.Table]:
        """All of its input, for the oracle."""
        return {topic: pa.Table.from_batches(self.rows(topic, events)) for topic in self.topics}

    def write(self, log: Log, events: int) -> None:
        """Write the input topics that do not exist."""
        known = log.admin().topics()
        for topic in self.topics:
            name = self.prefix(events) + topic
            if name not in known:
                log.admin().create_topic(name, self.partitions)
                produce(log, name, self.rows(topic, events), partitions=self.partitions)


ALL = tuple(EXPECTED)
PAGE = (
    *map(Case, ALL),
    *(Case(query, spread=1_000_000) for query in ("q11", "qc")),
    *(Case(query, partitions=WIDE) for query in ("q5", "qc")),
)

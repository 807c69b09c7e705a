"""Where an instance is: its folders, its log, and what follows from them for each query. No pyspark."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.config import LetterRetention
from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.base import Log, Position, TopicPartition
from flowql.runtime.spark.engine.deployed import Record, checkpoint_of
from flowql.runtime.spark.engine.order import topics_read
from flowql.runtime.spark.log_address import Address
from flowql.runtime.spark.log_append import Place, Target, Writer, place_of
from flowql.runtime.spark.log_offsets import Offsets
from flowql.runtime.spark.log_replace import drop_all
from flowql.runtime.spark.settings import SparkSettings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Site:
    """Where the log is and the log, opened; the folder of checkpoints; and the settings of the target. application_id: whose dead letters, plan and lock these are."""

    address: Address
    state_dir: Path
    log: Log
    application_id: str
    settings: SparkSettings
    dead_letters: LetterRetention = field(default_factory=LetterRetention)
    _writers: dict[str, Writer] = field(default_factory=dict, compare=False, repr=False)
    _seen: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def target(self, query: str, run: str = "") -> Target:
        return Target(query, run, self.application_id)

    def writer(self, target: Target) -> Writer:
        """Who writes the results of a query from now on; the one before is closed."""
        self.close_writer(target.query)
        writer = self._writers[target.query] = Writer(self.log, target)
        return writer

    def close_writer(self, query: str) -> None:
        """Nothing of the query runs any more."""
        before = self._writers.pop(query, None)
        if before is not None:
            before.close()

    def close(self) -> None:
        """Nothing runs any more."""
        for query in list(self._writers):
            self.close_writer(query)

    def checkpoint(self, query: str) -> Path:
        return checkpoint_of(self.state_dir, query)

    def place(self, query: str) -> Place | None:
        """How far the results of a query are in the log, whatever run they are of."""
        return self._newest(f"place of {query}", lambda: place_of(self.log, self.target(query)))

    def place_of_record(self, query: str, record: Record | None) -> Place | None:
        """The same, if they are of this record's run."""
        place = self.place(query)
        return place if place is not None and record is not None and place.run == record.run else None

    def positions(self, query: QueryPlan, record: Record | None) -> Offsets:
        """What a query has read and whose results are in the log: next offset by topic and partition."""
        if self.place_of_record(query.id, record) is None:
            return {}
        counts = self.log.admin().partition_counts(topics_read(query))
        tps = [TopicPartition(topic, p) for topic, n in counts.items() for p in range(n)]
        found: Offsets = {}
        ask = partial(self.log.admin().stable_positions, self.target(query.id).group, tps)
        for tp, at in self._newest(f"positions of {query.id}", ask).items():
            found.setdefault(tp.topic, {})[str(tp.partition)] = at.offset
        return found

    def _newest(self, what: str, ask: Callable[[], T]) -> T:
        """What was committed last. Brokers do not tell while a commit is under way: then what they said before holds."""
        try:
            said = self._seen[what] = ask()
        except LogUnavailable:
            if what not in self._seen:
                raise
            said = self._seen[what]
        return said

    def partitions(self) -> dict[str, int]:
        """Partitions of all topics."""
        return {name: info.partitions for name, info in self.log.admin().topics().items()}

    def note_inputs(self, query: str, positions: Offsets) -> None:
        """Remember what a batch run has read; streams commit it with each batch."""
        read = {TopicPartition(t, int(p)): Position(o) for t, at in positions.items() for p, o in at.items()}
        self._move(self.target(query).group, read)

    def forget(self, query: str) -> None:
        """The query is gone: one of the same name begins anew. Its results stay."""
        self.close_writer(query)
        if self.place(query) is not None:
            self._move(self.target(query).group, self.nowhere(query))

    def nowhere(self, query: str) -> dict[TopicPartition, Position]:
        """The place of a query of which no epoch counts any more, whatever checkpoint there is."""
        return {self.target(query).places: Position(0, json.dumps({"run": "", "counters": {}}))}

    def drop_results(self, topic: str) -> None:
        """All records there are in a topic are gone."""
        drop_all(self.log, topic, f"{self.application_id}-spark-drop")

    def _move(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        producer = self.log.producer(group)
        try:
            producer.begin()
            producer.send_positions(group, positions)
            producer.commit()
        finally:
            producer.close()

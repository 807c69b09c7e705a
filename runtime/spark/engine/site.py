"""Where an instance is: its folders, its log, and what follows from them for each query. No pyspark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from runtime.log.base import Position, TopicPartition
from runtime.log.embedded.log import EmbeddedLog
from runtime.spark.engine.deployed import Record, checkpoint_of
from runtime.spark.log_append import Place, Target, place_of
from runtime.spark.log_offsets import Offsets
from runtime.spark.settings import SparkSettings


@dataclass(frozen=True, slots=True)
class Site:
    """Folders, the open log, and the settings of the target. application_id: whose dead letters, plan and lock these are."""

    log_dir: Path
    state_dir: Path
    log: EmbeddedLog
    application_id: str
    settings: SparkSettings

    def target(self, query: str, run: str = "") -> Target:
        return Target(query, run, self.application_id)

    def checkpoint(self, query: str) -> Path:
        return checkpoint_of(self.state_dir, query)

    def place(self, query: str) -> Place | None:
        """How far the results of a query are in the log, whatever run they are of."""
        return place_of(self.log, self.target(query))

    def place_of_record(self, query: str, record: Record | None) -> Place | None:
        """The same, if they are of this record's run."""
        place = self.place(query)
        return place if place is not None and record is not None and place.run == record.run else None

    def positions(self, query: str, record: Record | None) -> Offsets:
        """What a query has read and whose results are in the log: next offset by topic and partition."""
        if self.place_of_record(query, record) is None:
            return {}
        found: Offsets = {}
        for tp, at in self.log.committed(self.target(query).inputs_group).items():
            found.setdefault(tp.topic, {})[str(tp.partition)] = at.offset
        return found

    def partitions(self) -> dict[str, int]:
        """Partitions of all topics."""
        return {name: info.partitions for name, info in self.log.topics().items()}

    def note_inputs(self, query: str, positions: Offsets) -> None:
        """Remember what a batch run has read; streams commit it with each batch."""
        target = self.target(query)
        producer = self.log.producer(target.inputs_group)
        try:
            producer.begin()
            read = {TopicPartition(t, int(p)): Position(o) for t, at in positions.items() for p, o in at.items()}
            producer.send_positions(target.inputs_group, read)
            producer.commit()
        finally:
            producer.close()

    def forget(self, query: str) -> None:
        """The query is gone: one of the same name begins anew. Its results stay."""
        target = self.target(query)
        if self.place(query) is None:
            return
        producer = self.log.producer(target.group)
        try:
            producer.begin()
            nothing = json.dumps({"run": "", "counters": {}})
            producer.send_positions(target.group, {target.dead_letters: Position(0, nothing)})
            producer.commit()
        finally:
            producer.close()

    def drop_results(self, topic: str) -> None:
        """All records there are in a topic are gone, at once for each partition."""
        for p in range(self.log.topics()[topic].partitions):
            tp = TopicPartition(topic, p)
            if self.log.begin_offset(tp) < (end := self.log.end_offset(tp)):
                self.log.drop_before(tp, end)

"""Where an instance is: its folders, its log, and what follows from them for each query. No pyspark."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.config import LetterRetention
from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.base import Log, Position, TopicPartition
from flowql.runtime.spark.engine.deployed import (
    FILE,
    Deployed,
    Record,
    checkpoint_of,
    dumps,
    load_from,
    save,
    staging_of,
)
from flowql.runtime.spark.engine.order import topics_read
from flowql.runtime.spark.folders import Folder, HadoopPath, folder_at
from flowql.runtime.spark.log_address import Address, KafkaAddress
from flowql.runtime.spark.log_append import CommittedEpochs, Target, Writer, committed_epochs, drop_all
from flowql.runtime.spark.log_offsets import Offsets, begun_at, bounds
from flowql.runtime.spark.log_staging import Staging
from flowql.runtime.spark.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Site:
    """Where the log is and the log, opened; the folder of the instance on this machine; and the settings of the target. application_id: whose dead letters, plan and lock these are."""

    address: Address
    state_dir: Path
    log: Log
    application_id: str
    settings: SparkSettings
    dead_letters: LetterRetention = field(default_factory=LetterRetention)
    _writers: dict[str, Writer] = field(default_factory=dict, compare=False, repr=False)
    _seen: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    _sessions: list[Any] = field(default_factory=list, compare=False, repr=False)

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

    def use(self, spark: SparkSession) -> None:
        """The session whose file systems are used for what is at an address."""
        self._sessions[:] = [spark]

    @property
    def root(self) -> Folder:
        """See `root_of`."""
        return root_of(self.settings, self.state_dir, self.application_id, self._session)

    @property
    def writes_letters_to_topic(self) -> bool:
        """Whether workers put dead letters of native streams into a topic: they share no folder with the driver, and a log on Kafka."""
        return self.settings.is_apart and isinstance(self.address, KafkaAddress)

    @property
    def shared(self) -> Folder:
        """The folder that workers must see, if it is one: with an embedded log, which they see, that of dead letters as well."""
        return self.state_dir if self.settings.is_apart and not self.writes_letters_to_topic else self.root

    def checkpoint(self, query: str) -> Folder:
        return checkpoint_of(self.root, query)

    @property
    def staging(self) -> Staging:
        """Where results wait for their commit. With a local master executors write where the driver reads."""
        root = self.root
        if isinstance(root, Path):
            return Staging(staging_of(root))
        assert isinstance(root, HadoopPath)
        return Staging(staging_of(self.state_dir), staging_of(root) if self.settings.is_apart else None)

    def newest(self, known: Deployed) -> Deployed:
        """The last deployment of any machine, recorded beside the checkpoints; else the one `known` by the folder of this machine."""
        return (load_from(self.root) or known) if self.settings.checkpoint else known

    def save(self, deployed: Deployed) -> None:
        """Saves the deployment with which the next start continues, on this machine and, with `checkpoint` elsewhere, on others."""
        root = self.root
        if isinstance(root, HadoopPath):
            (root / FILE).write_bytes(dumps(deployed).encode())
        elif isinstance(root, Path) and root != self.state_dir:
            save(root, deployed)
        save(self.state_dir, deployed)

    def _session(self) -> SparkSession:
        assert self._sessions, "files at an address are read by a session"
        found: SparkSession = self._sessions[0]
        return found

    def committed_epochs(self, query: str) -> CommittedEpochs | None:
        """How far the results of a query are in the log, whatever run they are of."""
        return self._newest(f"epochs of {query}", lambda: committed_epochs(self.log, self.target(query)))

    def epochs_of_record(self, query: str, record: Record | None) -> CommittedEpochs | None:
        """The same, if they are of this record's run."""
        committed = self.committed_epochs(query)
        return committed if committed is not None and record is not None and committed.run == record.run else None

    def positions(self, query: QueryPlan, record: Record | None) -> Offsets:
        """The positions of a query up to which its results are in the log: next offset by topic and partition."""
        if self.epochs_of_record(query.id, record) is None:
            return {}
        counts = self.log.admin().partition_counts(topics_read(query))
        tps = [TopicPartition(topic, p) for topic, n in counts.items() for p in range(n)]
        found: Offsets = {}
        ask = partial(self.log.admin().stable_positions, self.target(query.id).group, tps)
        for tp, at in self._newest(f"positions of {query.id}", ask).items():
            found.setdefault(tp.topic, {})[str(tp.partition)] = at.offset
        return found

    def _newest(self, what: str, ask: Callable[[], T]) -> T:
        """The last committed value. Brokers do not tell it during a commit: then the previous answer holds."""
        try:
            said = self._seen[what] = ask()
        except LogUnavailable:
            if what not in self._seen:
                raise
            said = self._seen[what]
        return said

    def bounds(self, topics: Collection[str], record: Record | None) -> tuple[Offsets, Offsets]:
        """Where a query of this record begins in topics, and their ends. TopicMissing."""
        first, after = bounds(self.log, topics)
        return begun_at(first, after, {} if record is None else record.starts), after

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
        if self.committed_epochs(query) is not None:
            self._move(self.target(query).group, self.no_epochs(query))

    def no_epochs(self, query: str) -> dict[TopicPartition, Position]:
        """The positions of a query of which no epoch counts any more, whatever checkpoint exists."""
        return {self.target(query).epochs: Position(0, json.dumps({"run": "", "counters": {}}))}

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


def root_of(
    settings: SparkSettings, state_dir: Path, application_id: str, session: Callable[[], SparkSession]
) -> Folder:
    """Below it is what executors write: checkpoints, and staged results. A folder, or an address, which `session` reads."""
    return folder_at(settings.checkpoint, session, application_id) if settings.checkpoint else state_dir

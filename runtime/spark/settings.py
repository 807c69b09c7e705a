"""The settings of a Spark target. No PySpark here: projects are read where Spark is not installed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

MIB = 1 << 20
DRIVER_MEMORY_MIB_MIN = 512  # below it Spark refuses to start
FileFormat = Literal["parquet", "json", "csv", "delta", "table"]
History = Literal["complete", "arrival"]


@dataclass(frozen=True, slots=True)
class TopicFiles:
    """Files that stand for a topic. path: a folder, a file, or an address Spark can read; options: of Spark's reader or writer.

    table: the name of a catalogue table instead of a path; its format is `delta`, or `table` for whatever the catalogue says.
    write: of a table of a stream in Delta: its rows now (`state`), or what has changed in each batch (`changes`). repartition: in how
    many parts rows are written. Of files that are read in a batch (`flowql.runtime.spark.history`): history, None for that of the target; sequence_by and delete_when of a
    table, see `frames.relation.TableRows`. partition_by: columns of files that are written, each value in a folder of its own.
    """

    format: FileFormat
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    history: History | None = None
    sequence_by: tuple[str, ...] = ()
    delete_when: str | None = None
    partition_by: tuple[str, ...] = ()
    table: str = ""
    write: Literal["state", "changes"] = "state"
    repartition: int | None = None

    @property
    def place(self) -> str:
        """Where they are, for messages."""
        return self.table or self.path

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> TopicFiles:
        """The inverse of `asdict`, also behind JSON."""
        lists = {n: tuple(given[n]) for n in ("sequence_by", "partition_by") if n in given}
        return cls(**{**given, **lists})


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How queries run on Spark.

    conf: Spark properties; those that decide what results mean are not the user's (`session.FIXED`).
    late_rows: 'exact' keeps the runtime's lateness, row by row; 'none' promises input without late rows, so that more
    of a plan can run natively.
    streams: 'native' runs streams by Spark's own operators where results are the same; 'exact' keeps the state of all as the runtime does,
    so that internal stores can be asked. A stream that has a checkpoint goes on in the way of it.
    semantics: of streams: 'flowql' runs natively only what gives the runtime's results; 'spark' also takes what gives those of a job written for
    Spark: lateness by Spark's watermark, tables as they are when a micro-batch runs. `explain` says of each node what differs.
    hash_buckets: of streams whose state is kept as the runtime does, by query or result: tasks of what reads repartitions alone, else as many as topics have
    partitions. Pinned with the checkpoint.
    shuffle_partitions: of native shuffles; None = the cores of a local master, else Spark's default.
    files: topic -> files that are read or written in its place.
    history: what a batch takes rows for, see `flowql.runtime.spark.history`; None for complete over files and arrival over topics.
    memory_bytes: of the driver, which with a local master does all the work.
    checkpoint: folder or address below which an instance keeps what executors write: checkpoints of streams, and results that wait for their commit.
    "" for the state directory of the target, which all machines of a cluster must share then.
    temporary: what is below an address of `checkpoint` is removed when the instance stops.
    """

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    late_rows: Literal["exact", "none"] = "exact"
    streams: Literal["exact", "native"] = "native"
    semantics: Literal["flowql", "spark"] = "flowql"
    shuffle_partitions: int | None = None
    files: Mapping[str, TopicFiles] = field(default_factory=dict)
    memory_bytes: int = 1024 * MIB
    history: History | None = None
    hash_buckets: Mapping[str, int] = field(default_factory=dict)
    checkpoint: str = ""
    temporary: bool = False

    def buckets_of(self, query: str, result: str) -> int:
        """How many hash buckets are asked for of a query that writes `result`; 0 for none."""
        return self.hash_buckets.get(query) or self.hash_buckets.get(result) or 0

    def history_of(self, files: TopicFiles) -> History:
        return files.history or self.history or "complete"

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are one process on this machine."""
        return self.master.startswith("local") and not self.master.startswith("local-cluster")

    @property
    def is_apart(self) -> bool:
        """Whether executors write to an address, as they share no folder with the driver."""
        return not self.is_local and "://" in self.checkpoint

    @property
    def driver_memory_mib(self) -> int:
        return max(DRIVER_MEMORY_MIB_MIN, self.memory_bytes // MIB)

    def cores(self, present: int) -> int | None:
        """Tasks that run at once on a local master, `present` cores given; None where a cluster decides."""
        if not self.is_local:
            return None
        asked = re.search(r"\[(\d+|\*)", self.master)
        if asked is None:
            return 1
        return present if asked[1] == "*" else int(asked[1])

"""Cases on the Spark engine: one session for all of them, each query one bounded run over all of its input."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.log.base import RECORD_SCHEMA, TopicPartition
from flowql.runtime.spark.settings import SparkSettings
from tests.conformance.case_engine import CaseEngine, NotSupported, Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A case has a few records: what counts is the fixed cost of a job.
SHARED = SparkSettings(master="local[2]", shuffle_partitions=1, conf={"spark.sql.adaptive.enabled": "false"})
# The same for a Spark that has nothing else to do; its workers know the functions that only the corpus needs.
ALONE = replace(
    SHARED,
    conf={
        **SHARED.conf,
        "spark.default.parallelism": "1",
        "spark.python.daemon.module": "tests.conformance.spark_workers",
    },
)
TIMEOUT_S = 120  # the first case of a session waits for Java and Python workers to warm up


@contextmanager
def session() -> Iterator[SparkSession]:
    """A Spark of its own for a run from the command line."""
    from flowql.runtime.spark.session import close_session, open_session

    with tempfile.TemporaryDirectory(prefix="flowql-conformance-") as folder:
        spark = open_session(ALONE, "conformance", Path(folder))
        try:
            yield spark
        finally:
            close_session(spark)


LETTERS = "letters"  # in a count of ways


@dataclass(slots=True)
class SparkCaseEngine(CaseEngine):
    """Runs queries on Spark, natively where the engine would. Only what a run ends in can be compared."""

    spark: SparkSession | None = None
    ways: Counter[str] = field(default_factory=Counter)

    @property
    def final(self) -> bool:
        return True

    def process(self, query: QueryPlan, plan: Plan, feed: list[tuple[str, Record]], sinks: list[str]) -> None:
        if not feed:
            return
        assert self.spark is not None
        topics: dict[str, list[Record]] = {}
        for topic, record in feed:
            topics.setdefault(topic, []).append(record)
        for topic, records in run_query(self.spark, plan, query, topics, self.ways).items():
            if topic in sinks:
                self.add(topic, records)
        self.letters += self.ways.pop(LETTERS, 0)


def run_query(
    spark: SparkSession, plan: Plan, query: QueryPlan, topics: Mapping[str, list[Record]], ways: Counter[str]
) -> dict[str, list[Record]]:
    """The records a query writes, by topic, when it is run over these (topics have one partition)."""
    from flowql.runtime.spark.choose import is_native
    from flowql.runtime.spark.errors import SparkUnsupported
    from flowql.runtime.spark.log_letters import FolderLetters
    from flowql.runtime.spark.over_topics import native_bounded
    from flowql.runtime.spark.shapes import DEAD, SINK, from_ipc
    from flowql.runtime.spark.stage.exact import exact_bounded
    from flowql.runtime.spark.stage.layout import layout_of
    from tests.packed_records import begun_of, reader_of

    partitions = dict.fromkeys((s.topic for s in plan.sources), 1) | dict.fromkeys(topics, 1)
    packed = _packed(spark, topics)
    try:
        native = is_native(plan, query, SHARED, "bounded")
        if native:
            with tempfile.TemporaryDirectory() as folder:
                letters = FolderLetters(Path(folder), query.id)
                rows = native_bounded(plan, query, reader_of(packed), partitions, letters.place).emitted.collect()
                ends = {TopicPartition(topic, 0): len(records) for topic, records in topics.items()}
                ways[LETTERS] += len(letters.between({}, ends))
        else:
            layout = layout_of(plan, query, partitions)
            rows = exact_bounded(layout, begun_of(packed, layout)).collect()
            ways[LETTERS] += sum(r.kind == DEAD for r in rows)
    except SparkUnsupported as error:
        raise NotSupported(f"{error.node}: {error.reason}") from error
    ways["native" if native else "exact"] += 1
    found: dict[str, list[Record]] = {}
    for row in sorted((r for r in rows if r.kind == SINK), key=lambda r: (r.topic, r.source, r.seq)):
        found.setdefault(row.topic, []).extend(from_ipc(bytes(row.ipc)).to_pylist())
    return found


def _packed(spark: SparkSession, topics: Mapping[str, list[Record]]) -> DataFrame:
    """The records of each topic as one PACKED row."""
    from flowql.runtime.spark.shapes import PACKED_DDL, to_ipc

    rows = []
    for topic, records in topics.items():
        numbered = [{"offset": n, **record} for n, record in enumerate(records)]
        rows.append((topic, 0, 0, len(records), to_ipc(pa.RecordBatch.from_pylist(numbered, RECORD_SCHEMA))))
    return spark.createDataFrame(rows, PACKED_DDL)

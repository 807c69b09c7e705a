"""The supervisor's requests carried out by a session: each query in the pool of its priority, on its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.spark.engine.checkpoints import NONE, lag
from flowql.runtime.spark.engine.deployed import Record
from flowql.runtime.spark.engine.feeders import is_feeder
from flowql.runtime.spark.engine.order import outside_topics, topics_followed, topics_read
from flowql.runtime.spark.engine.over_files import FileHistory
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.spark.engine.streams import RunningQuery, Stream
from flowql.runtime.spark.engine.supervisor import Pace
from flowql.runtime.spark.engine.work import run_batch, run_over_files, start_stream
from flowql.runtime.spark.history import complete_queries
from flowql.runtime.spark.log_offsets import Offsets, bounds, capped
from flowql.runtime.spark.session import described, in_pool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkLauncher:
    """Implements `flowql.runtime.spark.engine.supervisor.Launcher`. `plan` and `records` are replaced at a deployment."""

    def __init__(self, spark: SparkSession, site: Site) -> None:
        self._spark, self._site = spark, site
        self.plan = Plan()
        self.records: Mapping[str, Record] = {}
        self._history: FileHistory | None = None
        self._ends: Offsets = {}

    def begin(self) -> None:
        """Another run over all queries: files are read as they are from now on, and topics that none of them writes up to where they end now, so that all
        queries see the same: those that run later would meet records without what earlier ones would have made of others.
        """
        outside = self._site.log.admin().partition_counts(outside_topics(self.plan))
        self._ends = bounds(self._site.log, list(outside))[1]
        if self._history is not None:
            self._history.close()
        self._history = None

    def stream(self, query: RunningQuery, pace: Pace) -> Stream:
        assert query.record is not None
        self._use()
        self._site.staging.clear(query.plan.id)
        with in_pool(self._spark, query.plan.priority):
            ends = self._ends if pace == "available now" else {}
            return start_stream(self._spark, self._site, self.plan, query.plan, query.record, pace, ends)

    def batch(self, query: RunningQuery) -> None:
        assert query.record is not None
        self._use()
        self._site.staging.clear(query.plan.id)
        span, whole = (
            self._span(query.plan),
            replace(self.plan, queries=tuple(q for q in self.plan.queries if not is_feeder(q))),
        )
        with in_pool(self._spark, query.plan.priority), described(self._spark, query.plan.id):
            if query.plan.id in complete_queries(whole, self._site.settings):
                self._history = self._history or FileHistory(self._spark, whole, self._site.settings)
                run_over_files(self._history, self._site, query.plan, query.record)
            else:
                run_batch(self._spark, self._site, self.plan, query.plan, query.record, span)
        self._site.note_inputs(query.plan.id, span[1])

    def _span(self, query: QueryPlan) -> tuple[Offsets, Offsets]:
        """What a batch reads: everything but earlier results that others of this run have yet to replace."""
        first, after = self._site.bounds(topics_read(query), self.records.get(query.id))
        for record in self.records.values():
            for topic, at in record.replaces.items():
                for partition, offset in at.items() if topic in first else ():
                    first[topic][partition] = max(first[topic][partition], offset)
        return first, capped(after, self._ends)

    def _use(self) -> None:
        """Writers look up data sources in the session of their thread, which by default is none."""
        sessions = self._spark._get_j_spark_session_class(self._spark._jvm)
        sessions.setActiveSession(self._spark._jsparkSession)

    def epoch(self, query: RunningQuery) -> int:
        committed = self._site.epochs_of_record(query.plan.id, query.record)
        return NONE if committed is None else committed.next_epoch - 1

    def behind(self, query: RunningQuery) -> int:
        topics = set(topics_followed(query.plan, query.record)) - outside_topics(self.plan)
        return lag(self._site.positions(query.plan, query.record), *self._site.bounds(topics, query.record))

    def ends(self, query: RunningQuery) -> Offsets:
        return bounds(self._site.log, topics_followed(query.plan, query.record))[1]

    def lacks(self, query: RunningQuery, ends: Offsets) -> bool:
        first, _ = self._site.bounds(list(ends), query.record)
        return lag(self._site.positions(query.plan, query.record), first, ends) > 0

"""Batches over complete history: queries whose rows come from files, by `flowql.runtime.spark.frames`, into topics and files.

One `FileHistory` is for one run over a plan: what several queries read is read and counted once, and the result of a query that others
read is kept until the run is over.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flowql.compiler.functions.spark_text import quoted
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.logical import Scan, walk_nodes
from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef
from flowql.runtime.events import WARNING, say
from flowql.runtime.spark.engine.order import levels
from flowql.runtime.spark.errors import FrameUnfit
from flowql.runtime.spark.files import source_frame
from flowql.runtime.spark.files_sink import write_files
from flowql.runtime.spark.frames.faults import bad_rows, faults_of
from flowql.runtime.spark.frames.lower import Lowering, check_known
from flowql.runtime.spark.frames.relation import DEFAULT_ROWS, Relation, TableRows, names, shown_time, state_of
from flowql.runtime.spark.frames.source import CODE, TIME_COLUMN, Prepared, prepared, relation_of_prepared
from flowql.runtime.spark.history import complete_files, complete_queries, refuse_unfit_files, written_paths
from flowql.runtime.spark.settings import SparkSettings, TopicFiles
from flowql.runtime.spark.storage import reach, told_of_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows of a source: all, those that are left out, and keys of a table with several values at one time, of which the greatest counts."""

    rows: int
    dead: int
    ties: int


@dataclass(slots=True)
class FileHistory:
    """The queries of a plan over the files that there are at its first use. Call `close` when it is over; one thread.

    frames: given by the caller in the place of files, by the name of their source; tables: how rows of such a frame follow each other.
    """

    spark: SparkSession
    plan: Plan
    settings: SparkSettings
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    tables: Mapping[str, TableRows] = field(default_factory=dict)
    letters: dict[str, list[DataFrame]] = field(default_factory=dict)
    _files: Mapping[str, TopicFiles] = field(init=False)
    _work: Lowering = field(init=False)
    _prepared: dict[str, Prepared] = field(default_factory=dict)
    _counts: dict[str, Counts] = field(default_factory=dict)
    _kept: list[DataFrame] = field(default_factory=list)
    _out: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_known(self.plan, (*self.frames, *self.tables))
        refuse_unfit_files(self.plan, self.settings)
        reach(self.spark, *written_paths(self.plan, self.settings))
        self._files = {n: f for n, f in complete_files(self.plan, self.settings).items() if n not in self.frames}
        self._work = Lowering(self.plan, self._given, self.letters, self._keep)

    def rows(self, query: QueryPlan) -> DataFrame:
        """The rows for the topic: the columns of the result by name, and the row time. The rows of a table at the end."""
        relation, schema = self._work.relation(query), query.logical.schema
        made = relation if relation.form == "rows" else state_of(relation, schema)
        rows = made.frame.selectExpr(
            *(quoted(n) for n in schema.names), quoted(ROWTIME) if made.timed else shown_time()
        )
        return rows.orderBy(quoted(ROWTIME)) if self._judged_by_arrival(query) else rows

    def result(self, name: str) -> DataFrame:
        """The frame of the queries that write a stream or table, as `frames.lower.lower` gives it."""
        return self._work.result(name)

    def bad(self, query: QueryPlan) -> list[DataFrame]:
        """Rows of LETTERS_DDL: of files that the query reads, and of expressions that failed. Each is a pass of its own."""
        self._work.relation(query)
        sources = [n for n in self._read(query) if n in self._outside and self.counts(n).dead]
        found = [rows for n in sources if (rows := bad_rows(self._located(self._source(n)))) is not None]
        return [*found, *self.letters.get(query.id, [])]

    def rows_in(self, query: QueryPlan) -> int:
        """Rows of the files that a query reads, and of the results of others."""
        return sum(self.counts(s).rows if s in self._outside else self._results(s) for s in self._read(query))

    def ties(self, query: QueryPlan) -> int:
        return sum(self.counts(s).ties for s in self._read(query) if s in self._outside)

    def counts(self, name: str) -> Counts:
        """The counts of a source of files or a frame. Problems with its rows are reported once."""
        if name not in self._counts:
            source = self._source(name)
            made = self._prepare(source)
            row = faults_of(source, made).collect()[0]
            found = self._counts[name] = Counts(row["ROWS"], row["BAD_TIMES"] + row["NO_KEY"], row["TIES"])
            if found.ties:
                text = f"{found.ties} keys of {name} have several values at one time; the greatest of each counts (see sequence_by)"
                say(WARNING, "files.ties", text, source=name, ties=found.ties)
        return self._counts[name]

    def kept(self, frame: DataFrame) -> DataFrame:
        """The same rows, computed once in this run."""
        made = frame.persist()
        self._kept.append(made)
        return made

    def written(self, query: QueryPlan, rows: int) -> None:
        """How many rows a query has given."""
        self._out[query.id] = rows

    def to_files(self, query: QueryPlan, rows: DataFrame) -> None:
        """Writes the result where files stand for its topic. rows: those of `rows`."""
        sink = self._source(query.sink)
        files = self.settings.files.get(sink.topic)
        if files is None:
            return
        write_files(self.shown(query, rows), sink, files)

    def shown(self, query: QueryPlan, rows: DataFrame) -> DataFrame:
        """`rows` under the names of files: the row time as ROWTIME, where it is one."""
        schema = query.logical.schema
        timed = self._work.relation(query).timed and TIME_COLUMN not in schema.names
        return rows.selectExpr(*map(quoted, schema.names), *([f"{quoted(ROWTIME)} AS {TIME_COLUMN}"] if timed else []))

    def close(self) -> None:
        for frame in self._kept:
            frame.unpersist()
        self._kept.clear()

    # -- inside

    @property
    def _outside(self) -> set[str]:
        """Names of the sources that are files or frames."""
        return {*self._files, *self.frames}

    def _source(self, name: str) -> SourceDef:
        source = self.plan.source(name)
        assert source is not None, f"the plan has no source {name}"
        return source

    def _read(self, query: QueryPlan) -> list[str]:
        """Names of the sources that a query scans, each once."""
        return list(dict.fromkeys(n.spec.source for n in walk_nodes(query.logical) if isinstance(n.spec, Scan)))

    def _judged_by_arrival(self, query: QueryPlan) -> bool:
        """Some reader of the topic has other sources than files, and finds rows late by their order."""
        topic, complete = self._source(query.sink).topic, complete_queries(self.plan, self.settings)
        others = (q for q in self.plan.queries if q.id not in complete)
        return any(self._source(s).topic == topic for q in others for s in self._read(q))

    def _results(self, name: str) -> int:
        topic = self._source(name).topic
        return sum(self._out.get(q.id, 0) for q in self.plan.queries if self._source(q.sink).topic == topic)

    def _prepare(self, source: SourceDef) -> Prepared:
        if source.name not in self._prepared:
            files = self._files.get(source.name)
            self._prepared[source.name] = self._of_frame(source) if files is None else self._of_files(source, files)
        return self._prepared[source.name]

    def _of_frame(self, source: SourceDef) -> Prepared:
        return prepared(source, self.frames[source.name], self.tables.get(source.name, DEFAULT_ROWS))

    def _located(self, source: SourceDef) -> Prepared:
        """The rows of a source once more, with the places of those in files."""
        known, files = self._prepare(source), self._files.get(source.name)
        return known if files is None or CODE in known.frame.columns else self._of_files(source, files, located=True)

    def _of_files(self, source: SourceDef, files: TopicFiles, *, located: bool = False) -> Prepared:
        frame = source_frame(self.spark, source, files, located=located)
        if CODE in frame.columns:
            frame = self.kept(frame)  # decoded in Python, and read for counts, results and dead letters
        rows = self.tables.get(source.name, TableRows(files.sequence_by, files.delete_when))
        try:
            return prepared(source, frame, rows)
        except FrameUnfit as e:
            raise FrameUnfit(f"{files.place}: {e.title}", help=e.help) from None

    def _given(self, source: SourceDef) -> Relation | None:
        return relation_of_prepared(source, self._prepare(source)) if source.name in self._outside else None

    def _keep(self, query: QueryPlan, relation: Relation) -> Relation:
        topic = self._source(query.sink).topic
        readers = (self._source(s).topic for q in self.plan.queries for s in self._read(q))
        if topic not in readers:
            return relation
        rows = relation.frame.selectExpr(*names(query.logical.schema), *relation.beside)
        return Relation(self.kept(rows), relation.form, relation.timed, relation.grows)


@dataclass(frozen=True, slots=True)
class QueryRun:
    """The row counts of a query. ties: keys of its tables with several values at one time, of which the greatest counts."""

    query: str
    rows_in: int
    rows_out: int
    dead: int
    ties: int
    late: int = 0  # none is, over complete history


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a run by the names of their streams and tables, computed once, and kept until `close`."""

    results: Mapping[str, DataFrame]
    queries: tuple[QueryRun, ...]
    _history: FileHistory

    def close(self) -> None:
        """Lets the session forget the rows it has kept."""
        self._history.close()


def run_frames(
    spark: SparkSession,
    plan: Plan,
    settings: SparkSettings,
    sources: Mapping[str, DataFrame],
    tables: Mapping[str, TableRows],
) -> Run:
    """Computes every query once, and writes those results for whose topics `settings` names files.

    sources: batch frames by the name of their stream or table, see `frames.lower.lower`; others are read from the files of their
    topics. Raises SparkUnsupported and FrameUnfit before anything is written. Ctrl-C ends the jobs that this has started.
    """
    history = FileHistory(spark, plan, settings, sources, tables)
    order = [q for level in levels(plan.queries) for q in level]
    try:
        with interruptible(spark), told_of_storage():
            for query in order:
                history.rows(query)  # what is refused writes nothing
            results: dict[str, DataFrame] = {}
            told, left = [], Counter(q.sink for q in order)
            for query in order:
                rows = history.kept(history.rows(query))
                out = rows.count()
                history.written(query, out)
                dead = sum(bad.count() for bad in history.bad(query))
                told.append(QueryRun(query.id, history.rows_in(query), out, dead, history.ties(query)))
                earlier = results.get(query.sink)
                results[query.sink] = rows if earlier is None else earlier.unionByName(rows)
                left[query.sink] -= 1
                if not left[query.sink]:  # the last of those that write it
                    history.to_files(query, results[query.sink])
    except BaseException:
        history.close()
        raise
    shown = {q.sink: history.shown(q, results[q.sink]) for q in plan.queries}
    return Run(shown, tuple(told), history)


# Work on the session of a caller that Ctrl-C ends: its jobs end with it, and the session answers again.


@contextmanager
def interruptible(spark: SparkSession) -> Iterator[None]:
    """Jobs that are started inside end when this thread is interrupted; all others of the session go on.

    PySpark leaves the interrupted call unanswered on its thread's connection to Java: the job would go on, and the next call would wait for it
    and be given its answer. So the connection is replaced, and the jobs are cancelled over the new one. In Java that is another thread: what
    the caller has set for this one (`setLocalProperty`) is gone.
    """
    tag = f"flowql-{os.urandom(8).hex()}"
    if _is_client(spark):
        with _tagged(tag, spark.addTag, spark.interruptTag, spark.removeTag):
            yield
        return
    context, active = spark.sparkContext, _active(spark)
    # Tags of a session are known in their thread alone, those of its context in all.
    with _tagged(tag, context.addJobTag, context.cancelJobsWithTag, context.removeJobTag):
        try:
            yield
        except KeyboardInterrupt:
            _replace_connection(spark)
            if active is not None:
                _sessions(spark).setActiveSession(active)
            raise


@contextmanager
def _tagged(
    tag: str, add: Callable[[str], object], cancel: Callable[[str], object], remove: Callable[[str], object]
) -> Iterator[None]:
    add(tag)
    try:
        yield
    except KeyboardInterrupt:
        cancel(tag)
        raise
    finally:
        remove(tag)


def _is_client(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect, which has no Java here and gives each call a stream of its own."""
    return not hasattr(spark, "_jsparkSession")


def _sessions(spark: SparkSession) -> Any:
    return spark._jvm.org.apache.spark.sql.classic.SparkSession


def _active(spark: SparkSession) -> Any:
    """The session in Java that is active in this thread, or None."""
    found = _sessions(spark).getActiveSession()
    return found.get() if found.isDefined() else None


def _replace_connection(spark: SparkSession) -> None:
    """The next call of this thread makes another one. Where threads share connections (PYSPARK_PIN_THREAD=false) none is used twice anyway."""
    client = spark.sparkContext._gateway._gateway_client
    connection = client.get_thread_connection() if hasattr(client, "get_thread_connection") else None
    if connection is not None:
        connection.close()

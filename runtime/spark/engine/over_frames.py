"""A plan over frames and files on a session of the caller, without a log: `run_frames`. The session is neither configured nor stopped."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowql.compiler.plan.topology import Plan
from flowql.runtime.spark.engine.order import levels
from flowql.runtime.spark.engine.over_files import FileHistory
from flowql.runtime.spark.frames.relation import TableRows
from flowql.runtime.spark.settings import SparkSettings
from flowql.runtime.spark.storage import told_of_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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

"""A plan over frames and files on a session of the caller, without a log: `run_frames`. The session is neither configured nor stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowql.compiler.plan.topology import Plan
from flowql.runtime.spark.engine.order import levels
from flowql.runtime.spark.engine.over_files import FileHistory
from flowql.runtime.spark.frames.relation import TableRows
from flowql.runtime.spark.interrupt import interruptible
from flowql.runtime.spark.settings import SparkSettings
from flowql.runtime.spark.storage import told_of_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class QueryRun:
    """What became of the rows of a query. ties: keys of its tables with several values at one time, of which the greatest counts."""

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

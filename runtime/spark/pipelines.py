"""Results of a plan as materialized views of Spark Declarative Pipelines: which of them fit, and their frames over files.

The definition of such a view is a frame, made without an action and without setting anything in the session. So a result is what
`frames.lower.lower` gives, over the frames of `files.source_frame`: history is complete, and each run of the pipeline computes the result
from all files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.runtime.spark.errors import FrameUnfit, SparkFailure
from flowql.runtime.spark.frames.lower import Lowering, outline
from flowql.runtime.spark.frames.relation import Relation, TableRows
from flowql.runtime.spark.frames.source import relation_of
from flowql.runtime.spark.history import complete_files, complete_queries, refuse_unfit_files
from flowql.runtime.spark.settings import SparkSettings, TopicFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)  # tables of every catalogue can have such a name, and functions of Python


@dataclass(frozen=True, slots=True)
class Fitting:
    """results: names of the streams and tables that can be materialized views, in the order of the plan.

    refused: of the other results by name the reason. files: of all sources that have files with complete history, by name.
    """

    results: tuple[str, ...]
    refused: Mapping[str, str]
    files: Mapping[str, TopicFiles]


def fitting(plan: Plan, settings: SparkSettings) -> Fitting:
    """Which results of a plan can be materialized views over the files of a target. Raises FilesUnfit. Needs no Spark."""
    refuse_unfit_files(plan, settings)
    files, complete = complete_files(plan, settings), complete_queries(plan, settings)
    refused: dict[str, str] = {}
    taken = {f.table.lower(): f"the table {f.table} that a source reads" for f in files.values() if f.table}
    names = tuple(dict.fromkeys(q.sink for q in plan.queries))
    for name in names:
        reason = _not_a_frame(plan, name, complete, files) or _not_a_name(name, taken)
        if reason:
            refused[name] = reason
        else:
            taken[name.lower()] = f"the result {name}"
    return Fitting(tuple(n for n in names if n not in refused), refused, files)


def results_over_files(
    session: SparkSession, plan: Plan, files: Mapping[str, TopicFiles], names: Sequence[str]
) -> dict[str, DataFrame]:
    """Results by name as frames over files, by the names of their sources; without an action, also through Spark Connect.

    Columns of files are looked up, which a pipeline allows while it reads its modules, and not in the function that defines a view.

    Raises SparkUnsupported, FilesUnfit and FrameUnfit.
    """
    from flowql.runtime.spark.files import source_frame

    def given(source: SourceDef) -> Relation | None:
        if source.name not in files:
            return None
        read = files[source.name]
        try:
            frame = source_frame(session, source, read, located=False)
            return relation_of(source, frame, TableRows(read.sequence_by, read.delete_when))
        except FrameUnfit as e:
            raise FrameUnfit(f"{read.place}: {e.title}", help=e.help) from None

    work = Lowering(plan, given)
    return {name: work.result(name) for name in names}


def _not_a_frame(plan: Plan, name: str, complete: Collection[str], files: Mapping[str, TopicFiles]) -> str:
    """Why the result is no frame over files; "" if it is one."""
    writers = [q for q in plan.queries if q.sink == name]
    for query in writers:
        if query.id not in complete:
            return f"{query.id} reads a topic that has no files with complete history (`files` and `history` of the target)"
        try:
            outline(plan, query, files, in_python=False)
        except SparkFailure as e:
            return f"{e.title}; {e.help}" if e.help else e.title
    if len(writers) > 1 and (sink := plan.source(name)) is not None and sink.kind == "table":
        return "several queries write this table, and which row is the last is not known"
    return ""


def _not_a_name(name: str, taken: Mapping[str, str]) -> str:
    """Why a table of Spark's catalogue cannot have this name; "" if it can."""
    if not _NAME.fullmatch(name):
        return "not every catalogue takes its name: letters of English, digits and _, not beginning with a digit"
    if name.lower() in taken:
        return f"names of tables do not differ by case, and it would take the place of {taken[name.lower()]}"
    return ""

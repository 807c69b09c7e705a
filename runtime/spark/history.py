"""Which queries of a batch are computed over complete history: those whose rows all come from files. No pyspark.

History is *complete* where all rows are as if in the order of their times, none late (`flowql.runtime.spark.frames.lower`), and by *arrival*
where lateness is judged in the order of a topic. Files have no order of arrival, so theirs is complete unless a target says otherwise.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping

from flowql.compiler.plan.logical import Scan, Sink, walk_nodes
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.spark.errors import FilesUnfit, SparkUnsupported
from flowql.runtime.spark.settings import SparkSettings, TopicFiles


def outside_files(plan: Plan, settings: SparkSettings) -> dict[str, TopicFiles]:
    """The files of sources, by name. Those of a topic that a query writes are its results."""
    written = {t for q in plan.queries for t in topics_written(q)}
    topics = settings.files.keys() - written
    return {s.name: settings.files[s.topic] for s in plan.sources if s.topic in topics}


def complete_files(plan: Plan, settings: SparkSettings) -> dict[str, TopicFiles]:
    """The files of sources whose rows are files with complete history, by the name of the source."""
    found = outside_files(plan, settings)
    return {name: files for name, files in found.items() if settings.history_of(files) == "complete"}


def complete_queries(plan: Plan, settings: SparkSettings) -> frozenset[str]:
    """Ids of the queries whose rows all come from such files, directly or through other queries."""
    files, topics = complete_files(plan, settings), {s.name: s.topic for s in plan.sources}
    writers: dict[str, set[str]] = {}
    for q in plan.queries:
        for topic in topics_written(q):
            writers.setdefault(topic, set()).add(q.id)
    scans = {q.id: {n.spec.source for n in walk_nodes(q.logical) if isinstance(n.spec, Scan)} for q in plan.queries}
    found = {q for q, sources in scans.items() if sources}
    while True:
        left = {q for q in found if any(not _complete(s, files, writers.get(topics[s], ()), found) for s in scans[q])}
        if not left:
            return frozenset(found)
        found -= left


def _complete(source: str, files: Mapping[str, TopicFiles], writers: Collection[str], found: Collection[str]) -> bool:
    return source in files or (bool(writers) and set(writers) <= set(found))


def topics_written(query: QueryPlan) -> tuple[str, ...]:
    """Log topics a query writes; repartitions are not among them."""
    return tuple(sorted({n.spec.topic for n in walk_nodes(query.logical) if isinstance(n.spec, Sink)}))


def written_paths(plan: Plan, settings: SparkSettings) -> list[str]:
    """Folders and addresses to which the target writes results of the plan."""
    written = sorted({t for q in plan.queries for t in topics_written(q)} & settings.files.keys())
    return [settings.files[t].path for t in written if settings.files[t].path]


def refuse_unfit_files(plan: Plan, settings: SparkSettings) -> None:
    """Raises FilesUnfit where what a target says about files cannot be carried out, whether batches or streams read them."""
    refuse_overwriting(plan, settings)
    _refuse_own_tables(plan, settings)
    _refuse_versions_of_streams(plan, settings)


def _refuse_own_tables(plan: Plan, settings: SparkSettings) -> None:
    """Their rows obey rules (keys, NOT NULL, CHECK, the form of JSONB) that statements check, and nothing checks those of files."""
    for name, files in outside_files(plan, settings).items():
        source = plan.source(name)
        if source is not None and source.is_own_table:
            title = f"{files.place} cannot be used for the table {name}: its rows are those of INSERT, UPDATE and DELETE, which check its rules"
            raise FilesUnfit(title, help="declare a stream or a table WITH (KAFKA_TOPIC = ...) for the rows of files")


def _refuse_versions_of_streams(plan: Plan, settings: SparkSettings) -> None:
    """Rows of a stream replace and remove none, so that `sequence_by` and `delete_when` would change nothing."""
    tables = {s.topic for s in plan.sources if s.kind == "table"}
    for name, files in outside_files(plan, settings).items():
        given = "sequence_by" if files.sequence_by else "delete_when" if files.delete_when is not None else ""
        source = plan.source(name)
        assert source is not None
        if given and source.topic not in tables:
            title = f"the files of topic {source.topic} have `{given}`, and {name} is a stream: its rows replace and remove none"
            raise FilesUnfit(title, help="leave it out, and filter in a query; or declare a table over the topic")


def refuse_overwriting(plan: Plan, settings: SparkSettings) -> None:
    """Raises FilesUnfit where a result would take the place of other files of the target, or come to lie among them: they would be deleted,
    or read as rows of a source.
    """
    topics = {s.topic for s in plan.sources} & settings.files.keys()
    for topic in sorted(topics & {t for q in plan.queries for t in topics_written(q)}):
        for other in sorted(settings.files.keys() - {topic}):
            mine, its = (_place(settings.files[t]) for t in (topic, other))
            if mine.startswith(its) or its.startswith(mine):
                title = f"results of topic {topic} would be written to {mine}, and {its} has the files of topic {other}"
                raise FilesUnfit(
                    title, help="give the results a folder that is neither inside the other one nor around it"
                )


def refuse_shared_files(plan: Plan, settings: SparkSettings) -> None:
    """Raises FilesUnfit if several streams write the same files: each numbers its own epochs, and its epoch 0 deletes the folders of the others."""
    writers: dict[str, list[str]] = {}
    for query in plan.queries:
        for topic in sorted(settings.files.keys() & topics_written(query)):
            writers.setdefault(topic, []).append(query.id)
    for topic, queries in writers.items():
        if len(queries) > 1:
            title = f"{' and '.join(queries)} write topic {topic} as streams, and its files can only be of one"
            help_ = "let them write separate topics, each with files; or compute them as batches, with --bounded"
            raise FilesUnfit(title, help=help_)


def _place(files: TopicFiles) -> str:
    """A folder with a slash at the end; a table of a catalogue by its name, which is in no folder."""
    return f"table {files.table.lower()} " if files.table else _folder(files.path)


def _folder(path: str) -> str:
    """In one spelling, with a slash at the end; of a pattern the folder that all its files are in."""
    fixed = path.removeprefix("file://")
    if any(c in fixed for c in "*?[{"):
        fixed = re.split(r"[*?\[{]", fixed)[0].rpartition("/")[0]
    return posixpath.normpath(fixed).rstrip("/") + "/" if "://" not in fixed else fixed.rstrip("/") + "/"


def refuse_complete_topics(plan: Plan, query: QueryPlan, settings: SparkSettings) -> None:
    """Raises SparkUnsupported where a target asks for complete history of a topic that has no files."""
    if settings.history != "complete":
        return
    written = {t for q in plan.queries for t in topics_written(q)}
    for node in walk_nodes(query.logical):
        spec = node.spec
        if isinstance(spec, Scan) and spec.topic not in settings.files and spec.topic not in written:
            reason = f"`history: complete` is of files, and the rows of topic {spec.topic} come in the order of arrival"
            raise SparkUnsupported(
                "Scan", reason, "leave `history` out: it is complete only over files", query=query.id
            )

"""A project over DataFrames, for notebooks and jobs that have a Spark session: `frames`, `run`, `start`, `ship`, `over_files`. Needs the extra `spark`.

No function creates, configures or stops a session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from flowql.config.spark import is_address
from flowql.errors import CommandError
from flowql.runtime.spark.frames.relation import TableRows

if TYPE_CHECKING:
    from flowql.compiler.plan.topology import Plan
    from flowql.config.project import Project
    from flowql.runtime.spark.engine.over_files import Run
    from flowql.runtime.spark.engine.over_streams import Into, Stream
    from flowql.runtime.spark.frames.lower import Frame, Results, Session, Sources

__all__ = ["TableRows", "faults", "frames", "over_files", "run", "ship", "start"]
_NO_TABLES: Mapping[str, TableRows] = {}
_NO_SOURCES: Sources = {}
_NO_PLACES: Into = {}
_NO_TRIGGER: Mapping[str, object] = {}
_NO_VARIABLES: Mapping[str, str] = {}
_shipped: list[TemporaryDirectory[str]] = []


def frames(
    project: str | Path,
    sources: Sources,
    *,
    tables: Mapping[str, TableRows] = _NO_TABLES,
    target: str | None = None,
    variables: Mapping[str, str] = _NO_VARIABLES,
) -> Results:
    """The results of a project's queries by name, over batch frames of its sources by name.

    project: a folder in the project, or its `flowql.yaml`. `flowql.runtime.spark.frames.lower.lower` describes the columns of frames and
    results, and the meaning of complete history.

        >>> results = frames("pipelines/shop", {"ORDERS": spark.read.parquet("lake/orders")})  # doctest: +SKIP
        >>> results["SPENT"].write.parquet("lake/spent")  # doctest: +SKIP

    Raises CompileError with all mistakes of files and SQL, SparkUnsupported and FrameUnfit as `lower`.
    """
    from flowql.runtime.spark.frames.lower import lower

    return lower(_plan(project, target, variables), _of_user(sources), tables=tables)


def run(
    project: str | Path,
    session: Session,
    sources: Sources = _NO_SOURCES,
    *,
    tables: Mapping[str, TableRows] = _NO_TABLES,
    target: str | None = None,
    variables: Mapping[str, str] = _NO_VARIABLES,
) -> Run:
    """Computes a project once, on the caller's session, over frames and over the files that `flowql.yaml` names.

    sources: frames by the name of their stream or table, as for `frames`; others are read from `files` of the target. Results whose topics
    have `files` in the target are written there. No topic is read or written. The answer has `results` (frames by name), `queries` (each
    with `rows_in`, `rows_out`, `late`, `dead` and `ties`), and `close`, which frees the data that the session has cached.

        >>> done = run("pipelines/shop", spark, target="spark")  # doctest: +SKIP
        >>> [(q.query, q.rows_in, q.rows_out, q.dead) for q in done.queries]  # doctest: +SKIP
        [('CTAS_SPENT', 120000, 10, 0)]

    Raises CompileError with all mistakes of files and SQL, SparkUnsupported, FrameUnfit and FilesUnfit; nothing is written then.
    """
    from flowql.runtime.spark.engine.over_files import run_frames

    found = load_project(Path(project), target=target, variables=variables)
    return run_frames(session, _compiled(found), found.target.spark, _of_user(sources), tables)


def start(
    project: str | Path,
    session: Session,
    sources: Sources = _NO_SOURCES,
    *,
    checkpoint: str | Path,
    into: Into = _NO_PLACES,
    trigger: Mapping[str, object] = _NO_TRIGGER,
    tables: Mapping[str, TableRows] = _NO_TABLES,
    target: str | None = None,
    variables: Mapping[str, str] = _NO_VARIABLES,
) -> dict[str, Stream]:
    """Starts a project as streams on the caller's session. Returns Spark's queries by the names of their results.

    sources: streaming frames of streams and batch frames of tables, by name; others are read from `files` of the target. into: by
    name, a function of the rows of a micro-batch and its number; other results go to the files that the target names, if they are
    streams. checkpoint: a folder for all checkpoints, or an address as a string. trigger: as `DataStreamWriter.trigger` takes it.

        >>> started = start("pipelines/shop", spark, target="spark", checkpoint="lake/_checkpoints")  # doctest: +SKIP
        >>> started["NAMED"].lastProgress["numInputRows"]  # doctest: +SKIP
        120000

    Raises SparkUnsupported for queries that Spark's streams would compute differently (`flowql.runtime.spark.frames.streams` gives the reasons),
    FrameUnfit and FilesUnfit, and CommandError for an address as a Path. Nothing is started then.
    """
    if isinstance(checkpoint, Path) and is_address(str(checkpoint)):
        title = f"the checkpoint {checkpoint!r} is an address, and a Path has lost a slash of it"
        raise CommandError(
            title, code="FQ3004", help="pass the address as a string:  checkpoint='s3a://bucket/checkpoints'"
        )
    from flowql.runtime.spark.engine.over_streams import start_streams

    found = load_project(Path(project), target=target, variables=variables)
    settings = found.target.spark
    given = _of_user(sources)
    return start_streams(session, _compiled(found), settings, given, tables, into, str(checkpoint), trigger)


def ship(session: Session) -> None:
    """Sends FlowQL to the workers of a session, and compares their versions of Python, pyarrow and FlowQL with the driver's.

    Call it before `run` or `start`. More calls have no effect. Workers need the packages that FlowQL depends on: `flowql spark package
    --dependencies` writes an archive of them for `spark.archives`. With Spark Connect, `ship` sends FlowQL but cannot compare packages.

        >>> ship(spark)  # doctest: +SKIP

    Raises WorkersUnfit, which names the host and the correction.
    """
    from flowql.deploy.spark_package import write_flowql
    from flowql.runtime.spark.job import add_modules

    # One archive until this process ends: executors that come later fetch it then, and Spark refuses another of the same name. `flowql.zip` is
    # that of `flowql spark submit`.
    if not _shipped:
        folder = TemporaryDirectory(prefix="flowql-")
        write_flowql(Path(folder.name) / f"{folder.name.rpartition('-')[2]}.zip")
        _shipped.append(folder)
    (archive,) = Path(_shipped[0].name).iterdir()
    add_modules(session, archive)


def over_files(
    plan: str | Path, session: Session, files: Mapping[str, Mapping[str, Any]], names: Sequence[str]
) -> Results:
    """Results of a plan over files, by name, for the views that `flowql export spark-pipelines` writes.

    plan: a `plan.json`. files: by the name of a stream or table, the keys of an entry of `files` in `flowql.yaml`. Nothing is computed
    and no setting of the session is changed. Rows that cannot be read are left out, and history is complete, as in `frames`.

        >>> files = {"ORDERS": {"format": "parquet", "path": "/lake/orders"}}
        >>> over_files("plan.json", spark, files, ["SPENT"])["SPENT"].show()  # doctest: +SKIP

    Raises SparkUnsupported, FilesUnfit and FrameUnfit.
    """
    from flowql.compiler.plan import codec
    from flowql.runtime.spark.pipelines import results_over_files
    from flowql.runtime.spark.settings import TopicFiles

    read = {source: TopicFiles.of(entry) for source, entry in files.items()}
    return results_over_files(session, codec.loads(Path(plan).read_text(encoding="utf-8")), read, names)


def faults(
    project: str | Path,
    sources: Sources,
    *,
    tables: Mapping[str, TableRows] = _NO_TABLES,
    target: str | None = None,
    variables: Mapping[str, str] = _NO_VARIABLES,
) -> Frame:
    """Counts the rows that `frames` leaves out, and those among which it chooses: a row of counts per frame.

    Columns: SOURCE, ROWS, BAD_TIMES and NO_KEY (rows that are left out), TIES (keys of a table that have several values at one time;
    the greatest counts).

        >>> faults("pipelines/shop", {"ORDERS": spark.read.parquet("lake/orders")}).show()  # doctest: +SKIP
    """
    from flowql.runtime.spark.frames.faults import faults as counted

    return counted(_plan(project, target, variables), _of_user(sources), tables)


def _of_user(sources: Sources) -> Sources:
    from flowql.runtime.spark.frames.source import refuse_own_columns

    refuse_own_columns(sources)
    return sources


def _plan(project: str | Path, target: str | None, variables: Mapping[str, str]) -> Plan:
    return _compiled(load_project(Path(project), target=target, variables=variables))


def _compiled(project: Project) -> Plan:
    compiled = compile_sources(project)
    if not compiled.ok:
        raise CompileError(*compiled.diagnostics)
    return compiled.plan

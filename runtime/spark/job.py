"""A packaged project as a job of `spark-submit`: `main`. And a package of modules for the workers of a session: `add_modules`.

The project comes compiled: its plan, the files that stand for its topics and the texts of its functions are data in an archive, which Spark
brings to wherever the driver runs. So neither the project's folder nor its SQL is there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from flowql.compiler.plan import codec
from flowql.compiler.plan.topology import Plan
from flowql.compiler.plan.visit import functions_called
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.functions.shipping import register_shipped, shipped
from flowql.runtime.spark.engine.causes import cause_of
from flowql.runtime.spark.errors import SparkFailure, SparkQueryFailed
from flowql.runtime.spark.settings import SparkSettings, TopicFiles
from flowql.runtime.spark.workers import check_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = "flowql_project.zip"
_PLAN, _SETTINGS, _FUNCTIONS = "plan.json", "settings.json", "functions.json"
_SAID = ("late_rows", "semantics", "shuffle_partitions", "history")


def write_project(archive: Path, plan: Plan, settings: SparkSettings) -> None:
    """Writes a project for a job, without properties of Spark and with options of files. Only the owner can read it: they may hold secrets."""
    functions = project_modules(plan)
    files = {topic: asdict(f) for topic, f in settings.files.items()}
    said = {name: getattr(settings, name) for name in _SAID}
    with open_private(archive) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as to:
        to.writestr(_PLAN, codec.dumps(plan))
        to.writestr(_SETTINGS, json.dumps({**said, "files": files}))
        to.writestr(_FUNCTIONS, json.dumps(functions))


def project_modules(plan: Plan) -> list[Any]:
    """Modules with the functions that queries of the plan call, as plain data: `functions.shipping`."""
    return shipped({name for q in plan.queries for name in functions_called(q.logical)})


def open_private(file: Path) -> IO[bytes]:
    """Opens a new file that only its owner can read and write; a file of that name is replaced."""
    file.unlink(missing_ok=True)
    return os.fdopen(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb")


def read_project(archive: Path) -> tuple[Plan, SparkSettings]:
    """Reads the archive of `write_project`. The functions are known in this process from then on."""
    with zipfile.ZipFile(archive) as found:
        given: Mapping[str, Any] = json.loads(found.read(_SETTINGS))
        register_shipped(json.loads(found.read(_FUNCTIONS)))
        files = {topic: TopicFiles.of(entry) for topic, entry in given["files"].items()}
        return codec.loads(found.read(_PLAN).decode()), SparkSettings(**{**given, "files": files})


def add_modules(session: SparkSession, archive: Path) -> None:
    """Brings an archive of modules to the workers of a session, and compares these with this process. The archive stays where it is, as
    executors that come later fetch it then. Raises WorkersUnfit.
    """
    if _is_remote(session):
        session.addArtifacts(str(archive), pyfile=True)
        return
    session.sparkContext.addPyFile(str(archive))
    check_workers_of(session)


def check_workers_of(session: SparkSession) -> None:
    """Raises WorkersUnfit if workers of a cluster cannot run FlowQL. A session of Spark Connect tells nothing of its cluster."""
    if not _is_remote(session) and not SparkSettings(master=session.sparkContext.master).is_local:
        check_workers(session)


def _is_remote(session: SparkSession) -> bool:
    return "connect" in type(session).__module__.split(".")


def main(arguments: Sequence[str]) -> int:
    """Computes the project on the Spark of this process, from files into files; its exit code. With --checkpoint as streams."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    parser = argparse.ArgumentParser(prog="job.py")
    parser.add_argument("--checkpoint", help="a folder or an address: runs streams, which continue from there")
    parser.add_argument(
        "--available-now", action="store_true", help="streams end when they have read all input that is present"
    )
    asked = parser.parse_args(arguments)
    session = SparkSession.builder.getOrCreate()
    try:
        check_workers_of(session)
        plan, settings = read_project(_project())
        if asked.checkpoint is None:
            _batch(session, plan, settings)
        else:
            _streams(session, plan, settings, asked.checkpoint, available_now=asked.available_now)
    except RuntimeFailure as error:
        return _failed(error)
    except (PySparkException, Py4JError) as error:  # a stream of Spark that has ended, or what it says of files
        return _failed(SparkQueryFailed(cause_of(error)))
    finally:
        session.stop()
    return 0


def _failed(error: RuntimeFailure) -> int:
    print(f"error[{error.code}]: {error}", file=sys.stderr)
    return 1


def _project() -> Path:
    """Where Spark has put the archive: it is among the modules (`--py-files`) of every way to deploy."""
    found = next((Path(p) for p in sys.path if Path(p).name == PROJECT and Path(p).is_file()), None)
    if found is None:
        raise SparkFailure(f"{PROJECT} is not among the modules of this job", help="start it with  flowql spark submit")
    return found


def _batch(session: SparkSession, plan: Plan, settings: SparkSettings) -> None:
    from flowql.runtime.spark.engine.over_files import run_frames

    done = run_frames(session, plan, settings, {}, {})
    for q in done.queries:
        print(f"{q.query}: {q.rows_in} rows in, {q.rows_out} out, {q.dead} dead, {q.ties} ties", flush=True)
    done.close()


def _streams(
    session: SparkSession, plan: Plan, settings: SparkSettings, checkpoint: str, *, available_now: bool
) -> None:
    from flowql.runtime.spark.engine.over_streams import start_streams

    trigger = {"availableNow": True} if available_now else {}
    started = start_streams(session, plan, settings, {}, {}, {}, checkpoint, trigger)
    if not available_now:
        session.streams.awaitAnyTermination()  # raises if it has failed; otherwise it was stopped
    for name, query in started.items():
        query.awaitTermination()
        progress = query.lastProgress
        print(f"{name}: ended after micro-batch {progress['batchId'] if progress else 'none'}", flush=True)

"""What `spark-submit` needs to run a project elsewhere, as a folder; and the line that is typed."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flowql.compiler.plan.topology import Plan
from flowql.deploy.spark_archives import write_dependencies, write_flowql
from flowql.errors import CommandError
from flowql.runtime.spark.configuration import escaped
from flowql.runtime.spark.history import complete_queries, refuse_unfit_files
from flowql.runtime.spark.java import find_java, java_home
from flowql.runtime.spark.job import PROJECT, write_project
from flowql.runtime.spark.settings import SparkSettings

FLOWQL, DEPENDENCIES, JOB, PROPERTIES, ABOUT = (
    "flowql.zip",
    "dependencies.zip",
    "job.py",
    "spark.properties",
    "flowql-package.json",
)
_JOB = '''\
"""The project {name} as a job: `flowql spark package` writes this file, and `flowql spark submit` runs it."""

import sys

from flowql.runtime.spark.job import main

sys.exit(main(sys.argv[1:]))
'''


@dataclass(frozen=True, slots=True)
class Package:
    """A folder that `write_package` has written."""

    folder: Path
    project: str
    master: str
    files: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path) -> Package:
        """Raises CommandError where there is none."""
        try:
            said = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
            return cls(folder, said["project"], said["master"], tuple(said["files"]))
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
            title = f"{folder} has no package of a project"
            raise CommandError(title, help="write one:  flowql spark package -t TARGET") from None


def write_package(folder: Path, project: str, plan: Plan, settings: SparkSettings, *, dependencies: bool) -> Package:
    """Writes the archives, the job and the properties of the target. Raises CommandError and FilesUnfit before anything is written.

    The properties may hold secrets, so that only the owner can read them.
    """
    refuse_unfit_files(plan, settings)
    complete = complete_queries(plan, settings)
    left = [q.id for q in plan.queries if q.id not in complete]
    if left or not plan.queries:
        title = (
            f"{', '.join(left)} read topics that have no files with complete history"
            if left
            else f"{project} has no queries"
        )
        way = "name `files` for them in the target; over Kafka, start FlowQL on a machine that reaches the cluster:  flowql run -t TARGET"
        raise CommandError(title, code="FQ4110", help=way)
    folder.mkdir(parents=True, exist_ok=True)
    write_flowql(folder / FLOWQL)
    write_project(folder / PROJECT, plan, settings)
    (folder / JOB).write_text(_JOB.format(name=project), encoding="utf-8")
    _write_properties(folder / PROPERTIES, settings)
    files = [FLOWQL, PROJECT, JOB, PROPERTIES]
    (folder / DEPENDENCIES).unlink(missing_ok=True)
    if dependencies:
        write_dependencies(folder / DEPENDENCIES)
        files.append(DEPENDENCIES)
    said = {"project": project, "master": settings.master, "files": files}
    (folder / ABOUT).write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    return Package(folder, project, settings.master, tuple(files))


def _write_properties(file: Path, settings: SparkSettings) -> None:
    said = {"spark.driver.memory": f"{settings.driver_memory_mib}m"}
    if settings.shuffle_partitions is not None:
        said["spark.sql.shuffle.partitions"] = str(settings.shuffle_partitions)
    said |= settings.conf
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w", encoding="utf-8") as to:
        to.writelines(f"{escaped(k)}={escaped(v)}\n" for k, v in said.items())


def submit_line(package: Package, options: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """What is typed. options: of spark-submit, beside those that the package needs; arguments: of the job."""
    at = {name: str(package.folder / name) for name in package.files}
    archives: list[str] = []
    if DEPENDENCIES in at:
        place = Path(DEPENDENCIES).stem  # in the working directory of each executor
        archives = ["--archives", f"{at[DEPENDENCIES]}#{place}", "--conf", f"spark.executorEnv.PYTHONPATH={place}"]
    properties = ["--properties-file", at[PROPERTIES], "--load-spark-defaults"]
    modules = ["--py-files", f"{at[FLOWQL]},{at[PROJECT]}"]
    named = ["--master", package.master, "--name", package.project]
    return [_spark_submit(), *named, *properties, *modules, *archives, *options, at[JOB], *arguments]


def submit_environment(package: Package, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of the program: SPARK_HOME, JAVA_HOME and the Python of the driver where nothing names them."""
    found = {"PYSPARK_PYTHON": sys.executable, **given}
    if "JAVA_HOME" not in found:
        found["JAVA_HOME"] = str(java_home(find_java(given), package.folder.absolute() / "java"))
    return found


def _spark_submit() -> str:
    """That of SPARK_HOME, then of PATH, then of the PySpark that is installed here."""
    home = os.environ.get("SPARK_HOME")
    if home is not None:
        return str(Path(home) / "bin" / "spark-submit")
    on_path = shutil.which("spark-submit")
    if on_path is not None:
        return on_path
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise CommandError("there is no spark-submit here", help="set SPARK_HOME, or  pip install 'flowql[spark]'")
    return str(Path(spec.origin).parent / "bin" / "spark-submit")

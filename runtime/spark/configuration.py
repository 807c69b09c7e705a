"""The configuration with which Spark starts: properties, pools, messages and folders, written as files below one folder."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS
from flowql.runtime.secret import revealed
from flowql.runtime.spark import worker_daemon
from flowql.runtime.spark.settings import SparkSettings

LOG_LEVEL = "FLOWQL_SPARK_LOG"

_ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"
_STATE_SHARE = 4  # the state stores of a local master may take this part of the target's memory, beside the heap
_STATE_MIB_MIN = 128  # below it write buffers are flushed all the time

# No option changes the meaning of results. Names of columns differ by case in FlowQL; times are UTC. Without ANSI mode Spark computes
# as Java and so as FlowQL does: integers wrap, casts of doubles are clamped, what fails is NULL (and a dead letter, native/).
FIXED: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_ROCKSDB}.changelogCheckpointing.enabled": "true",
}

# Properties that a target sets elsewhere, or the engine decides. Property -> where.
REPLACED: Mapping[str, str] = {
    "spark.master": "`master`",
    "spark.app.name": "`name` of the project",
    "spark.driver.memory": "`memory` of the target",
    "spark.scheduler.allocation.file": "`priorities`",
}

# Properties that a user may change.
_CHOSEN: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",  # no metastore, no Derby
    "spark.sql.streaming.stopTimeout": "30s",
    # Each task of a query has a RocksDB of its own: without a common bound each takes what it likes, outside the heap.
    f"{_ROCKSDB}.boundedMemoryUsage": "true",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # plans are generated; where is no help and costs time
    "spark.sql.pyspark.jvmStacktrace.enabled": "false",
    "spark.executorEnv.TZ": "UTC",
}


def pool_of(priority: str) -> str:
    """The pool of a priority class. ValueError for no class."""
    if priority not in PRIORITY_WEIGHTS:
        raise ValueError(f"no priority class {priority!r}")
    return priority


def allocation() -> str:
    """Spark's pools: one per priority class, fair inside.

    A class gets slots by weight as slots come free. minShare makes a class with nothing running first at the next free slot;
    it also decides between classes with nothing running at all, which Spark would take by name ('batch' first).
    """
    pools = "".join(
        f'  <pool name="{name}"><schedulingMode>FAIR</schedulingMode><weight>{weight}</weight>'
        f"<minShare>{int(weight > min(PRIORITY_WEIGHTS.values()))}</minShare></pool>\n"
        for name, weight in PRIORITY_WEIGHTS.items()
    )
    return f'<?xml version="1.0"?>\n<allocations>\n{pools}</allocations>\n'


@dataclass(frozen=True, slots=True)
class Scratch:
    """The folders of one Spark below `folder`; `run` belongs to this process alone and goes with it."""

    folder: Path

    @property
    def run(self) -> Path:
        return self.folder / "run" / str(os.getpid())

    @property
    def temporary(self) -> Path:
        return self.run / "tmp"

    @property
    def process_log(self) -> Path:
        """The output of the JVM and its Python workers."""
        return self.folder / "logs" / "process.log"

    @property
    def spark_log(self) -> Path:
        """The messages of Spark."""
        return self.folder / "logs" / "spark.log"

    def make(self) -> None:
        """Make the folders, and remove those of processes that ended without doing so."""
        runs = self.folder / "run"
        for left in runs.iterdir() if runs.exists() else ():
            if left.name.isdigit() and not _lives(int(left.name)):
                shutil.rmtree(left, ignore_errors=True)  # its JVM may be deleting the same files
        shutil.rmtree(self.run, ignore_errors=True)
        self.temporary.mkdir(parents=True)
        self.process_log.parent.mkdir(parents=True, exist_ok=True)

    def write_configuration(self, given: Mapping[str, str], memory_mib: int) -> Path:
        """The properties file to start with. Readable by the owner alone, as properties may hold secrets."""
        (self.run / "pools.xml").write_text(allocation(), encoding="utf-8")
        (self.run / "log4j2.properties").write_text(_log4j(self.spark_log), encoding="utf-8")
        options = [
            f"-Dlog4j2.configurationFile={self.run / 'log4j2.properties'}",
            f"-Djava.io.tmpdir={self.temporary}",
            "-Duser.timezone=UTC",
            "-XX:-UsePerfData",  # no files outside
        ]
        java = "spark.driver.extraJavaOptions"
        lines = {"spark.driver.memory": f"{memory_mib}m", **given}
        lines[java] = " ".join([*(f'"{o}"' for o in options), given.get(java, "")]).strip()
        file = self.run / "spark.properties"
        with os.fdopen(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            out.writelines(f"{escaped(k)}={escaped(v)}\n" for k, v in lines.items())
        return file


def properties(settings: SparkSettings, app: str, scratch: Scratch) -> dict[str, str]:
    """All properties of a session: chosen, then the user's, then those that are fixed."""
    cores = settings.cores(cores_here())
    shuffle = settings.shuffle_partitions or cores
    local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} if settings.is_local else {}
    if (
        settings.is_local and sys.platform == "linux"
    ):  # elsewhere workers have FlowQL only once they run, and macOS has libraries that forbid forks
        local["spark.python.daemon.module"] = worker_daemon.__name__
    if settings.is_local:
        local[f"{_ROCKSDB}.maxMemoryUsageMB"] = str(max(_STATE_MIB_MIN, settings.driver_memory_mib // _STATE_SHARE))
    return {
        **_CHOSEN,
        **local,
        **({"spark.sql.shuffle.partitions": str(shuffle)} if shuffle else {}),
        "spark.sql.warehouse.dir": _address(scratch.folder / "warehouse"),
        "spark.local.dir": str(scratch.temporary),
        "spark.jars.ivy": str(scratch.folder / "ivy"),
        **{name: revealed(value) for name, value in settings.conf.items()},
        **FIXED,
        "spark.master": settings.master,
        "spark.app.name": app,
        "spark.scheduler.allocation.file": _address(scratch.run / "pools.xml"),
    }


def _address(path: Path) -> str:
    """A local path as Hadoop reads it: blanks and the like stand for themselves, unlike in a URI."""
    return f"file:{path.as_posix()}"


def _log4j(file: Path) -> str:
    """Messages to a file of bounded size, or all to stderr at the level that the environment asks for."""
    level = os.environ.get(LOG_LEVEL, "").strip().lower()
    to = "asked" if level else "kept"
    return f"""
rootLogger.level = {level or "warn"}
rootLogger.appenderRef.only.ref = {to}
appender.asked.type = Console
appender.asked.name = asked
appender.asked.target = SYSTEM_ERR
appender.asked.layout.type = PatternLayout
appender.asked.layout.pattern = %d{{HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.kept.type = RollingFile
appender.kept.name = kept
appender.kept.fileName = {file}
appender.kept.filePattern = {file}.%i
appender.kept.layout.type = PatternLayout
appender.kept.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n%ex
appender.kept.policies.type = Policies
appender.kept.policies.size.type = SizeBasedTriggeringPolicy
appender.kept.policies.size.size = 8MB
appender.kept.strategy.type = DefaultRolloverStrategy
appender.kept.strategy.max = 2
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = {level or "warn"}
"""


def escaped(text: str) -> str:
    """As java.util.Properties reads it."""
    for plain, written in (
        ("\\", "\\\\"),
        ("\n", "\\n"),
        ("\r", "\\r"),
        ("=", "\\="),
        (":", "\\:"),
        ("#", "\\#"),
        ("!", "\\!"),
    ):
        text = text.replace(plain, written)
    return text.replace(" ", "\\ ")


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def cores_here() -> int:
    """Cores of this machine that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

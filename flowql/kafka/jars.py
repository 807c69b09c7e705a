"""Jars of Kafka and the like, fetched once from Maven's repository into a cache: by Maven, or by the Ivy that pyspark ships.

Both follow the machine's own settings (mirrors, proxies). A fetch that was cut short leaves nothing that looks whole.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from flowql.errors import CommandError
from flowql.kafka.java import find_java, trust_options

KAFKA_VERSION = (
    "4.2.1"  # 4.3.0 and 4.3.1 lose parts of committed transactions: KAFKA-20734, `flowql.runtime.log.kafka.versions`
)
NO_JARS = "FQ5502"
FETCH_S = 600
_POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>flowql</groupId><artifactId>fetched-jars</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""


@dataclass(frozen=True, slots=True)
class Artifact:
    """The artifacts to fetch, with all their dependencies. name: the owner of the jars in messages."""

    name: str
    group: str
    artifact: str
    version: str

    @property
    def folder(self) -> Path:
        """Where its jars are, once they are fetched."""
        return cache_dir() / f"{self.name.lower()}-{self.version}"


KAFKA = Artifact("Kafka", "org.apache.kafka", "kafka_2.13", KAFKA_VERSION)


def cache_dir() -> Path:
    """Where FlowQL keeps what it has fetched: FLOWQL_CACHE, else the user's cache folder."""
    own = os.environ.get("FLOWQL_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "flowql"


def fetched_jars() -> Path | None:
    """The folder with Kafka's jars, if they are here."""
    return KAFKA.folder if KAFKA.folder.is_dir() else None


def kafka_jars() -> Path:
    """The folder with Kafka's jars; fetched if need be (40 MB). Raises CommandError with what the fetching tool said."""
    return jars_of(KAFKA)


def jars_of(wanted: Artifact) -> Path:
    """The folder with the jars of an artifact, fetched if need be. Raises CommandError with what the fetching tool said."""
    folder = wanted.folder
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(folder.parent), tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching-") as scratch:
        if folder.is_dir():  # by who held the lock
            return folder
        work = Path(scratch)
        _run(_fetch_command(wanted, work), wanted, work)
        jars = work / "jars"
        if not any(jars.glob(f"{wanted.artifact}-*.jar")):
            raise CommandError(
                f"{wanted.name}'s jars were not found", code=NO_JARS, help="is Maven's repository reachable?"
            )
        jars.rename(folder)
    return folder


@contextmanager
def one_at_a_time(cache: Path) -> Iterator[None]:
    """Wait until no other process fetches: tools like Maven do not all bear company in their own caches."""
    with (cache / "fetching.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_command(wanted: Artifact, work: Path) -> list[str]:
    group, artifact, version = wanted.group, wanted.artifact, wanted.version
    maven = shutil.which("mvn")
    if maven is not None:
        (work / "pom.xml").write_text(_POM.format(group=group, artifact=artifact, version=version))
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        return [maven, "-B", "-q", goal, "-DincludeScope=runtime", f"-DoutputDirectory={work / 'jars'}"]
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        title = f"{wanted.name}'s jars are fetched by Maven, or by the extra `spark`, and neither is here"
        raise CommandError(title, code=NO_JARS, help="install Maven, or:  pip install 'flowql[spark]'")
    ivy = [str(find_java()), *trust_options(), "-cp", str(Path(spark.origin).parent / "jars" / "*")]
    ivy += ["org.apache.ivy.Main", "-cache", str(work / "ivy"), "-m2compatible"]
    ivy += ["-dependency", group, artifact, version, "-confs", "runtime", "-types", "jar", "bundle"]
    return [*ivy, "-retrieve", str(work / "jars" / "[artifact]-[revision].[ext]")]


def _run(command: list[str], wanted: Artifact, work: Path) -> None:
    try:
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=FETCH_S)
    except subprocess.TimeoutExpired as error:
        title = f"fetching {wanted.name}'s jars took longer than {FETCH_S} s"
        raise CommandError(title, code=NO_JARS) from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise CommandError(f"{wanted.name}'s jars could not be fetched", code=NO_JARS, help="\n".join(said[-8:]))

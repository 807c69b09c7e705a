"""A standalone cluster of Spark on this machine: a master, and workers that do not see some folders, as machines of their own would not.

A worker is a JVM in a mount namespace of its own, in which an empty file system lies over each of these folders. Needs root and Linux.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest

from flowql.runtime.spark.java import find_java, java_home
from tests.spark_here import skip_without_spark

WAIT_S = 120
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # programs of seconds: little of them is compiled more than once
WORKER = "org.apache.spark.deploy.worker.Worker"
MASTER = "org.apache.spark.deploy.master.Master"


@dataclass(frozen=True, slots=True)
class Cluster:
    """conf: properties with which a driver of this machine reaches the cluster and writes Spark's event log into `events`."""

    master: str
    events: Path
    conf: Mapping[str, str]

    def tasks(self, described: str | None = None) -> Counter[str]:
        """Successful tasks by executor, of the applications that have ended. described: only of jobs whose description begins so."""
        found: Counter[str] = Counter()
        for file in self.events.rglob("*"):
            stages: set[int] = set()
            for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
                event = json.loads(line) if line.startswith("{") else {}
                kind = event.get("Event")
                if kind == "SparkListenerJobStart":
                    text = event["Properties"].get("spark.job.description") or ""
                    stages |= set(event["Stage IDs"]) if text.startswith(described or "") else set()
                ended = kind == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] == "Success"
                if ended and event["Stage ID"] in stages:
                    found[event["Task Info"]["Executor ID"]] += 1
        return found


def skip_without_namespaces() -> None:
    """Skips a test where a process cannot have mounts of its own."""
    try:
        done = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode
    except FileNotFoundError:
        done = 1
    if done:
        pytest.skip("no mount namespaces here: they need Linux and root")


@contextmanager
def cluster(
    folder: Path, hidden: Sequence[Path], environment: Mapping[str, str], workers: int = 2
) -> Iterator[Cluster]:
    """A running cluster with a core and an executor per worker. hidden: folders that workers see empty. environment: of the workers.

    folder: of logs and working directories, outside of the hidden ones.
    """
    skip_without_spark()
    skip_without_namespaces()
    import pyspark

    home = Path(pyspark.__file__).parent
    java = str(java_home(find_java(os.environ), folder / "java"))
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SPARK", "PYSPARK", "FLOWQL"))}
    common = {**bare, "SPARK_HOME": str(home), "JAVA_HOME": java, "SPARK_LOCAL_IP": "127.0.0.1"}
    common |= {"SPARK_NO_DAEMONIZE": "1", "SPARK_DAEMON_MEMORY": "256m"}
    port, page = _free(), _free()
    started: list[subprocess.Popen[bytes]] = []
    events = folder / "events"
    events.mkdir(parents=True)
    at = ["--host", "127.0.0.1"]
    try:
        master = [str(home / "bin" / "spark-class"), MASTER, *at, "--port", str(port), "--webui-port", str(page)]
        started.append(_start(master, common, folder / "master.log"))
        address = f"spark://127.0.0.1:{port}"
        for n in range(workers):
            covers = "".join(f"mount -t tmpfs none {shlex.quote(str(h))} && " for h in hidden)
            options = [*at, "--cores", "1", "--memory", "700m", "--webui-port", str(_free())]
            worker = [
                str(home / "bin" / "spark-class"),
                WORKER,
                *options,
                "--work-dir",
                str(folder / f"work{n}"),
                address,
            ]
            command = ["unshare", "-m", "sh", "-c", f"cd / && {covers}exec {shlex.join(worker)}"]
            started.append(_start(command, {**common, **environment}, folder / f"worker{n}.log"))
        _await(page, workers, folder)
        conf = {
            "spark.flowql.startTimeout": "2min",  # on a machine with other work
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK,
            "spark.driver.extraJavaOptions": QUICK,
            "spark.executor.cores": "1",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.dir": events.as_uri(),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # tasks wait for both executors
        }
        yield Cluster(address, events, conf)
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(command: Sequence[str], environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as to:
        return subprocess.Popen(command, env=environment, stdout=to, stderr=to, cwd="/")


def _free() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _await(page: int, workers: int, folder: Path) -> None:
    """Until the master knows its workers."""
    end = time.monotonic() + WAIT_S
    alive = -1
    while time.monotonic() < end:
        try:
            with urlopen(f"http://127.0.0.1:{page}/json/", timeout=10) as answer:
                alive = json.load(answer)["aliveworkers"]
        except (OSError, ValueError):  # before its pages are ready, every address has the page of all applications
            alive = -1
        if alive == workers:
            return
        time.sleep(0.2)
    logs = "\n".join(f.read_text(errors="replace")[-2000:] for f in sorted(folder.glob("*.log")))
    raise AssertionError(f"{alive} of {workers} workers came up:\n{logs}")

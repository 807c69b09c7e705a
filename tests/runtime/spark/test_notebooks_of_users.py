"""FlowQL in a notebook that has its own Spark on `local[*]`: a real kernel, and a real SIGINT in the middle of a run."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

pytest.importorskip("pyspark")

from flowql.runtime.spark.java import find_java, java_home
from tests.spark_here import skip_without_spark

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]
PROJECT = """\
name: shop
sql: [shop.sql]
targets:
  spark:
    engine: spark
    spark: {files: {SPENT: {format: parquet, path: out/spent}}}
"""
SQL = """\
CREATE STREAM ORDERS (ID BIGINT KEY, CUSTOMER BIGINT) WITH (KAFKA_TOPIC='orders', PARTITIONS=4, VALUE_FORMAT='JSON');
CREATE STREAM SOME AS SELECT ID, CUSTOMER FROM ORDERS WHERE ID >= 0;
CREATE TABLE SPENT AS SELECT CUSTOMER, COUNT(*) AS N FROM SOME GROUP BY CUSTOMER;
"""
SESSION = """
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "Asia/Kolkata").config("spark.sql.shuffle.partitions", "2")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
spark.range(3).createOrReplaceTempView("mine")
rows = spark.readStream.format("rate").load().writeStream.format("memory").queryName("other")
other = rows.trigger(processingTime="1 hour").start()
while not other.recentProgress: pass
def state():
    kept = spark.sparkContext._jsc.getPersistentRDDs().size()
    return spark.conf.getAll, [t.name for t in spark.catalog.listTables()], SparkSession.getActiveSession() is spark, kept
def orders(n):
    return spark.range(n).selectExpr("id AS ID", "id % 3 AS CUSTOMER", "id AS ROWTIME")
before = state()
"""
SUCCEEDS = """
from flowql.spark import run
done = run(".", spark, {"ORDERS": orders(100)}, target="spark")
assert [(q.query, q.rows_in, q.rows_out, q.late, q.dead) for q in done.queries] == [
    ("CSAS_SOME", 100, 100, 0, 0), ("CTAS_SPENT", 100, 3, 0, 0)], done.queries
assert sorted(map(tuple, done.results["SPENT"].select("CUSTOMER", "N").collect())) == [(0, 34), (1, 33), (2, 33)]
done.close()
assert state() == before
"""
FAILS = """
failing = orders(100).selectExpr("ID", "CUSTOMER", "CASE WHEN ID = 7 THEN CAST(raise_error('seven') AS BIGINT) ELSE ROWTIME END AS ROWTIME")
try:
    run(".", spark, {"ORDERS": failing}, target="spark")
except Exception as error:
    assert "seven" in str(error), error
else:
    raise AssertionError("it did not fail")
assert state() == before
"""
INTERRUPTED = """
import os
open("pid.unready", "w").write(str(os.getpid()))
os.rename("pid.unready", "pid")
run(".", spark, {"ORDERS": orders(10**13)}, target="spark")
"""
AFTER = """
import time
for _ in range(600):  # a job that is cancelled takes a moment to end
    if not spark.sparkContext.statusTracker().getActiveJobsIds(): break
    time.sleep(0.1)
assert not spark.sparkContext.statusTracker().getActiveJobsIds()
assert state() == before
assert other.isActive and other.exception() is None
assert spark.read.parquet("out/spent").count() == 3  # of the run that succeeded
"""
CELLS = (SESSION, SUCCEEDS, FAILS, INTERRUPTED, AFTER, AFTER + SUCCEEDS)


@pytest.mark.turns("files")
def test_a_notebook_keeps_its_session_after_success_failure_and_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settings, views, kept rows, which session is active, and its other stream; no job of the interrupted run goes on."""
    skip_without_spark()
    (tmp_path / "flowql.yaml").write_text(PROJECT)
    (tmp_path / "shop.sql").write_text(SQL)
    java = java_home(find_java(os.environ), tmp_path / "java")
    for name, value in {
        "JAVA_HOME": java,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": ROOT,
        "IPYTHONDIR": tmp_path / "ipython",
    }.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.chdir(tmp_path)
    said = {"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": list(map(_cell, CELLS))}
    notebook = nbformat.reads(json.dumps(said), as_version=4)
    client = NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": "."}})
    with client.setup_kernel():
        for number, cell in enumerate(notebook.cells):
            if cell.source != INTERRUPTED:
                client.execute_cell(cell, number)
                continue
            waiting = threading.Thread(target=_interrupt, args=(tmp_path / "pid",))
            waiting.start()
            with pytest.raises(CellExecutionError, match="KeyboardInterrupt"):
                client.execute_cell(cell, number)
            waiting.join()


def _cell(source: str) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": source}


def _interrupt(pid: Path) -> None:
    """Sends the kernel's process a SIGINT when the run has begun."""
    while not pid.exists():
        time.sleep(0.05)
    time.sleep(3)  # the first job is under way
    os.kill(int(pid.read_text()), signal.SIGINT)

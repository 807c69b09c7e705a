"""A standalone cluster whose workers see neither the project's folder nor this checkout: `tests.spark_cluster`."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

pytest.importorskip("pyspark")

from flowql.spark import run, start
from tests.runtime.spark.cluster_job import DESCRIBED
from tests.runtime.spark.connect_job import IN_PYTHON, results, write_inputs
from tests.runtime.spark.test_batches_over_files import PROJECT, SQL, write_lake
from tests.runtime.spark.test_native_share import queries
from tests.spark_cluster import Cluster, cluster
from tests.tidy.tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.turns("files")]
BARE = str(Path(sys.executable).resolve())  # without the packages of this environment
PYTHON = str(Path(sys.prefix).resolve() / "bin" / "python")
TARGETS = """\
  cluster: {{engine: spark, spark: {{master: '{master}', conf: {conf}}}}}
"""
# Over files that all machines see.
FILES = """\
name: lake
sql: [lake.sql]
targets:
  here: {{engine: spark, spark: {{late_rows: none, shuffle_partitions: 2, files: {{{read}, {here}}}}}}}
  there: {{engine: spark, spark: {{master: '{master}', late_rows: none, shuffle_partitions: 2, conf: {conf}, files: {{{read}, {there}}}}}}}
"""
READ = ", ".join(
    f"{topic}: {{{{format: {form}, path: '{{shared}}/{topic}'{more}}}}}"
    for topic, form, more in (
        ("orders", "parquet", ""),
        ("customers", "json", ""),
        ("prices", "parquet", ", sequence_by: seq, delete_when: op = 'D'"),
    )
)
STREAM = (
    SQL[: SQL.index("CREATE TABLE PRICES")] + SQL[SQL.index("CREATE STREAM NAMED") : SQL.index("CREATE TABLE PRICED")]
)
RESULTS = ("DAYS", "NAMED", "PRICED", "PER_NAME")


def checkouts() -> list[Path]:
    """The folders from which this Python would import FlowQL: those of this checkout, and of an editable installation."""
    found = {ROOT / "flowql", ROOT / "compiler", ROOT / "runtime", ROOT / "tests"}
    for file in metadata.distribution("flowql").files or ():
        if re.fullmatch(r"__editable___flowql_\w+_finder\.py", file.name):
            found |= {Path(p) for p in importlib.import_module(file.stem).MAPPING.values()}
    return sorted({p.resolve() for p in found if p.resolve().is_dir()})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def workers(tmp_path: Path, project: Path) -> Iterator[Cluster]:
    with cluster(tmp_path / "cluster", [project, *checkouts()], {"PYSPARK_PYTHON": PYTHON}) as made:
        yield made


def _typed(folder: Path, *words: str) -> tuple[int, str]:
    """A module in a process of its own, as a process has one Spark: its exit code and what it said."""
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": PYTHON}
    done = subprocess.run(
        [PYTHON, "-m", *words], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_an_embedded_log_that_workers_do_not_see_is_named_with_their_host(workers: Cluster, project: Path) -> None:
    """FlowQL itself goes to them. The executors of both workers were asked."""
    conf = {**workers.conf, "spark.pyspark.python": PYTHON}
    (project / "flowql.yaml").write_text(PROJECT + TARGETS.format(master=workers.master, conf=json.dumps(conf)))
    (project / "lake.sql").write_text(SQL)
    code, said = _typed(project, "flowql", "run", "--bounded", "-t", "cluster")
    assert code == 1, said
    assert re.search(rf"error\[FQ4118\]: worker \S+ cannot read {re.escape(str(project))}", said), said
    assert len(workers.tasks()) == 2, "not both executors were asked"


def _project_over_files(
    workers: Cluster, project: Path, shared: Path, conf: dict[str, str], names: tuple[str, ...]
) -> None:
    def written(folder: str) -> str:
        return ", ".join(f"{name}: {{format: parquet, path: '{shared}/{folder}/{name}'}}" for name in names)

    said = {"read": READ.format(shared=shared), "here": written("here"), "there": written("there")}
    (project / "flowql.yaml").write_text(FILES.format(**said, master=workers.master, conf=json.dumps(conf)))


def _rows(folder: Path) -> list[str]:
    found = duckdb.sql(f"FROM read_parquet('{folder}/*.parquet')")
    return sorted(map(repr, found.select(*(f'"{c}"' for c in sorted(found.columns))).fetchall()))


def test_a_packaged_project_gives_on_a_cluster_what_it_gives_here(
    workers: Cluster, project: Path, spark: SparkSession, tmp_path: Path
) -> None:
    """A batch. The Python of the workers has no packages: they come with FlowQL."""
    shared = tmp_path / "shared"
    write_lake(shared)
    (project / "lake.sql").write_text(SQL)
    conf = {**workers.conf, "spark.pyspark.python": BARE, "spark.pyspark.driver.python": PYTHON}
    _project_over_files(workers, project, shared, conf, RESULTS)
    _submitted(workers, project, ["--dependencies"], [])
    run(project, spark, target="here").close()
    assert_same(shared, RESULTS)


def test_a_packaged_project_streams_on_a_cluster_what_it_streams_here(
    workers: Cluster, project: Path, spark: SparkSession, tmp_path: Path
) -> None:
    """The Python of the workers has the packages that FlowQL needs, and not FlowQL."""
    shared = tmp_path / "shared"
    write_lake(shared)
    (project / "lake.sql").write_text(STREAM)
    _project_over_files(workers, project, shared, {**workers.conf, "spark.pyspark.python": PYTHON}, ("NAMED",))
    places = {where: str(shared / "checkpoints" / where) for where in ("here", "there")}
    _submitted(workers, project, [], ["--checkpoint", places["there"], "--available-now"])
    started = start(project, spark, target="here", checkpoint=places["here"], trigger={"availableNow": True})
    for query in started.values():
        query.awaitTermination()
    assert_same(shared, ("NAMED",))


def _submitted(workers: Cluster, project: Path, package: list[str], submit: list[str]) -> None:
    """Packages a project and runs it on the cluster, whose executors all take part."""
    code, said = _typed(project, "flowql", "spark", "package", "-t", "there", "--into", "made", *package)
    assert code == 0, said
    before = workers.tasks()
    code, said = _typed(project, "flowql", "spark", "submit", "made", *submit)
    assert code == 0, said
    assert len(workers.tasks() - before) == 2, said


def assert_same(shared: Path, names: tuple[str, ...]) -> None:
    for name in names:
        there, here = (_rows(shared / where / name) for where in ("there", "here"))
        assert there == here, name
        assert here, name


def test_queries_on_a_cluster_give_what_they_give_here(
    workers: Cluster, project: Path, spark: SparkSession, tmp_path: Path
) -> None:
    """Nexmark's and the quickstart's over Parquet, and one of the exact way, whose tasks the executors of both workers run."""
    lake = str(tmp_path / "shared")
    write_inputs(spark, lake)
    conf = {**workers.conf, "spark.master": workers.master, "spark.sql.shuffle.partitions": "2"}
    code, said = _typed(project, "tests.runtime.spark.cluster_job", json.dumps(conf), lake)
    assert code == 0, said
    told = json.loads(said[said.index('{"frames"') :].splitlines()[0])
    assert told["frames"] == results(spark, lake)
    assert set(told["frames"]) == {q.sink for _, q in queries()} - {IN_PYTHON}
    assert told["exact is the runtime's"]
    assert len(workers.tasks(DESCRIBED)) == 2, workers.tasks(DESCRIBED)

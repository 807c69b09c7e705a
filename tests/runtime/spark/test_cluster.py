"""A standalone cluster whose workers see neither the project's folder nor this checkout: `tests.spark_cluster`."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.distribution import build_wheel
from tests.runtime.spark.test_batches_over_files import PROJECT, SQL
from tests.spark_cluster import Cluster, cluster
from tests.tidy.tree import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.turns("files")]
PYTHON = str(Path(sys.prefix).resolve() / "bin" / "python")
TARGETS = """\
  cluster: {{engine: spark, spark: {{master: '{master}', conf: {conf}}}}}
  shipped: {{engine: spark, spark: {{master: '{master}', conf: {shipped}}}}}
"""


def _checkouts() -> list[Path]:
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
    with cluster(tmp_path / "cluster", [project, *_checkouts()], {"PYSPARK_PYTHON": PYTHON}) as made:
        yield made


def _typed(folder: Path, *words: str) -> tuple[int, str]:
    """A module in a process of its own, as a process has one Spark: its exit code and what it said."""
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [PYTHON, "-m", *words], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_what_workers_lack_is_named_with_their_host(workers: Cluster, project: Path, tmp_path: Path) -> None:
    """FlowQL, and once it is shipped the embedded log. The executors of both workers were asked."""
    conf = {**workers.conf, "spark.pyspark.python": PYTHON}
    package = tmp_path / "flowql.zip"
    shutil.copy(build_wheel(tmp_path / "wheel"), package)
    shipped = {**conf, "spark.submit.pyFiles": str(package)}
    targets = TARGETS.format(master=workers.master, conf=json.dumps(conf), shipped=json.dumps(shipped))
    (project / "flowql.yaml").write_text(PROJECT + targets)
    (project / "lake.sql").write_text(SQL)
    for target, reason in (("cluster", "has no FlowQL"), ("shipped", f"cannot read {project}")):
        before = workers.tasks()
        code, said = _typed(project, "flowql", "run", "--bounded", "-t", target)
        assert code == 1, said
        assert re.search(rf"error\[FQ4118\]: worker \S+ {re.escape(reason)}", said), said
        assert len(workers.tasks() - before) == 2, "not both executors were asked"

"""Files, results and checkpoints at s3a addresses, on an S3 server of this machine: `tests.s3`. Skipped without the jars.

What is written there equals what the same session writes into folders.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from tests.delta_jars import PLUGGED, delta_jars
from tests.runtime.spark.connect_job import IN_PYTHON
from tests.runtime.spark.s3_job import REFUSED
from tests.runtime.spark.test_batches_over_files import SQL, write_lake
from tests.runtime.spark.test_cluster import PYTHON, _typed, checkouts
from tests.runtime.spark.test_native_share import queries
from tests.s3 import BUCKET, KEY, S3, SECRET, s3_jars, s3_server
from tests.spark_cluster import cluster
from tests.spark_here import skip_without_spark

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = [pytest.mark.spark, pytest.mark.turns("files")]
# Results that Spark's streams give as well.
TWO = SQL[: SQL.index("CREATE TABLE PRICES")] + SQL[SQL.index("CREATE STREAM NAMED") : SQL.index("CREATE TABLE PRICED")]
DAYS = SQL[SQL.index("CREATE TABLE DAYS") : SQL.index("CREATE STREAM NAMED")]
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3]:
    s3_jars()
    skip_without_spark()
    with s3_server(tmp_path / "s3") as made:
        yield made


def properties(server: S3) -> dict[str, str]:
    """Of a Spark that reaches the server: also one to which a bucket is closed, and one at an endpoint where nothing listens."""
    path = ":".join(map(str, s3_jars()))
    return {
        **server.properties(),
        "spark.driver.extraClassPath": path,
        "spark.executor.extraClassPath": path,
        "spark.driver.extraJavaOptions": QUICK,
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.hadoop.fs.s3a.bucket.forbidden.access.key": "AKIAWRONG",
        "spark.hadoop.fs.s3a.bucket.silent.endpoint": "http://127.0.0.1:1",
    }


def with_delta(conf: dict[str, str]) -> dict[str, str]:
    """The same Spark with Delta's jars."""
    jars = ":".join(map(str, delta_jars()))
    path = {n: f"{conf[n]}:{jars}" for n in ("spark.driver.extraClassPath", "spark.executor.extraClassPath")}
    return {**conf, **PLUGGED, **path, "spark.databricks.delta.snapshotPartitions": "1"}


def write_project(project: Path, server: S3) -> None:
    """Orders and customers in folders and in the bucket, orders once more in two portions; targets for all of `s3_job`."""
    shared = project / "files"
    write_lake(shared)
    files = server.files()
    for file in shared.rglob("*"):
        if file.is_file():
            with files.open_output_stream(f"{BUCKET}/{file.relative_to(shared)}") as to:
                to.write(file.read_bytes())
    for day, folder in enumerate(sorted((shared / "orders").iterdir())):
        portion = shared / f"portion{1 + day // 6}"
        portion.mkdir(exist_ok=True)
        shutil.copy(next(folder.iterdir()), portion / f"{day}.parquet")
    targets = {
        "here": _files(str(shared / "orders"), str(shared / "customers"), str(shared), "DAYS", "NAMED"),
        "there": _files("s3a://lake/orders", "s3a://lake/customers", "s3a://lake/there", "DAYS", "NAMED"),
        "streams": _files("s3a://lake/portions", "s3a://lake/customers", "s3a://lake/streams", "NAMED"),
        "again": _files("s3a://lake/portions", "s3a://lake/customers", "s3a://lake/again", "NAMED"),
    }
    targets |= {n: _files(f"s3a://{n}/orders", "s3a://lake/customers", "s3a://lake/none", "NAMED") for n in REFUSED}
    said = {
        name: {"engine": "spark", "spark": {"late_rows": "none", "files": files}} for name, files in targets.items()
    }
    (project / "flowql.yaml").write_text(json.dumps({"name": "lake", "sql": ["lake.sql"], "targets": said}))
    (project / "lake.sql").write_text(TWO + DAYS)


def _files(orders: str, customers: str, into: str, *results: str) -> Mapping[str, Any]:
    read = {"orders": {"format": "parquet", "path": orders}, "customers": {"format": "json", "path": customers}}
    return read | {name: {"format": "parquet", "path": f"{into}/{name}"} for name in results}


def assert_right(said: str) -> None:
    told = json.loads(said[said.index('{"batch"') :].splitlines()[0])
    assert told["batch"] == {"DAYS": True, "NAMED": True}
    assert told["read"] == [300, 300], "a restart reads what has come since"
    assert told["streamed"]
    for place, found in (("orders", told["refused"]), ("checkpoints", told["refused checkpoint"])):
        for bucket, (code, text, seconds) in found.items():
            assert (code, seconds < 30) == ("FQ4120", True), (bucket, code, text, seconds)
            assert f"s3a://{bucket}/{place}" in text, text
            assert "help: " in text, text
    assert not [secret for secret in (KEY, SECRET, "AKIAWRONG") if secret in said]


def test_files_results_and_checkpoints_at_s3a(server: S3, tmp_path: Path) -> None:
    """A batch, a stream that is started again, and addresses that cannot be used."""
    project = tmp_path / "project"
    project.mkdir()
    write_project(project, server)
    conf = {**properties(server), "spark.master": "local[2]"}
    code, said = _typed(project, "tests.runtime.spark.s3_job", json.dumps(conf), str(project))
    assert code == 0, said
    assert_right(said)


def test_a_cluster_whose_machines_share_an_object_store_alone(server: S3, tmp_path: Path) -> None:
    """Nexmark's and the quickstart's queries over Parquet and Delta there give what one process gives, and so does a stream with checkpoints there.
    Both executors have run tasks.
    """
    project = tmp_path / "project"
    project.mkdir()
    write_project(project, server)
    with cluster(tmp_path / "cluster", [project, *checkouts()], {"PYSPARK_PYTHON": PYTHON}) as workers:
        told = []
        for more in ({"spark.master": "local[2]"}, {**workers.conf, "spark.master": workers.master}):
            conf = json.dumps({**with_delta(properties(server)), **more})
            code, said = _typed(project, "tests.runtime.spark.s3_cluster_job", conf, str(project))
            assert code == 0, said
            told.append(json.loads(said[said.index('{"frames"') :].splitlines()[0]))
        assert told[0] == told[1]
        assert told[0]["of tables"] == told[0]["frames"]
        assert set(told[0]["frames"]) == {q.sink for _, q in queries()} - {IN_PYTHON}
        assert told[0]["read"] == [600, 0]
        here, there = (_sorted(server.read(f"{target}/NAMED")) for target in ("streams", "again"))
        assert here == there
        assert here
        assert len(workers.tasks()) == 2, workers.tasks()


def _sorted(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))

"""What a target says about Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowql.compiler.diagnostics.render import render
from flowql.config.load import read_project
from flowql.config.project import Project
from flowql.runtime.spark.settings import SparkSettings, TopicFiles


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(target: str) -> Project:
    Path("flowql.yaml").write_text(f"name: x\ntargets:\n  s: {target}\n", encoding="utf-8")
    return read_project(Path("."), environment={})


def test_all_that_a_target_says_about_spark(folder: Path) -> None:
    project = read(
        "{engine: spark, memory: 2 GB, spark: {master: 'local[3]', late_rows: none, shuffle_partitions: 6, hash_buckets: {TOTALS: 16}, conf: {a.b: 1, c: true}, "
        "files: {bids: {format: parquet, path: data/bids}, old: {format: csv, path: 's3a://b/old', options: {sep: ';'}}}}}"
    )
    assert not project.diagnostics
    assert project.target.engine == "spark"
    assert project.target.spark == SparkSettings(
        master="local[3]",
        conf={"a.b": "1", "c": "true"},
        late_rows="none",
        shuffle_partitions=6,
        hash_buckets={"TOTALS": 16},
        files={
            "bids": TopicFiles("parquet", str((folder / "data/bids").resolve())),
            "old": TopicFiles("csv", "s3a://b/old", {"sep": ";"}),
        },
        memory_bytes=2 << 30,
    )


def test_tables_in_the_place_of_files(folder: Path) -> None:
    project = read(
        "{engine: spark, spark: {files: {a: {table: lake.a}, b: {format: delta, table: lake.b, write: changes, repartition: 2}, "
        "c: {format: delta, path: c, partition_by: DAY}}}}"
    )
    assert not project.diagnostics
    assert project.target.spark.files == {
        "a": TopicFiles("table", table="lake.a"),
        "b": TopicFiles("delta", table="lake.b", write="changes", repartition=2),
        "c": TopicFiles("delta", str((folder / "c").resolve()), partition_by=("DAY",)),
    }


@pytest.mark.parametrize(
    ("target", "master"),
    [
        ("{engine: spark}", "local[*]"),
        ("{engine: spark, threads: 3}", "local[3]"),
        ("{engine: spark, threads: 3, spark: {master: yarn}}", "yarn"),
    ],
)
def test_where_it_runs(target: str, master: str) -> None:
    assert read(target).target.spark.master == master


@pytest.mark.parametrize(
    ("target", "code", "title"),
    [
        ("{spark: {master: 'local[2]'}}", "FQ3003", "`spark` is for targets that run on Spark"),
        ("{engine: spark, spark: {mastr: x}}", "FQ3003", "mastr"),
        ("{engine: spark, spark: {late_rows: some}}", "FQ3004", "late_rows"),
        ("{engine: spark, spark: {shuffle_partitions: 0}}", "FQ3004", "shuffle_partitions"),
        ("{engine: spark, spark: {hash_buckets: {TOTALS: 0}}}", "FQ3004", "TOTALS"),
        ("{engine: spark, spark: {files: {t: {format: parquet}}}}", "FQ3006", "path"),
        ("{engine: spark, spark: {files: {t: {path: x}}}}", "FQ3006", "format"),
        (
            "{engine: spark, spark: {files: {t: {format: delta, path: x, table: a.b}}}}",
            "FQ3003",
            "a path and are a table",
        ),
        ("{engine: spark, spark: {files: {t: {format: csv, table: a.b}}}}", "FQ3003", "the catalogue knows"),
        (
            "{engine: spark, spark: {files: {t: {format: csv, path: x, write: state}}}}",
            "FQ3003",
            "`write` is for Delta",
        ),
        ("{engine: spark, spark: {conf: {spark.sql.session.timeZone: PST}}}", "FQ4106", "always UTC"),
        ("{engine: spark, spark: {conf: {spark.master: yarn}}}", "FQ4106", "a separate key"),
    ],
)
def test_mistakes(target: str, code: str, title: str) -> None:
    found = read(target).diagnostics
    assert [d.code for d in found] == [code]
    assert title in found[0].title
    assert found[0].span.line == 3


def test_saying_what_holds_anyway_is_no_mistake() -> None:
    project = read("{engine: spark, spark: {conf: {spark.sql.session.timeZone: utc}}}")
    assert not project.diagnostics


def test_credentials_in_an_address_are_refused_and_not_shown() -> None:
    """The line of the mistake is not shown, as it holds them."""
    (found,) = read(
        "{engine: spark, spark: {files: {t: {format: csv, path: 's3a://AKIA:wJalr@lake/orders'}}}}"
    ).diagnostics
    assert found.code == "FQ3004"
    assert "`t` holds credentials" in found.title
    assert "wJalr" not in render([found])
    assert not read("{engine: spark, spark: {files: {t: {format: csv, path: 'abfs://lake@x.net/t'}}}}").diagnostics


def test_checkpoints_are_in_a_folder_or_at_an_address(folder: Path) -> None:
    def said(place: str) -> str:
        project = read(f"{{engine: spark, spark: {{checkpoint: '{place}'}}}}")
        assert not project.diagnostics
        return project.target.spark.checkpoint

    assert said("s3a://lake/flowql/") == "s3a://lake/flowql"
    assert said("hdfs:///flowql") == "hdfs:///flowql"
    assert said("shared") == str((folder / "shared").resolve())
    assert said("file:/data/shared") == "/data/shared"
    (found,) = read("{engine: spark, spark: {checkpoint: 's3a:lake'}}").diagnostics
    assert (found.code, found.span.line) == ("FQ3004", 3)
    (found,) = read("{engine: spark, spark: {checkpoint: 's3a://AKIA:wJalr@lake/x'}}").diagnostics
    assert "`checkpoint` holds credentials" in found.title
    assert "wJalr" not in render([found])


@pytest.mark.parametrize(
    ("master", "cores", "local"),
    [
        ("local", 1, True),
        ("local[3]", 3, True),
        ("local[*]", 8, True),
        ("local[4, 2]", 4, True),
        ("local[*, 2]", 8, True),
        ("local-cluster[2,1,1024]", None, False),
        ("yarn", None, False),
    ],
)
def test_cores_of_a_master(master: str, cores: int | None, local: bool) -> None:
    settings = SparkSettings(master=master)
    assert (settings.cores(8), settings.is_local) == (cores, local)

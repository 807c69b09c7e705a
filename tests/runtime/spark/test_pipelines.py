"""`flowql export spark-pipelines`: what fits, what is refused, and that `spark-pipelines` gives what a batch of FlowQL gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

pytest.importorskip("pyspark")

from flowql.cli import main
from flowql.spark import run
from tests.runtime.spark.test_batches_over_files import PROJECT, SQL, write_lake
from tests.runtime.spark.test_connect import connected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWS = ("DAYS", "NAMED", "PRICED", "PER_NAME")
# Results beside those that fit, each with a word of the reason for which it does not.
REFUSED = {
    "LISTED": (
        "CREATE TABLE LISTED AS SELECT CUSTOMER, COLLECT_LIST(ID) AS IDS FROM ORDERS GROUP BY CUSTOMER;",
        "COLLECT",
    ),
    "FROM_TOPIC": ("CREATE STREAM FROM_TOPIC AS SELECT * FROM CLICKS;", "has no files"),
    "OF_IT": ("CREATE STREAM OF_IT AS SELECT * FROM FROM_TOPIC;", "has no files"),
    "days": ("CREATE STREAM `days` AS SELECT * FROM ORDERS;", "the result DAYS"),
    "a day": ("CREATE STREAM `a day` AS SELECT * FROM ORDERS;", "not every catalogue"),
    "STATED": ("CREATE STREAM STATED AS SELECT * FROM SHOPS;", "the table stated"),
}
OTHERS = """\
CREATE STREAM CLICKS (ID BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='clicks', PARTITIONS=4, VALUE_FORMAT='JSON');
CREATE STREAM SHOPS (ID BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='shops', PARTITIONS=4, VALUE_FORMAT='JSON');
"""


def _project(folder: Path, sql: str = SQL, files: str = "") -> None:
    (folder / "flowql.yaml").write_text(PROJECT + files)
    (folder / "lake.sql").write_text(sql)


def _typed(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(words)
    return int(end.value.code or 0)


def test_what_fits_is_exported_and_the_rest_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    statements = "\n".join(statement for statement, _ in REFUSED.values())
    _project(tmp_path, SQL + OTHERS + statements, "        shops: {table: stated}\n")
    assert _typed("export", "spark-pipelines", "-t", "spark", "--into", "out") == 0
    told = capsys.readouterr()
    assert told.out.startswith(f"{', '.join(VIEWS)} as materialized views in out: ")
    for name, (_, reason) in REFUSED.items():
        assert any(line.startswith(f"  {name}: ") and reason in line for line in told.err.splitlines()), (
            name,
            told.err,
        )
    assert len(told.err.splitlines()) == 1 + len(REFUSED)
    module = (tmp_path / "out" / "results.py").read_text()
    compile(module, "results.py", "exec")
    assert module.count("@dp.materialized_view") == len(VIEWS)


def test_nothing_is_written_where_nothing_fits_or_something_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _project(tmp_path, OTHERS + REFUSED["FROM_TOPIC"][0])
    assert _typed("export", "spark-pipelines", "-t", "spark", "--into", "out") == 1
    assert "error[FQ4110]: no result of lake can be a materialized view" in capsys.readouterr().err
    assert _typed("export", "spark-pipelines", "-t", "default", "--into", "out") == 1
    assert "error[FQ5203]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    _project(tmp_path)
    assert _typed("export", "spark-pipelines", "-t", "spark", "--into", ".") == 1
    assert "error[FQ5004]" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.turns("files")
def test_a_run_of_spark_pipelines_gives_what_a_batch_gives(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of results of both, and all columns that the project declares; DuckDB reads the tables of the pipeline."""
    write_lake(tmp_path / "lake")
    _project(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert _typed("export", "spark-pipelines", "-t", "spark", "--into", "out") == 0
    import pyspark

    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    for verb in ("dry-run", "run"):
        connected(tmp_path, "tests.runtime.spark.pipelines_job", verb, str(tmp_path / "out" / "spark-pipeline.yml"))
    done = run(tmp_path, spark, target="spark")
    for name in VIEWS:
        view = duckdb.sql(f"FROM '{tmp_path}/spark-warehouse/{name.lower()}/*.parquet'")
        batch = done.results[name]
        columns = [c for c in batch.columns if c in view.columns]
        assert len(columns) >= 2
        assert {*batch.columns} - {*columns} <= {"ROWTIME"}
        there = sorted(map(repr, view.select(*(f'"{c}"' for c in columns)).fetchall()))
        assert there == sorted(repr(tuple(row)) for row in batch.select(*columns).collect()), name
        assert there
    done.close()

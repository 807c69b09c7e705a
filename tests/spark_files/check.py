"""One seed: files, results of the lowered project, and what DuckDB says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
from pyspark.sql.utils import is_remote

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.runtime.spark.engine.over_files import FileHistory
from flowql.runtime.spark.frames.lower import lower
from flowql.runtime.spark.settings import SparkSettings, TopicFiles
from flowql.spark import TableRows
from tests.spark_files import data
from tests.spark_files.queries import PROJECT, QUERIES, VIEWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Few rows: compiling a plan, and adapting it to what its stages gave, costs more than the stages.
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    # It counts wall time: a process that is stopped for minutes, as long runs in the background are, would fail when it goes on.
    "spark.sql.broadcastTimeout": "-1",
}
_PYTHON = re.compile(r"\w+(Python|Arrow|Pandas)\b")
TABLES = {"D": TableRows(delete_when="OP = 'd'"), "E": TableRows(sequence_by=("SEQ",))}


@cache
def plan() -> Plan:
    compiled = compile_project([SourceText("project.sql", PROJECT)])
    assert compiled.ok, compiled.diagnostics
    return compiled.plan


@contextmanager
def results(spark: SparkSession, folder: Path, seed: int) -> Iterator[dict[str, DataFrame]]:
    """Over frames of the files, and every other seed over the files as a target names them."""
    if seed % 2:
        read = spark.read.option("mergeSchema", "true")
        yield lower(plan(), {n: read.parquet(str(folder / n)) for n in data.SCHEMAS}, tables=TABLES)
        return
    files = {}
    for name in data.SCHEMAS:
        rows = TABLES.get(name, TableRows())
        assert rows.delete_when is None or isinstance(rows.delete_when, str)
        files[name.lower()] = TopicFiles(
            "parquet", str(folder / name), sequence_by=rows.sequence_by, delete_when=rows.delete_when
        )
    history = FileHistory(spark, plan(), SparkSettings(files=files))
    yield {q.sink: history.result(q.sink) for q in plan().queries}
    history.close()  # or Spark would keep rows, and compare every plan with theirs


def differences(spark: SparkSession, folder: Path, seed: int) -> Iterator[str]:
    """What Spark and DuckDB say differently about the files of a seed, and where Spark asks Python: texts."""
    data.write(folder, seed)
    database = duckdb.connect()
    database.execute(VIEWS.format(folder=folder))
    with results(spark, folder, seed) as given:
        yield from _compared(given, database, seed)


def _compared(given: dict[str, DataFrame], database: duckdb.DuckDBPyConnection, seed: int) -> Iterator[str]:
    connected = is_remote()
    for name, (_, sql) in QUERIES.items():
        expected = _rows(database.sql(sql).fetchall())
        found = _rows(given[name].collect())
        if not connected and (python := _PYTHON.search(given[name]._jdf.queryExecution().executedPlan().toString())):
            yield f"seed {seed}: {name}: {python[0]} in Spark's plan"
        if not expected:
            yield f"seed {seed}: {name}: DuckDB gives no rows, so nothing was compared"
        if found != expected:
            more, fewer = (sorted((x - y).elements(), key=repr)[:5] for x, y in ((found, expected), (expected, found)))
            yield f"seed {seed}: {name}: Spark alone {more}, DuckDB alone {fewer}"


def _rows(rows: list[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(r) for r in rows)

"""How many of Nexmark's and the quickstart's queries are Spark's own operators: counted over their plans, and looked up in Spark's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flowql.bench.engines import NEXMARK
from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef
from flowql.compiler.plan.types import spark_type
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from flowql.runtime.spark.choose import Mode, choose, is_native
from flowql.runtime.spark.errors import SparkUnsupported
from flowql.runtime.spark.settings import SparkSettings, TopicFiles
from tests.tidy.tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROJECTS = {"nexmark": NEXMARK, "quickstart": ROOT / "pipelines" / "quickstart"}
# Nodes of a plan that run Python, as Spark names them.
PYTHON = re.compile(r"\w*(?:Python|InArrow|InPandas|ArrowEval|TransformWithState)\w*")


def plan_of(project: str) -> Plan:
    return compile_sources(load_project(PROJECTS[project])).plan


def queries() -> Iterator[tuple[Plan, QueryPlan]]:
    for project in PROJECTS:
        plan = plan_of(project)
        yield from ((plan, q) for q in plan.queries)


def outside(plan: Plan) -> list[SourceDef]:
    """The streams and tables that no query writes."""
    written = {s.topic for s in plan.sources if s.query is not None}
    return [s for s in plan.sources if s.topic not in written]


def over_files(plan: Plan) -> SparkSettings:
    return SparkSettings(files={s.topic: TopicFiles("parquet", f"/data/{s.topic}") for s in outside(plan)})


def native(mode: Mode, **settings: Any) -> set[str]:
    """The names of the results that are native."""
    found = set()
    for plan, query in queries():
        given = over_files(plan) if mode == "bounded" else SparkSettings(**settings)
        try:
            if is_native(plan, query, given, mode):
                found.add(query.sink)
        except SparkUnsupported:
            assert mode == "bounded", "every stream runs"
    return found


def executed(frame: DataFrame) -> str:
    """Spark's plan of a frame."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_batches_over_files() -> None:
    every = {q.sink for _, q in queries()}
    assert len(every) == 18
    assert every - native("bounded") == {"WEATHER_IMPACT"}  # MIN of DOUBLE


def test_streams() -> None:
    assert native("streaming") == {"Q0", "Q1", "Q2", "Q3", "QC", "Q5", "FLIGHTS_BY_MANUFACTURER"}
    assert native("streaming", streams="exact") == set()


def test_streams_with_the_semantics_of_spark() -> None:
    windows = {"Q7", "Q5_COUNTS", "DELAYS_BY_CARRIER", "DEPARTURES_BY_AIRPORT"}
    joins = {"FLIGHTS_NAMED", "FLIGHTS_ENRICHED", "FLIGHTS_WITH_WEATHER"}
    assert native("streaming", semantics="spark") == native("streaming") | windows | joins
    assert native("streaming", semantics="spark", streams="exact") == set()
    for plan, query in queries():
        told = [c for c in choose(plan, query, SparkSettings(semantics="spark"), "streaming") if c.differs]
        assert (len(told) == 1) == (query.sink in windows | joins), "the node that differs says so"


@pytest.mark.spark
def test_no_batch_has_a_python_node(spark: SparkSession, tmp_path: Path) -> None:
    from flowql.runtime.spark.frames.lower import lower

    for project in PROJECTS:
        plan = plan_of(project)
        frames = {}
        for s in outside(plan):
            columns = ", ".join(f"`{f.name}` {spark_type(f.type)}" for f in s.schema)
            frames[s.name] = spark.read.schema(f"{columns}, ROWTIME BIGINT").parquet(str(tmp_path))
        asked = [q for q in plan.queries if q.sink != "WEATHER_IMPACT"]
        read = Plan(sources=plan.sources, queries=tuple(asked))
        for name, result in lower(read, frames).items():
            text = executed(result)
            assert "FileScan" in text
            assert not PYTHON.findall(text), name

"""SQL text and structured YAML are one language: the quickstart's largest query has the same plan in both."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from flowql.compiler.plan import codec
from flowql.config.compile import compile_sources
from flowql.config.load import load_project

ROOT = Path(__file__).resolve().parents[3]
QUICKSTART = ROOT / "pipelines" / "quickstart"


def plan_json(folder: Path) -> str:
    compiled = compile_sources(load_project(folder))
    assert compiled.ok, compiled.diagnostics
    return codec.dumps(compiled.plan)


def test_both_forms_of_the_largest_query_give_one_plan(tmp_path: Path) -> None:
    shutil.copy(QUICKSTART / "yaml_form" / "sources.sql", tmp_path)
    shutil.copy(QUICKSTART / "weather_impact.sql", tmp_path)
    (tmp_path / "flowql.yaml").write_text("name: sql_form\nsql: [sources.sql, weather_impact.sql]\n")
    assert plan_json(tmp_path) == plan_json(QUICKSTART / "yaml_form")


def test_a_difference_would_be_seen(tmp_path: Path) -> None:
    shutil.copytree(QUICKSTART / "yaml_form", tmp_path / "p", ignore=shutil.ignore_patterns(".flowql"))
    file = tmp_path / "p" / "flowql.yaml"
    file.write_text(file.read_text().replace("COUNT(*) >= 10", "COUNT(*) >= 11"))
    assert plan_json(tmp_path / "p") != plan_json(QUICKSTART / "yaml_form")


def test_the_schema_says_what_the_reader_does() -> None:
    schema = json.loads((ROOT / "flowql/config/schema.json").read_text())
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["name"]
    target = schema["properties"]["targets"]["additionalProperties"]["properties"]
    assert target["engine"]["enum"] == ["runtime", "spark"]

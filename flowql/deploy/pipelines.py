"""A project for `spark-pipelines` (Spark Declarative Pipelines), as texts by path: a specification, a module with a view per result, the plan."""

from __future__ import annotations

import pprint
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from flowql.compiler.plan import codec
from flowql.compiler.plan.topology import Plan
from flowql.runtime.spark.pipelines import Fitting
from flowql.runtime.spark.settings import SparkSettings, TopicFiles

SPECIFICATION, MODULE, PLAN = "spark-pipeline.yml", "results.py", "plan.json"
_HEAD = '''\
"""Results of the project {project} as materialized views. `flowql export spark-pipelines` writes this file: edit the project, not this."""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from flowql.spark import over_files

FILES = {files}
NAMES = {names}
# Here, as Spark forbids the functions below to look up columns of files.
RESULTS = over_files(Path(__file__).with_name("{plan}"), SparkSession.active(), FILES, NAMES)
'''
_VIEW = """

@dp.materialized_view(name="{name}", comment="{comment}")
def view_{name}() -> DataFrame:
    return RESULTS["{name}"]
"""


def pipelines_project(
    project: str, plan: Plan, found: Fitting, settings: SparkSettings, folder: Path
) -> dict[str, str]:
    """The files of a project in `folder`, which is absolute: the storage of its runs is below it."""
    specification: dict[str, Any] = {
        "name": project,
        "storage": f"{folder.as_uri()}/storage",
        "libraries": [{"glob": {"include": MODULE}}],
    }
    if settings.shuffle_partitions is not None:
        specification["configuration"] = {"spark.sql.shuffle.partitions": str(settings.shuffle_partitions)}
    files = {name: _entry(f) for name, f in found.files.items()}
    head = _HEAD.format(project=project, plan=PLAN, files=_literal(files), names=_literal([*found.results]))
    views = [_VIEW.format(name=name, comment=_comment(plan, name)) for name in found.results]
    return {
        SPECIFICATION: yaml.safe_dump(specification, sort_keys=False),
        MODULE: head + "".join(views),
        PLAN: codec.dumps(plan),
    }


def _literal(value: object) -> str:
    return pprint.pformat(value, width=120, sort_dicts=False)


def _comment(plan: Plan, name: str) -> str:
    return "result of " + ", ".join(q.id for q in plan.queries if q.sink == name)


def _entry(files: TopicFiles) -> Mapping[str, Any]:
    """The options for reading an entry of `files`, without those that are not set."""
    given = asdict(files)
    said = {k: given[k] for k in ("format", "path", "table", "options", "sequence_by", "delete_when") if given[k]}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in said.items()}

"""`flowql export`: projects for other systems, written from this one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from flowql.cli.options import Scope, scoped
from flowql.cli.render import note, print_json, print_text
from flowql.config.load import shown_path
from flowql.deploy.settings import UNSUPPORTED_TARGET
from flowql.deploy.spark_package import SPECIFICATION, pipelines_project
from flowql.errors import CommandError
from flowql.runtime.spark.pipelines import Fitting, fitting
from flowql.runtime.spark.settings import SparkSettings

app = typer.Typer(help="Export projects for other systems.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """A single command would otherwise stand for the whole group."""


@app.command("spark-pipelines")
@scoped("project target output var")
def spark_pipelines(
    scope: Scope,
    into: Annotated[Path, typer.Option("--into", help="The folder of the new project.", metavar="DIR")] = Path(
        "spark-pipelines"
    ),
) -> None:
    """Write a project for `spark-pipelines`.

    The program is part of Spark Declarative Pipelines. Each result over files of the target becomes a materialized
    view, computed from all files in every run. Other results are listed with their reason. If none fits, nothing is
    written.

    flowql export spark-pipelines -t spark --into pipeline
    """
    found, compiled = scope.compile()
    if found.target.engine != "spark":
        title = f"target {found.target.name} has no files that Spark reads: its engine is {found.target.engine}"
        raise CommandError(title, code=UNSUPPORTED_TARGET, help="name a target with  engine: spark  and `files`:  -t")
    if into.is_file() or (into.is_dir() and any(into.iterdir())):
        title = f"{shown_path(into)} exists and is not empty: nothing was written"
        raise CommandError(title, code="FQ5004", help="choose another folder:  --into DIR")
    settings = found.target.spark
    fits = fitting(compiled.plan, settings)
    if not fits.results:
        reasons = "".join(f"\n  {name}: {reason}" for name, reason in fits.refused.items())
        title = f"no result of {found.name} can be a materialized view: nothing was written{reasons}"
        raise CommandError(title, code="FQ4110", help="name files for the sources:  spark: {files: ...}")
    files = pipelines_project(found.name, compiled.plan, fits, settings, into.absolute())
    into.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        (into / path).write_text(text, encoding="utf-8")
    if scope.as_json:
        print_json({"folder": str(into), "files": [*files], "results": fits.results, "refused": dict(fits.refused)})
    else:
        _tell(fits, settings, into, files)


def _tell(fits: Fitting, settings: SparkSettings, into: Path, files: Any) -> None:
    print_text(f"{', '.join(fits.results)} as materialized views in {shown_path(into)}: {', '.join(files)}")
    if fits.refused:
        note("left out:" + "".join(f"\n  {name}: {reason}" for name, reason in fits.refused.items()))
    conf = "".join(f" --conf {shlex.quote(f'{k}={v}')}" for k, v in settings.conf.items())
    typed = f"--remote {shlex.quote(settings.master)}{conf}"
    spec = shlex.quote(str(into / SPECIFICATION))
    print_text(f"\nnow type, with SPARK_HOME set:\n  spark-pipelines {typed} run --spec {spec}")

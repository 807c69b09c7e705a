"""`flowql spark`: a project packaged for the machines of a Spark cluster, and submitted to it."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from flowql.cli.options import Scope, scoped
from flowql.cli.render import note, print_json, print_text
from flowql.config.load import shown_path
from flowql.config.spark import is_address
from flowql.deploy.settings import UNSUPPORTED_TARGET
from flowql.deploy.spark_package import ABOUT, Package, submit_environment, submit_line, write_package
from flowql.errors import CommandError
from flowql.runtime.spark.settings import SparkSettings

app = typer.Typer(help="Package a project for a Spark cluster, and submit it.", no_args_is_help=True)
FOLDER = Path("spark-package")


@app.command("package")
@scoped("project target output var")
def package(
    scope: Scope,
    into: Annotated[Path, typer.Option("--into", help="The folder of the package.", metavar="DIR")] = FOLDER,
    dependencies: Annotated[
        bool,
        typer.Option(
            "--dependencies",
            help="Also write FlowQL's Python packages, for workers with the same Python and kind of machine.",
        ),
    ] = False,
) -> None:
    """Write a package for a Spark cluster.

    It contains FlowQL, the compiled project with its functions, and a job. Queries must read files of the target,
    directly or through other queries. An existing package is replaced. Only its owner can read spark.properties, which
    contains the target's `conf` and its secrets.

    flowql spark package -t spark --into build/shop
    """
    found, compiled = scope.compile()
    if found.target.engine != "spark":
        title = f"target {found.target.name} is not for Spark: its engine is {found.target.engine}"
        raise CommandError(title, code=UNSUPPORTED_TARGET, help="name a target with  engine: spark  and `files`:  -t")
    if into.is_file() or (into.is_dir() and any(into.iterdir()) and not (into / ABOUT).exists()):
        title = f"{shown_path(into)} exists and is not a package: nothing was written"
        raise CommandError(title, code="FQ5004", help="choose another folder:  --into DIR")
    settings = found.target.spark
    made = write_package(into, found.name, compiled.plan, settings, dependencies=dependencies)
    if scope.as_json:
        print_json({"folder": str(into), "files": list(made.files), "master": made.master})
        return
    print_text(f"{shown_path(into)}: {', '.join(made.files)}")
    _tell_of_folders(settings)
    print_text(f"\nnow type:\n  flowql spark submit {shlex.quote(str(into))}")


def _tell_of_folders(settings: SparkSettings) -> None:
    paths = sorted({f.path for f in settings.files.values() if f.path and not is_address(f.path)})
    if paths and not settings.is_local:
        note("all machines of the cluster must see these folders:" + "".join(f"\n  {p}" for p in paths))


@app.command("submit")
def submit(
    folder: Annotated[Path, typer.Argument(help="A folder written by `flowql spark package`.")] = FOLDER,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="An option of spark-submit. Repeatable.", metavar="--NAME=VALUE"),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", help="Run streams, with checkpoints in this folder or address."),
    ] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Streams end after all existing input.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the line.")] = False,
) -> None:
    """Print the spark-submit line of a package, and run it.

    The job computes the project once, from files of the target into files. With --checkpoint it runs streams until
    stopped.

    flowql spark submit build/shop --option=--deploy-mode=cluster
    """
    if available_now and checkpoint is None:
        raise typer.BadParameter("--available-now is of streams: name the folder of their checkpoints, --checkpoint")
    found = Package.of(folder)
    streams = ["--checkpoint", checkpoint] if checkpoint is not None else []
    line = submit_line(found, option or [], [*streams, *(["--available-now"] if available_now else [])], os.environ)
    note(shlex.join(line))
    if not dry_run:
        raise typer.Exit(subprocess.run(line, env=submit_environment(found, os.environ), check=False).returncode)

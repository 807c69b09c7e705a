"""`flowql kafka up|down|status`: a broker to try with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flowql.cli.options import Scope, scoped
from flowql.cli.render import note
from flowql.config.load import find_project_file, shown_path
from flowql.errors import ProjectError
from flowql.kafka.bootstrap import BROKER_DIR

app = typer.Typer(help="A local Kafka broker for trials.", no_args_is_help=True)
DirOption = Annotated[
    Path | None,
    typer.Option("--dir", help="Folder of the broker's records.", show_default=f"{BROKER_DIR} of the project"),
]


@app.command()
@scoped("project")
def up(
    scope: Scope,
    directory: DirOption = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; 0 for any.", show_default="the last, 9092, or any")
    ] = None,
    memory: Annotated[int, typer.Option(min=128, help="Java's memory, in MB.")] = 512,
) -> None:
    """Start the local broker and wait for it. Needs Java 17; downloads Kafka (40 MB) once."""
    from flowql.kafka.broker import Broker
    from flowql.kafka.jars import KAFKA_VERSION, cache_dir, fetched_jars

    if fetched_jars() is None:
        note(f"fetching Kafka {KAFKA_VERSION} into {shown_path(cache_dir())}, once")
    broker = Broker(_directory(scope, directory))
    running = broker.start(port=port, memory_mb=memory)
    note(f"Kafka {KAFKA_VERSION} runs in {shown_path(broker.directory)}, process {running.pid}")
    typer.echo(running.bootstrap)


@app.command()
@scoped("project")
def down(scope: Scope, directory: DirOption = None) -> None:
    """Stop the broker, keeping its records."""
    from flowql.kafka.broker import Broker

    broker = Broker(_directory(scope, directory))
    place = shown_path(broker.directory)
    note(f"stopped the broker of {place}" if broker.stop() else f"no broker runs in {place}")


@app.command()
@scoped("project output")
def status(scope: Scope, directory: DirOption = None) -> None:
    """Print the broker's address. Exit code 1 if it is stopped."""
    from flowql.kafka.broker import Broker
    from flowql.runtime.log.kafka.connection import answers

    broker = Broker(_directory(scope, directory))
    running = broker.running()
    if scope.as_json:
        facts = {"running": running is not None, "directory": str(broker.directory)}
        if running is not None:
            facts |= {"bootstrap": running.bootstrap, "pid": running.pid, "answers": answers(running.bootstrap)}
        typer.echo(json.dumps(facts))
    elif running is not None:
        how = "answers" if answers(running.bootstrap) else "does not answer"
        typer.echo(f"{running.bootstrap} {how}, process {running.pid}, in {shown_path(broker.directory)}")
    else:
        typer.echo(f"no broker runs in {shown_path(broker.directory)}")
    if running is None:
        raise typer.Exit(1)


def _directory(scope: Scope, directory: Path | None) -> Path:
    """The directory of the broker: the given one, else that beside the data of the project, else the working directory."""
    if directory is not None:
        return directory
    try:
        return find_project_file(scope.start).parent / BROKER_DIR
    except ProjectError:
        return Path(BROKER_DIR)

"""`flowql deploy`: deploy the project."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Annotated, Any

import typer

from flowql.api.deploying import carry_out, deploy_to
from flowql.cli.building import await_built
from flowql.cli.changes import Asked, deploying, note_left_out
from flowql.cli.deployment import show_deployment
from flowql.cli.options import LogLevelOption, Scope, scoped, with_log_level
from flowql.cli.place import place_of
from flowql.cli.render import note
from flowql.config.load import shown_path
from flowql.config.project import Project
from flowql.deploy.settings import Settings, settings_of
from flowql.runtime.log.kafka.versions import FAULT_CODE, known_fault, metadata_level
from flowql.server.choice import at_rest
from flowql.server.client import Calls, Client


@scoped("project target deployed output var")
@deploying
def command(
    scope: Scope,
    asked: Asked,
    log_level: LogLevelOption = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return before rebuilt queries serve.")] = False,
    accept_history: Annotated[
        bool,
        typer.Option(
            "--accept-history",
            help="Rebuild from the earliest existing record of an input whose beginning was deleted.",
        ),
    ] = False,
) -> None:
    """Deploy the project to an instance in the background.

    Applies the changes that `flowql plan` shows; starts an instance if none runs. Changed queries and their readers
    are rebuilt while the old results serve, and swapped in with one commit.
    """
    asked = replace(asked, accept_history=accept_history)
    found = scope.read()
    place = place_of(found)
    running = place.connect_past_freeze()
    client: Calls
    if running is not None:
        wanted, request = asked.against(scope, place, found, *running.deployed())
        client, done = running, deploy_to(running, wanted, request)
        _note_settings(running, found)
    else:
        settings = with_log_level(settings_of(found), log_level)
        deployed, topics = at_rest(settings).deployed()
        wanted, request = asked.against(scope, place, found, deployed, topics)
        settings = replace(settings, without=request.without)
        client, done = carry_out(None, settings, deployed, topics, wanted, request, _note_started(settings))
    with closing(client):
        show_deployment(done, as_json=scope.as_json)
        note_left_out(request.without)
        _note_topics(found, done)
        _note_broker_fault(found)
        if not no_wait and not await_built(client):
            raise typer.Exit(130)


def _note_settings(running: Calls, project: Project) -> None:
    """Keys of a target, such as its ports, hold from the start of an instance on."""
    if isinstance(running, Client) and running.address.settings not in ("", settings_of(project).at_start()):
        note(
            "the target has changed since the instance started; to apply the change:  flowql stop, then  flowql deploy"
        )


def _note_topics(project: Project, done: Mapping[str, Any]) -> None:
    """Members of a group that have not learned the plan may still write to topics of what it removes."""
    removed = any(c["action"] == "remove" and c["query"] not in done["withheld"] for c in done["changes"])
    kafka = project.target.kafka
    if removed and done["applied"] and kafka is not None and kafka.shared:
        note(
            "internal topics of what was removed are deleted once every instance has this plan, after two minutes at the latest; "
            "what exists:  flowql app delete"
        )


def _note_broker_fault(project: Project) -> None:
    """Names a known fault of the brokers' release. Brokers that do not tell their release are left to `flowql doctor`."""
    kafka = project.target.kafka
    level = None if kafka is None else metadata_level(kafka.bootstrap, kafka.options)
    if level is not None and (fault := known_fault(level)):
        note(f"warning[{FAULT_CODE}]: {fault}; more:  flowql explain {FAULT_CODE}")


def _note_started(settings: Settings) -> Callable[[Client], None]:
    log = shown_path(settings.data_dir / "instance.log")
    return lambda client: note(f"started an instance: process {client.address.pid}, log in {log}")

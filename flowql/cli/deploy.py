"""`flowql deploy`: deploy the project."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Annotated, Any

import typer

from flowql.api.deploying import carry_out, deploy_request, history, rolled_back, wanted_plan
from flowql.cli.building import await_built
from flowql.cli.deployment import show_deployment
from flowql.cli.options import LogLevelOption, Scope, WithoutOption, scoped, with_log_level
from flowql.cli.render import note, show_diagnostics
from flowql.cli.without import left_out, note_left_out
from flowql.config.load import shown_path
from flowql.deploy.selection import find_query
from flowql.deploy.settings import Settings, settings_of
from flowql.runtime.log.kafka.versions import FAULT_CODE, known_fault, metadata_level
from flowql.server.choice import at_rest
from flowql.server.client import Client
from flowql.server.running import connect_past_freeze


@scoped("project target deployed output var")
def command(
    scope: Scope,
    deployment: Annotated[
        int | None,
        typer.Argument(help="With --rollback: number in `flowql deployments`.", metavar="[ID]", show_default=False),
    ] = None,
    log_level: LogLevelOption = None,
    without: WithoutOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Remove queries that the project no longer has.")] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Discard state that no longer fits and recompute it.")
    ] = False,
    full_refresh: Annotated[
        list[str] | None,
        typer.Option("--full-refresh", help="Rebuild this unchanged query.", metavar="QUERY"),
    ] = None,
    rollback: Annotated[
        bool,
        typer.Option("--rollback", help="Roll back to the previous deployment, or to ID."),
    ] = False,
    forward: Annotated[
        bool,
        typer.Option("--forward", help="Apply changed SQL to new records only, without a rebuild."),
    ] = False,
    shadow: Annotated[
        bool,
        typer.Option("--shadow", help="Build new generations; `flowql promote` swaps them in."),
    ] = False,
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

    Shows the changes and applies them to the running instance; if none runs, starts one. A new generation of each
    changed query, and of queries that read its result, is built while the old one serves, and replaces it in one
    commit. With --forward the new SQL continues from the current offsets, if the state permits it.
    """
    if deployment is not None and not rollback:
        raise typer.BadParameter(f"{deployment}: a number is for --rollback; to deploy one query: --select QUERY")
    if rollback and (scope.select or full_refresh):
        raise typer.BadParameter("--rollback concerns all queries: it takes neither --select nor --full-refresh")
    found = scope.read()
    settings = with_log_level(settings_of(found), log_level)
    client = connect_past_freeze(settings.data_dir)
    deployed, topics = at_rest(settings).deployed() if client is None else client.deployed()
    if rollback:
        wanted, request = rolled_back(*history(settings, plans=True), deployment)
    else:
        wanted = wanted_plan(found, running=deployed.plan, topics=topics, warn=show_diagnostics)
        request = deploy_request(scope.select, found, wanted, deployed.plan, prune=prune, rebuild=rebuild)
        refresh = tuple(find_query(wanted, name).id for name in full_refresh or ())
        request = replace(request, refresh=refresh, about=replace(request.about, how=_how(refresh, forward=forward)))
    settings = left_out(without, settings, deployed.plan, wanted)
    request = replace(request, dry_run=dry_run, accept_history=accept_history, forward=forward, shadow=shadow)
    request = replace(request, without=settings.without)
    client, done = carry_out(client, settings, deployed, topics, wanted, request, started=_note_started(settings))
    show_deployment(done, as_json=scope.as_json)
    note_left_out(settings)
    _note_topics(settings, done)
    _note_broker_fault(settings)
    if client is None:
        return
    with closing(client):
        if not dry_run and not no_wait and not await_built(client):
            raise typer.Exit(130)


def _note_topics(settings: Settings, done: Mapping[str, Any]) -> None:
    """Members of a group that have not learned the plan may still write to topics of what it removes."""
    removed = any(c["action"] == "remove" and c["query"] not in done["withheld"] for c in done["changes"])
    if removed and done["applied"] and settings.kafka is not None and settings.kafka.shared:
        note(
            "internal topics of what was removed are deleted once every instance has this plan, after two minutes at the latest; "
            "what exists:  flowql app delete"
        )


def _note_broker_fault(settings: Settings) -> None:
    """Names a known fault of the brokers' release. Brokers that do not tell their release are left to `flowql doctor`."""
    level = None if settings.kafka is None else metadata_level(settings.kafka.bootstrap, settings.kafka.options)
    if level is not None and (fault := known_fault(level)):
        note(f"warning[{FAULT_CODE}]: {fault}; more:  flowql explain {FAULT_CODE}")


def _note_started(settings: Settings) -> Callable[[Client], None]:
    log = shown_path(settings.data_dir / "instance.log")
    return lambda client: note(f"started an instance: process {client.address.pid}, log in {log}")


def _how(refresh: Sequence[str], *, forward: bool) -> str:
    how = "deploy --forward" if forward else "deploy"
    return f"{how}, full refresh of {', '.join(refresh)}" if refresh else how

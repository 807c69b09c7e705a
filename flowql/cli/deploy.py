"""`flowql deploy`: make the project what runs."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from flowql.cli.options import (
    DeployedOption,
    LogLevelOption,
    Output,
    OutputOption,
    ProjectOption,
    Scope,
    TargetOption,
    VarOption,
    with_log_level,
)
from flowql.cli.render import note, print_json, print_rows
from flowql.cli.wanted import asked_of, read, wanted_plan
from flowql.config.load import shown_path
from flowql.deploy.settings import settings_of
from flowql.deploy.stages import decide
from flowql.errors import CommandError
from flowql.server.choice import at_rest
from flowql.server.client import Client, connect
from flowql.server.daemon import spawn

RUNNING_S = 60.0
NOT_RUNNING = "FQ5204"
_WORDS = {"none": "unchanged", "priority": "new priority", None: ""}


def command(
    ctx: typer.Context,
    project: ProjectOption = None,
    target: TargetOption = None,
    select: DeployedOption = None,
    output: OutputOption = None,
    var: VarOption = None,
    log_level: LogLevelOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Remove queries the project no longer has.")] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Throw away what queries kept that no longer fits, and compute it anew.")
    ] = False,
) -> None:
    """Make the project what runs in the background.

    Shows what changes and applies it to the running instance, which is started if there is none.
    """
    scope = Scope.of(ctx, project=project, target=target, select=select, output=output, var=var)
    as_json = scope.only(Output.TABLE, Output.JSON) is Output.JSON
    found = read(scope)
    settings = with_log_level(settings_of(found), log_level)
    client = connect(settings.data_dir)
    deployed, topics = at_rest(settings).deployed() if client is None else client.deployed()
    wanted = wanted_plan(found, running=deployed.plan, topics=topics)
    asked = asked_of(scope, wanted, deployed.plan, prune=prune, rebuild=rebuild)
    if dry_run:
        show_deployment(decide(deployed, wanted, asked).to_data(applied=False), as_json=as_json)
        return
    decide(deployed, wanted, asked)  # a conflict is found before an instance is started for it
    if client is None:
        client = spawn(settings)
        note(
            f"started an instance: process {client.address.pid}, log in {shown_path(settings.data_dir / 'instance.log')}"
        )
    done = client.deploy(wanted, asked)
    _await_running(client)
    show_deployment(done, as_json=as_json)
    client.close()


def _await_running(client: Client) -> None:
    """Until every query runs; CommandError with the reason of one that keeps failing."""
    limit = time.monotonic() + RUNNING_S
    while True:
        waiting = [q for q in client.status()["queries"] if q["state"] not in ("running", "paused")]
        if not waiting:
            return
        if time.monotonic() > limit:
            title = "; ".join(f"{q['id']} is {q['state']}: {q['last_error']}" for q in waiting)
            raise CommandError(title, code=NOT_RUNNING, help="flowql status")
        time.sleep(0.1)


def show_deployment(done: dict[str, Any], *, as_json: bool = False) -> None:
    """Every query's fate, and what of its state is kept."""
    if as_json:
        print_json(done)
        return
    withheld = done["withheld"]
    rows = [(c["query"], _action(c, withheld), c["state"] or "") for c in done["changes"]]
    print_rows(("query", "change", "state"), rows)
    if withheld:
        note(f"{', '.join(withheld)}: not in the project; still running. To remove:  flowql deploy --prune")
    changed = sum(c["action"] != "none" and c["query"] not in withheld for c in done["changes"])
    if not done["applied"]:
        note(f"{changed} to change; nothing was done (--dry-run)")
    else:
        note(f"{changed} changed" if changed else "no changes")


def _action(change: dict[str, Any], withheld: list[str]) -> str:
    action: str = change["action"]
    if change["query"] in withheld:
        return "remove (needs --prune)"
    return _WORDS.get(action, action) or action

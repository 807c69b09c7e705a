"""`flowql promote`: what is built and held back serves."""

from __future__ import annotations

from typing import Annotated

import typer

from flowql.cli.building import await_built
from flowql.cli.live import live_client
from flowql.cli.options import Output, OutputOption, ProjectOption, Scope, TargetOption, VarOption
from flowql.cli.render import note, print_json


def command(
    ctx: typer.Context,
    query: Annotated[
        str | None,
        typer.Argument(help="Query id or name of its result; default: all.", metavar="[NAME]", show_default=False),
    ] = None,
    project: ProjectOption = None,
    target: TargetOption = None,
    output: OutputOption = None,
    var: VarOption = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return before the new generation serves.")] = False,
) -> None:
    """Swap in the generation built by `deploy --shadow`.

    Queries that read each other's results swap in one commit. A generation that lags swaps in when it has caught
    up.

    Example:  flowql promote
    """
    scope = Scope.of(ctx, project=project, target=target, output=output, var=var)
    as_json = scope.only(Output.TABLE, Output.JSON) is Output.JSON
    with live_client(scope) as client:
        done = client.promote(query)
        if as_json:
            print_json({"promoted": done})
        else:
            note(f"promoted {', '.join(done)}")
        if not no_wait and not await_built(client, done):
            raise typer.Exit(130)

"""`flowql resume`: paused queries continue, and those whose function hung are tried again."""

from __future__ import annotations

from typing import Annotated

import typer

from flowql.cli.live import live_client
from flowql.cli.options import Output, OutputOption, ProjectOption, Scope, TargetOption, VarOption
from flowql.cli.render import note, print_json


def command(
    ctx: typer.Context,
    queries: Annotated[
        list[str],
        typer.Argument(help="Query ids or sink names.", metavar="QUERY...", show_default=False),
    ],
    project: ProjectOption = None,
    target: TargetOption = None,
    output: OutputOption = None,
    var: VarOption = None,
) -> None:
    """Resume paused queries where they stopped.

    They process the records that arrived meanwhile. A query in state `hung` is retried.

    Example:  flowql resume orders_by_customer
    """
    scope = Scope.of(ctx, project=project, target=target, output=output, var=var)
    as_json = scope.only(Output.TABLE, Output.JSON) is Output.JSON
    with live_client(scope) as client:
        done = client.pause(queries, paused=False)
    if as_json:
        print_json({"resumed": done})
    else:
        note(f"resumed {', '.join(done)}")

"""`flowql pause`: a query stops at its current offsets and keeps its state."""

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
    """Pause queries; their state and positions are kept.

    Other queries continue. A pause survives restarts and deployments, until `flowql resume`.

    Example:  flowql pause orders_by_customer
    """
    scope = Scope.of(ctx, project=project, target=target, output=output, var=var)
    as_json = scope.only(Output.TABLE, Output.JSON) is Output.JSON
    with live_client(scope) as client:
        done = client.pause(queries, paused=True)
    if as_json:
        print_json({"paused": done})
    else:
        note(f"paused {', '.join(done)}; they go on with:  flowql resume")

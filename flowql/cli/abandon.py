"""`flowql abandon`: what is built beside what serves is dropped."""

from __future__ import annotations

from typing import Annotated

import typer

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
) -> None:
    """Drop a new generation, and those that would swap in with it. The serving one continues.

    The project's files are unchanged: the next `flowql deploy` builds the same generation.

    Example:  flowql abandon
    """
    scope = Scope.of(ctx, project=project, target=target, output=output, var=var)
    as_json = scope.only(Output.TABLE, Output.JSON) is Output.JSON
    with live_client(scope) as client:
        done = client.abandon(query)
    if as_json:
        print_json({"abandoned": done})
    else:
        note(f"abandoned what was built of {', '.join(done)}; what serves goes on")

"""`flowql plan`: what would be deployed, as `plan.json`."""

from __future__ import annotations

import typer

from flowql.cli.options import Output, OutputOption, ProjectOption, Scope, TargetOption, VarOption
from flowql.cli.render import print_text
from flowql.compiler.plan import codec


def command(
    ctx: typer.Context,
    project: ProjectOption = None,
    target: TargetOption = None,
    output: OutputOption = None,
    var: VarOption = None,
) -> None:
    """Write the project's plan.json."""
    scope = Scope.of(ctx, project=project, target=target, output=output, var=var)
    scope.only(Output.TABLE, Output.JSON)
    print_text(codec.dumps(scope.compile()[1].plan))

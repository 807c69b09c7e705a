"""`flowql stop`: end the background instance."""

from __future__ import annotations

import typer

from flowql.cli.options import ProjectOption, Scope, TargetOption, VarOption
from flowql.cli.render import note
from flowql.deploy.settings import settings_of
from flowql.server.running import connect


def command(
    ctx: typer.Context,
    project: ProjectOption = None,
    target: TargetOption = None,
    var: VarOption = None,
) -> None:
    """Stop the background instance, after a commit.

    `flowql deploy` starts the same queries again.
    """
    scope = Scope.of(ctx, project=project, target=target, var=var)
    settings = settings_of(scope.load())
    client = connect(settings.data_dir)
    if client is None:
        note("no instance is running")
        return
    client.stop()
    note(f"stopped process {client.address.pid}")

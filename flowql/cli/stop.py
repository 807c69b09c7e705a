"""`flowql stop`: end the background instance."""

from __future__ import annotations

from typing import Annotated

import typer

from flowql.cli.options import Scope, scoped
from flowql.cli.render import note
from flowql.deploy.settings import settings_of
from flowql.server.ending import end_instance


@scoped("project target var")
def command(
    scope: Scope,
    force: Annotated[
        bool,
        typer.Option("--force", help="Kill a process that does not end; uncommitted work is repeated."),
    ] = False,
) -> None:
    """Stop the background instance, after a commit.

    An instance that does not answer gets SIGTERM. If it still runs, the command fails; --force
    kills the process. `flowql deploy` starts the queries again.
    """
    ended = end_instance(settings_of(scope.load()).data_dir, force=force)
    if ended is None:
        note("no instance is running")
    else:
        note(
            f"killed process {ended.pid}; nothing committed is lost" if ended.killed else f"stopped process {ended.pid}"
        )

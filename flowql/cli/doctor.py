"""`flowql doctor`: checks of the machine, the project and its targets."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated

import typer

from flowql.cli.options import Scope, scoped
from flowql.cli.progress import progress
from flowql.cli.render import print_json, print_rows, print_text
from flowql.doctor.examine import examine
from flowql.doctor.stored import examine_backups


@scoped("project target output var")
def command(
    scope: Scope,
    backup: Annotated[
        str | None,
        typer.Option(
            "--backup",
            help="Verify all backups in a directory or at a URL instead, every byte.",
            metavar="PLACE",
            show_default=False,
        ),
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read all records of the log and all rows of the state.")
    ] = False,
) -> None:
    """Check the machine, the project and its targets.

    Starts and changes nothing. If it finds damaged state, the next start recomputes it. Exit code 1 if a check fails.

    flowql doctor                everything
    flowql doctor -t kafka       one target, with its brokers
    flowql doctor --deep         also every record and row
    flowql doctor --backup DIR   backups
    """
    bar = progress if deep else None
    looked_at = (
        examine(scope.start, scope.target, scope.variables, os.environ, bar)
        if backup is None
        else examine_backups(backup)
    )
    found = list(looked_at)
    if scope.as_json:
        print_json([asdict(f) for f in found])
    else:
        print_rows(["check", "", "found"], [[f.check, f.state, f.says] for f in found])
        for finding in found:
            if finding.fix:
                print_text(f"\n{finding.check}: {finding.says}\n  {finding.fix}")
    if any(f.state == "failed" for f in found):
        raise typer.Exit(1)

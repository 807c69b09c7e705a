"""`flowql restore`: a backup becomes the data of a target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flowql.cli.options import Scope, scoped
from flowql.cli.progress import progress
from flowql.cli.render import note, print_json, print_text
from flowql.config.load import shown_path
from flowql.deploy.settings import settings_of


@scoped("project target output var")
def command(
    scope: Scope,
    folder: Annotated[Path, typer.Argument(help="A directory written by `flowql backup`.", metavar="DIR")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Keep the existing data under another name, and print that name.")
    ] = False,
) -> None:
    """Replace the data of a stopped target with a backup.

    Verifies the whole backup first. Then `flowql deploy` or `flowql run` continues from the backup's commit; import
    later records again.

    flowql restore backups/monday
    flowql restore backups/monday --replace   # rename the existing directory
    """
    from flowql.backup.lay import restore_backup
    from flowql.backup.manifest import read_manifest

    settings = settings_of(scope.load())
    with progress("restoring", 2 * read_manifest(folder).size, in_bytes=True) as advance:
        done = restore_backup(settings, folder, replace=replace, advance=advance)
    manifest, aside = done.manifest, done.replaced
    if scope.as_json:
        replaced = None if aside is None else str(aside)
        print_json({"data_dir": str(settings.data_dir), "replaced": replaced, **manifest.to_data()})
        return
    print_text(
        f"restored {manifest.application_id} at commit {manifest.commit}, backed up {manifest.taken_at}, in {shown_path(settings.data_dir)}"
    )
    if aside is not None:
        print_text(f"the directory before is {shown_path(aside)}")
    note("flowql deploy   # or flowql run: continues from there")

"""`flowql restore`: a backup becomes the data of a target."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from flowql.cli.backup import Bar
from flowql.cli.options import Scope, scoped
from flowql.cli.render import note, print_json, print_text
from flowql.config.load import shown_path
from flowql.deploy.settings import settings_of
from flowql.errors import CommandError


@scoped("project target output var")
def command(
    scope: Scope,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="A directory or a URL (file, s3, gs, az) with backups; default: where the target's instance uploads them.",
            metavar="PLACE",
            show_default=False,
        ),
    ] = None,
    commit: Annotated[
        int | None,
        typer.Option("--commit", help="The newest commit to restore.", metavar="N", show_default=False),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Keep the existing data under another name, and print that name.")
    ] = False,
) -> None:
    """Replace the data of a stopped target with its newest backup.

    Verifies every byte before anything changes, and uses the backup before if one is damaged. Then `flowql deploy` or `flowql run` continues
    from the backup's commit; import later records again.

    flowql restore --from backups
    flowql restore --from s3://bucket/backups
    flowql restore --from backups --commit 1200
    flowql restore --from backups --replace   # rename the existing directory
    """
    from flowql.backup.lay import restore_backup
    from flowql.backup.take import manifest_data

    settings = settings_of(scope.load())
    source = source or settings.state.remote
    if not source:
        title = "where are the backups? This target has no `state: {remote: ...}`"
        raise CommandError(title, code="FQ5701", help="flowql restore --from PLACE")
    with ExitStack() as stack:
        bar = Bar(stack, "restoring")
        done = restore_backup(settings, source, replace=replace, commit=commit, begin=bar.begin, advance=bar.advance)
    manifest, aside = done.manifest, done.replaced
    if scope.as_json:
        replaced = None if aside is None else str(aside)
        about = {"data_dir": str(settings.data_dir), "replaced": replaced, "damaged": list(done.damaged)}
        print_json(about | manifest_data(manifest) | {"manifest": done.object})
        return
    for problem in done.damaged:
        print_text(f"a newer backup is damaged: {problem}")
    print_text(
        f"restored {manifest.application_id} at commit {manifest.commit}, backed up {manifest.taken_at}, in {shown_path(settings.data_dir)}"
    )
    if aside is not None:
        print_text(f"the directory before is {shown_path(aside)}")
    note("flowql deploy   # or flowql run: continues from there")

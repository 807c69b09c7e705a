"""`flowql backup` and `restore`: a consistent copy of a target's data, and a backup that becomes the data."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Annotated

import typer

from flowql.cli.options import Scope, scoped
from flowql.cli.progress import progress
from flowql.cli.render import note, print_json, print_text
from flowql.compiler.analyze.options import duration_ms
from flowql.config.load import shown_path
from flowql.deploy.settings import settings_of
from flowql.errors import CommandError


@scoped("project target output var")
def backup(
    scope: Scope,
    place: Annotated[
        str, typer.Argument(help="A directory or a URL (file, s3, gs, az), empty or with backups.", metavar="PLACE")
    ],
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep",
            help="Then delete all but the N newest backups of this command.",
            metavar="N",
            min=1,
            show_default=False,
        ),
    ] = None,
    keep_for: Annotated[
        str | None,
        typer.Option(
            "--keep-for",
            help="Then delete older backups of this command. With --keep, a backup stays if one of the two keeps it.",
            metavar="TIME",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Copy the log and state of a target as of one commit.

    Processing continues. Only objects that the place lacks are written, and each is read back and compared. The manifest
    completes the backup. For targets on the runtime with the embedded log.

    flowql backup backups
    flowql backup s3://bucket/backups
    flowql backup backups --keep 7 --keep-for '30 days'
    flowql doctor --backup backups   # verify them
    flowql restore --from backups
    """
    from flowql.backup.places import shown, url_of
    from flowql.backup.take import delete_old, take_backup  # the engine: commands that are mistyped need not load it
    from flowql.runtime.backup.keeping import Keep

    kept = Keep(keep, _age_ms(keep_for))
    settings = settings_of(scope.load())
    with ExitStack() as stack:
        bar = Bar(stack, "backing up")
        taken = take_backup(settings, place, begin=bar.begin, advance=bar.advance)
    url, manifest = url_of(place), taken.manifest
    deleted = None if kept == Keep() else delete_old(settings, place, kept)
    if scope.as_json:
        more = {} if deleted is None else {"deleted": list(deleted.names), "deleted_bytes": deleted.size}
        print_json({"place": url, **taken.to_data(), **more})
    else:
        what = f"{len(manifest.files)} files, {_size(manifest.size)}, {_size(taken.new_bytes)} of it new"
        print_text(f"backup of {manifest.application_id} at commit {manifest.commit}: {what}, in {shown(url)}")
        if deleted is not None and deleted.names:
            print_text(f"deleted {len(deleted.names):,} objects of older backups, {_size(deleted.size)}")


def _age_ms(text: str | None) -> int | None:
    ms = None if text is None else duration_ms(text)
    if text is not None and not ms:
        raise typer.BadParameter(f"--keep-for takes a time such as '30 days', not {text!r}")
    return ms


def _size(n: int) -> str:
    return f"{n / (1 << 20):,.1f} MB" if n >= 1 << 20 else f"{n / (1 << 10):,.0f} KB"


class Bar:
    """A progress bar of bytes, whose length becomes known later."""

    def __init__(self, stack: ExitStack, title: str) -> None:
        self._stack, self._title = stack, title
        self._advance: Callable[[int], None] | None = None

    def begin(self, size: int) -> None:
        self._advance = self._stack.enter_context(progress(self._title, size, in_bytes=True))

    def advance(self, n: int) -> None:
        assert self._advance is not None, "begun"
        self._advance(n)


# --- `flowql restore`: a backup becomes the data of a target ---


@scoped("project target output var")
def restore(
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

    Verifies every byte before anything changes, and uses the previous backup if one is damaged. Then `flowql deploy` or `flowql run` continues
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

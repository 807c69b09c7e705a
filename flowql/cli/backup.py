"""`flowql backup`: a consistent copy of a target's data, also while it runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from flowql.cli.options import Scope, scoped
from flowql.cli.progress import progress
from flowql.cli.render import print_json, print_text
from flowql.config.load import shown_path
from flowql.deploy.settings import settings_of


@scoped("project target output var")
def command(
    scope: Scope, folder: Annotated[Path, typer.Argument(help="A new or empty directory.", metavar="DIR")]
) -> None:
    """Copy the log and the state of a running or stopped target, as of one commit.

    Processing continues. Each file is read back and compared; manifest.json completes the backup. Interrupted and
    damaged backups are refused. For targets on the runtime with the embedded log.

    flowql backup backups/monday
    flowql doctor --backup backups/monday   # verify it
    flowql restore backups/monday
    """
    from flowql.backup.take import take_backup  # the engine: commands that are mistyped need not load it

    settings = settings_of(scope.load())
    with ExitStack() as stack:
        bar = Bar(stack, "backing up")
        manifest = take_backup(settings, folder, begin=bar.begin, advance=bar.advance)
    if scope.as_json:
        print_json({"folder": str(folder), **manifest.to_data()})
    else:
        files, size = len(manifest.files), _size(manifest.size)
        print_text(
            f"backup of {manifest.application_id} at commit {manifest.commit}: {files} files, {size} in {shown_path(folder)}"
        )


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

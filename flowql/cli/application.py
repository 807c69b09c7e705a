"""`flowql app delete|reset`: shows what an application has on its log and on this machine, and removes it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from flowql.cli.options import Scope, scoped
from flowql.cli.render import note, print_json, print_rows
from flowql.config.load import shown_path
from flowql.deploy.removal import How, Removal, carry_out, removal_of
from flowql.deploy.settings import Settings, settings_of

app = typer.Typer(
    help="Delete or reset an application's data.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Delete what is listed.")]


@app.command()
@scoped("project target output var")
def delete(
    scope: Scope,
    yes: YesOption = False,
    results: Annotated[bool, typer.Option("--results", help="Also delete topics of results.")] = False,
) -> None:
    """List an application's data; delete it with --yes.

    These are deployments, state, positions and dead letters, on its log and on this machine. With --results, they include
    the topics that queries write. Topics of sources stay. The instance must be stopped.
    """
    _act(scope, "delete", yes=yes, results=results)


@app.command()
@scoped("project target output var")
def reset(scope: Scope, yes: YesOption = False) -> None:
    """List an application's state and positions; delete them with --yes. The next start reads all inputs from the beginning.

    Complete new results replace the old ones. The instance must be stopped.
    """
    _act(scope, "reset", yes=yes)


def _act(scope: Scope, how: How, *, yes: bool, results: bool = False) -> None:
    settings = settings_of(scope.load())
    removal = removal_of(settings, how, results=results)
    if yes:
        carry_out(settings, removal)
    if scope.as_json:
        print_json({"parts": [asdict(p) for p in removal.parts], "kept": dict(removal.kept), "removed": yes})
        return
    if removal.parts:
        print_rows(
            ["kind", "name", "records", "bytes"], [_row(p.kind, p.name, p.records, p.bytes) for p in removal.parts]
        )
    for topic, why in removal.kept.items():
        note(f"{topic} stays: {why}")
    note(_outcome(settings, how, removal, yes=yes))


def _row(kind: str, name: str, records: int | None, size: int | None) -> list[Any]:
    shown = shown_path(Path(name)) if kind == "folder" else name
    return [kind, shown, "" if records is None else f"{records:,}", "" if size is None else f"{size:,}"]


def _outcome(settings: Settings, how: How, removal: Removal, *, yes: bool) -> str:
    name = settings.application_id
    if not removal.parts:
        return f"nothing of {name} is here"
    if not yes:
        return f"nothing was removed; to remove this:  flowql app {how} --yes"
    after = "; the next start computes all results again" if how == "reset" else ""
    return f"removed the listed parts of {name}{after}"

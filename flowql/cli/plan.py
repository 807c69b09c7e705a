"""`flowql plan`: what a deployment would change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from flowql.api.deploying import Document, planned
from flowql.cli.changes import Asked, deploying
from flowql.cli.deployment import markdown_of, show_deployment
from flowql.cli.options import Scope, scoped
from flowql.cli.place import place_of
from flowql.cli.render import print_json, print_text
from flowql.compiler.plan.deployed import Deployed
from flowql.config.at_ref import plan_at
from flowql.config.project import Project
from flowql.deploy.decision import decide
from flowql.deploy.settings import settings_of
from flowql.server.choice import at_rest

CHANGES = 2  # exit code; without changes 0, and 1 for all errors


Form = Literal["tree", "json", "markdown"]


class Command(TyperCommand):
    """Usage errors exit with 1, as other errors do: 2 tells of changes."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _exiting_with_1():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _exiting_with_1():
            return super().invoke(ctx)


@contextmanager
def _exiting_with_1() -> Iterator[None]:
    try:
        yield
    except typer.Exit:
        raise
    except Exception as error:
        if hasattr(error, "exit_code"):  # as usage errors have; their class is private
            error.exit_code = 1
        raise


@scoped("project target deployed var")
@deploying
def command(
    scope: Scope,
    asked: Asked,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            help="Compare with the project's files at this commit, branch or tag of Git, without an instance.",
            metavar="REF",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            "--output",
            "-o",
            help="How to write the plan; markdown is for a pull request.",
            show_default="tree",
        ),
    ] = None,
) -> None:
    """Show what `flowql deploy` would change, and change nothing.

    Compares the project with what is deployed to the target, whether an instance runs or not. The options are those
    of `flowql deploy`. Exit codes: 0 no changes, 2 changes, 1 an error.

    Before a deployment:  flowql plan -t production

    For a pull request:  flowql plan --against origin/main --format markdown
    """
    forms: dict[str, Form] = {"json": "json", "table": "tree"}
    form = form or forms.get(scope.output.value)
    if form is None:
        raise typer.BadParameter(f"-o {scope.output.value} is not possible here (choose from tree, json, markdown)")
    if against is None:
        found = scope.read()
        done = _planned(scope, found, asked)
    else:
        if asked.rollback or asked.without:
            raise typer.BadParameter("--against compares files: it takes neither --rollback nor --without")
        found, done = _compared(scope, against, asked)
    if form == "json":
        print_json(done)
    elif form == "markdown":
        print_text(markdown_of(done, _heading(found, against)))
    else:
        show_deployment(done)
    if done["changed"]:
        raise typer.Exit(CHANGES)


def _planned(scope: Scope, project: Project, asked: Asked) -> Document:
    """Against what is deployed."""
    place = place_of(project)
    client = place.connect_past_freeze()
    with nullcontext() if client is None else closing(client):
        if client is None:
            settings = settings_of(project)
            deployed, topics = at_rest(settings).deployed()
            return planned(settings, deployed, topics, *asked.against(scope, place, project, deployed, topics))
        return client.planned(*asked.against(scope, place, project, *client.deployed()))


def _compared(scope: Scope, ref: str, asked: Asked) -> tuple[Project, Document]:
    """Against another version of the files. Queries that are in that version alone are removed."""
    before = Deployed(serving=plan_at(ref, scope.read(), scope.variables))
    found, now = scope.compile(previous=before.plan)
    request = asked.request(scope, found, now.plan, before.plan)
    request = replace(request, prune=True, forward=asked.forward, shadow=asked.shadow)
    return found, decide(before, now.plan, request).to_data(applied=False)


def _heading(project: Project, against: str | None) -> str:
    return f"{project.name}: " + (
        f"changes since `{against}`" if against else f"plan for target `{project.target.name}`"
    )

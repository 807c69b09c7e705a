"""The verb: a prompt for people, statements of -c or of stdin for programs."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated

import typer

from flowql.cli.options import OR_CSV, Scope, scoped
from flowql.cli.place import place_of
from flowql.cli.render import counted, note, show_diagnostics, show_failure
from flowql.cli.shell.session import Manner, Quit, Session
from flowql.cli.shell.split import split
from flowql.errors import CommandError, CompileError, RuntimeFailure


@scoped("project target output var", outputs=OR_CSV)
def command(
    scope: Scope,
    statements: Annotated[
        list[str] | None,
        typer.Option("--command", "-c", help="Run this and exit. Repeatable.", metavar="STATEMENTS"),
    ] = None,
) -> None:
    r"""Query, subscribe and describe in an interactive SQL shell.

    On a terminal with completion (Tab), history and several lines; `\?` helps, `\q` ends. Otherwise it answers
    statements from stdin, until one fails.

    One answer:  flowql shell -c "SHOW QUERIES"

    A file of statements:  flowql shell -o json < queries.sql
    """
    place = place_of(scope.load())
    interactive = not statements and sys.stdin.isatty() and sys.stdout.isatty()
    session = Session(place, Manner(scope.output, interactive))
    if interactive:
        _talk(session)
    else:
        _run_all(session, ";\n".join(statements) if statements else sys.stdin.read())


def _run_all(session: Session, text: str) -> None:
    whole, rest = split(text)
    try:
        for statement in [*whole, *([rest] if rest else [])]:
            session.run(statement)
    except Quit:
        return


def _talk(session: Session) -> None:
    """Until the person leaves. A mistake ends a statement, never the shell."""
    from flowql.cli.shell.prompt import Prompt  # the terminal: 0.2 s

    prompt = Prompt(session)
    note(_greeting(session))
    while True:
        try:
            whole, rest = split(prompt.read())
            for statement in [*whole, *([rest] if rest else [])]:
                session.run(statement)
        except KeyboardInterrupt:
            continue
        except (EOFError, Quit):
            return
        except CompileError as error:
            show_diagnostics(error.diagnostics)
        except CommandError as error:
            show_diagnostics([error.diagnostic()])
        except RuntimeFailure as error:
            show_failure(error.code, str(error))


def _greeting(session: Session) -> str:
    where = session.place.described()
    project = session.project
    count = len(session.there.plan.queries)
    queries = counted(count, "query", "queries")
    return f"FlowQL {metadata.version('flowql')}, {project.name} ({project.target.name}): {queries}, {where}. \\? helps, \\q ends."

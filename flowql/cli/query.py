"""`flowql query`: ask SQL of tables, streams and internal state."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Annotated

import typer

from flowql.cli.options import ProjectOption, Scope, TargetOption, VarOption
from flowql.cli.render import note
from flowql.cli.results import destination, partly, write_answer
from flowql.deploy.settings import Settings, settings_of
from flowql.errors import CommandError
from flowql.query.answer import Answer
from flowql.query.errors import APART
from flowql.server.client import LOST, connect

ResultOption = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        "-o",
        help="table, json, csv, arrow or parquet; or a file, whose ending says which (both: give it twice).",
        metavar="FORMAT|FILE",
        show_default=False,
    ),
]


def command(
    ctx: typer.Context,
    sql: Annotated[str, typer.Argument(help="One SELECT, WITH, DESCRIBE, EXPLAIN or SHOW; - reads it from stdin.")],
    project: ProjectOption = None,
    target: TargetOption = None,
    output: ResultOption = None,
    var: VarOption = None,
) -> None:
    """Query tables and internal stores with SQL.

    The answer reflects one commit: of the running instance, or of a stopped one's directory. Rows are written as they are computed.

    A table on the terminal:  flowql query "SELECT * FROM SPENT_PER_HOUR LIMIT 10"

    A file of any size:  flowql query "SELECT * FROM ORDERS" -o orders.parquet
    """
    scope = Scope.of(ctx, project=project, target=target, var=var)
    form, file = destination(output or [], scope.output)
    settings = settings_of(scope.load())
    with asking(settings, sys.stdin.read() if sql == "-" else sql) as answer:
        say_apart(answer)
        rows = write_answer(answer, form, file)
    if file is not None:
        note(f"{rows:,} {'row' if rows == 1 else 'rows'} in {file}")


def say_apart(answer: Answer) -> None:
    if apart := (answer.schema.metadata or {}).get(APART):
        note(f"note: these relations are not at one place of their input: {apart.decode()}")
    if missing := partly(answer):
        note(f"note: this answer is about {missing}")


@contextmanager
def asking(settings: Settings, sql: str) -> Iterator[Answer]:
    """The answer of the live instance, or of the directory. An instance that has ended is asked as a stopped one."""
    with ExitStack() as stack:
        yield _live(settings, sql, stack) or _at_rest(settings, sql, stack)


def _live(settings: Settings, sql: str, stack: ExitStack) -> Answer | None:
    client = connect(settings.data_dir)
    if client is None:
        return None
    stack.callback(client.close)
    try:
        return stack.enter_context(client.answer(sql))
    except CommandError as error:
        if error.code != LOST or connect(settings.data_dir) is not None:
            raise
        return None


def _at_rest(settings: Settings, sql: str, stack: ExitStack) -> Answer:
    from flowql.query.database import QuestionDatabase, QuestionLimits
    from flowql.query.session import answer  # the engine's reading side and DuckDB: 0.4 s to import
    from flowql.server.choice import at_rest

    take = stack.enter_context(at_rest(settings).commits())
    limits = QuestionLimits.of(settings.memory_bytes, settings.questions, settings.data_dir)
    database = stack.enter_context(closing(QuestionDatabase(limits)))
    return stack.enter_context(closing(answer(sql, take, database=database)))

"""`flowql query`: ask SQL of tables, streams and internal state."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from flowql.cli.options import Scope, scoped
from flowql.cli.place import place_of
from flowql.cli.render import counted, note
from flowql.cli.results import destination, partly, write_answer
from flowql.query.answer import Answer
from flowql.query.errors import APART, ENGINE, MOMENTS, STANDBY
from flowql.query.options import QueryEngine, QueryOptions

ResultOption = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        "-o",
        help="table, json, csv, arrow or parquet; or a file name with one of these extensions. Give it twice for both.",
        metavar="FORMAT|FILE",
        show_default=False,
    ),
]


EngineOption = Annotated[
    QueryEngine | None,
    typer.Option(
        "--engine",
        help="duckdb: DuckDB's SQL, with other functions and types than views.",
        show_default=False,
    ),
]

AtLeastOption = Annotated[
    str | None,
    typer.Option(
        "--at-least",
        help="Wait until the views show this tick of `flowql exec -o json`.",
        metavar="TICK",
        show_default=False,
    ),
]

AllowStandbyOption = Annotated[
    bool,
    typer.Option("--allow-standby", help="Let standby copies answer if the owner of a partition does not."),
]


@scoped("project target var")
def command(
    scope: Scope,
    sql: Annotated[str, typer.Argument(help="One SELECT, WITH, DESCRIBE, EXPLAIN or SHOW; - reads stdin.")],
    output: ResultOption = None,
    engine: EngineOption = None,
    at_least: AtLeastOption = None,
    allow_standby: AllowStandbyOption = False,
) -> None:
    """Query tables and internal stores with SQL.

    The answer reflects one commit of the running instance, or of a stopped one's directory. Rows are written as
    they are computed.

    A table on the terminal:  flowql query "SELECT * FROM SPENT_PER_HOUR LIMIT 10"

    A file of any size:  flowql query "SELECT * FROM ORDERS" -o orders.parquet

    In DuckDB's SQL: flowql query --engine duckdb "SUMMARIZE orders"
    """
    form, file = destination(output or [], scope.output)
    place = place_of(scope.load())
    options = QueryOptions(engine, at_least, allow_standby)
    with place.answer(sys.stdin.read() if sql == "-" else sql, options) as answer:
        say_apart(answer)
        if ENGINE in (answer.schema.metadata or {}):
            note("note: computed in DuckDB's SQL, whose functions and types are not those of views")
        rows = write_answer(answer, form, file)
    if file is not None:
        note(f"{counted(rows, 'row')} in {file}")


def say_apart(answer: Answer) -> None:
    metadata = answer.schema.metadata or {}
    if apart := metadata.get(APART):
        note(f"note: these relations are not at the same offsets of their input: {apart.decode()}")
    if moments := metadata.get(MOMENTS):
        note(f"note: {moments.decode()}")
    if standby := metadata.get(STANDBY):
        note(f"note: standby copies answer for {standby.decode()}")
    if missing := partly(answer):
        note(f"note: this answer is about {missing}")

"""`flowql exec`: INSERT, UPDATE and DELETE of a deployed project's tables."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from flowql.cli.options import Output, Scope, scoped
from flowql.cli.place import place_of
from flowql.cli.query import ResultOption
from flowql.cli.render import json_value, note, print_json
from flowql.cli.results import destination, done_line, python_rows, write_answer
from flowql.query.answer import Answer, Done, returned


@scoped("project target var")
def command(
    scope: Scope,
    sql: Annotated[str, typer.Argument(help="INSERT, UPDATE and DELETE statements; - reads stdin.")],
    output: ResultOption = None,
) -> None:
    """Insert, update and delete rows of tables.

    Each statement is one transaction.

    A running instance carries them out; without one, this command does. UPDATE and DELETE need a table without
    KAFKA_TOPIC. RETURNING writes the changed rows as `flowql query` does. With -o json they are in each
    statement's document; csv, arrow, parquet and files take one statement.

    flowql exec "INSERT INTO users VALUES (1, 'ada')"
    flowql exec "UPDATE users SET name = 'eve' WHERE id = 1 RETURNING *"
    flowql exec "DELETE FROM users WHERE id = 1"
    """
    form, file = destination(output or [], scope.output)
    place = place_of(scope.load())
    one = file is not None or form not in (Output.TABLE, Output.JSON)
    done = place.execute(sys.stdin.read() if sql == "-" else sql, one_returns=one)
    if one:
        write_answer(Answer.of(returned(done)), form, file)
    elif form is Output.JSON:
        print_json([_document(d) for d in done])
    for d in done if form is Output.TABLE or file is not None else ():
        if d.returned is not None and not one:
            write_answer(Answer.of(d.returned), form)
        note(done_line(d))


def _document(done: Done) -> dict[str, object]:
    found: dict[str, object] = {
        "statement": done.verb.lower(),
        "table": done.table,
        "rows": done.rows,
        "tick": done.tick,
    }
    if done.returned is not None:
        names = done.returned.column_names
        rows = python_rows(iter(done.returned.to_batches()))
        found["returning"] = [{n: json_value(v) for n, v in zip(names, row, strict=True)} for row in rows]
    return found

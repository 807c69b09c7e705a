"""`flowql exec`: INSERT, UPDATE and DELETE of a deployed project's tables."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from flowql.api.changing import execute
from flowql.cli.options import Output, OutputOption, ProjectOption, Scope, TargetOption, VarOption
from flowql.cli.render import note, print_json
from flowql.deploy.settings import settings_of


def command(
    ctx: typer.Context,
    sql: Annotated[str, typer.Argument(help="INSERT, UPDATE or DELETE, or several of them; - reads them from stdin.")],
    project: ProjectOption = None,
    target: TargetOption = None,
    output: OutputOption = None,
    var: VarOption = None,
) -> None:
    """Insert, update and delete rows of tables, each statement as one transaction.

    Rows are changed as they are at the end of the log, whether an instance is running or not. UPDATE and DELETE are for tables that
    are created without KAFKA_TOPIC.

    flowql exec "INSERT INTO users VALUES (1, 'ada')"
    flowql exec "UPDATE users SET name = 'eve' WHERE id = 1"
    flowql exec "DELETE FROM users WHERE id = 1"
    """
    scope = Scope.of(ctx, project=project, target=target, output=output, var=var)
    form = scope.only(Output.TABLE, Output.JSON)
    found = scope.load()
    done = execute(found, settings_of(found), sys.stdin.read() if sql == "-" else sql)
    if form is Output.JSON:
        print_json([{"statement": verb.lower(), "table": name, "rows": rows} for verb, name, rows in done])
    for verb, name, rows in done if form is Output.TABLE else ():
        note(f"{verb} {rows:,} {'row' if rows == 1 else 'rows'} of {name}")

"""`flowql query`: ask SQL of tables, streams and internal state."""

from __future__ import annotations

import sys
from typing import Annotated

import pyarrow as pa
import typer

from flowql.cli.options import OutputOption, ProjectOption, Scope, TargetOption, VarOption
from flowql.cli.render import note, print_arrow
from flowql.deploy.settings import Settings, settings_of
from flowql.errors import CommandError
from flowql.query.errors import APART
from flowql.server.client import LOST, connect


def command(
    ctx: typer.Context,
    sql: Annotated[str, typer.Argument(help="One SELECT, WITH, DESCRIBE, EXPLAIN or SHOW; - reads it from stdin.")],
    project: ProjectOption = None,
    target: TargetOption = None,
    output: OutputOption = None,
    var: VarOption = None,
) -> None:
    """Ask SQL of tables and internal stores.

    The answer is about one commit: of the live instance, or of a stopped one's directory.
    """
    scope = Scope.of(ctx, project=project, target=target, output=output, var=var)
    settings = settings_of(scope.load())
    answer = ask(settings, sys.stdin.read() if sql == "-" else sql)
    if apart := (answer.schema.metadata or {}).get(APART):
        note(f"note: these relations are not at one place of their input: {apart.decode()}")
    print_arrow(answer, output=scope.output.value)


def ask(settings: Settings, sql: str) -> pa.Table:
    """The answer of the live instance, or of the directory. An instance that ends while asked is asked as a stopped one."""
    client = connect(settings.data_dir)
    if client is not None:
        try:
            return client.query(sql)
        except CommandError as error:
            if error.code != LOST or connect(settings.data_dir) is not None:
                raise
        finally:
            client.close()
    from flowql.query.session import evaluate  # the engine's reading side and DuckDB: 0.4 s to import
    from flowql.server.choice import at_rest

    with at_rest(settings).commits() as take:
        return evaluate(sql, take)

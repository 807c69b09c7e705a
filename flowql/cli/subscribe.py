"""`flowql subscribe`: the rows of a stream and the changes of a table, as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from flowql.cli.listening import until_asked_to_stop, write_changes
from flowql.cli.options import Scope, scoped
from flowql.cli.place import place_of

if TYPE_CHECKING:
    from flowql.query.push import Start


@scoped("project target output var")
def command(
    scope: Scope,
    what: Annotated[str, typer.Argument(help="A stream, a table, or SELECT ... EMIT CHANGES.", metavar="NAME|SELECT")],
    start: Annotated[
        str, typer.Option("--from", help="Where to start reading the streams.", metavar="earliest|latest")
    ] = "latest",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Maximum number of rows.")] = None,
) -> None:
    """Print new rows of a stream or changes of a table.

    This process computes a SELECT from the log, without load on the instance, unless the target has a `url`. `-o json` writes a line per row: {op,
    rowtime, row}.

    New rows: flowql subscribe ORDERS

    Existing rows and changes of a result:  flowql subscribe SPENT_PER_HOUR --from earliest

    After a rebuild of an input, a line says so (`-o json`: op `rebuilt`), and all rows of the new generation
    follow.

    A query over it:   flowql subscribe "SELECT ITEM, COUNT(*) AS N FROM ORDERS GROUP BY ITEM EMIT CHANGES"
    """
    if start not in ("earliest", "latest"):
        raise typer.BadParameter(f"--from takes earliest or latest, not {start}")
    with (
        until_asked_to_stop() as stopped,
        place_of(scope.load()).changes(what, cast("Start", start), limit, stopped) as changes,
    ):
        write_changes(changes, as_json=scope.as_json)

"""`flowql diff`: the serving generation of a result and the one that is built, compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from flowql.cli.live import live_client
from flowql.cli.options import Scope, scoped
from flowql.cli.render import note, print_json, print_rows

Row = Mapping[str, Any]


@scoped("project target output var")
def command(
    scope: Scope,
    result: Annotated[str, typer.Argument(help="Stream, table or query id.", metavar="NAME", show_default=False)],
) -> None:
    """Compare a serving result with its new generation.

    `flowql deploy --shadow` builds it. Both are compared at the same input offsets, for which the serving one stops
    briefly. Rows of tables are matched by key; rows of streams differ if one generation has them more often.

    Example:  flowql diff LARGE_ORDERS
    """
    with live_client(scope) as client:
        found = client.diff(result)
    if scope.as_json:
        print_json(found)
        return
    note(
        f"{found['result']}: {found['serving']:,} rows serve, {found['built']:,} are built (generation {found['generation']})"
    )
    if ahead := found.get("ahead"):
        note(f"the built generation has read {ahead:,} records more: rows that follow from those count as differences")
    print_rows(("rows", "count"), [(what, found[what]) for what in ("missing", "extra", "different")])
    rows = list(_examples(found["examples"]))
    names = found["compared"]
    if rows:
        print_rows(("", *names), [(sign, *(_shown(row.get(n)) for n in names)) for sign, row in rows])
    for names, where in ((found["only_serving"], "serves"), (found["only_built"], "is built")):
        if names := [n for n in names if n != "ROWTIME"]:
            note(f"not compared: {', '.join(names)}, which only what {where} has")


def _examples(found: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, Row]]:
    """A few rows of each kind: - serves, + is built."""
    yield from (("-", row) for row in found["missing"])
    yield from (("+", row) for row in found["extra"])
    for pair in found["different"]:
        yield "-", pair["serving"]
        yield "+", pair["built"]


def _shown(value: Any) -> Any:
    return "NULL" if value is None else value

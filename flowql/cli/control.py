"""`flowql pause`, `resume`, `stop`, `diff`, `promote` and `abandon`: one request to the running instance each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from flowql.cli.building import await_built
from flowql.cli.options import Scope, scoped
from flowql.cli.place import live_client
from flowql.cli.render import note, print_json, print_rows
from flowql.deploy.settings import settings_of
from flowql.server.client import Calls
from flowql.server.ending import end_instance

Queries = Annotated[list[str], typer.Argument(help="Query ids or sink names.", metavar="QUERY...", show_default=False)]
Built = Annotated[
    str | None,
    typer.Argument(help="Query id or name of its result; default: all.", metavar="[NAME]", show_default=False),
]


@scoped("project target output var")
def pause(scope: Scope, queries: Queries) -> None:
    """Pause queries; their state and positions are kept.

    Other queries continue. A pause survives restarts and deployments, until `flowql resume`.

    Example:  flowql pause orders_by_customer
    """
    _ask(scope, "paused", lambda c: c.pause(queries, paused=True), "paused {}; continue with:  flowql resume")


@scoped("project target output var")
def resume(scope: Scope, queries: Queries) -> None:
    """Resume paused queries where they stopped.

    They process the records that arrived meanwhile. A query in state `hung` is retried.

    Example:  flowql resume orders_by_customer
    """
    _ask(scope, "resumed", lambda c: c.pause(queries, paused=False), "resumed {}")


@scoped("project target output var")
def promote(
    scope: Scope,
    query: Built = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return before the new generation serves.")] = False,
) -> None:
    """Swap in the generation built by `deploy --shadow`.

    Queries that read each other's results swap in one commit. A generation that lags swaps in when it has caught up.

    Example:  flowql promote
    """
    _ask(scope, "promoted", lambda c: c.promote(query), "promoted {}", wait=not no_wait)


@scoped("project target output var")
def abandon(scope: Scope, query: Built = None) -> None:
    """Drop a new generation; the serving one continues.

    Generations that would swap in with it are dropped too. The project's files are unchanged: the next `flowql deploy`
    builds the same generation.

    Example:  flowql abandon
    """
    _ask(
        scope, "abandoned", lambda c: c.abandon(query), "abandoned the new generation of {}; the serving one continues"
    )


def _ask(scope: Scope, key: str, request: Callable[[Calls], Sequence[str]], said: str, *, wait: bool = False) -> None:
    """key: of the ids in the JSON. said: with `{}` for the ids. wait: until the queries serve."""
    with live_client(scope) as client:
        done = request(client)
        if scope.as_json:
            print_json({key: done})
        else:
            note(said.format(", ".join(done)))
        if wait and not await_built(client, done):
            raise typer.Exit(130)


# --- `flowql stop`: end the background instance ---


@scoped("project target var")
def stop(
    scope: Scope,
    force: Annotated[
        bool,
        typer.Option("--force", help="Kill a process that does not end; uncommitted work is repeated."),
    ] = False,
) -> None:
    """Stop the background instance, after a commit.

    An instance that does not answer gets SIGTERM. If it still runs, the command fails; --force
    kills the process. `flowql deploy` starts the queries again.
    """
    ended = end_instance(settings_of(scope.load()).data_dir, force=force)
    if ended is None:
        note("no instance is running")
    else:
        note(
            f"killed process {ended.pid}; nothing committed is lost" if ended.killed else f"stopped process {ended.pid}"
        )


# --- `flowql diff`: the serving generation of a result and the one that is built, compared ---

Row = Mapping[str, Any]


@scoped("project target output var")
def diff(
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
    note(f"{found['result']}: {found['serving']:,} rows serve, generation {found['generation']} has {found['built']:,}")
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

"""`flowql pause`, `resume`, `promote` and `abandon`: one request to the running instance each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from flowql.cli.building import await_built
from flowql.cli.live import live_client
from flowql.cli.options import Scope, scoped
from flowql.cli.render import note, print_json
from flowql.server.client import Calls

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

"""`flowql top`: what the queries of a running instance do now."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from flowql.cli.monitoring.columns import COLUMNS
from flowql.cli.monitoring.screen import INTERVAL_S_MAX, INTERVAL_S_MIN, Screen, run
from flowql.cli.monitoring.table import View, picture, text_of
from flowql.cli.options import Scope, scoped
from flowql.cli.place import Place, live_client, place_of
from flowql.cli.render import print_json, print_json_line, print_text
from flowql.errors import CommandError
from flowql.server.address import NOT_RUNNING
from flowql.server.client import Calls

KEYS = [c.key for c in COLUMNS]
WIDTH_PIPED = 200  # of a table that goes to a file: everything fits


@scoped("project target output var")
def command(
    scope: Scope,
    sort: Annotated[
        str, typer.Option("--sort", help=f"Column to sort by: {', '.join(KEYS)}.", metavar="COLUMN")
    ] = "share",
    reverse: Annotated[bool, typer.Option("--reverse", help="Reverse the order.")] = False,
    filter_: Annotated[
        str, typer.Option("--filter", help="Only queries whose id, class or state contains this.", metavar="TEXT")
    ] = "",
    interval: Annotated[
        float, typer.Option("--interval", min=INTERVAL_S_MIN, max=INTERVAL_S_MAX, help="Seconds between two refreshes.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
) -> None:
    """Show each query's share of the processor, rates and lag.

    GOT/DUE is the query's share of the processor in the last ten seconds, and the share due to its weight. P50 and
    P99 are latencies in the last thirty seconds.

    In a terminal it runs until you press q; ? lists the keys. Otherwise it prints a table at each interval, or with
    -o json a document per line.

    Examples:  flowql top --sort lag --filter batch

               flowql top --once -o json
    """
    if sort not in KEYS:
        raise typer.BadParameter(f"--sort takes one of {', '.join(KEYS)}; not {sort!r}")
    view = View(sort, reverse, filter_)
    with live_client(scope) as client:
        status = client.status()
    from rich.console import Console

    console = Console(highlight=False)
    if once or scope.as_json or not console.is_terminal:
        _plain(scope, view, console, status, as_json=scope.as_json, interval_s=None if once else interval)
        return
    from flowql.cli.monitoring.screen import reading_keys

    instance = _Instance(place_of(scope.load()))
    with reading_keys() as keys:
        run(Screen(instance.look, view, interval, status), keys, console)


class _Instance:
    """The instance of a target, whichever process it is in just now."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._client: Calls | None = None

    def look(self) -> Mapping[str, Any]:
        """Raises CommandError while there is none."""
        if self._client is None:
            self._client = self._place.connect()
        if self._client is None:
            raise CommandError("the instance has stopped", code=NOT_RUNNING)
        try:
            return self._client.status()
        except CommandError as error:
            self._client.close()
            self._client = None
            if self._place.is_there():
                raise
            raise CommandError("the instance has stopped", code=error.code) from error


def _plain(
    scope: Scope, view: View, console: Any, status: Mapping[str, Any], *, as_json: bool, interval_s: float | None
) -> None:
    """Without a screen: once, or until interrupted or the instance is gone."""
    while True:
        if as_json:
            document = {"instance": status["instance"], "queries": view.select(status)}
            (print_json if interval_s is None else print_json_line)(document)
        elif console.is_terminal:
            console.print(picture(status, view, console.width))
        else:
            print_text(text_of(status, view, WIDTH_PIPED))
        if interval_s is None:
            return
        time.sleep(interval_s)
        with live_client(scope) as client:
            status = client.status()

"""`flowql priority`: how queries share the processor, shown and changed while they run."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flowql.cli.options import OR_CSV, Output, Scope, scoped
from flowql.cli.place import live_client
from flowql.cli.render import note, print_json, print_rows
from flowql.compiler.analyze.options import duration_ms
from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS, Priority
from flowql.deploy.control import NewPriority

HELP = """Show and change how queries share the processor.

Without a subcommand it shows for each query its class and weight, its share if all queries had work, and the share that it was
entitled to and got in the last ten seconds.

Examples:  flowql priority

           flowql priority set orders_by_customer critical
"""
app = typer.Typer(help=HELP, invoke_without_command=True)
WEIGHT_MAX = 10_000


@app.callback()
@scoped("project target output var", outputs=OR_CSV)
def ls(scope: Scope) -> None:
    """Runs the verb without a subcommand."""
    with live_client(scope) as client:
        queries = client.status()["queries"]
    total = sum(q["weight"] for q in queries if q["state"] != "paused") or 1
    columns = ("query", "priority", "weight", "latency_target_ms", "of_all", "entitled", "share")
    shown = ("query", "priority", "weight", "target ms", "of all", "entitled", "got")
    table = scope.output is Output.TABLE
    rows = [[*_row(q), _target(q, table=table), *_shares(q, total, percent=table)] for q in queries]
    print_rows(shown if table else columns, rows, output=scope.output.value)


def _row(q: dict[str, Any]) -> list[Any]:
    return [q["id"], q["priority"], q["weight"]]


def _target(q: dict[str, Any], *, table: bool) -> Any:
    return "-" if table and q["latency_target_ms"] is None else q["latency_target_ms"]


def _shares(q: dict[str, Any], total: int, *, percent: bool) -> list[Any]:
    """Shares of the processor: the one if all queries had work, the one due beside those that had, and the one it got."""
    of_all = 0.0 if q["state"] == "paused" else q["weight"] / total
    shares = [of_all, q["entitled"], q["share"]]
    if not percent:
        return [None if s is None else round(s, 4) for s in shares]
    return ["-" if s is None else f"{s:.1%}" for s in shares]


@app.command("set")
@scoped("project target output var")
def set_(
    scope: Scope,
    query: Annotated[str, typer.Argument(help="Query id or name of its result.", metavar="QUERY")],
    priority: Annotated[Priority, typer.Argument(help="The class.", metavar="CLASS", show_default=False)],
    weight: Annotated[
        int | None, typer.Option("--weight", min=1, max=WEIGHT_MAX, help="Weight instead of the class's.")
    ] = None,
    latency_target: Annotated[
        str | None,
        typer.Option(
            "--latency-target",
            help="Target for shorter turns and more frequent commits; `none` removes it.",
            metavar="TIME",
        ),
    ] = None,
) -> None:
    """Change a query's class (critical, high, normal, batch) at once.

    The change survives restarts, until the next deployment.

    Examples:  flowql priority set orders_by_customer critical --latency-target '200 ms'

               flowql priority set history batch --weight 2
    """
    wanted = NewPriority(query, priority, weight, _target_ms(latency_target))
    with live_client(scope) as client:
        done = client.set_priority(wanted)
    if scope.as_json:
        print_json(done)
        return
    note(f"{done['id']} is {_described(done)} from now on")
    note(f"until the next deployment; to keep it, in flowql.yaml:  priorities: {{{done['id']}: {_yaml(done)}}}")


def _target_ms(text: str | None) -> int | None:
    """The latency target in ms. None leaves it as it is, 0 removes it."""
    if text is None or text.casefold() == "none":
        return None if text is None else 0
    ms = duration_ms(text)
    if ms is None or ms < 1:
        raise typer.BadParameter(f"--latency-target takes a time such as '500 ms', or none; not {text!r}")
    return ms


def _described(done: dict[str, Any]) -> str:
    target = f", latency target {done['latency_target_ms']} ms" if done["latency_target_ms"] else ""
    return f"{done['priority']}, weight {done['weight']}{target}"


def _yaml(done: dict[str, Any]) -> str:
    parts = [f"priority: {done['priority']}"]
    if done["weight"] != PRIORITY_WEIGHTS[done["priority"]]:
        parts.append(f"weight: {done['weight']}")
    if done["latency_target_ms"]:
        parts.append(f"latency_target: {done['latency_target_ms']} ms")
    return f"{{{', '.join(parts)}}}" if len(parts) > 1 else str(done["priority"])

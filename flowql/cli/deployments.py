"""`flowql deployments`: what was deployed, when, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from flowql.cli.monitoring.amounts import duration
from flowql.cli.options import Scope, scoped
from flowql.cli.place import place_of
from flowql.cli.render import note, print_json, print_rows, print_text
from flowql.compiler.plan.deployed import Entry
from flowql.deploy.history import counts_of, entry_of, result_of, to_data
from flowql.runtime.clock import iso_time

HELP = """Show recent deployments: when, what changed, and the outcome.

The last 50 deployments are recorded with the target's data; pauses and new priorities count as deployments.

Examples:  flowql deployments

           flowql deployments show 3
"""
WORDS = {"add": "added", "change": "rebuilt", "forward": "forward", "remove": "removed", "priority": "metadata"}
app = typer.Typer(help=HELP, invoke_without_command=True)


@app.callback()
@scoped("project target output var")
def ls(scope: Scope) -> None:
    """Runs the verb without a subcommand."""
    entries, deployed = place_of(scope.load()).history(plans=False)
    if scope.as_json:
        print_json([to_data(e, entries, deployed) for e in entries])
        return
    rows = [
        (e.id, iso_time(e.ms, "seconds"), e.about.how, _counted(e), _took(e), result_of(e, entries, deployed))
        for e in entries
    ]
    print_rows(("id", "when", "how", "queries", "took", "result"), rows)


@app.command("show")
@scoped("project target output var")
def show(
    scope: Scope, number: Annotated[int, typer.Argument(help="The deployment's id.", metavar="ID", show_default=False)]
) -> None:
    """Show one deployment's files, changes and queries.

    Example:  flowql deployments show 3
    """
    entries, deployed = place_of(scope.load()).history(plans=True)
    entry = entry_of(entries, number)
    queries = [{"id": q.id, "generation": q.generation, "sql": q.sql} for q in entry.plan.queries]
    data = to_data(entry, entries, deployed) | {"queries": queries}
    if scope.as_json:
        print_json(data)
    else:
        _print(data)


def _print(data: Mapping[str, Any]) -> None:
    took = "" if data["seconds"] is None else f", {duration(data['seconds'] * 1000)}"
    note(f"deployment {data['id']}: {data['how']} at {iso_time(data['ms'], 'seconds')}, {data['result']}{took}")
    for name, digest in data["files"].items():
        note(f"{name} {digest}")
    rows = [(c["query"], WORDS.get(c["action"], c["action"]), c["because"] or "") for c in data["changes"]]
    print_rows(("query", "change", "because"), rows)
    for f in data["forward"]:
        note(f"{f['query']}: its new text has read {_spans(f['reads'])}; its results are {_spans(f['results'])}")
    for query in data["queries"]:
        print_text(f"\n-- {query['id']}, generation {query['generation']}\n{query['sql'].strip()}")


def _spans(found: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{s['topic']}-{s['partition']} from offset {s['offset']}" for s in found)


def _counted(entry: Entry) -> str:
    return ", ".join(f"{n} {WORDS.get(action, action)}" for action, n in counts_of(entry).items())


def _took(entry: Entry) -> str:
    return "" if entry.done_ms is None else duration(entry.done_ms - entry.ms)

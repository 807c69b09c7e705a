"""`flowql lineage`: where data comes from and goes to, as a table, a picture or a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from flowql.cli.options import Output, Scope, scoped
from flowql.cli.render import note, print_json, print_rows, print_text
from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.plan.topology import Plan
from flowql.errors import CommandError
from flowql.lineage import columns as column_lineage
from flowql.lineage import graph as relation_lineage
from flowql.lineage import page, svg
from flowql.lineage.columns import ColumnGraph, Place
from flowql.lineage.graph import Graph

Form = Literal["table", "json", "svg", "html", "mermaid"]
FormOption = Annotated[Form | None, typer.Option("--output", "-o", help="Format of the output.")]
FileOption = Annotated[Path | None, typer.Option("--file", "-f", help="Write to this file.")]
ColumnOption = Annotated[
    str | None, typer.Option("--column", "-c", help="Follow this column.", metavar="RELATION.COLUMN")
]
RelationArgument = Annotated[
    list[str] | None, typer.Argument(help="Only inputs and dependents of these.", metavar="[STREAM | TABLE]...")
]


@scoped("project target select var")
def command(
    scope: Scope,
    relations: RelationArgument = None,
    column: ColumnOption = None,
    output: FormOption = None,
    file: FileOption = None,
) -> None:
    """Show inputs and dependents of streams and tables.

    flowql lineage                                   one line per query
    flowql lineage SPENT_PER_HOUR                    one table
    flowql lineage --column SPENT_PER_HOUR.SPENT     where a column comes from
    flowql lineage -o html -f lineage.html           a web page
    """

    def chosen(plan: Plan) -> Graph:
        whole = relation_lineage.of_plan(plan)
        writes = {f.query: f.writes for f in whole.flows}
        names = [*(relations or ()), *(writes.get(name, name) for name in scope.select)]
        return whole.around([_known(whole, n) for n in names]) if names else whole

    found, compiled = scope.compile(concerned=lambda plan: (f.query for f in chosen(plan).flows))
    whole, shown = relation_lineage.of_plan(compiled.plan), chosen(compiled.plan)
    columns = column_lineage.of_plan(compiled.plan)
    place = _place(whole, compiled.plan, column) if column else None
    lit = _path(columns, place) if place else frozenset()
    match output or scope.only(Output.TABLE, Output.JSON).value:
        case "table" if place:
            _print_column(columns, place)
        case "table":
            _print_flows(shown)
        case "json":
            print_json(_data(shown, columns, place))
        case "svg":
            _write(svg.draw(shown, lit), file)
        case "html":
            _write(page.write(found.name, shown, columns, lit, place), file)
        case "mermaid":
            _write(relation_lineage.mermaid(shown), file)


def _known(graph: Graph, name: str) -> str:
    """The relation of this name; upper and lower case are told apart only where it matters."""
    names = [r.name for r in graph.relations]
    alike = [n for n in names if n == name] or [n for n in names if n.upper() == name.upper()]
    if len(alike) != 1:
        hint = did_you_mean(name, names) or (f"there are {listing(names)}" if names else "the project has none")
        raise CommandError(f"the project has no stream or table `{name}`", code="FQ5003", help=hint)
    return alike[0]


def _place(graph: Graph, plan: Plan, text: str) -> Place:
    relation, dot, column = text.rpartition(".")
    if not dot:
        raise typer.BadParameter(f"--column takes RELATION.COLUMN, not {text!r}")
    name = _known(graph, relation)
    source = plan.source(name)
    names = list(source.visible) if source is not None else []
    alike = [n for n in names if n == column] or [n for n in names if n.upper() == column.upper()]
    if len(alike) != 1:
        hint = did_you_mean(column, names) or f"its columns are {listing(names)}"
        raise CommandError(f"{name} has no column `{column}`", code="FQ5003", help=hint)
    return name, alike[0]


def _path(columns: ColumnGraph, place: Place) -> frozenset[str]:
    return frozenset(relation for relation, _ in [*columns.upstream(place), *columns.downstream(place)])


def _print_flows(graph: Graph) -> None:
    print_rows(
        ["result", "made of", "by", "priority", "query"],
        [[f.writes, ", ".join(f.reads), ", ".join(f.does), f.priority, f.query] for f in graph.flows],
    )


def _print_column(columns: ColumnGraph, place: Place) -> None:
    print_text("\n".join(_tree(place, columns.upstream(place))))
    after = columns.downstream(place)
    if len(after) > 1:
        print_text("\ngoes into")
        print_text("\n".join(_tree(place, after)[1:]))


def _tree(place: Place, steps: dict[Place, frozenset[Place]], seen: frozenset[Place] = frozenset()) -> list[str]:
    """A line per column, with what it leads to below it; one that closes a circle ends there."""
    lines = [".".join(place)]
    if place in seen:
        return [lines[0] + " (see above)"]
    below = sorted(steps[place])
    for i, other in enumerate(below):
        branch, more = ("└─ ", "   ") if i + 1 == len(below) else ("├─ ", "│  ")
        first, *rest = _tree(other, steps, seen | {place})
        lines += [branch + first, *(more + line for line in rest)]
    return lines


def _data(graph: Graph, columns: ColumnGraph, place: Place | None) -> object:
    if place is not None:
        return {
            "column": list(place),
            "made_of": [list(p) for p in sorted(columns.upstream(place)) if p != place],
            "goes_into": [list(p) for p in sorted(columns.downstream(place)) if p != place],
        }
    return {
        "relations": [
            {"name": r.name, "kind": r.kind, "topic": r.topic, "columns": [list(c) for c in r.columns]}
            for r in graph.relations
        ],
        "queries": [
            {"id": f.query, "reads": list(f.reads), "writes": f.writes, "priority": f.priority, "does": list(f.does)}
            for f in graph.flows
        ],
    }


def _write(text: str, file: Path | None) -> None:
    if file is None:
        print_text(text.rstrip("\n"))
        return
    file.write_text(text, encoding="utf-8")
    note(f"wrote {file}")

"""`flowql explain`: the plan of the project, of one query, what a statement reads, or the page of an error code."""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import unified_diff
from typing import Annotated, Any

import typer

from flowql.cli.options import Scope, scoped
from flowql.cli.render import counted, note, print_json, print_rows, print_text
from flowql.cli.status import LATE_COLUMNS, late_rows
from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.codes import CodePage, code_pages
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.driver import Compiled
from flowql.compiler.plan import codec
from flowql.compiler.plan.explain import outline_text, query_text, schema_text, spec_text, tree_text
from flowql.compiler.plan.logical import Node
from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef
from flowql.config.project import Project
from flowql.deploy.settings import settings_of
from flowql.errors import CommandError
from flowql.runtime.spark.settings import SparkSettings
from flowql.server.running import connect

_STATEMENT = re.compile(r"\s*(?:insert|update|delete|with)\s", re.IGNORECASE)
_CODE = re.compile(r"FQ\d{4}", re.IGNORECASE)
Subject = Annotated[
    str | None,
    typer.Argument(
        help="Query id, name of its result, INSERT, UPDATE or DELETE, or error code.",
        metavar="[QUERY | STATEMENT | FQ####]",
    ),
]


@scoped("project target select output var")
def command(
    scope: Scope,
    subject: Subject = None,
    late: Annotated[
        bool,
        typer.Option(
            "--late",
            help="Show rows that were too late for their windows, with the stream time, of the running instance or the last commit.",
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show all columns, operators, and what each optimiser rule did.")
    ] = False,
) -> None:
    """Show the plan of queries or statements, or an error's page.

    Shows sources, each query's tree, stores and topics.

    flowql explain SPENT_PER_HOUR --late
    flowql explain "UPDATE users SET name = 'eve' WHERE id = 1"
    """
    if subject is not None and _CODE.fullmatch(subject):
        _explain_code(subject.upper(), as_json=scope.as_json)
        return
    if subject is not None and _STATEMENT.match(subject):
        _explain_statements(scope, subject)
        return
    if late:
        _explain_late(scope, subject, as_json=scope.as_json)
        return
    found, compiled, chosen = _compiled(scope, [*scope.select, *([subject] if subject else [])])
    if scope.as_json:
        print_json(codec.to_data(replace(compiled.plan, queries=chosen)))
    else:
        on_spark = found.target.spark if found.target.engine == "spark" else None
        print_text(explain_text(compiled, chosen, on_spark, verbose=verbose))


def _explain_statements(scope: Scope, text: str) -> None:
    """The rows of its table that each statement reads."""
    from flowql.compiler.driver import compile_changes  # loads the parser: 0.5 s
    from flowql.runtime.topology.table_groups import reads_text

    project, compiled = scope.compile(concerned=lambda _: ())
    sources = {s.name: s for s in compiled.plan.sources}
    found: list[dict[str, Any]] = []
    changes = compile_changes(
        SourceText("", text), compiled.plan.sources, dialect=project.dialect, variables=project.variables
    )
    for change in changes:
        if isinstance(change, TableChange):
            about = {
                "statement": change.kind,
                "table": change.target,
                "reads": reads_text(sources[change.target], change),
            }
            found.append(about | ({"query": change.select} if change.select else {}))
        else:
            found.append({"statement": "insert", "table": change.target, "reads": "reads no rows"})
    if scope.as_json:
        print_json(found)
        return
    for about in found:
        print_text(f"{about['statement'].upper()} {about['table']}: {about['reads']}")
        if "query" in about:
            print_text(f"  query: {about['query']}")


def _explain_late(scope: Scope, subject: str | None, *, as_json: bool) -> None:
    """How late rows were, and the partitions whose stream time they came behind."""
    if subject is None:
        raise typer.BadParameter("--late takes a query:  flowql explain QUERY --late")
    project, _, (query,) = _compiled(scope, [subject])
    settings = settings_of(project)
    client = connect(settings.data_dir)
    if client is not None:
        status = client.status()
    else:
        from flowql.server.choice import at_rest  # loads the engine's reading side

        status = at_rest(settings).status()
    entry: dict[str, Any] = next((q for q in status["queries"] if q["id"] == query.id), {"id": query.id})
    if as_json:
        print_json({"id": query.id, "late": entry.get("late") or []})
        return
    rows = list(late_rows(entry))
    if not rows:
        note(f"{query.id} has dropped no late rows")
        return
    print_rows(LATE_COLUMNS, rows)
    late, dropped = entry["late_records"], {each["operator"] for each in entry["late"]}
    note(
        f"{counted(late, 'row')} of {query.id} came after the end of their window and its grace: stream time is the largest "
        "time seen in a partition, one record far ahead holds it there; give a longer GRACE PERIOD, or rows in order of time"
    )
    for op in (op for sub in query.subtopologies for op in sub.operators if op.id in dropped):
        note(f"{op.id}: {spec_text(op.spec)}")


def _compiled(scope: Scope, names: list[str]) -> tuple[Project, Compiled, tuple[QueryPlan, ...]]:
    """The project, and the queries of these ids or results, with their warnings only."""
    project, compiled = scope.compile(concerned=lambda plan: (q.id for q in chosen_queries(plan, names)))
    return project, compiled, chosen_queries(compiled.plan, names)


def chosen_queries(plan: Plan, names: list[str]) -> tuple[QueryPlan, ...]:
    """The queries of these ids or results, in the order of the plan; all when none is named. CommandError for an unknown name."""
    if not names:
        return plan.queries
    known = {n.upper(): q.id for q in plan.queries for n in (q.sink, q.id)}
    for name in names:
        if name.upper() not in known:
            queries = [q.id for q in plan.queries]
            hint = did_you_mean(name, known) or (f"queries are {listing(queries)}" if queries else "it has none")
            raise CommandError(f"the project has no query `{name}`", code="FQ5003", help=hint)
    wanted = {known[n.upper()] for n in names}
    return tuple(q for q in plan.queries if q.id in wanted)


def explain_text(
    compiled: Compiled, queries: tuple[QueryPlan, ...], spark: SparkSettings | None = None, *, verbose: bool = False
) -> str:
    """Sources the queries read, then each query; with `spark` also how each node runs there."""
    reads = {s for q in queries for sub in q.subtopologies for s in sub.topics}
    sources = [
        _source(s)
        for s in compiled.plan.listed
        if s.query is None and (s.topic in reads or queries == compiled.plan.queries)
    ]
    parts = ["\n".join(sources)] if sources else []
    for q in queries:
        parts += [_query(compiled, q) if verbose else outline_text(q), *_by_row(q)]
        if spark is not None:
            parts += _on_spark(compiled.plan, q, spark)
    return "\n\n".join(parts)


def _by_row(query: QueryPlan) -> list[str]:
    """Lists the operators that process each batch row by row, with the reason. An empty list means that all work by columns."""
    from flowql.runtime.topology.program import why_by_row  # loads the engine

    lines = [f"{op}: {why}" for sub in query.subtopologies for op, why in why_by_row(sub.operators).items()]
    return [_titled("row by row:", lines)] if lines else []


def _on_spark(plan: Plan, query: QueryPlan, settings: SparkSettings) -> list[str]:
    """How each node runs on Spark: once when streams and batches do it alike. Raises SparkUnsupported."""
    from flowql.runtime.spark.choose import (
        explain_lines,  # functions and their lowerings, which other explanations do without
    )

    streaming, bounded = (explain_lines(plan, query, settings, mode) for mode in ("streaming", "bounded"))
    if streaming == bounded:
        return [_titled("on Spark:", streaming)]
    return [_titled("on Spark, as a stream:", streaming), _titled("on Spark, with --bounded:", bounded)]


def _titled(title: str, lines: list[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _source(s: SourceDef) -> str:
    partitions = f", {s.partitions} partitions" if s.partitions else ""
    return f"{s.kind} {s.name} (topic {s.topic}{partitions})\n  {schema_text(s.shown)}"


def _query(compiled: Compiled, query: QueryPlan) -> str:
    text = query_text(query)
    trace = compiled.trace.get(query.id)
    if trace is None or not trace.steps:
        return text
    parts = [f"{text}\n\nwhat the optimiser did, rule by rule:"]
    before = trace.unoptimised
    for rule, after in trace.steps:
        parts += [f"  {rule}", *(f"    {line}" for line in _changed(before, after))]
        before = after
    return "\n".join(parts)


def _changed(before: Node, after: Node) -> list[str]:
    """Lines of the tree a rule took away (-) and put in (+); those of the columns when the operators are the same."""
    for outline in (_outline, lambda n: tree_text(n).splitlines()):
        lines = unified_diff(outline(before), outline(after), n=0, lineterm="")
        changed = [line for line in lines if line[:3] not in ("---", "+++") and line[:2] != "@@"]
        if changed:
            return changed
    return []


def _outline(node: Node, depth: int = 0) -> list[str]:
    """The operators of a tree without their columns."""
    return ["  " * depth + spec_text(node.spec), *(line for i in node.inputs for line in _outline(i, depth + 1))]


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _explain_code(code: str, *, as_json: bool) -> None:
    page = code_pages().get(code)
    if page is None:
        raise CommandError(f"there is no error code {code}", code="FQ5003", help=did_you_mean(code, code_pages()))
    if as_json:
        print_json(
            {
                "code": code,
                "title": page.title,
                "explanation": page.explanation,
                "wrong": page.wrong,
                "right": page.right,
            }
        )
    else:
        print_text(_page(code, page))


def _page(code: str, page: CodePage) -> str:
    parts = [f"{code}: {page.title}", page.explanation]
    for word, example in (("wrong", page.wrong), ("right", page.right)):
        if example:
            parts.append(f"{word}:\n{_indented(example)}")
    return "\n\n".join(parts)

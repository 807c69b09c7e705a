"""A view over relations that change: its plan up to the sink, and what the catalogue says of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from compiler.analyze.mistakes import mistake
from compiler.analyze.relations.expressions import without_marks
from compiler.analyze.relations.query import QueryBinder
from compiler.analyze.relations.relation import column_of, projected, with_identity
from compiler.analyze.relations.time_windows import is_time_window, source_of
from compiler.catalog.catalog import Catalog
from compiler.diagnostics.diagnostic import CompileError, Diagnostic
from compiler.diagnostics.source import Span
from compiler.dialect.standard import tree as t
from compiler.plan.changes import Consolidate
from compiler.plan.logical import NamedExpr, Node
from compiler.plan.schema import Field
from compiler.plan.tables import HIDDEN
from compiler.plan.topology import SourceDef


def relations_read(node: t.Node, common: frozenset[str] = frozenset()) -> Iterator[str]:
    """Names in FROM, at any depth, that mean no common table expression. common: names that mean one here."""
    if isinstance(node, t.Query):
        for table in node.with_:  # each may name those before it
            yield from relations_read(table.query, common | {table.name} if node.recursive else common)
            common |= {table.name}
    elif isinstance(node, t.TableFunction) and is_time_window(node) and node.call.args:
        yield from relations_read(source_of(node), common)
    elif isinstance(node, t.Table) and not (len(node.name) == 1 and node.name[0] in common):
        yield node.name[-1]
    for child in t.children(node):
        if not isinstance(child, t.With):
            yield from relations_read(child, common)


def is_relational(query: t.Query, catalog: Catalog, *, refused: bool) -> bool:
    """Whether the query is bound here: it reads a relation that changes, or, where queries over streams cannot say it, tables alone."""
    found = [s for n in relations_read(query) if (s := catalog.sources.get(n)) is not None]
    return any(s.relation for s in found) or (refused and bool(found) and all(_is_table(s) for s in found))


def _is_table(source: SourceDef) -> bool:
    return source.kind == "table" and source.schema.window is None


def bind_view(query: t.Query, columns: Sequence[str], catalog: Catalog, span: Span) -> tuple[Node, tuple[str, ...]]:
    """The plan of a view: one row per row identity, hidden in key columns, and its columns by their names, in order.

    columns: new names for the first ones. Raises CompileError.
    """
    try:
        return _bound(query, columns, catalog, span)
    except CompileError as error:
        raise type(error)(*map(_plain, error.diagnostics)) from None


def _plain(d: Diagnostic) -> Diagnostic:
    title, label, why, help_ = map(without_marks, (d.title, d.label, d.why, d.help))
    return replace(d, title=title, label=label, why=why, help=help_)


def _bound(query: t.Query, columns: Sequence[str], catalog: Catalog, span: Span) -> tuple[Node, tuple[str, ...]]:
    binder = QueryBinder(catalog)
    rel = binder.query(query)
    if len(columns) > len(rel.columns):
        raise mistake(
            "FQ2004", f"the view has {len(rel.columns)} columns, and {len(columns)} names", span, "too many names"
        )
    names = (*columns, *(c.name for c in rel.columns[len(columns) :]))
    for at, name in enumerate(names):
        if name in names[:at]:
            raise mistake(
                "FQ2004",
                f'column "{name}" is specified more than once',
                span,
                "named like another",
                help="give one an alias with AS",
            )
        if name.startswith(HIDDEN):
            raise mistake(
                "FQ2008",
                f"the name {name} is reserved: it begins with {HIDDEN}",
                span,
                "reserved",
                help="choose another name",
            )
    node = with_identity(rel.node, binder.names)
    identity = [(Field(f"{HIDDEN}{n}", f.type, "key"), column_of(f)) for n, f in enumerate(node.schema.key)]
    values = [NamedExpr(n, c.expr()) for n, c in zip(names, rel.columns, strict=True)]
    shown = projected(node, identity, values)
    return Node(Consolidate(), (shown,), shown.schema, "retract"), names

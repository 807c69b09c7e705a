"""A view over relations that change: its plan up to the sink, and what the catalogue says of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from flowql.compiler.analyze.joins import UNBOUNDED_JOIN
from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.relation import sources_read
from flowql.compiler.analyze.relations.array_queries import as_aggregates
from flowql.compiler.analyze.relations.clock import with_clock
from flowql.compiler.analyze.relations.closing import followed
from flowql.compiler.analyze.relations.composed_aggregates import of_others
from flowql.compiler.analyze.relations.definitions import is_plain, relations_read, whole
from flowql.compiler.analyze.relations.expressions import Correlated, without_marks
from flowql.compiler.analyze.relations.grouping import with_own_aggregates
from flowql.compiler.analyze.relations.query import QueryBinder
from flowql.compiler.analyze.relations.records import is_stream
from flowql.compiler.analyze.relations.relation import column_of, projected, with_identity
from flowql.compiler.analyze.relations.retention import PAIRING, Retention, with_retention
from flowql.compiler.catalog.catalog import Catalog, no_rows
from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic
from flowql.compiler.diagnostics.edits import Edit, behind, quoted, renamed
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect import walks
from flowql.compiler.dialect.ast import Star
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.refuse import unsupported
from flowql.compiler.functions.user import plain_names
from flowql.compiler.plan.changes import Consolidate, EquiJoin
from flowql.compiler.plan.logical import NamedExpr, Node, walk_nodes
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.tables import HIDDEN
from flowql.compiler.plan.topology import SourceDef


def bind_view(
    query: t.Query, columns: Sequence[str], catalog: Catalog, span: Span, retention: Retention
) -> tuple[Node, tuple[str, ...]]:
    """The plan of a view: its rows with their identity, hidden in key columns, and its columns by their names, in order.

    columns: new names for the first ones. Raises CompileError.
    """
    query = as_aggregates(of_others(query))
    try:
        return _bound(query, columns, catalog, span, retention)
    except Correlated:
        unsupported("a correlated sub-query of this form", span, "write it as a join")
    except CompileError as error:
        raise type(error)(*map(as_people_write, error.diagnostics)) from None


def as_people_write(d: Diagnostic) -> Diagnostic:
    title, label, why, help_ = map(_for_people, (d.title, d.label, d.why, d.help))
    return replace(d, title=title, label=label, why=why, help=help_)


def _for_people(text: str) -> str:
    return plain_names(without_marks(text))


def _another_alias(query: t.Query, at: int, name: str) -> Edit | None:
    """The item at a place of the select list with a name of its own."""
    items = query.body.items if isinstance(query.body, t.Select) else ()
    if at >= len(items) or any(isinstance(i.expr, Star) for i in items):
        return None
    item = items[at]
    other = quoted(f"{name}_{at + 1}")
    return renamed(item.span, name, other) if item.alias is not None else behind(item.span, f" AS {other}")


def _anchor(query: t.Query, catalog: Catalog) -> SourceDef:
    """The table that rows come from that are in none: one that the query reads, else one without rows."""
    found = (catalog.sources.get(n) for n in relations_read(query))
    tables = (s for s in found if s is not None and s.kind == "table" and s.schema.window is None)
    return next(tables, None) or no_rows(catalog)


def _bound(
    query: t.Query, columns: Sequence[str], catalog: Catalog, span: Span, retention: Retention
) -> tuple[Node, tuple[str, ...]]:
    binder = QueryBinder(catalog, _anchor(query, catalog))

    def retained(node: Node) -> Node:
        return with_retention(node, binder.names.windows, retention, catalog)

    rel = whole(binder, with_own_aggregates(query, catalog), retained)
    own = rel.shown
    if not own:
        raise mistake(
            "FQ2024", "the view has no columns", query.span, "nothing is selected", help="write  SELECT * FROM ..."
        )
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
                edit=_another_alias(query, at, name) if at >= len(columns) else None,
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
    values = [NamedExpr(n, c.expr()) for n, c in zip(names, own, strict=True)]
    shown = projected(node, identity, values)
    shown, _ = followed(with_clock(shown, span), binder.names.windows)
    refuse_unbounded(query, shown, catalog)
    return shown, names


def consolidated(view: Node) -> Node:
    """The rows of a view as a table keeps them: one per row identity."""
    return Node(Consolidate(), (view,), view.schema, "retract")


# --- joins of streams without a bound of time, which are refused, whatever they are written with: ON, USING, NATURAL or a comma ---


def refuse_unbounded(query: t.Query, node: Node, catalog: Catalog) -> None:
    """node: the plan, where joins know which of their rows are dropped. Raises CompileError.

    Both sides of a join of streams without watermarks grow for ever, and so would its state.
    """
    for join in walk_nodes(node):
        if not (isinstance(join.spec, EquiJoin) and join.spec.kind in PAIRING) or all(join.spec.closing):
            continue
        if all(_is_endless(i, catalog) for i in join.inputs):
            sides = [frozenset(sources_read(i)) for i in join.inputs]
            raise mistake(
                UNBOUNDED_JOIN,
                "this join of two streams has no time bound",
                _place(query, sides[0], sides[1]),
                "both inputs are unbounded",
                why="every row would have to be kept forever",
                help="bound the time of one stream by that of the other one, from both sides, as in"
                "  ON a.id = b.id AND a.ts BETWEEN b.ts - INTERVAL '1' HOUR AND b.ts",
            )


def _is_endless(node: Node, catalog: Catalog) -> bool:
    """Whether its rows are records of streams, none of which has a watermark."""
    return is_stream(node) and all(is_plain(n, catalog) for n in sources_read(node))


def _place(query: t.Query, left: frozenset[str], right: frozenset[str]) -> Span:
    """The innermost join with a relation of each side on each side: the first one that lacks the bound."""
    found = [j for j in _joins(query) if _parts(j, left, right) or _parts(j, right, left)]
    least = min(found, key=lambda j: len(walks.walk(j)), default=None)
    return query.span if least is None else least.at


def _parts(join: t.Join, left: frozenset[str], right: frozenset[str]) -> bool:
    return bool(left & set(relations_read(join.left)) and right & set(relations_read(join.right)))


def _joins(query: t.Query) -> Iterator[t.Join]:
    return (n for n in walks.walk(query) if isinstance(n, t.Join))

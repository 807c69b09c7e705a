"""Advice for a column that does not exist: an alias of the SELECT list, a relation that has an alias, a query without FROM."""

from __future__ import annotations

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.relations.grouping import has_aggregates
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.edits import Edit, behind, quoted
from flowql.compiler.dialect import walks
from flowql.compiler.dialect.ast import CastTo, Lit, Name
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.write_queries import WRITER
from flowql.compiler.dialect.texts import text_of


def misnamed(node: Name, select: t.Select, clause: str, catalog: Catalog, *, inside: bool) -> CompileError | None:
    """The mistake behind a name that is no column of a SELECT, if it is one of these. inside: it is a sub-query, which may name more."""
    alias = next((i for i in select.items if len(node.parts) == 1 and i.alias == node.parts[0]), None)
    if alias is not None:
        return _alias(node, alias, clause)
    if select.source is not None and len(node.parts) > 1 and (renamed := _renamed(node, select.source)):
        return renamed
    return _without_from(node, select, catalog) if select.source is None and not inside else None


def _renamed(node: Name, source: t.Relation) -> CompileError | None:
    """The name of a relation that FROM gives an alias, which hides it."""
    table, *rest = node.parts
    for n in walks.walk(source):
        if isinstance(n, t.Table) and n.alias is not None and n.name[-1] == table:
            text = ".".join(map(quoted, (n.alias.name, *rest)))
            title = f"'{table}' is not a valid stream/table name or alias: FROM calls it {n.alias.name}"
            return mistake(
                "FQ2001", title, node.span, "unknown source", help=f"write  {text}", edit=Edit(node.span, text)
            )
    return None


def _alias(node: Name, item: t.Item, clause: str) -> CompileError:
    expr = WRITER.expr(item.expr)
    plain = isinstance(item.expr, (Name, Lit, t.Call, CastTo))
    edit: Edit | None = Edit(node.span, expr if plain else f"({expr})")
    help = f"write the expression again:  {expr}"
    if any(isinstance(n, t.Call) and n.over is not None for n in walks.walk(item.expr)):
        help, edit = (
            f"filter a query around this one:  SELECT * FROM (SELECT ...) AS q WHERE {quoted(node.parts[0])} ...",
            None,
        )
    elif has_aggregates(item.expr) and clause != "HAVING":
        help, edit = f"put conditions on aggregates after GROUP BY:  HAVING {expr} ...", None
    elif walks.contains(item.expr, t.Query):
        edit = None
    return mistake(
        "FQ2085",
        f'"{node.parts[0]}" is an alias of the SELECT list, not a column',
        node.span,
        "no column",
        why="conditions and groups are computed before the SELECT list; only ORDER BY and GROUP BY may name an alias, and only by itself",
        help=help,
        edit=edit,
    )


def _without_from(node: Name, select: t.Select, catalog: Catalog) -> CompileError:
    """The edit adds FROM where one relation alone has such a column."""
    column = node.parts[-1]
    found = [
        n for n, s in catalog.sources.items() if column in s.visible and (len(node.parts) == 1 or n == node.parts[0])
    ]
    edit = behind(select.items[-1].span, f" FROM {quoted(found[0])}") if len(found) == 1 and select.items else None
    have = f"; {listing(map(quoted, found))} {'have' if len(found) > 1 else 'has'} such a column" if found else ""
    title = f'column "{text_of(node)}" does not exist: there is no FROM'
    return mistake("FQ2087", title, node.span, "of no relation", help=f"add  FROM relation{have}", edit=edit)

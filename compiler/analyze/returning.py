"""RETURNING of INSERT, UPDATE and DELETE: the columns of the rows that the statement gives back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from flowql.compiler.analyze.bind import Binder
from flowql.compiler.analyze.certain_failures import refuse_failing
from flowql.compiler.analyze.mistakes import mistake, unsupported
from flowql.compiler.analyze.operators import kept
from flowql.compiler.analyze.scope import Scope, ScopeColumn
from flowql.compiler.analyze.standard_limits import refuse_intervals
from flowql.compiler.catalog.catalog import Catalog, find_source
from flowql.compiler.catalog.names import did_you_mean, listing
from flowql.compiler.dialect.ast import LambdaFn, Name, Star
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.refuse import unsupported as refuse
from flowql.compiler.dialect.standard.tree_names import tree_name
from flowql.compiler.dialect.walks import walk
from flowql.compiler.plan.expr import Expr, Literal, columns_of
from flowql.compiler.plan.logical import NamedExpr
from flowql.compiler.plan.tables import HIDDEN
from flowql.compiler.plan.types import STRING, Kind

_BESIDE = (
    f"{HIDDEN}beside_"  # before the names in the plan of columns of FROM and USING: no column of a table begins so
)


def bind_returning(items: Sequence[t.Item], scope: Scope, catalog: Catalog) -> tuple[NamedExpr, ...]:
    """The columns in order. Raises CompileError, also for an expression that fails for every row."""
    binder = Binder(scope, catalog, "RETURNING")
    found: list[NamedExpr] = []
    for item in items:
        if isinstance(item.expr, Star):
            found += _star(item.expr, scope)
        else:
            found.append(NamedExpr(item.alias or tree_name(item.expr), _typed(kept(binder.bind(item.expr)))))
    refuse_intervals(c.expr for c in found)
    refuse_failing(c.expr for c in found)
    return tuple(found)


def _typed(e: Expr) -> Expr:
    """NULL without a type is a text, as in PostgreSQL."""
    return Literal(STRING, None, e.span) if isinstance(e, Literal) and e.type.kind is Kind.NULL else e


def _star(star: Star, scope: Scope) -> list[NamedExpr]:
    if star.excluded:
        refuse("* EXCEPT (...)", star.span, "name the columns")
    if len(star.qualifier) > 1:
        refuse("a schema in front of a name", star.span, f"write  {star.source}.*")
    if star.struct_of is not None:
        raise unsupported("the fields of a struct by `.*` in RETURNING", star.span, help="name each field")
    if star.source is not None and star.source not in scope.aliases:
        hint = did_you_mean(star.source, scope.aliases) or f"sources here are {listing(scope.aliases)}"
        raise mistake("FQ2001", f"'{star.source}' is not a relation of the statement", star.span, "unknown", help=hint)
    return [NamedExpr(c.name, c.expr()) for c in scope.columns if star.source in (None, c.source)]


# --- columns of FROM and USING ---


def with_beside(
    scope: Scope, items: Sequence[t.Item], relation: t.Relation | None, common: Set[str], catalog: Catalog
) -> Scope:
    """The columns that RETURNING may name: those of the table that is changed, and of the relations of FROM or USING.

    common: names of the tables of WITH. Raises UnsupportedError where an item may mean a column of a sub-query or of another relation without a
    name of its own.
    """
    columns, aliases = [*scope.columns], [*scope.aliases]
    beside = [*_beside(relation, common)] if items and relation is not None else []
    unknown = {alias for alias, table in beside if table is None}
    for item in items if unknown else ():
        _refuse_unknown(item.expr, unknown, scope)
    for i, (alias, table) in enumerate(beside):
        if table is not None:
            source = find_source(catalog, table.name[-1], table.span)
            fields = {f.name: f for f in source.schema}
            columns += [ScopeColumn(alias, n, fields[n].type, f"{_BESIDE}{i}_{n}", "value") for n in source.visible]
            aliases.append(alias)
    return Scope(tuple(columns), tuple(aliases))


def _beside(relation: t.Relation, common: Set[str]) -> Iterator[tuple[str, t.Table | None]]:
    """Relations by their aliases; None for a relation whose columns are not known here, such as a sub-query."""
    if isinstance(relation, t.Join) and not (relation.using or relation.natural or relation.variant):
        yield from _beside(relation.left, common)
        yield from _beside(relation.right, common)
    elif isinstance(relation, t.Table) and (relation.alias is None or not relation.alias.columns):
        name = relation.name[-1]
        yield relation.alias.name if relation.alias is not None else name, None if name in common else relation
    else:
        alias = None if isinstance(relation, t.Join) else relation.alias
        yield alias.name if alias is not None else "", None


def _refuse_unknown(item: t.Expr, unknown: Set[str], scope: Scope) -> None:
    """unknown: aliases of relations whose columns are not known here."""
    for node in walk(item, LambdaFn):
        if isinstance(node, Star):
            qualifier = node.source
        elif isinstance(node, Name):
            qualifier = node.parts[0] if len(node.parts) > 1 else None
        else:
            continue
        if qualifier is None or qualifier in unknown:
            title = "a column of anything but a relation by its name, in FROM or USING, is not supported in RETURNING"
            help = f"write the name of the table before the column:  {scope.aliases[0]}.column"
            raise unsupported(title, node.span, "may be of the sub-query", help=help)


def named_beside(returning: Sequence[NamedExpr], scope: Scope) -> list[ScopeColumn]:
    """The columns of FROM or USING that RETURNING names."""
    named = columns_of(*(c.expr for c in returning))
    return [c for c in scope.columns if c.column.startswith(_BESIDE) and c.column in named]

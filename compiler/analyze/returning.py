"""RETURNING of INSERT, UPDATE and DELETE: the columns of the rows that the statement gives back."""

from __future__ import annotations

from collections.abc import Sequence, Set

from flowql.compiler.analyze.bind import Binder
from flowql.compiler.analyze.certain_failures import refuse_failing
from flowql.compiler.analyze.mistakes import mistake, unsupported
from flowql.compiler.analyze.operators import kept
from flowql.compiler.analyze.scope import Scope, ScopeColumn
from flowql.compiler.analyze.standard_limits import refuse_intervals
from flowql.compiler.catalog.catalog import Catalog, find_source
from flowql.compiler.catalog.names import did_you_mean, listing
from flowql.compiler.diagnostics.source import NOWHERE
from flowql.compiler.dialect.ast import Ast, CastTo, Func, Name, SelectItem, Star
from flowql.compiler.dialect.table_statements import Beside
from flowql.compiler.plan.expr import Expr, Literal, columns_of
from flowql.compiler.plan.logical import NamedExpr
from flowql.compiler.plan.tables import HIDDEN
from flowql.compiler.plan.types import STRING, Kind

_BESIDE = (
    f"{HIDDEN}beside_"  # before the names in the plan of columns of FROM and USING: no column of a table begins so
)


def bind_returning(items: Sequence[SelectItem], scope: Scope, catalog: Catalog) -> tuple[NamedExpr, ...]:
    """The columns in order. Raises CompileError, also for an expression that fails for every row."""
    binder = Binder(scope, catalog, "RETURNING")
    found: list[NamedExpr] = []
    for item in items:
        if isinstance(item.expr, Star):
            found += _star(item.expr, scope)
        else:
            assert item.alias is not None, "every item has a name"
            found.append(NamedExpr(item.alias, _typed(kept(binder.bind(item.expr)))))
    refuse_intervals(c.expr for c in found)
    refuse_failing(c.expr for c in found)
    return tuple(found)


def _typed(e: Expr) -> Expr:
    """NULL without a type is a text, as in PostgreSQL."""
    return Literal(STRING, None, e.span) if isinstance(e, Literal) and e.type.kind is Kind.NULL else e


def _star(star: Star, scope: Scope) -> list[NamedExpr]:
    if star.struct_of is not None:
        raise unsupported("the fields of a struct by `.*` in RETURNING", star.span, help="name each field")
    if star.source is not None and star.source not in scope.aliases:
        hint = did_you_mean(star.source, scope.aliases) or f"sources here are {listing(scope.aliases)}"
        raise mistake("FQ2001", f"'{star.source}' is not a relation of the statement", star.span, "unknown", help=hint)
    return [NamedExpr(c.name, c.expr()) for c in scope.columns if star.source in (None, c.source)]


# --- columns of FROM and USING ---


def with_beside(scope: Scope, items: Sequence[SelectItem], beside: Sequence[Beside], catalog: Catalog) -> Scope:
    """The columns of the table that is changed, and of the relations of FROM or USING.

    Raises UnsupportedError where an item may mean a column of a sub-query or another relation without a name of its own.
    """
    columns, aliases = [*scope.columns], [*scope.aliases]
    unknown = [b for b in beside if not b.name]
    for item in items if unknown else ():
        _refuse_unknown(item.expr, {b.alias for b in unknown}, scope)
    for i, b in enumerate(beside):
        if not b.name:
            continue
        source = find_source(catalog, b.name, b.span)
        fields = {f.name: f for f in source.schema}
        columns += [ScopeColumn(b.alias, n, fields[n].type, f"{_BESIDE}{i}_{n}", "value") for n in source.visible]
        aliases.append(b.alias)
    return Scope(tuple(columns), tuple(aliases))


def _refuse_unknown(node: Ast, unknown: Set[str], scope: Scope) -> None:
    """unknown: aliases of relations whose columns are not known here."""
    qualifier, named = None, isinstance(node, Name | Star)
    if isinstance(node, Name) and len(node.parts) > 1:
        qualifier = node.parts[0]
    if isinstance(node, Star):
        qualifier = node.source
    if named and (qualifier is None or qualifier in unknown):
        title = "a column of anything but a relation by its name, in FROM or USING, is not supported in RETURNING"
        help = f"write the name of the table before the column:  {scope.aliases[0]}.column"
        raise unsupported(title, getattr(node, "span", NOWHERE), "may be of the sub-query", help=help)
    for child in node.args if isinstance(node, Func) else (node.operand,) if isinstance(node, CastTo) else ():
        _refuse_unknown(child, unknown, scope)


def named_beside(returning: Sequence[NamedExpr], scope: Scope) -> list[ScopeColumn]:
    """The columns of FROM or USING that RETURNING names."""
    named = columns_of(*(c.expr for c in returning))
    return [c for c in scope.columns if c.column.startswith(_BESIDE) and c.column in named]

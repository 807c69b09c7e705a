"""Relations in interactive queries of the standard dialect, as DuckDB reads them: names of VALUES, and CORRESPONDING."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flowql.compiler.catalog.names import listing
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.tree_names import tree_name
from flowql.query.errors import INVALID, QueryError

_ALIAS = "flowql_side"  # of a query whose columns are chosen


def named_values(query: t.Query) -> t.Query:
    """A query of VALUES alone, whose columns are column1, column2, ..."""
    if not isinstance(query.body, t.Values):
        return query
    source = t.Derived(replace(query, order_by=(), limit=None, offset=None), _columns(query.body, t.Alias("values")))
    select = t.Select((t.Item(t.Star()),), source)
    return t.Query(select, order_by=query.order_by, limit=query.limit, offset=query.offset)


def _table(node: t.Table) -> t.Table:
    """There is one schema, `public`."""
    return replace(node, name=node.name[1:]) if len(node.name) == 2 and node.name[0] == "public" else node


def _derived(node: t.Derived) -> t.Derived:
    if not isinstance(node.query.body, t.Values):
        return node
    return replace(node, alias=_columns(node.query.body, node.alias or t.Alias("values")))


def _with(node: t.With) -> t.With:
    if not isinstance(node.query.body, t.Values):
        return node
    return replace(node, columns=_columns(node.query.body, t.Alias(node.name, node.columns)).columns)


def _columns(values: t.Values, alias: t.Alias) -> t.Alias:
    """The alias with names for all columns: those it has, then PostgreSQL's."""
    names = (f"column{n}" for n in range(1, len(values.rows[0]) + 1))
    given = alias.columns
    return replace(alias, columns=(*given, *list(names)[len(given) :]))


def _set_operation(node: t.SetOperation) -> t.SetOperation:
    if not node.corresponding:
        return node
    sides = [_names(s) for s in (node.left, node.right)]
    wanted = node.by or tuple(n for n in sides[0] if n in sides[1])
    missing = [n for n in wanted if any(n not in s for s in sides)]
    if missing or not wanted:
        what = f"the column {missing[0]} is not in both queries" if missing else "the queries have no column in common"
        shown = " and ".join(listing(s) for s in sides)
        raise QueryError(f"{node.op.upper()} CORRESPONDING: {what}", code=INVALID, help=f"their columns are {shown}")
    made = [_only(s, wanted) for s in (node.left, node.right)]
    return replace(node, left=made[0], right=made[1], corresponding=False, by=())


def _only(body: t.Body, names: tuple[str, ...]) -> t.Select:
    query = body if isinstance(body, t.Query) else t.Query(body)
    items = tuple(t.Item(t.ColumnRef((n,))) for n in names)
    return t.Select(items, t.Derived(query, t.Alias(_ALIAS)))


def _names(body: t.Body) -> list[str]:
    while isinstance(body, (t.Query, t.SetOperation)):
        body = body.body if isinstance(body, t.Query) else body.left
    if isinstance(body, t.Values):
        return list(_columns(body, t.Alias("values")).columns)
    if any(isinstance(i.expr, t.Star) for i in body.items):
        text = "an interactive query cannot have CORRESPONDING of a query that selects *"
        raise QueryError(text, code=INVALID, help="name the columns")
    names = [i.alias or tree_name(i.expr) for i in body.items]
    if len(set(names)) < len(names):
        raise QueryError("a query of CORRESPONDING has two columns of one name", code=INVALID, help="give one an alias")
    return names


def _query(node: t.Query) -> t.Query:
    """WITH TIES: rows whose rank is among the first."""
    if not node.with_ties or node.limit is None:
        return node
    select = node.body
    plain = isinstance(select, t.Select) and not select.distinct and select.qualify is None
    if not isinstance(select, t.Select) or not plain or node.offset is not None or not node.order_by:
        text = "WITH TIES of DISTINCT, of UNION and its like, with OFFSET or without ORDER BY, in an interactive query, is not supported"
        raise QueryError(
            text, code=INVALID, help="SELECT ... FROM (SELECT ...) AS q ORDER BY ... FETCH FIRST n ROWS WITH TIES"
        )
    order = tuple(replace(o, expr=_selected(o.expr, select)) for o in node.order_by)
    rank = t.Call(("rank",), over=t.WindowSpec(order_by=order))
    body = replace(select, qualify=t.Binary("<=", rank, node.limit))
    return replace(node, body=body, limit=None, with_ties=False)


def _selected(expr: t.Expr, select: t.Select) -> t.Expr:
    """The select item that ORDER BY names by its position or alias."""
    if isinstance(expr, t.Constant) and expr.kind == "number" and expr.value.isdigit():
        return select.items[int(expr.value) - 1].expr if int(expr.value) <= len(select.items) else expr
    if isinstance(expr, t.ColumnRef) and len(expr.parts) == 1:
        return next((i.expr for i in select.items if i.alias == expr.parts[0]), expr)
    return expr


RULES: dict[type, Callable[[Any], Any]] = {
    t.Table: _table,
    t.Derived: _derived,
    t.With: _with,
    t.SetOperation: _set_operation,
    t.Query: _query,
}

"""Queries of the tree as those the analyzer reads: one SELECT over relations, joins of them, and queries in their place.

A common table expression becomes the query at each place that names it. What has no operator is refused by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from flowql.compiler.diagnostics.diagnostic import ParseError, UnsupportedError
from flowql.compiler.dialect.ast import Ast, JoinClause, SelectItem, TableRef, WindowClause
from flowql.compiler.dialect.ast import Query as Plain
from flowql.compiler.dialect.ast import Star as PlainStar
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.lower_expressions import lower_expr, lower_exprs
from flowql.compiler.dialect.standard.lower_windows import is_window_function, lower_window_function
from flowql.compiler.dialect.standard.names import plain_name
from flowql.compiler.dialect.standard.refuse import fail, unsupported
from flowql.compiler.dialect.window_functions import WINDOW_KEY, grouped

INLINED_MAX = (
    64  # times that common table expressions of one query are put in place: each may name the one before it twice
)


@dataclass(frozen=True, slots=True)
class CommonTable:
    """A common table expression, and those that the names inside it mean."""

    definition: t.With
    tables: Tables


Tables = Mapping[str, CommonTable]
_NO_TABLES: Tables = {}


@dataclass(slots=True)
class _Inlined:
    """How many common table expressions have been put in place."""

    count: int = 0


def lower_query(query: t.Query) -> Plain:
    """A query of its own."""
    return _query(query, _NO_TABLES, _Inlined())


def _query(query: t.Query, tables: Tables, inlined: _Inlined) -> Plain:
    tables = _with(query, tables)
    select = _select_of(query)
    if query.order_by:
        unsupported("ORDER BY", query.order_by[0].span, "order the rows where they are read")
    if query.offset is not None:
        unsupported("OFFSET", query.offset.span)
    if query.with_ties:
        unsupported("FETCH FIRST ... WITH TIES", query.span)
    if query.emit == "on window close":
        unsupported("EMIT ON WINDOW CLOSE", query.span, "write  EMIT FINAL")
    made = _select(select, tables, inlined)
    return replace(made, emit=query.emit, limit=_limit(query.limit), span=query.span)


def _with(query: t.Query, tables: Tables) -> Tables:
    if query.recursive:
        unsupported("WITH RECURSIVE", query.with_[0].span)
    known = dict(tables)
    for table in query.with_:
        if any(table is not other and table.name == other.name for other in query.with_):
            help = "give one of them another name"
            fail("FQ2004", f"WITH defines {table.name} twice", table.span, label="called like another", help=help)
        known[table.name] = CommonTable(table, dict(known))
    return known


def _select_of(query: t.Query) -> t.Select:
    body = query.body
    while isinstance(body, t.Query) and not (body.with_ or body.order_by or body.limit or body.offset or body.emit):
        body = body.body
    if isinstance(body, t.Select):
        return body
    if isinstance(body, t.SetOperation):
        _refuse_operation(body)
    if isinstance(body, t.Values):
        unsupported("VALUES as a query", body.span, "insert the rows into a table")
    unsupported("a query in parentheses with clauses of its own", body.span)


def _refuse_operation(body: t.SetOperation) -> NoReturn:
    named = body.op.upper() + (" ALL" if body.all else "")
    if body.corresponding:
        unsupported(f"{named} CORRESPONDING", body.at, "select the same columns in each query")
    unsupported(named, body.at, "INSERT INTO a stream from each query" if body.op == "union" else "")


def _limit(limit: t.Expr | None) -> int | None:
    if limit is None:
        return None
    if isinstance(limit, t.Constant) and limit.kind == "number" and limit.value.isdigit():
        return int(limit.value[:18])
    if isinstance(limit, t.Constant) and limit.kind == "null":
        return None
    unsupported("LIMIT of an expression", limit.span, "write a whole number")


# --- SELECT ---


def _select(select: t.Select, tables: Tables, inlined: _Inlined) -> Plain:
    _refuse_clauses(select)
    assert select.source is not None
    if not select.items:
        unsupported("a SELECT list without items", select.span, "write  SELECT *")
    source, joins, function = _from(select.source, tables, inlined)
    items = lower_items(select.items)
    group_by = _group_by(select, items)
    window = select.time_window or function
    if function is not None:
        items, group_by = _grouped(function, items, group_by, select)
    return Plain(
        select=items,
        source=source,
        joins=joins,
        where=lower_expr(select.where) if select.where is not None else None,
        group_by=group_by,
        partition_by=lower_exprs(select.partition_by),
        window=window,
        having=lower_expr(select.having) if select.having is not None else None,
        span=select.span,
    )


def _refuse_clauses(select: t.Select) -> None:
    if select.distinct_on:
        unsupported(
            "DISTINCT ON", select.distinct_on[0].span, "group by these columns, with LATEST_BY_OFFSET of others"
        )
    if select.distinct:
        unsupported("SELECT DISTINCT", select.span, "group by the columns instead")
    if select.windows:
        unsupported("WINDOW ... AS (windows of OVER)", select.windows[0].span)
    if select.qualify is not None:
        unsupported("QUALIFY", select.qualify.span)
    if select.source is None:
        unsupported("a query without FROM", select.span, "select from a table")


def lower_items(items: Sequence[t.Item]) -> tuple[SelectItem, ...]:
    """A select list."""
    return tuple(SelectItem(lower_expr(i.expr), i.alias, i.span) for i in items)


def _group_by(select: t.Select, items: Sequence[SelectItem]) -> tuple[Ast, ...]:
    keys: list[Ast] = []
    for element in select.group_by:
        if isinstance(element, t.Grouping):
            keys += _grouping(element, len(select.group_by))
        else:
            keys.append(_position(element, items))
    return tuple(keys)


def _grouping(element: t.Grouping, count: int) -> tuple[Ast, ...]:
    names = {"sets": "GROUPING SETS", "rollup": "GROUP BY ROLLUP", "cube": "GROUP BY CUBE"}
    if element.kind != "set":
        unsupported(names[element.kind], element.span)
    if not element.elements and count == 1:
        unsupported("GROUP BY ()", element.span)
    plain = [e for e in element.elements if not isinstance(e, t.Grouping)]
    return lower_exprs(plain)


def _position(element: t.Expr, items: Sequence[SelectItem]) -> Ast:
    """`GROUP BY 1` groups by the first item of the select list."""
    if not isinstance(element, t.Constant) or element.kind != "number":
        return lower_expr(element)
    at = int(element.value) if element.value.isdigit() and len(element.value) < 9 else 0
    if not 1 <= at <= len(items):
        title = f"GROUP BY {element.value} is no position of the select list, which has {len(items)} items"
        fail("FQ2002", title, element.span, label="no such item", help="write the number of an item, or its expression")
    if isinstance(items[at - 1].expr, PlainStar):
        unsupported("the position of a column of `*` in GROUP BY", element.span, "name the column")
    return items[at - 1].expr


def _grouped(
    window: WindowClause, items: tuple[SelectItem, ...], keys: tuple[Ast, ...], select: t.Select
) -> tuple[tuple[SelectItem, ...], tuple[Ast, ...]]:
    try:
        return grouped(window, items, keys, select.span, key=WINDOW_KEY)
    except ParseError as error:  # no mistake here: standard SQL also has the rows of a window one by one
        raise UnsupportedError(*(replace(d, unsupported=True) for d in error.diagnostics)) from None


# --- FROM ---


def _from(
    relation: t.Relation, tables: Tables, inlined: _Inlined
) -> tuple[TableRef, tuple[JoinClause, ...], WindowClause | None]:
    """The first relation, the joins behind it in order, and the window of a window function."""
    joins: list[t.Join] = []
    while isinstance(relation, t.Join):
        joins.append(relation)
        relation = relation.left
    function = None
    if isinstance(relation, t.TableFunction) and is_window_function(relation):
        source, function = lower_window_function(relation, tables)
    else:
        source = lower_relation(relation, tables, inlined)
    return source, tuple(_join(j, tables, inlined) for j in reversed(joins)), function


def lower_join(join: t.Join) -> JoinClause:
    """A join without its left side."""
    return _join(join, _NO_TABLES, _Inlined())


def _join(join: t.Join, tables: Tables, inlined: _Inlined) -> JoinClause:
    if join.variant:
        unsupported(f"{join.variant} JOIN", join.at, _VARIANTS.get(join.variant, "join on a key"))
    if join.kind == "comma":  # the analyzer's joins have four kinds
        unsupported(
            "a second source in FROM (a cross join)", join.right.span, "write  JOIN other ON this.key = other.key"
        )
    if join.kind == "cross":
        unsupported("CROSS JOIN", join.at, "join on a key")
    if join.natural:
        unsupported("NATURAL JOIN", join.at, "write the equal columns:  JOIN other ON this.key = other.key")
    if join.using:
        unsupported("JOIN ... USING", join.span, "write  ON this.key = other.key")
    if isinstance(join.right, t.Join):
        unsupported("a join on the right side of a join", join.right.span, "put it first, or make it a view of its own")
    assert join.on is not None, "the grammar asks for a condition"
    right = lower_relation(join.right, tables, inlined)
    return JoinClause(join.kind, right, lower_expr(join.on), join.within, join.span)


_VARIANTS = {
    "ANTI": "write  LEFT JOIN ... ON ...  with  WHERE other.key IS NULL",
    "SEMI": "write  JOIN other ON this.key = other.key  where other is a table with that key",
    "LATERAL": "call a table function in the select list, or join on a key",
}


def lower_relation(relation: t.Relation, tables: Tables = _NO_TABLES, inlined: _Inlined | None = None) -> TableRef:
    """A source: a relation by its name, or a query in its place."""
    inlined = inlined or _Inlined()
    if isinstance(relation, t.Table):
        return _table(relation, tables, inlined)
    if isinstance(relation, t.Derived):
        if relation.lateral:
            unsupported("LATERAL", relation.span, "call a table function in the select list, or join on a key")
        made = _query(relation.query, tables, inlined)
        return _derived(relation, relation.alias, made, "")
    if isinstance(relation, t.TableFunction):
        if is_window_function(relation):
            unsupported("a window function beside a join", relation.span, "put it first in FROM")
        named = relation.call.name[-1].upper()
        unsupported(f"the table function {named}(...) in FROM", relation.span)
    unsupported("a join on the right side of a join", relation.span)


def _table(table: t.Table, tables: Tables, inlined: _Inlined) -> TableRef:
    if table.as_of is not None:
        unsupported("FOR SYSTEM_TIME AS OF (a temporal join)", table.as_of.span, "join a stream with the table")
    name = plain_name(table.name, table)
    common = tables.get(name) if len(table.name) == 1 else None
    if common is None:
        _refuse_columns(table.alias)
        return TableRef(name, table.alias.name if table.alias else None, None, table.span)
    inlined.count += 1
    if inlined.count > INLINED_MAX:
        title = f"common table expressions are named more than {INLINED_MAX} times in one query"
        fail("FQ1013", title, table.span, help="make one of them a view of its own")
    definition = common.definition
    made = _query(definition.query, common.tables, inlined)
    if definition.columns:
        made = renamed(made, definition.columns, definition)
    return _derived(table, table.alias, made, name)


def _derived(relation: t.Relation, alias: t.Alias | None, made: Plain, name: str) -> TableRef:
    if alias is not None and alias.columns:
        made = renamed(made, alias.columns, alias)
    if made.limit is not None:
        unsupported("LIMIT in a sub-query", relation.span)
    return TableRef("", alias.name if alias else name or None, made, relation.span)


def _refuse_columns(alias: t.Alias | None) -> None:
    if alias is not None and alias.columns:
        unsupported("new column names for a relation", alias.span, "select the columns AS other names in a sub-query")


def renamed(query: Plain, columns: Sequence[str], node: t.Node) -> Plain:
    """The query with other names for its first columns."""
    if any(isinstance(i.expr, PlainStar) for i in query.select[: len(columns)]):
        unsupported("new column names for `*`", node.span, "name the columns in the select list")
    if len(columns) > len(query.select):
        title = f"{len(columns)} column names for a query of {len(query.select)} columns"
        fail("FQ1001", title, node.span, help=f"give at most {len(query.select)} names")
    if len(set(columns)) < len(columns):
        fail("FQ2004", "a column name is given twice", node.span, label="given twice", help="give other names")
    named = [replace(i, alias=c) for i, c in zip(query.select, columns, strict=False)]
    return replace(query, select=(*named, *query.select[len(columns) :]))

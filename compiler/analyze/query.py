"""A SELECT as a logical plan without its sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal as OneOf

from flowql.compiler.analyze.aggregate import aggregate_query, has_aggregates
from flowql.compiler.analyze.bind import Binder, Collected
from flowql.compiler.analyze.joins import Input, from_clause
from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.projection import check_once, choose_keys, final_projection
from flowql.compiler.analyze.push import INCOMPLETE, complete
from flowql.compiler.analyze.relation import KeyColumn, Relation, filtered, rekey, sources_read
from flowql.compiler.analyze.scope import ScopeColumn
from flowql.compiler.analyze.select import Item, bind_items, item_of
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.dialect.ast import Ast, Func, Lit, Name, Query, Star, TableRef
from flowql.compiler.dialect.texts import text_of
from flowql.compiler.plan.expr import Column, Expr
from flowql.compiler.plan.logical import Explode, NamedExpr, Node
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import SourceDef

_KEY = "__key_"


@dataclass(frozen=True, slots=True)
class BoundSelect:
    """A query's plan up to the sink. `inherited`: the source whose formats the sink takes when none are given.

    sources: those that FROM and JOIN name; a nested query is one of them.
    """

    node: Node
    sources: tuple[SourceDef, ...]
    aggregated: bool

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the streams and tables it reads, those of nested queries among them."""
        return sources_read(self.node)

    @property
    def inherited(self) -> SourceDef:
        return self.sources[0]


def bind_query(query: Query, catalog: Catalog, session: Mapping[str, str], sink: str) -> BoundSelect:
    """Bind a query that is to write `sink` (its name is used in messages only)."""
    if query.limit is not None:
        raise mistake(
            "FQ2025", "LIMIT is not supported in a persistent query", query.span, "a running query has no end"
        )
    relation, keyed = from_clause(
        query,
        catalog,
        session,
        lambda ref: _nested(ref, catalog, session, regrouped=bool(query.group_by or query.partition_by)),
    )
    aggregated = bool(query.group_by)
    _check_shape(query, catalog)
    where = None
    if query.where is not None:
        where = Binder(relation.scope, catalog, "WHERE").condition(query.where)

    def prepared(r: Relation) -> Relation:
        return r if where is None else Relation(filtered(r.node, where), r.scope, r.keys, r.sources)

    if aggregated:
        if query.partition_by:
            raise mistake(
                "FQ2025", "PARTITION BY cannot be used together with GROUP BY", query.span, "the group is the key"
            )
        node = aggregate_query(query, prepared(relation), catalog, session, sink)
    elif query.partition_by:
        node = _partitioned(query, prepared(relation), catalog, sink)
    else:
        node = _plain(query, lambda name: prepared(keyed(name)), relation, catalog, sink)
    return BoundSelect(node, relation.sources, aggregated)


def _nested(ref: TableRef, catalog: Catalog, session: Mapping[str, str], *, regrouped: bool) -> Input:
    """A query in the place of a source: a part of the plan, with no topic between it and what reads it.

    regrouped: the outer query makes a key of its own, so that of the nested one need not be selected.
    """
    assert ref.query is not None
    name = ref.alias or "subquery"
    try:
        bound = bind_query(ref.query, catalog, session, name)
    except CompileError as error:
        missing = {d.code for d in error.diagnostics} <= INCOMPLETE
        completed = complete(ref.query, catalog) if regrouped and missing else None
        if completed is None:
            raise
        bound = bind_query(completed, catalog, session, name)
    schema, formats = bound.node.schema, bound.inherited
    kind: OneOf["stream", "table"] = "stream" if bound.node.change == "append" else "table"
    made = SourceDef(name, kind, "", schema, formats.key_format, formats.value_format)
    return Input(replace(ref, name=name), made, bound.node)


def _check_shape(query: Query, catalog: Catalog) -> None:
    if query.group_by:
        return
    aggregates = [i for i in query.select if not isinstance(i.expr, Star) and has_aggregates(i.expr, catalog)]
    if aggregates or (query.having is not None and has_aggregates(query.having, catalog)):
        others = [text_of(i.expr) for i in query.select if i not in aggregates and not isinstance(i.expr, Lit)]
        calls = [text_of(i.expr) for i in aggregates]
        loose = f"; non-aggregate SELECT expression(s) not part of GROUP BY: {', '.join(others)}" if others else ""
        title = f"aggregate function {listing(calls) or 'in HAVING'} without a GROUP BY clause{loose}"
        raise mistake(
            "FQ2020", title, aggregates[0].span if aggregates else query.span, "no GROUP BY", help="add GROUP BY"
        )
    if query.having is not None:
        raise mistake("FQ2020", "HAVING requires a GROUP BY clause", query.span, "no GROUP BY", help="use WHERE")
    if query.window is not None:
        raise mistake("FQ2020", "the WINDOW clause requires a GROUP BY clause", query.window.span, "no GROUP BY")
    if query.emit == "final":
        raise mistake(
            "FQ2025", "EMIT FINAL is only supported for windowed aggregations", query.span, "no window ever closes"
        )


# --- without a change of key ---


def _plain(query: Query, keyed: Callable[[str], Relation], relation: Relation, catalog: Catalog, sink: str) -> Node:
    collected = Collected()
    items = bind_items(query.select, relation.scope, Binder(relation.scope, catalog, "SELECT", collected=collected))
    noun = "join expression" if query.joins else "key column"
    chosen = choose_keys(items, relation.keys, sink, noun, query.span)
    relation = keyed(chosen[0][1] if query.joins else "")
    node = _exploded(relation, collected, query)
    taken = [i for i, _ in chosen]
    keys: list[tuple[str, Expr]] = [(i.name, i.expr) for i in taken]
    return final_projection(node, keys, [i for i in items if i not in taken], query.span)


def _exploded(relation: Relation, collected: Collected, query: Query) -> Node:
    if not collected.table_functions:
        return relation.node
    if relation.is_table:
        raise mistake(
            "FQ2025",
            f"table functions cannot be used on a table: {relation.sources[0].name}",
            query.span,
            "several rows would share a key",
        )
    functions = tuple(collected.table_functions)
    schema = relation.node.schema
    made = tuple(Field(f.name, f.expr.type) for f in functions)
    return Node(Explode(functions), (relation.node,), Schema((*schema.fields, *made), schema.window), "append")


# --- PARTITION BY ---


def _partitioned(query: Query, relation: Relation, catalog: Catalog, sink: str) -> Node:
    if relation.is_table:
        title = f"PARTITION BY is only supported on streams; {relation.sources[0].name} is a table"
        raise mistake("FQ2025", title, query.partition_by[0].span, "not a stream", help="use GROUP BY")
    nodes = query.partition_by
    binder = Binder(relation.scope, catalog, "PARTITION BY")
    exprs = [binder.bind(n) for n in nodes]
    pairs = [(n, e) for n, e in zip(nodes, exprs, strict=True) if not _is_null(n)]
    if len(pairs) < len(nodes) and len(nodes) > 1:
        at = next(n for n in nodes if _is_null(n))
        help = "NULL alone leaves rows without a key"
        title = "PARTITION BY several expressions of which one is NULL"
        raise mistake("FQ2022", title, at.span, "no key column", help=help)
    _refuse_windowed(query, relation, [e for _, e in pairs])
    collected = Collected()
    select = Binder(relation.scope, catalog, "SELECT", collected=collected)
    items = bind_items(query.select, relation.scope, select, _star(query, relation, [e for _, e in pairs]))
    chosen = [_item_for(e, items) for _, e in pairs]
    if None in chosen:
        keys = [KeyColumn((), (_qualified_text(n, relation),)) for n, _ in pairs]
        choose_keys(items, keys, sink, "partitioning expression", query.span)
    taken = [i for i in chosen if i is not None]
    if len({i.name for i in taken}) < len(taken):
        raise mistake("FQ2004", "duplicate PARTITION BY expression", query.span, "given before")
    names = [
        e.name if isinstance(e, Column) and not e.name.startswith("__") else f"{_KEY}{i}"
        for i, (_, e) in enumerate(pairs)
    ]
    node = _exploded(relation, collected, query)
    node = rekey(node, [NamedExpr(n, e) for n, (_, e) in zip(names, pairs, strict=True)], drop_null=False)
    values = [i for i in items if i not in taken]
    return final_projection(
        node, [(i.name, Column(i.expr.type, n)) for i, n in zip(taken, names, strict=True)], values, query.span
    )


def _refuse_windowed(query: Query, relation: Relation, keys: Sequence[Expr]) -> None:
    """Windows are part of the key, which is kept as it is or not at all."""
    same = [e.name for e in keys if isinstance(e, Column)] == [f.name for f in relation.node.schema.key]
    if relation.node.schema.window is None or (same and len(keys) == len(relation.node.schema.key)):
        return
    name = relation.sources[0].name
    title = f"PARTITION BY is not supported on the windowed stream {name}: rows would lose their windows"
    at = query.partition_by[0].span
    raise mistake("FQ2025", title, at, "another key", help=f"partition the stream that {name} is made from")


def _is_null(node: Ast) -> bool:
    """The literal NULL; an expression that is always NULL is a key column like any other."""
    return isinstance(node, Lit) and node.kind == "null"


def _item_for(expr: Expr, items: Sequence[Item]) -> Item | None:
    found = [i for i in items if not i.copy and i.expr == expr]
    check_once(found)
    return found[0] if found else None


def _qualified_text(node: Ast, relation: Relation) -> str:
    def qualify(n: Ast) -> Ast:
        if isinstance(n, Name) and len(n.parts) == 1:
            return Name((relation.scope.aliases[0], *n.parts), n.span)
        if isinstance(n, Func):
            return Func(n.name, tuple(qualify(a) for a in n.args), n.span)
        return n

    return text_of(qualify(node))


def _star(query: Query, relation: Relation, keys: Sequence[Expr]) -> list[Item]:
    """The columns of `*` after a change of key: new key columns, then per source values, (in joins) pseudo columns, old keys."""
    scope = relation.scope
    items: list[Item] = []
    generated = 0
    for node, expr in zip(query.partition_by, keys, strict=False):
        column = scope.by_plan_name(expr.name) if isinstance(expr, Column) else None
        if column is not None:
            items.append(item_of(column, scope, query.span))
            continue
        name = (
            str(node.args[1].value)
            if isinstance(node, Func) and node.name == "field" and isinstance(node.args[1], Lit)
            else f"KSQL_COL_{generated}"
        )
        generated += name.startswith("KSQL_COL_")
        items.append(Item(name, expr, node))
    used = {i.expr.name for i in items if isinstance(i.expr, Column)}
    for alias in scope.aliases:
        ordered = _after_rekey(scope.of(alias), joined=scope.joined)
        items += [item_of(c, scope, query.span) for c in ordered if c.column not in used]
    return items


def _after_rekey(columns: Sequence[ScopeColumn], *, joined: bool) -> list[ScopeColumn]:
    keys = [c for c in columns if c.role == "key"]
    values = [c for c in columns if c.role in ("value", "header")]
    by_name = {c.name: c for c in columns}
    pseudo = [by_name[n] for n in ("ROWTIME", "ROWPARTITION", "ROWOFFSET") if n in by_name] if joined else []
    return [*values, *pseudo, *keys]

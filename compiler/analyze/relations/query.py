"""A query's tree as a relation: groups, window functions, the select list, set operations, ORDER BY and LIMIT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.operators import kept
from flowql.compiler.analyze.relations.definitions import NO_TABLES, CommonTable, Tables
from flowql.compiler.analyze.relations.expressions import Correlated, OuterAggregate, RelBinder
from flowql.compiler.analyze.relations.from_clause import FromBinder
from flowql.compiler.analyze.relations.group_by import GroupBy
from flowql.compiler.analyze.relations.grouping import has_aggregates, order_of, ordered_by
from flowql.compiler.analyze.relations.relation import (
    Order,
    Rel,
    RelColumn,
    as_columns,
    filtered,
    kept_identity,
    projected,
)
from flowql.compiler.analyze.relations.row_sources import unnested, values
from flowql.compiler.analyze.relations.set_operations import aligned, distinct, operation
from flowql.compiler.analyze.relations.subqueries import Subqueries
from flowql.compiler.analyze.relations.tree_parts import operands
from flowql.compiler.analyze.relations.windows import windowed
from flowql.compiler.catalog.names import correction, listing
from flowql.compiler.dialect import walks
from flowql.compiler.dialect.ast import Name, Star
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.queries import NOT_RECURSIVE
from flowql.compiler.dialect.standard.refuse import unsupported
from flowql.compiler.dialect.standard.tree_names import tree_name
from flowql.compiler.functions.folding import folded
from flowql.compiler.plan.changes import RankFunction, TopN
from flowql.compiler.plan.expr import Column, Expr, Literal
from flowql.compiler.plan.logical import NamedExpr, Node
from flowql.compiler.plan.types import Kind, SqlType

NESTED_MAX = 400  # sub-queries bound: each level of nesting may bind those inside it twice


@dataclass(frozen=True, slots=True)
class _Body:
    """A SELECT before its select list is all there is: the rows, their items, and what ORDER BY binds with."""

    rel: Rel
    items: tuple[tuple[str, Expr], ...]
    binder: RelBinder
    order: tuple[Order, ...]
    carried: tuple[RelColumn, ...]  # of what FROM gives: `binder` tells what has become of them


class QueryBinder(FromBinder):
    """Binds the queries of one statement. Plan names are unique over all of them."""

    # --- queries ---

    def query(self, query: t.Query, tables: Tables = NO_TABLES, outer: RelBinder | None = None) -> Rel:
        """The relation of a whole query; its columns are those selected, in order. outer: of a sub-query, for its messages."""
        if outer is None:
            self.bare |= _bare(query)
        if query.emit is not None:
            unsupported(
                f"EMIT {query.emit.upper()} of a query inside another", query.span, "write it behind the outer query"
            )
        if outer is not None:
            self._nested += 1
            if self._nested > NESTED_MAX:
                title = "the sub-queries of this query depend on each other in too many ways"
                raise mistake("FQ1013", title, query.span, help="make one of them a separate view")
        tables = self.with_tables(query, tables)
        limit, offset = self._count(query.limit), self._count(query.offset)
        is_limited = limit is not None or bool(offset)
        rel, order = self._in_order(query, tables, outer, limited=is_limited)
        if not is_limited:
            return rel
        return self._topped(rel, order, limit, offset or 0, "rank" if query.with_ties else "row_number")

    def asked(self, query: t.Query) -> tuple[Rel, list[str], list[Order], int | None, int]:
        """An interactive query: its rows, the columns to order them by and how, its LIMIT and its OFFSET."""
        if query.with_ties:
            order: list[Order] = []
            rel, limit, offset = self.query(query), None, 0
        else:
            self.bare |= _bare(query)
            limit, offset = self._count(query.limit), self._count(query.offset) or 0
            rel, order = self._in_order(query, self.with_tables(query, NO_TABLES), None, limited=bool(query.order_by))
        rel, columns = as_columns(rel, [o.expr for o in order], self.names, "order")
        return rel, columns, order, limit, offset

    def _in_order(
        self, query: t.Query, tables: Tables, outer: RelBinder | None, *, limited: bool
    ) -> tuple[Rel, list[Order]]:
        """All rows of a query, and what to order them by if a limit needs that."""
        if isinstance(query.body, t.Select):
            return self._select(query.body, query.order_by, tables, outer, limited=limited)
        rel = self._body(query.body, tables, outer)
        return rel, self._order_of_output(query.order_by, rel)

    def with_tables(self, query: t.Query, tables: Tables) -> Tables:
        """The common table expressions that names inside the query may mean."""
        if query.recursive:
            unsupported("WITH RECURSIVE", query.with_[0].span, NOT_RECURSIVE)
        known = dict(tables)
        for table in query.with_:
            if any(table is not other and table.name == other.name for other in query.with_):
                title, help = f"WITH defines {table.name} twice", "give one of them another name"
                raise mistake("FQ2004", title, table.span, "called like another", help=help)
            known[table.name] = CommonTable(table, dict(known))
        return known

    def _body(self, body: t.Body, tables: Tables, outer: RelBinder | None) -> Rel:
        if isinstance(body, t.Select):
            return self._select(body, (), tables, outer, limited=False)[0]
        if isinstance(body, t.Query):
            return self.query(body, tables, outer)
        if isinstance(body, t.SetOperation):
            return self._set_operation(body, tables, outer)
        rel = self._start(outer)
        binder = self._binder(rel.columns, "VALUES", outer)
        made = values(body.rows, body, rel, binder, self.names)
        if binder.uses_outer:
            raise Correlated
        return made

    def _count(self, node: t.Expr | None) -> int | None:
        if node is None:
            return None
        e = folded(RelBinder((), self.catalog, "LIMIT").bind(node))
        if not isinstance(e, Literal) or (e.value is not None and not isinstance(e.value, int)):
            unsupported("LIMIT or OFFSET of an expression", node.span, "write a whole number")
        if e.value is not None and e.value < 0:
            raise mistake("FQ2005", "LIMIT must not be negative", node.span, "below 0")
        return e.value if e.value is None else int(e.value)

    def _topped(self, rel: Rel, order: Sequence[Order], limit: int | None, offset: int, function: RankFunction) -> Rel:
        rel, columns = as_columns(rel, [o.expr for o in order], self.names, "order")
        keys = tuple(o.key(c) for o, c in zip(order, columns, strict=True))
        spec = TopN(tuple(c.column for c in rel.carried), keys, limit, offset, function)
        return Rel(Node(spec, (rel.node,), rel.node.schema, "retract"), rel.columns)

    def _order_of_output(self, items: Sequence[t.OrderItem], rel: Rel) -> list[Order]:
        """ORDER BY of a set operation: by columns of the result, or their numbers."""
        binder = RelBinder(rel.columns, self.catalog, "ORDER BY")
        return [self._by_position(o, [c.expr() for c in rel.shown]) or order_of(o, binder) for o in items]

    def _by_position(self, item: t.OrderItem, exprs: Sequence[Expr]) -> Order | None:
        """`ORDER BY 2`."""
        written = t.number_text(item.expr)
        if not written:
            return None
        at = int(written) if written.isdigit() else 0
        if not 1 <= at <= len(exprs):
            raise mistake("FQ2002", f"ORDER BY position {written} is not in the select list", item.span, "no such item")
        return ordered_by(exprs[at - 1], item)

    # --- SELECT ---

    def _select(
        self,
        select: t.Select,
        order_by: Sequence[t.OrderItem],
        tables: Tables,
        outer: RelBinder | None,
        *,
        limited: bool,
    ) -> tuple[Rel, list[Order]]:
        """The result, and what to order it by if a limit needs that."""
        self._refuse(select)
        ordered = limited or bool(select.distinct_on)
        # Without a limit the order has no effect; its names are looked up all the same.
        order_by = order_by if ordered else [o for o in order_by if isinstance(o.expr, Name)]
        given = self.filtered(select, tables, outer)
        if given.correlated:
            raise Correlated
        body = self.body(select, order_by, given.rel, tables, outer)
        if not ordered:
            body, order_by = replace(body, order=()), ()
        if select.distinct_on:
            made = self._distinct_on(select, body)
        elif select.distinct:
            rel, _ = self._with_order(replace(body, order=()))
            made = (rel := distinct(rel, self.names)), self._order_of_items(order_by, body, rel)
        else:
            made = self._with_order(body)
        if body.binder.uses_outer:
            raise Correlated
        return made

    def _order_of_items(self, written: Sequence[t.OrderItem], body: _Body, rel: Rel) -> list[Order]:
        """ORDER BY of SELECT DISTINCT: by the columns of the result that are selected as the same expressions."""
        made: list[Order] = []
        for item, order in zip(written, body.order, strict=True):
            found = next((c for c, (_, e) in zip(rel.shown, body.items, strict=True) if e == order.expr), None)
            if found is None:
                title = "for SELECT DISTINCT, ORDER BY expressions must appear in the select list"
                raise mistake("FQ2005", title, item.span, "not selected", help="select it, too")
            made.append(replace(order, expr=found.expr()))
        return made

    def _refuse(self, select: t.Select) -> None:
        if select.time_window is not None:
            help = "write  FROM TUMBLE(source, time, INTERVAL '1' MINUTE)  and  GROUP BY window_start"
            unsupported("the WINDOW clause in a view", select.span, help)
        if select.partition_by:
            help = (
                "a view is placed by its rows; records get another key by  CREATE STREAM ... AS SELECT ... PARTITION BY"
            )
            unsupported("PARTITION BY in a view", select.partition_by[0].span, help)
        if select.qualify is not None:
            unsupported("QUALIFY", select.qualify.span, "filter a sub-query by the window function")

    def _with_order(self, body: _Body) -> tuple[Rel, list[Order]]:
        """The select list as columns, with what ORDER BY needs beside them."""
        rel, columns = as_columns(body.rel, [o.expr for o in body.order], self.names, "order")
        shown = [RelColumn("", n, e.type, self.names.fresh(n)) for n, e in body.items]
        exprs = [NamedExpr(c.column, e) for c, (_, e) in zip(shown, body.items, strict=True)]
        for c, e in zip(body.carried, body.binder.carried, strict=True):
            shown.append(replace(c, column=self.names.fresh(c.name)))
            exprs.append(NamedExpr(shown[-1].column, e))
        order: list[Order] = []
        for o, column in zip(body.order, columns, strict=True):
            beside = NamedExpr(self.names.fresh("order"), Column(o.expr.type, column))
            exprs.append(beside)
            order.append(replace(o, expr=Column(o.expr.type, beside.name)))
        return Rel(projected(rel.node, kept_identity(rel.node), exprs), tuple(shown)), order

    def body(
        self, select: t.Select, order_by: Sequence[t.OrderItem], rel: Rel, tables: Tables, outer: RelBinder | None
    ) -> _Body:
        """Groups, HAVING, sub-queries and window functions of a SELECT over what FROM and WHERE give."""
        inside: list[t.Call] = []
        while True:
            below = self._binder(rel.columns, "SELECT", outer, select)
            try:
                return self._grouped_body(select, order_by, rel, tables, below, inside)
            except OuterAggregate as found:
                if found.owner is not below:
                    raise
                if any(n == found.node and n.span == found.node.span for n in inside):
                    title = "aggregate function calls cannot be nested"
                    raise mistake("FQ2020", title, found.node.span, "nested") from None
                inside.append(found.node)

    def _grouped_body(
        self,
        select: t.Select,
        order_by: Sequence[t.OrderItem],
        rel: Rel,
        tables: Tables,
        below: RelBinder,
        inside: Sequence[t.Call],
    ) -> _Body:
        """inside: aggregates of this SELECT that stand in its sub-queries."""
        carried, binder = rel.carried, below
        parts = (select.items, select.having, tuple(order_by), select.distinct_on)
        grouped = select.group_by or select.having is not None or inside
        subqueries = Subqueries(self, tables)
        if grouped or has_aggregates(parts):
            rel, binder, parts = GroupBy(self, subqueries, below, inside).grouped(select, parts, rel)
            if parts[1] is not None:
                binder.misnamed = self._misnamed(select, "HAVING", below.outer)
                rel = filtered(*subqueries.conditions(rel, [parts[1]], binder))
                binder.misnamed = below.misnamed
        rel, parts = subqueries.values(rel, parts, binder)
        rel, parts = windowed(rel, parts, select.windows, binder, self.names, self.placeholders)
        rel, selected = unnested(rel, parts[0], binder, self.names, self.placeholders)
        items = self._items(selected, select.items, binder)
        order = tuple(self._order(o, items, binder) for o in parts[2])
        binder.uses_outer |= below.uses_outer
        return _Body(rel, tuple(items), binder, order, carried)

    def _order(self, item: t.OrderItem, items: Sequence[tuple[str, Expr]], binder: RelBinder) -> Order:
        """By position, by the name of an output column, or by an expression over the input."""
        found = self._by_position(item, [e for _, e in items])
        if found is not None:
            return found
        if isinstance(item.expr, Name) and len(item.expr.parts) == 1:
            named = [e for n, e in items if n == item.expr.parts[0]]
            if named:
                return ordered_by(named[0], item)
        return order_of(item, binder)

    # --- the select list ---

    def _items(self, items: Sequence[t.Item], written: Sequence[t.Item], binder: RelBinder) -> list[tuple[str, Expr]]:
        """Names and expressions. written: the items with their sub-queries and aggregates, which name columns."""
        made: list[tuple[str, Expr]] = []
        for item, original in zip(items, written, strict=True):
            if isinstance(item.expr, Star):
                made += self._star(item.expr, binder)
                continue
            e = binder.bind(item.expr)
            if e.type.kind is Kind.NULL:
                e = Literal(SqlType(Kind.STRING), None)  # a bare NULL is a text, as in PostgreSQL
            made.append((item.alias or tree_name(original.expr), kept(e)))
        return made

    def _star(self, star: Star, binder: RelBinder) -> list[tuple[str, Expr]]:
        if star.struct_of is not None:
            unsupported("the fields of an expression (.*)", star.span, "name the fields")
        if len(star.qualifier) > 1:
            unsupported("a schema in front of a name", star.span)
        excluded = {c.parts[-1] for c in star.excluded}
        alias = star.qualifier[0] if star.qualifier else None
        if alias is not None and all(c.source != alias for c in binder.columns):
            known = dict.fromkeys(c.source for c in binder.columns if c.source and c.is_shown)
            title, edit = f"'{alias}' is not a relation of this query", correction(star.span, alias, known)
            raise mistake("FQ2001", title, star.span, "unknown", help=f"there are {listing(known)}", edit=edit)
        chosen = [c for c in binder.columns if (c.source == alias if alias is not None else not c.qualified)]
        shown = [c for c in chosen if c.name not in excluded and not c.is_hidden]
        return [(c.name, kept(binder.bind(_reference(c, star)))) for c in shown]

    # --- DISTINCT ON and set operations ---

    def _distinct_on(self, select: t.Select, body: _Body) -> tuple[Rel, list[Order]]:
        """The first row of each group, in the order of ORDER BY."""
        keys = [self._order(t.OrderItem(e, span=e.span), body.items, body.binder).expr for e in select.distinct_on]
        rel, key_columns = as_columns(body.rel, [*body.binder.carried, *keys], self.names, "distinct")
        rel, columns = as_columns(rel, [o.expr for o in body.order], self.names, "order")
        sort = tuple(o.key(c) for o, c in zip(body.order, columns, strict=True))
        spec = TopN(tuple(dict.fromkeys(key_columns)), sort, 1)
        rel = Rel(Node(spec, (rel.node,), rel.node.schema, "retract"), rel.columns)
        return self._with_order(replace(body, rel=rel))

    def _set_operation(self, body: t.SetOperation, tables: Tables, outer: RelBinder | None) -> Rel:
        sides = aligned([self._body(b, tables, outer) for b in operands(body)], body, self.names)
        if body.op == "union":
            united = self._united(sides)
            return united if body.all else distinct(united, self.names)
        return operation(body.op, sides, self.names, all_=body.all)


def _bare(query: t.Query) -> set[str]:
    """The names without a qualifier, of which some may mean whole rows."""
    return {n.parts[0] for n in walks.walk(query) if isinstance(n, Name) and len(n.parts) == 1}


def _reference(c: RelColumn, star: Star) -> Name:
    return Name((c.source, c.name) if c.source else (c.name,), span=star.span)

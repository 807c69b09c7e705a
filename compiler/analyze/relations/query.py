"""A query's tree as a relation: FROM and WHERE, groups, window functions, the select list, set operations, ORDER BY and LIMIT."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from compiler.analyze.mistakes import mistake
from compiler.analyze.relations.definitions import NO_TABLES, CommonTable, Tables, in_place, rows_of
from compiler.analyze.relations.dependent import Dependent, check_repeatable, dependent, named, same
from compiler.analyze.relations.expressions import Correlated, Placeholders, RelBinder
from compiler.analyze.relations.group_by import GroupBy
from compiler.analyze.relations.grouping import has_aggregates, order_of, ordered_by
from compiler.analyze.relations.joins import all_conjuncts, joined, joined_all
from compiler.analyze.relations.relation import (
    OUTER,
    Names,
    Order,
    Rel,
    RelColumn,
    as_columns,
    column_of,
    copied,
    filtered,
    kept_identity,
    projected,
    renamed_source,
    scanned,
    with_identity,
)
from compiler.analyze.relations.row_sources import as_query, from_function, gives_rows, one_row, values
from compiler.analyze.relations.set_operations import aligned, distinct, operation, united
from compiler.analyze.relations.subqueries import Filtered, Subqueries
from compiler.analyze.relations.temporal import is_temporal, present, temporally_joined
from compiler.analyze.relations.time_windows import in_windows, is_time_window, source_of
from compiler.analyze.relations.tree_names import tree_name
from compiler.analyze.relations.tree_parts import and_parts, has_query, nodes, operands
from compiler.analyze.relations.using import equal, merged_columns, names_of
from compiler.analyze.relations.windows import windowed
from compiler.catalog.catalog import Catalog, find_source
from compiler.catalog.names import correction, listing
from compiler.diagnostics.diagnostic import CompileError
from compiler.diagnostics.source import Span
from compiler.dialect.standard import tree as t
from compiler.dialect.standard.names import plain_name
from compiler.dialect.standard.refuse import unsupported
from compiler.functions.folding import folded
from compiler.plan.changes import RankFunction, TopN
from compiler.plan.expr import Column, Expr, Literal, columns_of
from compiler.plan.logical import NamedExpr, Node
from compiler.plan.topology import SourceDef
from compiler.plan.types import Kind, SqlType
from compiler.plan.visit import substitute

TRUE = t.Constant("bool", "true")
INLINED_MAX = 64
NESTED_MAX = 400  # sub-queries bound: each level of nesting may bind those inside it twice


@dataclass(frozen=True, slots=True)
class _Body:
    """A SELECT before its select list is all there is: the rows, their items, and what ORDER BY binds with."""

    rel: Rel
    items: tuple[tuple[str, Expr], ...]
    binder: RelBinder
    order: tuple[Order, ...]
    carried: tuple[RelColumn, ...]  # of what FROM gives: `binder` tells what has become of them


@dataclass(slots=True)
class _From:
    """FROM while it is read. factors: relations to be joined; columns: of all, as written; on, where: conditions they are joined by."""

    outer: RelBinder | None
    tables: Tables
    where: Sequence[t.Expr]
    factors: list[Rel] = field(default_factory=list)
    columns: list[RelColumn] = field(default_factory=list)
    on: list[t.Expr] = field(default_factory=list)
    ties: list[Expr] = field(default_factory=list)

    def add(self, rel: Rel) -> None:
        """What two relations carry of the query around is the same in both."""
        carried = {c.name: c for c in self.columns if c.source == OUTER}
        self.ties += [same(carried[c.name].expr(), c.expr()) for c in rel.carried if c.name in carried]
        self.factors.append(rel)
        self.columns += [c for c in rel.columns if c.source != OUTER or c.name not in carried]


class QueryBinder:
    """Binds the queries of one statement. Plan names are unique over all of them."""

    def __init__(self, catalog: Catalog, anchor: SourceDef | None = None) -> None:
        """anchor: a table that the statement reads; a row that is in no table comes from it."""
        self.catalog, self._anchor = catalog, anchor
        self.names = Names()
        self.placeholders = Placeholders()
        self.inlined = self._nested = 0
        self.follows_watermark = False

    # --- queries ---

    def query(self, query: t.Query, tables: Tables = NO_TABLES, outer: RelBinder | None = None) -> Rel:
        """The relation of a whole query; its columns are those selected, in order. outer: of a sub-query, for its messages."""
        if query.emit is not None:
            unsupported(
                f"EMIT {query.emit.upper()} of a query inside another", query.span, "write it behind the outer query"
            )
        if outer is not None:
            self._nested += 1
            if self._nested > NESTED_MAX:
                title = "the sub-queries of this query depend on each other in too many ways"
                raise mistake("FQ1013", title, query.span, help="make one of them a view of its own")
        tables = self.with_tables(query, tables)
        limit, offset = self._count(query.limit), self._count(query.offset)
        if isinstance(query.body, t.Select):
            rel, order = self._select(
                query.body, query.order_by, tables, outer, limited=limit is not None or bool(offset)
            )
        else:
            rel = self._body(query.body, tables, outer)
            order = self._order_of_output(query.order_by, rel)
        if limit is None and not offset:
            return rel
        return self._topped(rel, order, limit, offset or 0, "rank" if query.with_ties else "row_number")

    def with_tables(self, query: t.Query, tables: Tables) -> Tables:
        """The common table expressions that names inside the query may mean."""
        if query.recursive:
            unsupported("WITH RECURSIVE", query.with_[0].span)
        known = dict(tables)
        for table in query.with_:
            known[table.name] = CommonTable(table, dict(known))
        return known

    def _body(self, body: t.Body, tables: Tables, outer: RelBinder | None) -> Rel:
        if isinstance(body, t.Select):
            return self._select(body, (), tables, outer, limited=False)[0]
        if isinstance(body, t.Query):
            return self.query(body, tables, outer)
        if isinstance(body, t.SetOperation):
            return self._set_operation(body, tables, outer)
        rel = self._start(outer, body.span)
        binder = self._binder(rel.columns, "VALUES", outer)
        made = values(body.rows, body, rel, binder, self.names)
        if binder.uses_outer:
            raise Correlated
        return made

    def _start(self, outer: RelBinder | None, span: Span) -> Rel:
        """What a query without FROM reads: one row, or one for each row of the domain that it is answered for."""
        if isinstance(outer, Dependent):
            return outer.factor(self.names)
        if self._anchor is None:
            unsupported("a view that reads no table", span, "insert the rows into a table")
        return one_row(self._anchor, self.names)

    def _count(self, node: t.Expr | None) -> int | None:
        if node is None:
            return None
        e = folded(RelBinder((), self.catalog, "LIMIT").bound(node))
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
        if not isinstance(item.expr, t.Constant) or item.expr.kind != "number":
            return None
        at = int(item.expr.value) if item.expr.value.isdigit() else 0
        if not 1 <= at <= len(exprs):
            raise mistake(
                "FQ2002", f"ORDER BY position {item.expr.value} is not in the select list", item.span, "no such item"
            )
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
        order_by = order_by if ordered else [o for o in order_by if isinstance(o.expr, t.ColumnRef)]
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
            unsupported("WINDOW over a table", select.span, "group by an expression of the time column")
        if select.partition_by:
            unsupported("PARTITION BY of a query over a table", select.partition_by[0].span, "leave it out")
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
        carried = rel.carried
        below = binder = self._binder(rel.columns, "SELECT", outer)
        parts = (select.items, select.having, tuple(order_by), select.distinct_on)
        if select.group_by or select.having is not None or any(has_aggregates(n) for n in nodes(parts)):
            rel, binder, parts = GroupBy(self, Subqueries(self, tables), below).grouped(select, parts, rel)
            if parts[1] is not None:
                rel = self._having(parts[1], rel, binder, tables)
        subqueries = Subqueries(self, tables)
        rel, parts = subqueries.values(rel, parts, binder)
        rel, parts = windowed(rel, parts, select.windows, binder, self.names, self.placeholders)
        items = self._items(parts[0], select.items, binder)
        order = tuple(self._order(o, items, binder) for o in parts[2])
        binder.uses_outer |= below.uses_outer
        return _Body(rel, tuple(items), binder, order, carried)

    def _having(self, node: t.Expr, rel: Rel, binder: RelBinder, tables: Tables) -> Rel:
        rel, conditions = Subqueries(self, tables).conditions(rel, [node], binder)
        return filtered(rel, conditions)

    def _order(self, item: t.OrderItem, items: Sequence[tuple[str, Expr]], binder: RelBinder) -> Order:
        """By position, by the name of an output column, or by an expression over the input."""
        found = self._by_position(item, [e for _, e in items])
        if found is not None:
            return found
        if isinstance(item.expr, t.ColumnRef) and len(item.expr.parts) == 1:
            named = [e for n, e in items if n == item.expr.parts[0]]
            if named:
                return ordered_by(named[0], item)
        return order_of(item, binder)

    # --- the select list ---

    def _items(self, items: Sequence[t.Item], written: Sequence[t.Item], binder: RelBinder) -> list[tuple[str, Expr]]:
        """Names and expressions. written: the items with their sub-queries and aggregates, which name columns."""
        made: list[tuple[str, Expr]] = []
        for item, original in zip(items, written, strict=True):
            if isinstance(item.expr, t.Star):
                made += self._star(item.expr, binder)
                continue
            e = binder.bound(item.expr)
            if e.type.kind is Kind.NULL:
                e = Literal(SqlType(Kind.STRING), None)  # a bare NULL is a text, as in PostgreSQL
            made.append((item.alias or tree_name(original.expr), e))
        return made

    def _star(self, star: t.Star, binder: RelBinder) -> list[tuple[str, Expr]]:
        if star.of is not None:
            unsupported("the fields of an expression (.*)", star.span, "name the fields")
        if len(star.qualifier) > 1:
            unsupported("a schema in front of a name", star.span)
        excluded = {c.parts[-1] for c in star.excluded}
        alias = star.qualifier[0] if star.qualifier else None
        if alias is not None and all(c.source != alias for c in binder.columns):
            known = dict.fromkeys(c.source for c in binder.columns if c.source)
            title, edit = f"'{alias}' is not a relation of this query", correction(star.span, alias, known)
            raise mistake("FQ2001", title, star.span, "unknown", help=f"there are {listing(known)}", edit=edit)
        chosen = [c for c in binder.columns if (c.source == alias if alias is not None else not c.qualified)]
        return [(c.name, binder.bound(_reference(c, star))) for c in chosen if c.name not in excluded]

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

    def _united(self, sides: Sequence[Rel]) -> Rel:
        return united(sides, self.names)

    # --- FROM and WHERE ---

    def filtered(self, select: t.Select, tables: Tables, outer: RelBinder | None) -> Filtered:
        """FROM and WHERE. Conditions that name columns of `outer` are left to who asked."""
        written = and_parts(select.where) if select.where is not None else []
        given = _From(outer, tables, written)
        if select.source is None or isinstance(outer, Dependent):
            given.add(self._start(outer, select.span))
        if select.source is not None:
            self._flatten(select.source, given)
        binder = self._binder(given.columns, "WHERE", outer)
        parts = [*(p for n in given.on for p in and_parts(n)), *written]
        for part in parts:
            if has_aggregates(part):
                raise mistake("FQ2020", "aggregate functions are not allowed in WHERE", part.span, help="use HAVING")
        plain = [p for p in parts if not has_query(p)]
        own = list(given.ties)
        correlated: list[Expr] = []
        known = frozenset(n for f in given.factors for n in f.names)
        for part in plain:
            for condition in all_conjuncts(binder.true_when(part)):
                (own if columns_of(condition) <= known else correlated).append(condition)
        rel = replace(joined_all(given.factors, own, self.names), columns=tuple(given.columns))
        rest = [p for p in parts if has_query(p)]
        rel, conditions = Subqueries(self, tables).conditions(rel, rest, binder)
        inside = [c for c in conditions if columns_of(c) <= rel.names]
        correlated += [c for c in conditions if c not in inside]
        return Filtered(filtered(rel, inside), tuple(correlated))

    def _binder(self, columns: Sequence[RelColumn], clause: str, outer: RelBinder | None) -> RelBinder:
        return RelBinder(columns, self.catalog, clause, outer=outer, given=self.placeholders.exprs)

    def _flatten(self, relation: t.Relation, given: _From) -> None:
        """Inner joins are taken apart: their conditions are like those of WHERE."""
        if (
            isinstance(relation, t.Join)
            and relation.kind in ("inner", "cross", "comma")
            and not (relation.using or relation.natural or is_temporal(relation))
        ):
            self._check_join(relation)
            self._flatten(relation.left, given)
            self._flatten(relation.right, given)
            if relation.on is not None:
                given.on.append(relation.on)
        elif isinstance(relation, t.TableFunction) and gives_rows(relation):
            self._function(relation, given)
        elif isinstance(relation, t.Derived):
            self._derived(relation, given)
        else:
            given.add(self._relation(relation, given.tables, given.outer))

    def _function(self, function: t.TableFunction, given: _From) -> None:
        """A function of FROM may name the columns of all that stands before it."""
        wanted = named(function.call, self._binder(given.columns, "FROM", given.outer))
        left = self._taken(given, frozenset(c.name for c in wanted)) or self._start(None, function.span)
        binder = self._binder(left.columns, "FROM", given.outer)
        made, columns = from_function(function, left, binder, self.names, kept=False)
        if binder.uses_outer:
            raise Correlated
        given.factors.append(replace(made, columns=(*left.columns, *columns)))
        given.columns += columns

    def _derived(self, derived: t.Derived, given: _From) -> None:
        """A query of FROM names what stands before it if it is LATERAL, and in any case what the query is carried for."""
        before = given.columns if derived.lateral else [c for c in given.columns if c.source == OUTER]
        binder = self._binder(before, "FROM", given.outer)
        wanted = frozenset(c.name for c in named(derived.query, binder))
        left = self._taken(given, wanted)
        if left is None:
            given.add(self._named(self.query(derived.query, given.tables, binder), derived))
            return
        inner, ties = dependent(self, left, derived.query, given.tables, binder)
        inner = replace(self._named(inner, derived), columns=self._named(inner, derived).shown)
        given.columns += inner.columns
        made = [joined("inner", left, inner, ties, self.names)] if ties else [left, inner]
        given.factors += made

    def _named(self, rel: Rel, derived: t.Derived) -> Rel:
        return self._aliased(rel, derived.alias.name if derived.alias is not None else "", derived.alias)

    def _taken(self, given: _From, columns: frozenset[str]) -> Rel | None:
        """The relations of FROM so far that have these columns, joined, and taken out of it; None if none has."""
        chosen = [f for f in given.factors if f.names & columns]
        if not chosen:
            return None
        given.factors = [f for f in given.factors if not f.names & columns]
        if len(chosen) == 1:
            return chosen[0]
        known = frozenset(n for f in chosen for n in f.names)
        binder = self._binder([c for f in chosen for c in f.columns], "WHERE", given.outer)
        conditions: list[Expr] = []
        for part in (p for n in (*given.on, *given.where) for p in and_parts(n) if not has_query(p)):
            with suppress(CompileError):  # it names what comes later
                conditions += [c for c in all_conjuncts(binder.true_when(part)) if columns_of(c) <= known]
        return joined_all(chosen, conditions, self.names)

    def _check_join(self, join: t.Join) -> None:
        if join.variant:
            unsupported(f"{join.variant} JOIN", join.at)
        if join.within is not None:
            unsupported("WITHIN in a join of tables", join.at, "compare the times in ON")

    def _relation(self, relation: t.Relation, tables: Tables, outer: RelBinder | None) -> Rel:
        match relation:
            case t.Table():
                return self._table(relation, tables)
            case t.Join():
                return self._outer_join(relation, tables, outer)
            case t.TableFunction() if is_time_window(relation):
                rel = self._table(source_of(relation), tables)
                rel = in_windows(relation, rel, self.catalog, self.names)
                alias = relation.alias.name if relation.alias is not None else relation.call.name[-1]
                return self._aliased(rel, alias, relation.alias)
        assert isinstance(relation, t.TableFunction)
        unsupported(f"the table function {relation.call.name[-1].upper()}(...) in FROM", relation.span)

    def _table(self, table: t.Table, tables: Tables) -> Rel:
        if table.as_of is not None:
            unsupported("FOR SYSTEM_TIME AS OF anywhere but on the right side of a join", table.as_of.span)
        name = plain_name(table.name, table)
        alias = table.alias.name if table.alias is not None else name
        common = tables.get(name) if len(table.name) == 1 else None
        if common is not None:
            rel = renamed_source(rows_of(self, common, table), name, common.definition.columns)
            return self._aliased(rel, alias, table.alias)
        source = find_source(self.catalog, name, table.span)
        if source.schema.window is not None:
            unsupported("a table with windows in a view over relations", table.span, "make a table of it first")
        defined = in_place(self, source, table) if self.follows_watermark else None
        return self._aliased(defined or scanned(source, alias, self.names), alias, table.alias)

    def count_inlined(self, table: t.Table, times: int = 1) -> None:
        """Another query is put in the place of a name."""
        self.inlined += times
        if self.inlined > INLINED_MAX:
            title = f"common table expressions and views are named more than {INLINED_MAX} times in one query"
            raise mistake("FQ1013", title, table.span, help="make one of them a view of its own")

    def _aliased(self, rel: Rel, alias: str, written: t.Alias | None) -> Rel:
        columns = written.columns if written is not None else ()
        if len(columns) > len(rel.shown):
            assert written is not None
            raise mistake(
                "FQ2004", f"{alias} has {len(rel.shown)} columns, not {len(columns)}", written.span, "too many names"
            )
        return renamed_source(rel, alias, columns)

    def _outer_join(self, join: t.Join, tables: Tables, outer: RelBinder | None) -> Rel:
        """An outer join, or one with USING or NATURAL: both sides first, then their pairs."""
        self._check_join(join)
        left = self._side(join.left, tables, outer)
        kind: Any = join.kind if join.kind in ("left", "right", "full") else "inner"
        ties: list[Expr] = []
        if isinstance(join.right, t.TableFunction) and gives_rows(join.right):
            if kind == "left" and join.on == TRUE:
                binder = self._binder(left.columns, "FROM", outer)
                made, columns = from_function(join.right, left, binder, self.names, kept=True)
                if binder.uses_outer:
                    raise Correlated
                return replace(made, columns=(*left.columns, *columns))
            join = replace(join, right=as_query(join.right))
        if isinstance(join.right, t.Derived) and join.right.lateral:
            if kind in ("right", "full"):
                unsupported(f"LATERAL on the right side of a {kind.upper()} JOIN", join.right.span)
            binder = self._binder(left.columns, "FROM", outer)
            right, ties = dependent(self, left, join.right.query, tables, binder)
            right = replace(self._named(right, join.right), columns=self._named(right, join.right).shown)
        else:
            right = self._side(present(join.right, tables) if is_temporal(join) else join.right, tables, outer)
        using = names_of(join, left, right)
        if join.on is not None:
            if has_query(join.on):
                return self._joined_by_queries(join, join.on, (left, right), ties, tables, outer)
            binder = self._binder((*left.columns, *right.columns), "ON", outer)
            conditions = all_conjuncts(binder.true_when(join.on))
            if binder.uses_outer:
                left, right = self._carrying(kind, left, right, outer, join)
                binder = self._binder((*left.columns, *right.columns), "ON", outer)
                conditions = all_conjuncts(binder.true_when(join.on))
        else:
            conditions = [equal(name, left, right, join, self.catalog) for name in using]
        if is_temporal(join):
            made = temporally_joined(join, left, right, conditions, self.names)
        else:
            made = joined(kind, left, right, [*ties, *conditions], self.names)
        return merged_columns(kind, left, right, using, made, self.names) if using else made

    def _carrying(self, kind: str, left: Rel, right: Rel, outer: RelBinder | None, join: t.Join) -> tuple[Rel, Rel]:
        """Both sides, where the one that is kept is there once for each row of the domain, which ON names."""
        if not isinstance(outer, Dependent):
            raise Correlated
        if kind == "full" or left.carried or right.carried:
            unsupported("a column of the query around in ON of such a join", join.span, "put the join into a view")
        kept = right if kind == "right" else left
        factor = outer.factor(self.names)
        made = replace(joined_all([factor, kept], [], self.names), columns=(*kept.columns, *factor.columns))
        return (left, made) if kind == "right" else (made, right)

    def _joined_by_queries(
        self,
        join: t.Join,
        on: t.Expr,
        sides: tuple[Rel, Rel],
        ties: Sequence[Expr],
        tables: Tables,
        outer: RelBinder | None,
    ) -> Rel:
        """An outer join with sub-queries in ON: each row of the side that is kept, with the pairs of an inner join that it is in."""
        if join.kind == "full" or is_temporal(join):
            unsupported("a sub-query in ON of a FULL or temporal join", on.span, "put it into a view of its own")
        at = 1 if join.kind == "right" else 0
        check_repeatable(sides[at].node, on.span)
        kept = Rel(with_identity(sides[at].node, self.names), sides[at].columns)
        other = sides[1 - at]
        again, names = copied(kept, self.names), [f.name for f in kept.node.schema.key]
        binder = self._binder((*again.columns, *other.columns), "ON", outer)
        parts = and_parts(on)
        plain = [c for p in parts if not has_query(p) for c in all_conjuncts(binder.true_when(p))]
        renamed = {c.column: copy.expr() for c, copy in zip(kept.columns, again.columns, strict=True)}
        pairs = joined("inner", again, other, [*(substitute(c, renamed) for c in ties), *plain], self.names)
        pairs, conditions = Subqueries(self, tables).conditions(pairs, [p for p in parts if has_query(p)], binder)
        if binder.uses_outer:
            raise Correlated
        same_row = [same(Column(f.type, n), column_of(f)) for n, f in zip(names, again.node.schema.key, strict=True)]
        made = joined("left", kept, filtered(pairs, conditions), same_row, self.names)
        return replace(made, columns=(*sides[0].columns, *sides[1].columns))

    def _side(self, relation: t.Relation, tables: Tables, outer: RelBinder | None) -> Rel:
        """One side of an outer join."""
        given = _From(outer, tables, [])
        self._flatten(relation, given)
        binder = self._binder(given.columns, "ON", given.outer)
        conditions = [c for n in given.on for p in and_parts(n) for c in all_conjuncts(binder.true_when(p))]
        if binder.uses_outer or any(f.carried for f in given.factors):
            raise Correlated
        return replace(joined_all(given.factors, conditions, self.names), columns=tuple(given.columns))


def _reference(c: RelColumn, star: t.Star) -> t.ColumnRef:
    return t.ColumnRef((c.source, c.name) if c.source else (c.name,), span=star.span)

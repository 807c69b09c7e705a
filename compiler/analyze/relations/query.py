"""A query's tree as a relation: FROM and WHERE, groups, window functions, the select list, set operations, ORDER BY and LIMIT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from compiler.analyze.mistakes import mistake
from compiler.analyze.relations.expressions import GroupedBinder, Placeholders, RelBinder, rebuilt
from compiler.analyze.relations.grouping import (
    Aggregates,
    grouped,
    grouping_sets,
    has_aggregates,
    is_aggregate,
    order_of,
    ordered_by,
)
from compiler.analyze.relations.joins import all_conjuncts, joined, joined_all, merged_columns
from compiler.analyze.relations.relation import (
    Names,
    Order,
    Rel,
    RelColumn,
    as_columns,
    column_of,
    filtered,
    kept_identity,
    projected,
    renamed_source,
    scanned,
    selected,
)
from compiler.analyze.relations.subqueries import OUTER_COLUMN, Filtered, Subqueries
from compiler.analyze.relations.temporal import is_temporal, present, temporally_joined
from compiler.analyze.relations.time_windows import in_windows, is_time_window, source_of
from compiler.analyze.relations.tree_names import tree_name
from compiler.analyze.relations.tree_parts import and_parts, has_query, nodes, operands
from compiler.analyze.relations.windows import windowed
from compiler.catalog.catalog import Catalog, find_source
from compiler.catalog.names import listing
from compiler.dialect.standard import tree as t
from compiler.dialect.standard.names import plain_name
from compiler.dialect.standard.refuse import unsupported
from compiler.functions.coercion import unify
from compiler.functions.folding import folded
from compiler.functions.registry import FunctionTypeError
from compiler.plan.changes import RankFunction, SetOperation, TopN
from compiler.plan.expr import Column, Expr, Literal, columns_of
from compiler.plan.logical import NamedExpr, Node, Union
from compiler.plan.schema import Field, Schema
from compiler.plan.types import INT, Kind, SqlType

INLINED_MAX = 64


@dataclass(frozen=True, slots=True)
class CommonTable:
    """A common table expression, and those that the names inside it mean."""

    definition: t.With
    tables: Tables


Tables = Mapping[str, CommonTable]
NO_TABLES: Tables = {}


@dataclass(frozen=True, slots=True)
class _Body:
    """A SELECT before its select list is all there is: the rows, their items, and what ORDER BY binds with."""

    rel: Rel
    items: tuple[tuple[str, Expr], ...]
    binder: RelBinder
    order: tuple[Order, ...]


class QueryBinder:
    """Binds the queries of one statement. Plan names are unique over all of them."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.names = Names()
        self.placeholders = Placeholders()
        self._inlined = 0

    # --- queries ---

    def query(self, query: t.Query, tables: Tables = NO_TABLES, outer: RelBinder | None = None) -> Rel:
        """The relation of a whole query; its columns are those selected, in order. outer: of a sub-query, for its messages."""
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
        unsupported("VALUES in a view", body.span, "insert the rows into a table")

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
        spec = TopN((), keys, limit, offset, function)
        return Rel(Node(spec, (rel.node,), rel.node.schema, "retract"), rel.columns)

    def _order_of_output(self, items: Sequence[t.OrderItem], rel: Rel) -> list[Order]:
        """ORDER BY of a set operation: by columns of the result, or their numbers."""
        binder = RelBinder(rel.columns, self.catalog, "ORDER BY")
        return [self._by_position(o, [c.expr() for c in rel.columns]) or order_of(o, binder) for o in items]

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
        order_by = order_by if limited or select.distinct_on else ()
        given = self.filtered(select, tables, outer)
        if given.correlated:
            unsupported("a correlated sub-query of this form", select.span, "write it as a join")
        body = self.body(select, order_by, given.rel, tables, outer)
        if select.distinct_on:
            made = self._distinct_on(select, body)
        elif select.distinct:
            rel, _ = self._with_order(replace(body, order=()))
            made = (rel := self._distinct(rel)), self._order_of_items(order_by, body, rel)
        else:
            made = self._with_order(body)
        if body.binder.uses_outer:
            unsupported(OUTER_COLUMN, select.span, "write it as a join")
        return made

    def _order_of_items(self, written: Sequence[t.OrderItem], body: _Body, rel: Rel) -> list[Order]:
        """ORDER BY of SELECT DISTINCT: by the columns of the result that are selected as the same expressions."""
        made: list[Order] = []
        for item, order in zip(written, body.order, strict=True):
            found = next((c for c, (_, e) in zip(rel.columns, body.items, strict=True) if e == order.expr), None)
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
        if select.source is None:
            unsupported("a view without FROM", select.span, "select from a table")

    def _with_order(self, body: _Body) -> tuple[Rel, list[Order]]:
        """The select list as columns, with what ORDER BY needs beside them."""
        rel, columns = as_columns(body.rel, [o.expr for o in body.order], self.names, "order")
        shown = [RelColumn("", n, e.type, self.names.fresh(n)) for n, e in body.items]
        exprs = [NamedExpr(c.column, e) for c, (_, e) in zip(shown, body.items, strict=True)]
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
        below = binder = RelBinder(rel.columns, self.catalog, "SELECT", outer=outer, given=self.placeholders.exprs)
        parts = (select.items, select.having, tuple(order_by), select.distinct_on)
        if select.group_by or select.having is not None or any(has_aggregates(n) for n in nodes(parts)):
            rel, binder, parts = self._grouped(select, parts, rel, binder, Subqueries(self, tables))
            if parts[1] is not None:
                rel = self._having(parts[1], rel, binder, tables)
        subqueries = Subqueries(self, tables)
        rel, parts = subqueries.values(rel, parts, binder)
        rel, parts = windowed(rel, parts, select.windows, binder, self.names, self.placeholders)
        items = self._items(parts[0], select.items, binder)
        order = tuple(self._order(o, items, binder) for o in parts[2])
        binder.uses_outer |= below.uses_outer
        return _Body(rel, tuple(items), binder, order)

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

    # --- GROUP BY ---

    def _grouped(
        self, select: t.Select, parts: Any, rel: Rel, below: RelBinder, subqueries: Subqueries
    ) -> tuple[Rel, RelBinder, Any]:
        sets = [[self._group(e, select, below) for e in one] for one in grouping_sets(select.group_by)]
        rel, sets, parts = self._before_groups(rel, sets, parts, below, subqueries)
        aggregates = Aggregates(below, self.names, self.placeholders)
        parts = aggregates.taken(parts)
        exprs = [[below.bound(e) for e in one] for one in sets]
        if len(exprs) == 1:
            made, keys = grouped(rel, exprs[0], aggregates.calls, self.names)
            groups = list(zip(exprs[0], keys, strict=True))
        else:
            made, groups = self._grouping_sets(rel, exprs, aggregates)
        binder = GroupedBinder(below, groups, "SELECT", self.placeholders.exprs)
        return made, binder, parts

    def _before_groups(
        self, rel: Rel, sets: list[list[t.Expr]], parts: Any, below: RelBinder, subqueries: Subqueries
    ) -> tuple[Rel, list[list[t.Expr]], Any]:
        """Sub-queries in expressions of GROUP BY and inside aggregates are of the rows that are grouped."""
        found = [rel]
        made: dict[t.Expr, t.Expr] = {}
        for node in (n for one in sets for n in one if has_query(n) and n not in made):
            found[0], made[node] = subqueries.values(found[0], node, below)

        def rule(n: t.Node) -> t.Node | None:
            if n in made:
                return made[n]
            if is_aggregate(n) and has_query(n):
                found[0], call = subqueries.values(found[0], n, below)
                return cast(t.Node, call)
            return None

        if any(has_query(n) for n in nodes(parts)):
            parts = rebuilt(parts, rule)
        return found[0], [[made.get(n, n) for n in one] for one in sets], parts

    def _group(self, node: t.Expr, select: t.Select, below: RelBinder) -> t.Expr:
        """An expression of GROUP BY: a column of the input, a position, the name of an output column, or any expression."""
        if isinstance(node, t.Constant) and node.kind == "number":
            at = int(node.value) if node.value.isdigit() else 0
            if not 1 <= at <= len(select.items) or isinstance(select.items[at - 1].expr, t.Star):
                raise mistake(
                    "FQ2002", f"GROUP BY position {node.value} is not in the select list", node.span, "no such item"
                )
            node = select.items[at - 1].expr
        elif (
            isinstance(node, t.ColumnRef)
            and len(node.parts) == 1
            and not any(c.name == node.parts[0] for c in below.columns)
        ):
            named = [i.expr for i in select.items if i.alias == node.parts[0]]
            node = named[0] if named else node
        if has_aggregates(node):
            raise mistake("FQ2020", "aggregate functions are not allowed in GROUP BY", node.span, "an aggregate")
        return node

    def _grouping_sets(
        self, rel: Rel, sets: Sequence[Sequence[Expr]], aggregates: Aggregates
    ) -> tuple[Rel, list[tuple[Expr, Expr]]]:
        """One aggregation per set, united: in the place of a key that a set does not have is NULL."""
        every: list[Expr] = []
        for one in sets:
            every += [e for e in one if e not in every]
        branches: list[Rel] = []
        for one in sets:
            made, keys = grouped(rel, one, aggregates.calls, self.names)
            known = list(zip(one, keys, strict=True))
            columns = [next((k for e, k in known if e == g), Literal(g.type, None)) for g in every]
            results = [c.column for c in aggregates.calls]
            branches.append(
                selected(made, [("group", c) for c in columns] + [("result", r) for r in results], self.names)
            )
        united = self._united(branches)
        fields = [c.expr() for c in united.columns]
        for call, column in zip(aggregates.calls, fields[len(every) :], strict=True):
            for key, e in self.placeholders.exprs.items():
                if e == call.column:
                    self.placeholders.exprs[key] = column
        return united, list(zip(every, fields, strict=False))

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
            known = listing(dict.fromkeys(c.source for c in binder.columns if c.source))
            raise mistake(
                "FQ2001", f"'{alias}' is not a relation of this query", star.span, "unknown", help=f"there are {known}"
            )
        chosen = [c for c in binder.columns if (c.source == alias if alias is not None else not c.qualified)]
        return [(c.name, binder.bound(_reference(c, star))) for c in chosen if c.name not in excluded]

    # --- DISTINCT and set operations ---

    def _distinct_on(self, select: t.Select, body: _Body) -> tuple[Rel, list[Order]]:
        """The first row of each group, in the order of ORDER BY."""
        keys = [self._order(t.OrderItem(e, span=e.span), body.items, body.binder).expr for e in select.distinct_on]
        rel, key_columns = as_columns(body.rel, keys, self.names, "distinct")
        rel, columns = as_columns(rel, [o.expr for o in body.order], self.names, "order")
        sort = tuple(o.key(c) for o, c in zip(body.order, columns, strict=True))
        spec = TopN(tuple(dict.fromkeys(key_columns)), sort, 1)
        rel = Rel(Node(spec, (rel.node,), rel.node.schema, "retract"), rel.columns)
        return self._with_order(replace(body, rel=rel))

    def _distinct(self, rel: Rel) -> Rel:
        return self._operation("distinct", [self._bare(rel)], all_=False)

    def _bare(self, rel: Rel) -> Rel:
        """The relation with its columns alone beside the row identity."""
        return selected(rel, [(c.name, c.expr()) for c in rel.columns], self.names)

    def _operation(self, kind: Any, inputs: Sequence[Rel], *, all_: bool) -> Rel:
        first = inputs[0]
        keys = [Field(self.names.fresh(f"__{c.name}"), c.type, "key") for c in first.columns]
        copies = [Field(self.names.fresh("__copy"), INT, "key")] if all_ else []
        columns = [replace(c, column=self.names.fresh(c.name)) for c in first.columns]
        schema = Schema((*keys, *copies, *(Field(c.column, c.type) for c in columns)))
        node = Node(SetOperation(kind, all_), tuple(i.node for i in inputs), schema, "retract")
        return Rel(node, tuple(columns))

    def _set_operation(self, body: t.SetOperation, tables: Tables, outer: RelBinder | None) -> Rel:
        if body.corresponding:
            unsupported(f"{body.op.upper()} CORRESPONDING", body.at, "select the same columns in each query")
        sides = [self._body(b, tables, outer) for b in operands(body)]
        sides = self._aligned(sides, body)
        if body.op == "union":
            united = self._united(sides)
            return united if body.all else self._distinct(united)
        return self._operation(body.op, sides, all_=body.all)

    def _aligned(self, sides: Sequence[Rel], body: t.SetOperation) -> list[Rel]:
        """The queries with columns of common types, named by the first one."""
        counts = [len(s.columns) for s in sides]
        if len(set(counts)) > 1:
            title = f"each {body.op.upper()} query must have the same number of columns: {listing(list(map(str, counts)), 'and')}"
            raise mistake("FQ2040", title, body.at, "other columns")
        columns: list[list[Expr]] = [[] for _ in sides]
        for at, same in enumerate(zip(*(s.columns for s in sides), strict=True)):
            try:
                _, converted = unify([c.expr() for c in same])
            except FunctionTypeError as problem:
                types = listing([str(c.type) for c in same], "and")
                raise mistake(
                    "FQ2005",
                    f"{body.op.upper()} types {types} of column {at + 1} cannot be matched",
                    body.at,
                    help=problem.hint,
                ) from None
            for column, e in zip(columns, converted, strict=True):
                column.append(e)
        first = sides[0]
        return [
            selected(s, [(c.name, e) for c, e in zip(first.columns, exprs, strict=True)], self.names)
            for s, exprs in zip(sides, columns, strict=True)
        ]

    def _united(self, sides: Sequence[Rel]) -> Rel:
        """UNION ALL: the row identity is the number of the query and the identity there, NULL in the place of those of others."""
        branch = Field(self.names.fresh("__branch"), INT, "key")
        identity = [[Field(self.names.fresh(f.name), f.type, "key") for f in s.node.schema.key] for s in sides]
        columns = [replace(c, column=self.names.fresh(c.name)) for c in sides[0].columns]
        nodes = []
        for i, side in enumerate(sides):
            exprs: list[tuple[Field, Expr]] = [(branch, Literal(INT, i))]
            for j, of in enumerate(identity):
                own: Sequence[Expr] = [column_of(f) for f in side.node.schema.key]
                exprs += [(f, own[k] if i == j else Literal(f.type, None)) for k, f in enumerate(of)]
            values = [NamedExpr(c.column, s.expr()) for c, s in zip(columns, side.columns, strict=True)]
            nodes.append(projected(side.node, exprs, values))
        return Rel(Node(Union(), tuple(nodes), nodes[0].schema, "retract"), tuple(columns))

    # --- FROM and WHERE ---

    def filtered(self, select: t.Select, tables: Tables, outer: RelBinder | None) -> Filtered:
        """FROM and WHERE. Conditions that name columns of `outer` are left to who asked."""
        assert select.source is not None
        factors: list[Rel] = []
        on: list[t.Expr] = []
        self._flatten(select.source, tables, factors, on)
        columns = tuple(c for f in factors for c in f.columns)
        binder = RelBinder(columns, self.catalog, "WHERE", outer=outer, given=self.placeholders.exprs)
        written = [*on, *([select.where] if select.where is not None else [])]
        parts = [p for n in written for p in and_parts(n)]
        for part in parts:
            if has_aggregates(part):
                raise mistake("FQ2020", "aggregate functions are not allowed in WHERE", part.span, help="use HAVING")
        plain = [p for p in parts if not has_query(p)]
        own: list[Expr] = []
        correlated: list[Expr] = []
        known = frozenset(n for f in factors for n in f.names)
        for part in plain:
            for condition in all_conjuncts(binder.true_when(part)):
                (own if columns_of(condition) <= known else correlated).append(condition)
        rel = joined_all(factors, own, self.names)
        rest = [p for p in parts if has_query(p)]
        rel, conditions = Subqueries(self, tables).conditions(rel, rest, binder)
        inside = [c for c in conditions if columns_of(c) <= rel.names]
        correlated += [c for c in conditions if c not in inside]
        return Filtered(filtered(rel, inside), tuple(correlated))

    def _flatten(self, relation: t.Relation, tables: Tables, factors: list[Rel], on: list[t.Expr]) -> None:
        """Inner joins are taken apart: their conditions are like those of WHERE."""
        if (
            isinstance(relation, t.Join)
            and relation.kind in ("inner", "cross", "comma")
            and not (relation.using or relation.natural or is_temporal(relation))
        ):
            self._check_join(relation)
            self._flatten(relation.left, tables, factors, on)
            self._flatten(relation.right, tables, factors, on)
            if relation.on is not None:
                on.append(relation.on)
            return
        factors.append(self._relation(relation, tables))

    def _check_join(self, join: t.Join) -> None:
        if join.variant:
            unsupported(f"{join.variant} JOIN", join.at)
        if join.within is not None:
            unsupported("WITHIN in a join of tables", join.at, "compare the times in ON")

    def _relation(self, relation: t.Relation, tables: Tables) -> Rel:
        match relation:
            case t.Table():
                return self._table(relation, tables)
            case t.Derived():
                if relation.lateral:
                    unsupported("LATERAL", relation.span)
                rel = self.query(relation.query, tables)
                alias = relation.alias.name if relation.alias is not None else ""
                return self._aliased(rel, alias, relation.alias)
            case t.Join():
                return self._outer_join(relation, tables)
            case t.TableFunction() if is_time_window(relation):
                rel = self._table(source_of(relation), tables)
                rel = in_windows(relation, rel, self.catalog, self.names, self._united)
                alias = relation.alias.name if relation.alias is not None else relation.call.name[-1]
                return self._aliased(rel, alias, relation.alias)
        unsupported(f"the table function {relation.call.name[-1].upper()}(...) in FROM", relation.span)

    def _table(self, table: t.Table, tables: Tables) -> Rel:
        if table.as_of is not None:
            unsupported("FOR SYSTEM_TIME AS OF anywhere but on the right side of a join", table.as_of.span)
        name = plain_name(table.name, table)
        alias = table.alias.name if table.alias is not None else name
        common = tables.get(name) if len(table.name) == 1 else None
        if common is not None:
            self._inlined += 1
            if self._inlined > INLINED_MAX:
                title = f"common table expressions are named more than {INLINED_MAX} times in one query"
                raise mistake("FQ1013", title, table.span, help="make one of them a view of its own")
            rel = self.query(common.definition.query, common.tables)
            rel = renamed_source(rel, name, common.definition.columns)
            return self._aliased(rel, alias, table.alias)
        source = find_source(self.catalog, name, table.span)
        if source.schema.window is not None or source.kind == "stream":
            unsupported(
                "a stream, or a table with windows, in a view over tables", table.span, "make a table of it first"
            )
        return self._aliased(scanned(source, alias, self.names), alias, table.alias)

    def _aliased(self, rel: Rel, alias: str, written: t.Alias | None) -> Rel:
        columns = written.columns if written is not None else ()
        if len(columns) > len(rel.columns):
            assert written is not None
            raise mistake(
                "FQ2004", f"{alias} has {len(rel.columns)} columns, not {len(columns)}", written.span, "too many names"
            )
        return renamed_source(rel, alias, columns)

    def _outer_join(self, join: t.Join, tables: Tables) -> Rel:
        """An outer join, or one with USING or NATURAL: both sides first, then their pairs."""
        self._check_join(join)
        left = self._side(join.left, tables)
        right = self._side(present(join.right, tables) if is_temporal(join) else join.right, tables)
        kind: Any = join.kind if join.kind in ("left", "right", "full") else "inner"
        using = self._using(join, left, right)
        if join.on is not None:
            if has_query(join.on):
                unsupported("a sub-query in ON", join.on.span, "put it into WHERE")
            binder = RelBinder((*left.columns, *right.columns), self.catalog, "ON", given=self.placeholders.exprs)
            conditions = all_conjuncts(binder.true_when(join.on))
        else:
            conditions = [self._equal(name, left, right, join) for name in using]
        if is_temporal(join):
            made = temporally_joined(join, left, right, conditions, self.names)
        else:
            made = joined(kind, left, right, conditions, self.names)
        return merged_columns(kind, left, right, using, made, self.names) if using else made

    def _side(self, relation: t.Relation, tables: Tables) -> Rel:
        factors: list[Rel] = []
        on: list[t.Expr] = []
        self._flatten(relation, tables, factors, on)
        columns = tuple(c for f in factors for c in f.columns)
        binder = RelBinder(columns, self.catalog, "ON", given=self.placeholders.exprs)
        conditions = [c for n in on for p in and_parts(n) for c in all_conjuncts(binder.true_when(p))]
        return joined_all(factors, conditions, self.names)

    def _using(self, join: t.Join, left: Rel, right: Rel) -> list[str]:
        names = list(join.using)
        if join.natural:
            there = [c.name for c in right.columns if not c.qualified]
            names = [c.name for c in left.columns if not c.qualified and c.name in there]
        for name in names:
            for side in (left, right):
                count = sum(c.name == name and not c.qualified for c in side.columns)
                if count != 1:
                    what = "is there more than once on one side" if count else "is not in both relations"
                    raise mistake("FQ2002", f"the column {name} of USING {what}", join.span, "cannot be joined by")
        return names

    def _equal(self, name: str, left: Rel, right: Rel, join: t.Join) -> Expr:
        sides = [next(c for c in r.columns if c.name == name and not c.qualified) for r in (left, right)]
        given = {f"\0{i}\0{name}": c.expr() for i, c in enumerate(sides)}
        a, b = (t.ColumnRef((k,), span=join.span) for k in given)
        return RelBinder((), self.catalog, "USING", given=given).true_when(t.Binary("=", a, b, span=join.span))


def _reference(c: RelColumn, star: t.Star) -> t.ColumnRef:
    return t.ColumnRef((c.source, c.name) if c.source else (c.name,), span=star.span)

"""Sub-queries in expressions as joins: EXISTS and IN as semi and anti joins, a query as a value as a left join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from compiler.analyze.mistakes import mistake
from compiler.analyze.relations.expressions import Placeholders, RelBinder, rebuilt
from compiler.analyze.relations.grouping import Aggregates, grouped, has_aggregates
from compiler.analyze.relations.joins import EQUAL, Equality, equality, joined
from compiler.analyze.relations.relation import Names, Rel, as_columns, with_identity
from compiler.catalog.catalog import Catalog
from compiler.dialect.standard import tree as t
from compiler.dialect.standard.refuse import unsupported
from compiler.plan.expr import Call, Column, Expr, Literal, columns_of
from compiler.plan.tables import HIDDEN
from compiler.plan.types import BIGINT, BOOLEAN

Tables = Mapping[str, Any]  # common table expressions by name, as `query` has them
OUTER_COLUMN = "a sub-query that names a column of the query around it elsewhere than in WHERE"
_TWO_LEVELS = "a sub-query that names a column of a query two levels above"


@dataclass(frozen=True, slots=True)
class Filtered:
    """FROM and WHERE. correlated: conditions that name columns of the query around it."""

    rel: Rel
    correlated: tuple[Expr, ...]


class Queries(Protocol):
    """What binds whole queries: `query.QueryBinder`."""

    catalog: Catalog
    names: Names
    placeholders: Placeholders

    def query(self, query: t.Query, tables: Tables, outer: RelBinder | None) -> Rel: ...
    def with_tables(self, query: t.Query, tables: Tables) -> Tables: ...
    def filtered(self, select: t.Select, tables: Tables, outer: RelBinder | None) -> Filtered: ...


class Subqueries:
    """Those of one SELECT. tables: common table expressions that they may name."""

    def __init__(self, queries: Queries, tables: Tables) -> None:
        self._queries, self._tables = queries, tables
        self._names, self._placeholders = queries.names, queries.placeholders

    def conditions(self, rel: Rel, parts: Sequence[t.Expr], binder: RelBinder) -> tuple[Rel, list[Expr]]:
        """The relation, joined with what the conditions ask for, and the conditions that are left to filter by."""
        left: list[Expr] = []
        for part in parts:
            node, negated = part, False
            while isinstance(node, t.Not):
                node, negated = node.operand, not negated
            node = _as_in(node)
            if isinstance(node, t.Exists):
                rel = self._exists(rel, node.query, binder, negated=negated)
            elif isinstance(node, t.InQuery):
                rel = self._in(rel, node, binder, negated=negated != node.negated)
            else:
                rel, part = self.values(rel, part, binder)
                left.append(binder.true_when(part))
        return rel, left

    def values(self, rel: Rel, parts: Any, binder: RelBinder) -> tuple[Rel, Any]:
        """The relation, joined with every sub-query that stands for a value, and the trees with placeholders for these."""
        found = [rel]

        def rule(n: t.Node) -> t.Node | None:
            n = _as_in(n)
            if isinstance(n, t.Exists):
                counted = t.Binary(
                    ">",
                    t.ScalarQuery(_counting(n.query), span=n.span),
                    t.Constant("number", "0", span=n.span),
                    span=n.span,
                )
                return rebuilt(counted, rule)
            if isinstance(n, t.ScalarQuery):
                found[0], e = self._scalar(found[0], n.query, binder)
                return self._placeholders.add(n, e)
            if isinstance(n, t.InQuery):
                return rebuilt(self._in_as_value(n, binder), rule)
            return None

        made = rebuilt(parts, rule)
        return found[0], made

    # --- conditions ---

    def _exists(self, rel: Rel, query: t.Query, binder: RelBinder, *, negated: bool) -> Rel:
        inner, conditions, _ = self._inner(query, binder)
        return self._semi(rel, inner, conditions, query, negated=negated)

    def _in(self, rel: Rel, node: t.InQuery, binder: RelBinder, *, negated: bool) -> Rel:
        operands = node.operand.items if isinstance(node.operand, t.Row) else (node.operand,)
        if negated and len(operands) > 1:
            unsupported("NOT IN of several columns", node.span, "write  NOT EXISTS (SELECT ... WHERE ...)")
        inner, conditions, values = self._inner(node.query, binder)
        if len(values) != len(operands):
            what = f"{len(operands)} expression{'s' if len(operands) > 1 else ''}"
            raise mistake(
                "FQ2005", f"the sub-query of IN gives {len(values)} columns, not one for each of {what}", node.span
            )
        for operand, value in zip(operands, values, strict=True):
            of_query = self._placeholders.add(operand, value)
            same = binder.true_when(t.Binary("=", operand, of_query, span=node.span))
            conditions.append(same if not negated else _true_or_unknown(same))
        return self._semi(rel, inner, conditions, node.query, negated=negated)

    def _inner(self, query: t.Query, binder: RelBinder) -> tuple[Rel, list[Expr], list[Expr]]:
        """The rows of a sub-query, the conditions that tie them to the outer row, and the selected values."""
        select = query.body
        plain = isinstance(select, t.Select) and select.source is not None and not _shapes_rows(query, select)
        if not plain:
            rel = self._queries.query(query, self._tables, binder)
            return rel, [], [c.expr() for c in rel.columns]
        assert isinstance(select, t.Select)
        tables = self._queries.with_tables(query, self._tables)
        given = self._queries.filtered(select, tables, binder)
        inside = RelBinder(given.rel.columns, binder.catalog, "SELECT", outer=binder, given=self._placeholders.exprs)
        values: list[Expr] = []
        for item in select.items:
            if isinstance(item.expr, t.Star):
                values += [c.expr() for c in given.rel.columns]
            else:
                values.append(inside.bound(item.expr))
        return given.rel, list(given.correlated), values

    def _semi(self, rel: Rel, inner: Rel, conditions: Sequence[Expr], query: t.Query, *, negated: bool) -> Rel:
        for condition in conditions:
            if not columns_of(condition) <= rel.names | inner.names:
                unsupported(_TWO_LEVELS, query.span, "write it as a join")
        return joined("anti" if negated else "semi", rel, inner, conditions, self._names)

    # --- values ---

    def _in_as_value(self, node: t.InQuery, binder: RelBinder) -> t.Expr:
        """TRUE, FALSE or unknown by counts of rows: of equal ones, of those with NULL, and of all."""
        select = node.query.body
        if (
            not isinstance(select, t.Select)
            or select.source is None
            or _shapes_rows(node.query, select)
            or isinstance(node.operand, t.Row)
            or len(select.items) != 1
            or isinstance(select.items[0].expr, t.Star)
            or any(isinstance(x, t.Query) for x in t.walk(node.operand))
        ):
            unsupported(
                "IN (a sub-query) inside another expression", node.span, "use it as a condition of WHERE joined by AND"
            )
        at, value = node.span, select.items[0].expr
        # Bound here, as inside the sub-query its names may mean other columns.
        operand = self._placeholders.add(node.operand, binder.bound(node.operand))

        def some(condition: t.Expr | None) -> t.Expr:
            parts = tuple(p for p in (select.where, condition) if p is not None)
            where = t.Logical("and", parts, span=at) if len(parts) > 1 else next(iter(parts), None)
            query = replace(node.query, body=replace(select, where=where))
            return t.Binary(">", t.ScalarQuery(_counting(query), span=at), t.Constant("number", "0", span=at), span=at)

        unknown = t.Logical("and", (t.IsTest(operand, "null", span=at), some(None)), span=at)
        unknown = t.Logical("or", (unknown, some(t.IsTest(value, "null", span=at))), span=at)
        found = (
            (some(t.Binary("=", operand, value, span=at)), t.Constant("bool", "true", span=at)),
            (unknown, t.Constant("null", "null", span=at)),
        )
        made = t.Case(None, found, t.Constant("bool", "false", span=at), span=at)
        return t.Not(made, span=at) if node.negated else made

    def _scalar(self, rel: Rel, query: t.Query, binder: RelBinder) -> tuple[Rel, Expr]:
        select = query.body
        if isinstance(select, t.Select) and select.source is not None:
            if len(select.items) != 1 or isinstance(select.items[0].expr, t.Star):
                raise mistake(
                    "FQ2005",
                    "a sub-query that stands for a value must return one column",
                    query.span,
                    "several columns",
                )
            one_row = not query.offset and (query.limit is None or _is_one(query.limit))
            if has_aggregates(select.items[0].expr) and not select.group_by and one_row:
                return self._aggregate(rel, query, select, binder)
        if _is_one(query.limit):
            inner = self._queries.query(query, self._tables, binder)
            return self._beside(rel, inner, [], query), inner.columns[0].expr()
        if isinstance(select, t.Select) and isinstance(select.source, t.Table) and not _shapes_rows(query, select):
            inner, conditions, values = self._inner(query, binder)
            pairs = [equality(c, rel.names, inner.names) for c in conditions]
            common = self._queries.with_tables(query, self._tables)
            if select.source.name[-1] not in common and self._by_key(select.source, inner, [p for p in pairs if p]):
                if not columns_of(values[0]) <= inner.names:
                    unsupported(OUTER_COLUMN, query.span, "write it as a join")
                # Before the join: of a row without a partner the value is NULL, whatever the expression.
                inner, (value,) = as_columns(inner, [values[0]], self._names, "value")
                return self._beside(rel, inner, conditions, query), Column(values[0].type, value)
        unsupported(
            "a sub-query as a value that may give several rows", query.span, "use an aggregate such as MAX, or LIMIT 1"
        )

    def _by_key(self, table: t.Table, inner: Rel, pairs: Sequence[Equality]) -> bool:
        """Whether the equalities name a whole PRIMARY KEY: then there is one row at most."""
        source = self._queries.catalog.sources.get(table.name[-1])
        if source is None or not source.schema.key or any(f.name.startswith(HIDDEN) for f in source.schema.key):
            return False
        named = {p.right.name for p in pairs if isinstance(p.right, Column)}
        names = {f.name for f in source.schema.key}
        keys = {c.column for c in inner.columns if c.name in names}
        return len(keys) == len(names) and keys <= named

    def _aggregate(self, rel: Rel, query: t.Query, select: t.Select, binder: RelBinder) -> tuple[Rel, Expr]:
        """One aggregation for all outer rows, by what ties its rows to them; a row without a partner has that of no rows."""
        if select.having is not None:
            unsupported("HAVING in a sub-query that stands for a value", query.span)
        tables = self._queries.with_tables(query, self._tables)
        given = self._queries.filtered(select, tables, binder)
        pairs: list[Equality] = []
        for condition in given.correlated:
            pair = equality(condition, rel.names, given.rel.names)
            if pair is None or pair.null_safe:
                unsupported(
                    "a correlated sub-query with another condition than an equality", query.span, "write it as a join"
                )
            pairs.append(pair)
        below = RelBinder(given.rel.columns, binder.catalog, "SELECT", outer=binder, given=self._placeholders.exprs)
        aggregates = Aggregates(below, self._names, self._placeholders)
        item = aggregates.taken(select.items[0].expr)
        if below.uses_outer:
            unsupported(OUTER_COLUMN, query.span, "write it as a join")
        made, keys = grouped(given.rel, [p.right for p in pairs], aggregates.calls, self._names)
        made = Rel(with_identity(made.node, self._names), ())
        conditions = [Call(BOOLEAN, EQUAL, (p.left, k)) for p, k in zip(pairs, keys, strict=True)]
        rel = self._beside(rel, made, conditions, query)
        for call in aggregates.calls:
            if call.function == "COUNT" and pairs:
                zero = Call(BIGINT, "COALESCE", (call.column, Literal(BIGINT, 0)))
                for key, e in self._placeholders.exprs.items():
                    if e == call.column:
                        self._placeholders.exprs[key] = zero
        return rel, RelBinder((), binder.catalog, "SELECT", outer=binder, given=self._placeholders.exprs).bound(item)

    def _beside(self, rel: Rel, inner: Rel, conditions: Sequence[Expr], query: t.Query) -> Rel:
        """Every row of the relation, with the row of the sub-query that fits; its columns have no name."""
        for condition in conditions:
            if not columns_of(condition) <= rel.names | inner.names:
                unsupported(_TWO_LEVELS, query.span, "write it as a join")
        made = joined("left", rel, inner, conditions, self._names)
        return Rel(made.node, rel.columns)


def _as_in(node: Any) -> Any:
    """`= ANY (query)` is IN, and `<> ALL (query)` NOT IN."""
    if isinstance(node, t.Quantified) and isinstance(node.of, t.Query):
        for op, quantifier, negated in (("=", "any", False), ("<>", "all", True)):
            if (node.op, node.quantifier) == (op, quantifier):
                return t.InQuery(node.operand, node.of, negated, span=node.span)
    return node


def _true_or_unknown(same: Expr) -> Expr:
    """A = b, or either is NULL: what keeps a row out of NOT IN."""
    assert isinstance(same, Call)
    whole: Expr = same
    for e in same.args:
        if not isinstance(e, Literal) or e.value is None:
            whole = Call(BOOLEAN, "or", (whole, Call(BOOLEAN, "is_null", (e,))))
    return whole


def _shapes_rows(query: t.Query, select: t.Select) -> bool:
    """Whether the query gives other rows than FROM and WHERE do."""
    shaped = select.group_by or select.having is not None or query.limit is not None or query.offset is not None
    return bool(shaped) or select.distinct_on != () or any(has_aggregates(i) or _has_window(i) for i in select.items)


def _has_window(node: t.Node) -> bool:
    return any(isinstance(n, t.Call) and n.over is not None for n in t.walk(node))


def _is_one(limit: t.Expr | None) -> bool:
    return isinstance(limit, t.Constant) and limit.kind == "number" and limit.value == "1"


def _counting(query: t.Query) -> t.Query:
    """SELECT count(*) over the rows of a query."""
    count = t.Item(t.Call(("count",), star=True, span=query.span), span=query.span)
    select = query.body
    if isinstance(select, t.Select) and select.source is not None and not _shapes_rows(query, select):
        return replace(query, body=replace(select, items=(count,), distinct=False), order_by=())
    return t.Query(t.Select((count,), source=t.Derived(query, span=query.span), span=query.span), span=query.span)

"""Sub-queries in expressions as joins: EXISTS and IN as semi and anti joins, a query as a value as a left join."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.operators import kept, taken
from flowql.compiler.analyze.relations.dependent import dependent
from flowql.compiler.analyze.relations.expressions import Correlated, Placeholders, RelBinder
from flowql.compiler.analyze.relations.grouping import AggregateCall, Aggregates, grouped, has_aggregates
from flowql.compiler.analyze.relations.joins import EQUAL, NOT_DISTINCT, Equality, equality, joined
from flowql.compiler.analyze.relations.relation import Names, Rel, as_columns, with_identity
from flowql.compiler.analyze.relations.row_sources import is_unnest
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect import walks
from flowql.compiler.dialect.ast import Func, Lit, Name, Star
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.refuse import unsupported
from flowql.compiler.functions.sql_comparison import SINGLE_ROW
from flowql.compiler.plan.changes import EquiJoin, GroupAggregate, TopN
from flowql.compiler.plan.expr import Call, Column, Expr, Literal, columns_of, conjuncts
from flowql.compiler.plan.logical import Filter, Node, Project, Scan, walk_nodes
from flowql.compiler.plan.types import BIGINT, BOOLEAN
from flowql.compiler.plan.watermarks import AppendOnly

Tables = Mapping[str, Any]  # common table expressions by name, as `query` has them
_OF_QUERIES = (t.Exists, t.InQuery, t.ScalarQuery, t.Quantified)  # expressions of sub-queries
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, slots=True)
class Filtered:
    """FROM and WHERE. correlated: conditions that name columns of the query around it."""

    rel: Rel
    correlated: tuple[Expr, ...]


class Queries(Protocol):
    """Binds whole queries; implemented by `query.QueryBinder`."""

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
            while isinstance(node, Func) and node.name == "not":
                node, negated = node.args[0], not negated
            node = _quantified(node)
            if isinstance(node, t.Exists):
                rel = self._exists(rel, node.query, binder, negated=negated)
            elif isinstance(node, t.Quantified) and isinstance(node.of, t.Query):
                rel = self._compared(rel, _negated(node) if negated else node, node.of, binder)
            else:
                rel, part = self.values(rel, part, binder)
                left.append(binder.condition(part))
        return rel, left

    def values(self, rel: Rel, parts: Any, binder: RelBinder) -> tuple[Rel, Any]:
        """The relation, joined with every sub-query that stands for a value, and the trees with placeholders for these."""
        found = [rel]

        def rule(written: t.Node) -> t.Node | None:
            n = _quantified(written)
            if isinstance(n, t.Exists):
                return walks.rebuilt(_any_row(n.query), rule, *_OF_QUERIES)
            if isinstance(n, t.ScalarQuery):
                found[0], e = self._scalar(found[0], n.query, binder)
                return self._placeholders.add(n, e)
            if isinstance(n, t.Quantified) and isinstance(n.of, t.Query):
                return walks.rebuilt(self._compared_as_value(found, n, n.of, binder, rule), rule, *_OF_QUERIES)
            return None if n is written else walks.rebuilt(n, rule, *_OF_QUERIES)

        made = walks.rebuilt(parts, rule, *_OF_QUERIES)
        return found[0], made

    # --- conditions ---

    def _exists(self, rel: Rel, query: t.Query, binder: RelBinder, *, negated: bool) -> Rel:
        try:
            inner, conditions, _ = self._inner(rel, query, binder)
        except Correlated:
            inner, conditions = dependent(self._queries, rel, query, self._tables, binder)
        return joined("anti" if negated else "semi", rel, inner, conditions, self._names)

    def _compared(self, rel: Rel, node: t.Quantified, query: t.Query, binder: RelBinder) -> Rel:
        """`x op ANY (query)`: some row is true; `x op ALL (query)`: for none the opposite is true or unknown."""
        operands = _operands(node)
        try:
            inner, conditions, found = self._inner(rel, query, binder)
        except Correlated:
            inner, conditions = dependent(self._queries, rel, query, self._tables, binder)
            found = [taken(c.expr()) for c in inner.shown]
        _check_count(operands, len(found), node)
        every = node.quantifier == "all"
        # Computed once for each row, which is left out where that fails: the comparison is then not true, whatever the rows of the query.
        rel, operands = self._computed(rel, operands, binder)
        for operand, value, shown in zip(operands, found, _shown(query, operands), strict=True):
            of_query = self._placeholders.add(shown, value)
            op = _OPPOSITE[node.op] if every else node.op
            holds = binder.condition(Func(t.OPERATORS[op], (operand, of_query), node.span))
            conditions.append(_true_or_unknown(holds) if every else holds)
        return joined("anti" if every else "semi", rel, inner, conditions, self._names)

    def _computed(self, rel: Rel, operands: Sequence[t.Expr], binder: RelBinder) -> tuple[Rel, tuple[t.Expr, ...]]:
        """The relation with a column for each operand that is computed of its columns, and what stands for the operands."""
        made: list[t.Expr] = []
        for operand in operands:
            e = kept(binder.bind(operand))
            if isinstance(e, Call) and frozenset() < columns_of(e) <= rel.names:
                rel, (name,) = as_columns(rel, [e], self._names, "operand")
                operand = self._placeholders.add(operand, taken(Column(e.type, name)))
            made.append(operand)
        return rel, tuple(made)

    def _inner(self, rel: Rel, query: t.Query, binder: RelBinder) -> tuple[Rel, list[Expr], list[Expr]]:
        """The rows of a sub-query, the conditions that tie them to the outer row, and the selected values."""
        select = query.body
        plain = isinstance(select, t.Select) and select.source is not None and not _shapes_rows(query, select)
        if not plain:
            inner = self._queries.query(query, self._tables, binder)
            return inner, [], [taken(c.expr()) for c in inner.shown]
        assert isinstance(select, t.Select)
        tables = self._queries.with_tables(query, self._tables)
        given = self._queries.filtered(select, tables, binder)
        inside = RelBinder(given.rel.columns, binder.catalog, "SELECT", outer=binder, given=self._placeholders.exprs)
        values: list[Expr] = []
        for item in select.items:
            if isinstance(item.expr, Star):
                values += [taken(c.expr()) for c in given.rel.shown if not c.qualified]
            elif walks.contains(item.expr, t.Query):
                raise Correlated
            else:
                values.append(inside.bind(item.expr))
        _check_within(given.correlated, rel, given.rel)
        return given.rel, list(given.correlated), values

    # --- values ---

    def _compared_as_value(
        self, found: list[Rel], node: t.Quantified, query: t.Query, binder: RelBinder, rule: Any
    ) -> t.Expr:
        """The comparison, which fails where an operand does, and not in rows for which it is not evaluated.

        found: the relation, which gets a column for each operand that is computed.
        """
        operands = _operands(node)
        # Bound here, as inside the sub-query its names may mean other columns.
        bound = [binder.bind(walks.rebuilt(e, rule, *_OF_QUERIES)) for e in operands]
        compared: list[t.Expr] = []
        fails: list[t.Expr] = []
        for operand, e in zip(operands, bound, strict=True):
            value = kept(e)
            if not (isinstance(value, Call) and frozenset() < columns_of(value) <= found[0].names):
                compared.append(self._placeholders.add(operand, e))
                continue
            tried = Call(value.type, "sql_try", (value,))
            found[0], (name,) = as_columns(found[0], [tried], self._names, "operand")
            compared.append(self._placeholders.add(operand, taken(Column(value.type, name))))
            whole = self._placeholders.add(operand, e)
            fails += (Func("is_distinct", (whole, compared[-1]), node.span), Lit("null", None, node.span))
        counted = self._counted(node, query, tuple(compared))
        return replace(counted, args=(*fails, *counted.args))

    def _counted(self, node: t.Quantified, query: t.Query, bound: tuple[t.Expr, ...]) -> Func:
        """TRUE, FALSE or unknown by counts of rows: of those that decide, and of those for which the comparison is unknown."""
        at = node.span
        operands = _operands(node)
        if node.op == "=" and node.quantifier == "any" and _is_plain(query) and len(operands) == 1:
            return self._in_as_value(bound[0], query, at)
        every = node.quantifier == "all"
        if isinstance(query.body, t.Select) and not any(isinstance(i.expr, Star) for i in query.body.items):
            _check_count(operands, len(query.body.items), node)
        named = tuple(f"v{n}" for n in range(len(operands)))
        source = t.Derived(query, t.Alias("q", named, span=at), span=at)
        values = [Name(("q", n), span=at) for n in named]
        pairs = [Func(t.OPERATORS[_op_of_rows(node)], (a, b), at) for a, b in zip(bound, values, strict=True)]
        holds: t.Expr = Func("and", tuple(pairs), at) if len(pairs) > 1 else pairs[0]
        if len(pairs) > 1 and every:  # <> of rows
            holds = Func("not", (holds,), at)

        def some(condition: t.Expr) -> t.Expr:
            item = t.Item(Lit("number", "1", at), span=at)
            return _any_row(t.Query(t.Select((item,), source, where=condition, span=at), span=at))

        decides = Func("not", (holds,), at) if every else holds
        unknown = some(Func("is_unknown", (holds,), at))
        parts = (some(decides), Lit("bool", not every, at), unknown, Lit("null", None, at), Lit("bool", every, at))
        return Func("case", parts, at)

    def _in_as_value(self, operand: t.Expr, query: t.Query, at: Span) -> Func:
        """IN of a query that FROM and WHERE shape: all its parts are equalities that a join can use."""
        select = query.body
        assert isinstance(select, t.Select)
        value = select.items[0].expr

        def some(condition: t.Expr | None) -> t.Expr:
            parts = tuple(p for p in (select.where, condition) if p is not None)
            where = Func("and", parts, at) if len(parts) > 1 else next(iter(parts), None)
            return _any_row(replace(query, body=replace(select, where=where)))

        unknown = Func("and", (Func("is_null", (operand,), at), some(None)), at)
        unknown = Func("or", (unknown, some(Func("is_null", (value,), at))), at)
        found = some(Func("eq", (operand, value), at)), Lit("bool", True, at), unknown, Lit("null", None, at)
        return Func("case", (*found, Lit("bool", False, at)), at)

    def _scalar(self, rel: Rel, query: t.Query, binder: RelBinder) -> tuple[Rel, Expr]:
        """The value of a query that has one row by its form, or by its data: the expression fails where there are several."""
        select = query.body
        if isinstance(select, t.Select):
            _check_one_column(len(select.items), query.span)
            with suppress(Correlated):
                if _is_aggregate(query, select):
                    return self._aggregate(rel, query, select, binder)
        inner, pairs, value = self._rows_of(rel, query, binder)
        inner, (name,) = as_columns(inner, [value], self._names, "value")
        value = Column(value.type, name)
        if not at_most_one(inner.node, frozenset(p.right.name for p in pairs if isinstance(p.right, Column))):
            return self._checked(rel, inner, pairs, value)
        inner = Rel(with_identity(inner.node, self._names), inner.columns)
        # Computed before the join: for a row without a partner the value is NULL, whatever the expression.
        return self._beside(rel, inner, list(map(_tie, pairs))), taken(value)

    def _rows_of(self, rel: Rel, query: t.Query, binder: RelBinder) -> tuple[Rel, list[Equality], Expr]:
        """The rows of a sub-query, the equalities that tie them to the row around, and the value."""
        found: tuple[Rel, list[Equality], list[Expr]] | None = None
        if _gives_rows_of_from(query):
            with suppress(Correlated):
                found = self._tied(rel, query, binder)
        if found is None:
            inner, ties = dependent(self._queries, rel, query, self._tables, binder)
            pairs = [p for c in ties if (p := equality(c, rel.names, inner.names)) is not None]
            if len(pairs) < len(ties):
                unsupported("a sub-query as a value that depends on a MAP", query.span, "name a value of it:  m['key']")
            found = inner, pairs, [c.expr() for c in inner.shown]
        inner, pairs, values = found
        _check_one_column(len(values), query.span)
        return inner, pairs, kept(values[0])

    def _tied(self, rel: Rel, query: t.Query, binder: RelBinder) -> tuple[Rel, list[Equality], list[Expr]]:
        """The rows of FROM and WHERE, if equalities alone tie them to the row around. Raises Correlated."""
        inner, conditions, values = self._inner(rel, query, binder)
        pairs = [p for c in conditions if (p := equality(c, rel.names, inner.names)) is not None]
        if len(pairs) < len(conditions) or not all(columns_of(v) <= inner.names for v in values):
            raise Correlated
        return inner, pairs, values

    def _checked(self, rel: Rel, inner: Rel, pairs: Sequence[Equality], value: Column) -> tuple[Rel, Expr]:
        """The one value that each row around has there, with how many there are."""
        name = self._names.fresh
        first = AggregateCall("FIRST_VALUE", (value,), value.type, False, None, (), (), name("value"))
        count = AggregateCall("COUNT", (), BIGINT, False, None, (), (), name("rows"))
        made, keys = grouped(inner, [p.right for p in pairs], [first, count], self._names)
        made = Rel(with_identity(made.node, self._names), ())
        ties = [_tie(replace(p, right=k)) for p, k in zip(pairs, keys, strict=True)]
        rel = self._beside(rel, made, ties)
        return rel, taken(Call(value.type, SINGLE_ROW, (first.column, count.column)))

    def _aggregate(self, rel: Rel, query: t.Query, select: t.Select, binder: RelBinder) -> tuple[Rel, Expr]:
        """One aggregation for all outer rows, by what ties its rows to them; a row without a partner has that of no rows."""
        tables = self._queries.with_tables(query, self._tables)
        given = self._queries.filtered(select, tables, binder)
        pairs: list[Equality] = []
        for condition in given.correlated:
            pair = equality(condition, rel.names, given.rel.names)
            if pair is None or pair.null_safe:
                raise Correlated
            pairs.append(pair)
        if walks.contains(select.items[0].expr, t.Query):
            raise Correlated
        below = RelBinder(given.rel.columns, binder.catalog, "SELECT", outer=binder, given=self._placeholders.exprs)
        aggregates = Aggregates(below, self._names, self._placeholders)
        item = aggregates.taken(select.items[0].expr)
        if below.uses_outer:
            raise Correlated
        made, keys = grouped(given.rel, [p.right for p in pairs], aggregates.calls, self._names)
        made = Rel(with_identity(made.node, self._names), ())
        rel = self._beside(rel, made, [_tie(replace(p, right=k)) for p, k in zip(pairs, keys, strict=True)])
        for call in aggregates.calls:
            if call.function == "COUNT" and pairs:
                zero = Call(BIGINT, "COALESCE", (call.column, Literal(BIGINT, 0)))
                self._placeholders.exchange(call.column, zero)
        return rel, RelBinder((), binder.catalog, "SELECT", outer=binder, given=self._placeholders.exprs).bind(item)

    def _beside(self, rel: Rel, inner: Rel, conditions: Sequence[Expr]) -> Rel:
        """Every row of the relation, with the row of the sub-query that fits; its columns have no name."""
        _check_within(conditions, rel, inner)
        made = joined("left", rel, inner, conditions, self._names)
        return Rel(made.node, rel.columns)


def _check_within(conditions: Iterable[Expr], rel: Rel, inner: Rel) -> None:
    """A condition may name a column of a query further out, which this one carries no columns of yet."""
    if any(not columns_of(c) <= rel.names | inner.names for c in conditions):
        raise Correlated


def _quantified(node: Any) -> Any:
    """`IN (query)` is `= ANY (query)`, and NOT IN `<> ALL (query)`; of VALUES it is a list."""
    if not isinstance(node, t.InQuery):
        return node
    query = node.query
    if isinstance(query.body, t.Values) and not (query.with_ or query.limit or query.offset):
        rows = query.body.rows
        items = (r[0] if len(r) == 1 else Func("row", r, node.span) for r in rows)
        return Func("not_in" if node.negated else "in", (node.operand, *items), node.span)
    if node.negated:
        return t.Quantified("<>", node.operand, "all", query, span=node.span)
    return t.Quantified("=", node.operand, "any", query, span=node.span)


def _negated(node: t.Quantified) -> t.Quantified:
    if node.op not in _OPPOSITE:
        return node
    return replace(node, op=_OPPOSITE[node.op], quantifier="any" if node.quantifier == "all" else "all")


def _operands(node: t.Quantified) -> tuple[t.Expr, ...]:
    if node.op not in _OPPOSITE:
        unsupported(f"{node.op.upper()} {node.quantifier.upper()} (a sub-query)", node.span, "compare with EXISTS")
    if not t.is_row(node.operand):
        return (node.operand,)
    if (node.op, node.quantifier) not in (("=", "any"), ("<>", "all")):
        unsupported(f"rows with {node.op} {node.quantifier.upper()} (a sub-query)", node.span, "compare with EXISTS")
    return node.operand.args


def _op_of_rows(node: t.Quantified) -> str:
    return "=" if t.is_row(node.operand) else node.op


def _shown(query: t.Query, operands: Sequence[t.Expr]) -> Sequence[t.Expr]:
    """How messages call the values of a query: by the selected expressions where each value has one, else by the operands."""
    items = [i.expr for i in query.body.items] if isinstance(query.body, t.Select) else []
    return items if len(items) == len(operands) and not any(isinstance(i, Star) for i in items) else operands


def _check_count(operands: Sequence[t.Expr], count: int, node: t.Quantified) -> None:
    if len(operands) != count:
        what = f"{len(operands)} expression{'s' if len(operands) > 1 else ''}"
        title = f"the sub-query gives {count} columns, not one for each of {what}"
        raise mistake("FQ2005", title, node.span, help="select as many columns:  (a, b) IN (SELECT c, d ...)")


def _true_or_unknown(holds: Expr) -> Expr:
    """A comparison is true, or either side is NULL."""
    assert isinstance(holds, Call)
    whole: Expr = holds
    for e in holds.args:
        if not isinstance(e, Literal) or e.value is None:
            whole = Call(BOOLEAN, "or", (whole, Call(BOOLEAN, "is_null", (e,))))
    return whole


def _is_plain(query: t.Query) -> bool:
    """One column that FROM and WHERE alone decide about."""
    select = query.body
    return (
        isinstance(select, t.Select)
        and select.source is not None
        and not _shapes_rows(query, select)
        and len(select.items) == 1
        and not isinstance(select.items[0].expr, Star)
        and not walks.contains(select.items[0].expr, t.Query)
    )


def _is_aggregate(query: t.Query, select: t.Select) -> bool:
    """Whether it is an aggregate of all rows that FROM and WHERE give, which is one row."""
    one = not query.offset and (query.limit is None or _is_one(query.limit))
    item = select.items[0].expr
    return one and select.source is not None and not select.group_by and select.having is None and has_aggregates(item)


def _gives_rows_of_from(query: t.Query) -> bool:
    """Whether it has a row for each that FROM and WHERE give."""
    select = query.body
    named = isinstance(select, t.Select) and select.source is not None and not select.distinct
    return named and isinstance(select, t.Select) and not _shapes_rows(query, select)


def _check_one_column(count: int, span: Span) -> None:
    if count != 1:
        title = "a sub-query used as a value must return one column"
        help = "compare several as a row:  (a, b) = (SELECT ...)"
        raise mistake("FQ2005", title, span, "several columns" if count else "no column", help=help)


def _tie(pair: Equality) -> Expr:
    return Call(BOOLEAN, NOT_DISTINCT if pair.null_safe else EQUAL, (pair.left, pair.right))


def _shapes_rows(query: t.Query, select: t.Select) -> bool:
    """Whether the query gives other rows than FROM and WHERE do."""
    shaped = select.group_by or select.having is not None or query.limit is not None or query.offset is not None
    return (
        bool(shaped)
        or select.distinct_on != ()
        or any(has_aggregates(i) or _has_window(i) or _has_unnest(i) for i in select.items)
    )


def _has_window(node: t.Node) -> bool:
    return any(isinstance(n, t.Call) and n.over is not None for n in walks.walk(node))


def _has_unnest(node: t.Node) -> bool:
    return any(map(is_unnest, walks.walk(node)))


def _is_one(limit: t.Expr | None) -> bool:
    return t.number_text(limit) == "1"


def _any_row(query: t.Query) -> t.Expr:
    """Whether a query has a row, by their number."""
    at = query.span
    count = t.Item(t.Call(("count",), star=True, span=at), span=at)
    select = query.body
    if isinstance(select, t.Select) and select.source is not None and not _shapes_rows(query, select):
        counted = replace(query, body=replace(select, items=(count,), distinct=False), order_by=())
    else:
        counted = t.Query(t.Select((count,), source=t.Derived(query, span=at), span=at), span=at)
    return Func("gt", (t.ScalarQuery(counted, span=at), Lit("number", "0", at)), at)


# --- plans whose form alone says that they have at most one row: a sub-query of such a plan may stand for a value as it is ---


def at_most_one(node: Node, fixed: frozenset[str] = frozenset()) -> bool:
    """Whether there is at most one row for one value of each of the columns `fixed`.

    before: (SELECT v FROM u WHERE k = 1), k the PRIMARY KEY      after: at_most_one(Filter(k = 1, ...)) is True
    """
    if not _has_identity(node):
        return False
    if {f.name for f in node.schema.key} <= fixed:
        return True
    match node.spec:
        case Project(columns):
            below = {c.expr.name for c in columns if c.name in fixed and isinstance(c.expr, Column)}
            return at_most_one(node.inputs[0], frozenset(below))
        case Filter(predicate):
            return at_most_one(node.inputs[0], fixed | {n for c in conjuncts(predicate) if (n := _constant(c))})
        case GroupAggregate(keys):
            pairs = zip(keys, node.schema.key, strict=True)
            return at_most_one(node.inputs[0], frozenset(k for k, f in pairs if f.name in fixed))
        case TopN(keys, _, limit, _, function):
            first = function == "row_number" and limit is not None and limit <= 1 and fixed.issuperset(keys)
            return first or at_most_one(node.inputs[0], fixed)
        case EquiJoin():
            return _joined_once(node, node.spec, fixed)
    return False


def _has_identity(node: Node) -> bool:
    """Whether the key columns of a node tell its rows apart; those of a record of a stream do not."""
    if not isinstance(node.spec, (Scan, AppendOnly)):
        return True
    return all(not isinstance(n.spec, Scan) or n.spec.kind == "table" for n in walk_nodes(node))


def _constant(condition: Expr) -> str:
    """The column that a condition compares with a constant; empty for another condition."""
    if not isinstance(condition, Call) or condition.name != EQUAL:
        return ""
    a, b = condition.args
    if isinstance(b, Column):
        a, b = b, a
    return a.name if isinstance(a, Column) and not columns_of(b) else ""


def _joined_once(node: Node, join: EquiJoin, fixed: frozenset[str]) -> bool:
    """One row of a side has at most one of the other where the keys of the join name no more than one there."""
    left, right = node.inputs
    if join.kind in ("semi", "anti"):
        return at_most_one(left, fixed)
    if join.kind in ("inner", "left") and at_most_one(left, fixed):
        return at_most_one(right, fixed | set(join.right_keys))
    return (
        join.kind in ("inner", "right") and at_most_one(right, fixed) and at_most_one(left, fixed | set(join.left_keys))
    )

"""GROUP BY and aggregates over relations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from flowql.compiler.analyze.json_functions import json_equal
from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.operators import equality_value, interval_number, json_order, kept, taken
from flowql.compiler.analyze.relations.expressions import OuterAggregate, Placeholders, RelBinder
from flowql.compiler.analyze.relations.relation import Names, Order, Rel, as_columns, column_of
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.diagnostics.edits import Edit, behind
from flowql.compiler.dialect import walks
from flowql.compiler.dialect.ast import Name
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.refuse import unsupported
from flowql.compiler.functions.change_aggregates import aggregate, result_type
from flowql.compiler.functions.coercion import convert
from flowql.compiler.functions.folding import folded
from flowql.compiler.functions.registry import OVER_RELATIONS, AggregateFunction, lookup_aggregate
from flowql.compiler.functions.signatures import FunctionTypeError
from flowql.compiler.functions.user import is_users, plain_name
from flowql.compiler.plan.changes import GroupAggregate, GroupCall
from flowql.compiler.plan.expr import Call, Column, Expr, Literal
from flowql.compiler.plan.logical import Node
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, BOOLEAN, INT, INTERVAL, JSONB, SPAN, STRING, Kind, SqlType, decimal

_ALIASES = {"LISTAGG": "STRING_AGG", "APPROX_COUNT_DISTINCT": "COUNT"}  # with arguments of their own
_WITHIN_GROUP = ("PERCENTILE_CONT", "PERCENTILE_DISC", "MODE")
# Aggregates that PostgreSQL has and no operator over changes yet.
_MISSING = ("JSONB_AGG", "JSON_AGG", "JSONB_OBJECT_AGG", "JSON_OBJECT_AGG")


def function_of(call: t.Call) -> str:
    """The aggregate's name in the plan; empty for another function."""
    name = call.name[-1].upper()
    if (found := OVER_RELATIONS.get(_ALIASES.get(name, name))) is not None:
        return found.names[0]
    return name if name in _MISSING else call.name[-1] if is_users(call.name[-1]) else ""


def with_own_aggregates(query: t.Query, catalog: Catalog) -> t.Query:
    """The query, with calls of the project's aggregates by their names in plans."""

    def rule(n: t.Node) -> t.Node | None:
        if not isinstance(n, t.Call) or len(n.name) > 1 or (own := catalog.own_aggregate(n.name[0])) is None:
            return None
        if n.over is not None:
            unsupported(f"the aggregate {n.name[0].upper()} of the project as a window function", n.span)
        args, order, filter_ = (walks.rebuilt(part, rule, t.Call) for part in (n.args, n.order_by, n.filter))
        return replace(n, name=(own.name,), args=args, order_by=order, filter=filter_)

    if not any(isinstance(f, AggregateFunction) for f in catalog.functions.values()):
        return query
    made = walks.rebuilt(query, rule, t.Call)
    assert isinstance(made, t.Query)
    return made


def is_aggregate(node: t.Node) -> bool:
    return isinstance(node, t.Call) and node.over is None and bool(function_of(node))


def has_aggregates(tree: walks.Tree) -> bool:
    """Whether the expression, or one of several, contains an aggregate of this query. Aggregates in sub-queries do not count."""
    return not isinstance(tree, t.Query) and any(map(is_aggregate, walks.walk(tree, t.Query)))


def check_own(node: t.Node, below: RelBinder) -> None:
    """Raises OuterAggregate for an aggregate whose columns are all of queries around: it is of the innermost of these."""
    if below.outer is None:
        return
    names = [Name(n.parts) for n in walks.walk(node) if isinstance(n, Name)]
    here: RelBinder | None = below
    while names and here is not None:
        owner = here.ungrouped
        if any(owner.find(n) is not None for n in names):
            break
        here = here.outer
    if not names or here is None or here.ungrouped is below or not isinstance(node, t.Call):
        return
    if here.clause != "SELECT":
        raise mistake(
            "FQ2020", f"aggregate functions are not allowed in {here.clause}", node.span, "of the query around"
        )
    raise OuterAggregate(node, here.ungrouped)


def _refuse_nested(node: t.Call) -> None:
    if has_aggregates((node.args, node.order_by, node.filter)):
        raise mistake("FQ2020", "aggregate function calls cannot be nested", node.span, "nested")


class Aggregates:
    """Takes aggregates out of expressions. below: binds over the rows that are grouped. inside: aggregates of this query that stand in sub-queries."""

    def __init__(
        self, below: RelBinder, names: Names, placeholders: Placeholders, inside: Sequence[t.Call] = ()
    ) -> None:
        self._inside = inside
        self._below, self._names, self._placeholders = below, names, placeholders
        self.calls: list[AggregateCall] = []

    def taken(self, node: Any) -> Any:
        """The tree with placeholders for its aggregates."""

        def of_outer(n: t.Node) -> t.Node | None:
            if isinstance(n, t.Call) and any(n == a and n.span == a.span for a in self._inside):
                return self._placeholders.add(n, self._of_intervals(n) or self._add(n).column, self._below)
            return None

        def rule(n: t.Node) -> t.Node | None:
            if isinstance(n, t.Query):
                return walks.rebuilt(n, of_outer, t.Call) if self._inside else n
            if isinstance(n, t.Call) and is_aggregate(n):
                check_own(n, self._below)
                _refuse_nested(n)
                return self._placeholders.add(n, self._of_intervals(n) or self._add(n).column)
            return None

        return walks.rebuilt(node, rule, t.Query, t.Call)

    def _of_intervals(self, node: t.Call) -> Expr | None:
        """The value of SUM, AVG, MIN or MAX where the argument is an interval."""
        function = function_of(node)
        if function not in FUNCTIONS or len(node.args) != 1:
            return None
        e = self._below.bind(node.args[0])
        if e.type.kind is not Kind.INTERVAL:
            return None
        condition = self._below.condition(node.filter) if node.filter is not None else None

        def column(p: Part) -> Expr:
            name = self._names.fresh(node.name[-1])
            return self._known(
                AggregateCall(p.function, (p.arg,), p.type, False, p.condition, p.order, (), name)
            ).column

        return of_intervals(node, function, e, condition, column)

    def _add(self, node: t.Call) -> AggregateCall:
        return self._known(self.bound(node))

    def _known(self, made: AggregateCall) -> AggregateCall:
        same = next((c for c in self.calls if c.same(made)), None)
        if same is None:
            self.calls.append(made)
        return same or made

    def bound(self, node: t.Call) -> AggregateCall:
        """A call with its arguments over the rows that are grouped."""
        function = function_of(node)
        if function in _MISSING or node.nulls:
            unsupported(
                f"the aggregate {node.name[-1].upper()}" if not node.nulls else f"{node.nulls.upper()} NULLS", node.span
            )
        if node.name[-1].upper() == "APPROX_COUNT_DISTINCT":  # an exact number is one, too
            node = replace(node, distinct=True)
        if node.name[-1].upper() == "LISTAGG" and not node.order_by:
            node = replace(node, order_by=node.within_group, within_group=())
        args = [self._below.bind(a) for a in node.args]
        if function == "COUNT":  # equal intervals may be written differently
            args = [interval_number(a) for a in args]
        if node.distinct:
            args = list(map(json_equal, args))
        init: tuple[Any, ...] = ()
        orders = [order_of(o, self._below) for o in node.order_by]
        if function in _WITHIN_GROUP:
            args, init = self._within_group(node, function, args)
        elif node.within_group:
            unsupported(f"WITHIN GROUP of {function}", node.span)
        if function == "STRING_AGG":
            if len(args) == 1 and node.name[-1].upper() == "LISTAGG":  # Flink's, with a comma
                args.append(Literal(STRING, ",", node.span))
            if len(args) != 2:
                raise mistake(
                    "FQ2005", "string_agg takes a string and a delimiter", node.span, help="write  string_agg(x, ',')"
                )
            delimiter = folded(args[1])
            if isinstance(delimiter, Literal) and delimiter.value is not None:
                init, args = (str(delimiter.value),), args[:1]
            else:  # a NULL delimiter is none
                args[1] = Call(STRING, "COALESCE", (convert(args[1], STRING), Literal(STRING, "")))
        if is_users(function):
            args, result = _own(function, args, node)
            condition = self._below.condition(node.filter) if node.filter is not None else None
            name = self._names.fresh(plain_name(function).lower())
            return AggregateCall(function, tuple(args), result, node.distinct, condition, tuple(orders), (), name)
        if function == "COUNT" and (
            node.star or (len(args) == 1 and isinstance(args[0], Literal) and args[0].value is not None)
        ):
            args = []
        elif len(args) != (wanted := OVER_RELATIONS[function].arguments) and (function != "STRING_AGG" or init):
            takes = "two numbers" if wanted == 2 else "one argument"
            help = "count rows of them:  COUNT(DISTINCT ROW(a, b))" if function == "COUNT" and args else ""
            if not args:
                help = f"write  {node.name[-1].upper()}({'DISTINCT ' * node.distinct}x)"
            raise mistake("FQ2005", f"{node.name[-1]} takes {takes}, not {len(args)}", node.span, help=help)
        condition = self._below.condition(node.filter) if node.filter is not None else None
        if init == (None,):  # a fraction that is NULL: as if there were no rows
            init, condition = (0.5,), Literal(BOOLEAN, False)
        result = _result_type(function, tuple(a.type for a in args), node)
        if aggregate(function, tuple(a.type for a in args), result, init) is None:
            raise mistake("FQ2005", f"{node.name[-1]} of {args[0].type} does not exist", node.span)
        return AggregateCall(
            function,
            tuple(args),
            result,
            node.distinct,
            condition,
            tuple(orders),
            init,
            self._names.fresh(node.name[-1]),
        )

    def _within_group(self, node: t.Call, function: str, args: Sequence[Expr]) -> tuple[list[Expr], tuple[Any, ...]]:
        """The argument that stands behind ORDER BY, and the fraction of a percentile."""
        wanted = 0 if function == "MODE" else 1
        if len(args) != wanted or len(node.within_group) != 1:
            takes = "a fraction, and " if wanted else ""
            raise mistake("FQ2005", f"{function} takes {takes}WITHIN GROUP (ORDER BY one expression)", node.span)
        of = self._below.bind(node.within_group[0].expr).type
        if of.kind is Kind.INTERVAL or of == JSONB:
            help = (
                "order by  EXTRACT(EPOCH FROM x)" if of.kind is Kind.INTERVAL else "order by a part of it:  j ->> 'key'"
            )
            unsupported(f"{function} of {'an INTERVAL' if of.kind is Kind.INTERVAL else 'JSONB'}", node.span, help)
        within = order_of(node.within_group[0], self._below)
        if within.descending and function != "PERCENTILE_CONT":
            help = "order ascending, with 1 - fraction" if wanted else "order ascending"
            unsupported(f"{function} in descending order", node.span, help)
        if not wanted:
            return [within.expr], ()
        if _is_null(args[0]):
            return [within.expr], (None,)
        fraction = _fraction(args[0], node, function)
        return [within.expr], (1 - fraction if within.descending else fraction,)


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate; `name`: its column."""

    function: str
    args: tuple[Expr, ...]
    type: SqlType
    distinct: bool
    filter: Expr | None
    order: tuple[Order, ...]
    init: tuple[Any, ...]
    name: str

    @property
    def column(self) -> Expr:
        return Column(self.type, self.name)

    def same(self, other: AggregateCall) -> bool:
        return all(
            getattr(self, n) == getattr(other, n)
            for n in ("function", "args", "type", "distinct", "filter", "order", "init")
        )


def grouped(rel: Rel, keys: Sequence[Expr], calls: Sequence[AggregateCall], names: Names) -> tuple[Rel, list[Expr]]:
    """The aggregation of a relation, and its key columns: the values of `keys`, in order. Its columns have no names."""
    rel, key_columns = as_columns(rel, keys, names, "group")
    distinct_keys = list(dict.fromkeys(key_columns))
    made: list[GroupCall] = []
    for call in calls:
        rel, args = as_columns(rel, call.args, names, "argument")
        rel, orders = as_columns(rel, [o.expr for o in call.order], names, "order")
        rel, conditions = as_columns(rel, [call.filter] if call.filter is not None else [], names, "filter")
        sort = tuple(o.key(c) for o, c in zip(call.order, orders, strict=True))
        made.append(
            GroupCall(
                call.name,
                call.function,
                tuple(args),
                call.type,
                call.distinct,
                conditions[0] if conditions else "",
                sort,
                call.init,
            )
        )
    types = {f.name: f.type for f in rel.node.schema.fields}
    fields = [Field(names.fresh(k), types[k], "key") for k in distinct_keys]
    schema = Schema((*fields, *(Field(c.name, c.type) for c in made)))
    node = Node(GroupAggregate(tuple(distinct_keys), tuple(made)), (rel.node,), schema, "retract")
    by_key = dict(zip(distinct_keys, fields, strict=True))
    return Rel(node, ()), [column_of(by_key[k]) for k in key_columns]


def grouped_with_intervals(
    rel: Rel, keys: Sequence[Expr], calls: Sequence[AggregateCall], names: Names
) -> tuple[Rel, list[Expr]]:
    """As `grouped`, by intervals too: equal ones are a group, which shows the one whose text is the first ('1 day', not '24:00:00')."""
    shown: list[AggregateCall] = []
    values: list[Expr | None] = []
    for e in keys:
        if e.type.kind is not Kind.INTERVAL:
            values.append(None)
            continue
        text = kept(e)
        order = Order(text, False, False)
        shown.append(AggregateCall("FIRST_VALUE", (text,), SPAN, False, None, (order,), (), names.fresh("interval")))
        values.append(taken(shown[-1].column))
    made, groups = grouped(rel, [equality_value(e) for e in keys], [*calls, *shown], names)
    return made, [g if v is None else v for g, v in zip(groups, values, strict=True)]


def order_of(item: t.OrderItem, binder: RelBinder) -> Order:
    """An item of ORDER BY."""
    return ordered_by(binder.bind(item.expr), item)


def ordered_by(e: Expr, item: t.OrderItem) -> Order:
    """`e` in the direction of the item: NULLs are the largest values, as in PostgreSQL."""
    descending = item.direction == "desc"
    e = json_order(interval_number(taken(e)))
    return Order(e, descending, descending if item.nulls is None else item.nulls == "first")


def _own(function: str, args: Sequence[Expr], node: t.Call) -> tuple[list[Expr], SqlType]:
    """Arguments of an aggregate of the project, as it takes them, and the type of its result."""
    found = lookup_aggregate(function)
    assert found is not None
    if not args:
        unsupported(f"the aggregate {plain_name(function)} of the project without an argument", node.span)
    try:
        resolved = found.resolve(tuple(a.type for a in args), ())
    except FunctionTypeError as problem:
        types = ", ".join(str(a.type) for a in args)
        raise mistake("FQ2005", str(problem), node.span, f"got ({types})", help=problem.hint) from None
    return [convert(a, t) for a, t in zip(args, resolved.args, strict=True)], resolved.result


def _constant(e: Expr, node: t.Call, function: str) -> Any:
    e = folded(e)
    if not isinstance(e, Literal) or e.value is None:
        unsupported(f"{function} with an argument that is not a constant", node.span, "write a constant")
    return float(e.value) if isinstance(e.value, Decimal) else e.value


def _fraction(e: Expr, node: t.Call, function: str) -> float:
    """The fraction of a percentile. A text that is a number counts as one, as in PostgreSQL."""
    value = _constant(e, node, function)
    with suppress(TypeError, ValueError):  # of texts, dates and others
        if not isinstance(value, bool) and 0 <= float(value) <= 1:
            return float(value)
    raise mistake("FQ2005", f"{function} takes a fraction from 0 to 1, not {value!r}", node.span)


def _is_null(e: Expr) -> bool:
    e = folded(e)
    return isinstance(e, Literal) and e.value is None


def _result_type(function: str, args: tuple[SqlType, ...], node: t.Call) -> SqlType:
    try:
        result = result_type(function, args)
    except FunctionTypeError as problem:
        got = f"got ({', '.join(map(str, args))})"
        raise mistake("FQ2005", str(problem), node.span, got, help=problem.hint) from None
    if result is None:
        raise mistake(
            "FQ2005", f"{node.name[-1]}({', '.join(map(str, args))}) does not exist", node.span, f"got ({args[0]})"
        )
    return result


def grouped_by(select: t.Select, column: str) -> Edit | None:
    """A further column of GROUP BY, or the clause with it."""
    if select.group_by:
        return behind(select.group_by[-1].span, f", {column}")
    clauses_behind = select.having is not None or select.windows or select.qualify is not None
    return None if clauses_behind else behind(select.span, f" GROUP BY {column}")


def grouping_sets(elements: Sequence[t.GroupElement]) -> list[list[t.Expr]]:
    """Every set of expressions to group by: the product of the elements of GROUP BY."""
    sets: list[list[t.Expr]] = [[]]
    for element in elements:
        sets = [[*s, *more] for s in sets for more in _sets_of(element)]
    return sets


def _sets_of(element: t.GroupElement) -> list[list[t.Expr]]:
    if not isinstance(element, t.Grouping):
        return [[element]]
    if element.kind == "sets":
        return [s for e in element.elements for s in _sets_of(e)]
    parts = [[x for s in _sets_of(e) for x in s] for e in element.elements]
    flat = [x for p in parts for x in p]
    if element.kind == "set":
        return [flat]
    if element.kind == "rollup":
        return [[x for p in parts[:n] for x in p] for n in range(len(parts), -1, -1)]
    if len(parts) > 6:
        unsupported("CUBE of more than six elements", element.span, "list the GROUPING SETS that are wanted")
    return [[x for i, p in enumerate(parts) if mask >> i & 1 for x in p] for mask in range(2 ** len(parts) - 1, -1, -1)]


# --- SUM, AVG, MIN and MAX of intervals, as aggregates of their months, days and microseconds, or of what intervals are compared by ---


FUNCTIONS = ("SUM", "AVG", "MIN", "MAX")
_PARTS = (("sql_interval_months", INT), ("sql_interval_days", INT), ("sql_interval_rest", BIGINT))
_SUM = decimal(38, 0)


@dataclass(frozen=True, slots=True)
class Part:
    """An aggregate that a value is made of. condition: of the rows that count."""

    function: str
    arg: Expr
    type: SqlType
    condition: Expr | None
    order: tuple[Order, ...] = ()


def of_intervals(node: t.Call, function: str, e: Expr, condition: Expr | None, column: Callable[[Part], Expr]) -> Expr:
    """The value of the aggregate of an interval `e`. column: that of an aggregate it needs. Raises UnsupportedError."""
    if node.distinct and function in ("SUM", "AVG"):
        unsupported(f"{function}(DISTINCT) of an INTERVAL", node.span, "take  EXTRACT(EPOCH FROM x)  of them")
    if function in ("MIN", "MAX"):
        present = Call(BOOLEAN, "is_not_null", (e,))
        there = present if condition is None else Call(BOOLEAN, "and", (condition, present))
        order = Order(interval_number(e), function == "MAX", False)
        return taken(column(Part("FIRST_VALUE", kept(e), SPAN, there, (order,))))
    parts = [Call(BIGINT, name, (e,)) for name, _ in _PARTS]
    sums = [column(Part("SUM", p, _SUM, condition)) for p in parts]
    made = (Call(to, f"sql_to_{str(to).lower()}", (s,)) for s, (_, to) in zip(sums, _PARTS, strict=True))
    total = Call(INTERVAL, "sql_interval_total", tuple(made), node.span)
    if function == "SUM":
        return total
    return Call(
        INTERVAL, "sql_interval_average", (total, column(Part("COUNT", parts[0], BIGINT, condition))), node.span
    )

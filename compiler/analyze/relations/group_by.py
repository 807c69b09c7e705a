"""GROUP BY of one SELECT: its sets of expressions, what is selected beside them, and GROUPING."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, cast

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.operators import kept, taken
from flowql.compiler.analyze.relations.dependent import Dependent, Queries, same
from flowql.compiler.analyze.relations.expressions import GroupedBinder, Placeholders, RelBinder
from flowql.compiler.analyze.relations.grouping import (
    Aggregates,
    grouped_by,
    grouped_with_intervals,
    grouping_sets,
    has_aggregates,
    is_aggregate,
)
from flowql.compiler.analyze.relations.joins import joined
from flowql.compiler.analyze.relations.relation import Rel, selected
from flowql.compiler.analyze.relations.set_operations import united
from flowql.compiler.analyze.relations.subqueries import Subqueries
from flowql.compiler.dialect import walks
from flowql.compiler.dialect.ast import Lit, Name, Star
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.plan.expr import Call, Column, Expr, Literal
from flowql.compiler.plan.types import BIGINT, INT, Kind

GROUPING_MAX = 31  # arguments of GROUPING


class _Binds(Queries, Protocol):
    placeholders: Placeholders


class GroupBy:
    """Groups what FROM and WHERE give. below: binds over these rows. inside: aggregates of this query that stand in sub-queries."""

    def __init__(
        self, queries: _Binds, subqueries: Subqueries, below: RelBinder, inside: Sequence[t.Call] = ()
    ) -> None:
        self._inside = inside
        self._names, self._placeholders = queries.names, queries.placeholders
        self._subqueries, self._below = subqueries, below

    def grouped(self, select: t.Select, parts: Any, rel: Rel) -> tuple[Rel, RelBinder, Any]:
        """The groups, what binds over them, and the parts of the SELECT with placeholders for aggregates."""
        below = self._below
        sets = [[self._element(e, select) for e in one] for one in grouping_sets(select.group_by)]
        rel, sets, parts = self._before_groups(rel, sets, parts)
        aggregates = Aggregates(below, self._names, self._placeholders, self._inside)
        parts = aggregates.taken(parts)
        exprs = [[*below.carried, *(below.bind(e) for e in one)] for one in sets]
        exprs = [[*one, *self._decided(exprs, parts)] for one in exprs]
        parts, groupings = self._groupings(parts, exprs)
        parts = (self._constants(parts[0], exprs), *parts[1:])
        if len(exprs) == 1:
            made, keys, results = self._aggregated(rel, exprs[0], aggregates)
            groups = list(map(_group, exprs[0], keys))
            marks: list[Expr] = [Literal(INT, 0) for _ in groupings]
        else:
            made, groups, results, marks = self._sets(rel, exprs, aggregates, groupings)
        for call, result in zip(aggregates.calls, results, strict=True):
            self._placeholders.exchange(call.column, result)
        for (mark, _), value in zip(groupings, marks, strict=True):
            self._placeholders.exchange(mark, value)
        more = partial(grouped_by, select)
        return made, GroupedBinder(below, groups, "SELECT", self._placeholders.exprs, more), parts

    def _before_groups(self, rel: Rel, sets: list[list[t.Expr]], parts: Any) -> tuple[Rel, list[list[t.Expr]], Any]:
        """Sub-queries in expressions of GROUP BY and inside aggregates are of the rows that are grouped."""
        found = [rel]
        made: dict[t.Expr, t.Expr] = {}
        for node in (n for one in sets for n in one if walks.contains(n, t.Query) and n not in made):
            found[0], made[node] = self._subqueries.values(found[0], node, self._below)

        def rule(n: t.Node) -> t.Node | None:
            if n in made:
                return made[n]
            if is_aggregate(n) and walks.contains(n, t.Query):
                found[0], call = self._subqueries.values(found[0], n, self._below)
                return cast(t.Node, call)
            return None

        if walks.contains(parts, t.Query):
            parts = walks.rebuilt(parts, rule)
        return found[0], [[made.get(n, n) for n in one] for one in sets], parts

    def _element(self, node: t.Expr, select: t.Select) -> t.Expr:
        """An expression of GROUP BY: a column of the input, a position, the name of an output column, or any expression."""
        if written := t.number_text(node):
            at = int(written) if written.isdigit() else 0
            if not 1 <= at <= len(select.items) or isinstance(select.items[at - 1].expr, Star):
                raise mistake(
                    "FQ2002",
                    f"GROUP BY position {written} is not in the select list",
                    node.span,
                    "no such item",
                    help="name the column to group by",
                )
            node = select.items[at - 1].expr
        elif (
            isinstance(node, Name)
            and len(node.parts) == 1
            and not any(c.name == node.parts[0] for c in self._below.columns)
        ):
            named = [i.expr for i in select.items if i.alias == node.parts[0]]
            node = named[0] if named else node
        if has_aggregates(node):
            raise mistake("FQ2020", "aggregate functions are not allowed in GROUP BY", node.span, "an aggregate")
        return node

    def _decided(self, sets: Sequence[Sequence[Expr]], parts: Any) -> list[Expr]:
        """Columns that are named beside a whole PRIMARY KEY of their table: to group by them, too, makes no other groups.

        One that some sets group by is NULL in the others, whatever decides about its value.
        """
        keys = frozenset(e.name for e in sets[0] if isinstance(e, Column) and all(e in one for one in sets))
        columns = [c for c in self._below.columns if c.key and keys.issuperset(c.key) and c.column not in keys]
        columns = [c for c in columns if not any(c.expr() in one for one in sets)]
        if not columns:
            return []
        written = walks.walk(parts)
        names = frozenset(n.parts[-1] for n in written if isinstance(n, Name))
        every = any(isinstance(n, Star) for n in written)
        return [c.expr() for c in columns if every or c.name in names]

    def _aggregated(self, rel: Rel, keys: Sequence[Expr], aggregates: Aggregates) -> tuple[Rel, list[Expr], list[Expr]]:
        """One aggregation, its keys, and the results of its calls."""
        made, groups = grouped_with_intervals(rel, keys, aggregates.calls, self._names)
        results: list[Expr] = [c.column for c in aggregates.calls]
        carried = self._below.carried
        if not carried or len(keys) > len(carried):
            return made, groups, results
        # Without keys of its own it has a result also for a row around without any row here.
        assert isinstance(self._below.outer, Dependent)
        whole = self._below.outer.factor(self._names)
        ties = [same(c.expr(), g) for c, g in zip(whole.columns, groups, strict=True)]
        made = Rel(joined("left", whole, made, ties, self._names).node, ())
        for n, call in enumerate(aggregates.calls):
            if call.function in ("COUNT", "REGR_COUNT"):
                results[n] = Call(BIGINT, "COALESCE", (call.column, Literal(BIGINT, 0)))
        return made, [c.expr() for c in whole.columns], results

    def _sets(
        self,
        rel: Rel,
        sets: Sequence[Sequence[Expr]],
        aggregates: Aggregates,
        groupings: Sequence[tuple[Expr, Sequence[Expr]]],
    ) -> tuple[Rel, list[tuple[Expr, Expr]], list[Expr], list[Expr]]:
        """One aggregation per set, united: in the place of a key that a set does not have is NULL. At the end: values of GROUPING."""
        every: list[Expr] = []
        for one in sets:
            every += [e for e in one if e not in every]
        branches: list[Rel] = []
        for one in sets:
            made, keys, results = self._aggregated(rel, one, aggregates)
            known = list(zip(one, keys, strict=True))
            columns = [next((k for e, k in known if e == g), Literal(g.type, None)) for g in every]
            marks = [Literal(INT, _mask(args, one)) for _, args in groupings]
            items = (
                [("group", kept(c)) for c in columns]
                + [("result", r) for r in results]
                + [("grouping", m) for m in marks]
            )
            branches.append(selected(made, items, self._names))
        whole = united(branches, self._names)
        fields: list[Expr] = [c.expr() for c in whole.columns]
        groups, count = list(map(_group, every, fields)), len(every) + len(aggregates.calls)
        return Rel(whole.node, ()), groups, fields[len(every) : count], fields[count:]

    def _constants(self, items: Sequence[t.Item], sets: Sequence[Sequence[Expr]]) -> tuple[t.Item, ...]:
        """The select list, with the group in the place of a constant that only some sets group by: NULL in the others, as in PostgreSQL.

        Of equal constants it is the first that is a whole item.
        """
        every = dict.fromkeys(e for one in sets for e in one)
        waiting = [e for e in every if isinstance(e, Literal) and any(e not in one for one in sets)]
        made = list(items)
        for n, item in enumerate(items):
            if not waiting or not isinstance(item.expr, Lit):
                continue
            e = self._below.bind(item.expr)
            if e in waiting:
                waiting.remove(e)
                made[n] = replace(item, expr=self._placeholders.add(item.expr, e))
        return tuple(made)

    def _groupings(self, parts: Any, sets: Sequence[Sequence[Expr]]) -> tuple[Any, list[tuple[Expr, list[Expr]]]]:
        """Calls of GROUPING: what stands for each, and its arguments."""
        found: list[tuple[Expr, list[Expr]]] = []

        def rule(n: t.Node) -> t.Node | None:
            if isinstance(n, t.Query):
                return n
            if not (isinstance(n, t.Call) and n.over is None and n.name == ("grouping",)):
                return None
            args = [self._below.bind(a) for a in n.args]
            if not 0 < len(args) <= GROUPING_MAX or any(all(a not in one for one in sets) for a in args):
                title = "arguments to GROUPING must be grouping expressions of the query"
                raise mistake("FQ2020", title, n.span, help="name an expression of GROUP BY")
            found.append((Column(INT, self._names.fresh("grouping")), args))
            return self._placeholders.add(n, found[-1][0])

        return walks.rebuilt(parts, rule, t.Query, t.Call), found


def _group(e: Expr, value: Expr) -> tuple[Expr, Expr]:
    """An expression over the grouped rows, as it is after grouping; a column of intervals stays one."""
    if e.type.kind is not Kind.INTERVAL:
        return e, value
    return (kept(e), kept(value)) if isinstance(kept(e), Column) else (e, taken(value))


def _mask(args: Sequence[Expr], keys: Sequence[Expr]) -> int:
    """A bit per argument, the first one highest: 1 where the set does not group by it."""
    return int("".join("0" if a in keys else "1" for a in args), 2)

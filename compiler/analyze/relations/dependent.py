"""Queries that depend on rows of a query around them, answered for all these rows at once.

What such a query names of the query around it is its *domain*: a relation of the distinct values of these columns. Every SELECT in it
reads the domain beside its own FROM and *carries* its columns (`Rel.carried`): it groups, ranks, takes DISTINCT and LIMIT by them, so that it
gives for each row of the domain what it would give for that row alone. The rows around are then joined with the result by the columns
of the domain. Conditions may be any (T. Neumann and A. Kemper, "Unnesting Arbitrary Queries", BTW 2015).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from flowql.compiler.analyze.relations.expressions import RelBinder
from flowql.compiler.analyze.relations.joins import NOT_DISTINCT
from flowql.compiler.analyze.relations.relation import OUTER, Names, Rel, RelColumn, copied, kept_identity, projected
from flowql.compiler.analyze.relations.set_operations import operation
from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect import walks
from flowql.compiler.dialect.ast import Name
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.refuse import unsupported
from flowql.compiler.plan.changes import EquiJoin, TemporalJoin
from flowql.compiler.plan.expr import Call, Column, Expr, columns_of, conjunction, conjuncts, walk
from flowql.compiler.plan.logical import Filter, NamedExpr, Node, Project, walk_nodes
from flowql.compiler.plan.types import BOOLEAN

PASSES = 2  # the first one may take names for those of the query around that turn out to be of the query itself


# Kinds of joins that show every value of a side's columns; a side that is filled up with NULL lacks that one.
_ALL_OF_LEFT, _ALL_OF_RIGHT = ("inner", "left", "semi", "anti"), ("inner", "right")


class Dependent(RelBinder):
    """Stands between a query and the one around it: what is named of that one is carried."""

    def __init__(self, around: RelBinder, domain: Rel) -> None:
        super().__init__((), around.catalog, "FROM", outer=around)
        self._domain, self.carried_used = domain, set()

    def factor(self, names: Names) -> Rel:
        """The domain, for the FROM of one SELECT."""
        return copied(self._domain, names)


class Queries(Protocol):
    """Binds whole queries; implemented by `query.QueryBinder`."""

    names: Names

    def query(self, query: t.Query, tables: Any, outer: RelBinder | None) -> Rel: ...


def dependent(queries: Queries, rel: Rel, query: t.Query, tables: Any, binder: RelBinder) -> tuple[Rel, list[Expr]]:
    """The result of a query for each row of `rel`, and the conditions that tie the two; none if it depends on no column of `rel`.

    binder: of the query around. Raises Correlated where it depends on a query further out that `rel` carries no columns of.
    """
    columns = [c for c in named(query, binder) if c.name in rel.names]
    for _ in range(PASSES):
        if not columns:
            return queries.query(query, tables, binder), []
        around = Dependent(binder, _domain(rel, columns, query.span, queries.names))
        made = queries.query(query, tables, around)
        if around.carried_used == {c.name for c in columns}:
            break
        columns = [c for c in columns if c.name in around.carried_used]
    for column in columns:
        binder.note(column)
    return made, [same(Column(c.type, c.name), c.expr()) for c in made.carried]


def named(node: t.Node, binder: RelBinder) -> list[Column]:
    """Columns of `binder` or of queries around it that the names in a tree mean, if they mean nothing inside it."""
    found: dict[str, Column] = {}
    for n in walks.walk(node):
        if not isinstance(n, Name):
            continue
        try:
            e = binder.meant(Name(n.parts))
        except CompileError:  # ambiguous there, or not of its groups
            continue
        for c in walk(e) if e is not None else ():
            if isinstance(c, Column):
                found.setdefault(c.name, Column(c.type, c.name))
    return list(found.values())


def same(a: Expr, b: Expr) -> Expr:
    """Both are equal, or both are NULL."""
    return Call(BOOLEAN, NOT_DISTINCT, (a, b))


def check_repeatable(node: Node, span: Span) -> None:
    """A relation that is read twice must be the same both times; what a temporal join finds depends on when it looks."""
    if any(isinstance(n.spec, TemporalJoin) for n in walk_nodes(node)):
        what = "a sub-query that depends on what a temporal join has found"
        unsupported(what, span, "make the join a separate view")


def _domain(rel: Rel, columns: list[Column], span: Span, names: Names) -> Rel:
    """The distinct values of the columns. More values than `rel` has do no harm: no row around is joined with them."""
    node, found = _source(rel.node, {c.name: c.name for c in columns})
    check_repeatable(node, span)
    carried = tuple(RelColumn(OUTER, c.name, c.type, names.fresh(c.name), qualified=True) for c in columns)
    exprs = [NamedExpr(c.column, Column(c.type, found[c.name])) for c in carried]
    return operation("distinct", [Rel(projected(node, kept_identity(node), exprs), carried)], names, all_=False)


def _source(node: Node, columns: Mapping[str, str]) -> tuple[Node, Mapping[str, str]]:
    """The side of a join that has all these columns, with all their values, or the node itself; and the names there.

    A query with several sub-queries joins one after the other: each would otherwise read all those before it once more.
    """
    match node.spec:
        case EquiJoin(kind) | TemporalJoin(kind):
            rights = _ALL_OF_RIGHT if isinstance(node.spec, EquiJoin) else ()  # a version that was found may be gone
            for side, kinds in zip(node.inputs, (_ALL_OF_LEFT, rights), strict=True):
                if kind in kinds and frozenset(columns.values()) <= frozenset(side.schema.names):
                    return _source(side, columns)
        case Project(items):
            exprs = {i.name: i.expr for i in items}
            below = {c: e.name for c, name in columns.items() if isinstance(e := exprs[name], Column)}
            found, names = _source(node.inputs[0], below) if len(below) == len(columns) else (node.inputs[0], below)
            if found is not node.inputs[0]:
                return found, names
        case Filter(predicate):
            found, names = _source(node.inputs[0], columns)
            if found is not node.inputs[0]:
                own = [c for c in conjuncts(predicate) if columns_of(c) <= frozenset(found.schema.names)]
                kept = Node(Filter(conjunction(own)), (found,), found.schema, "retract") if own else found
                return kept, names
    return node, columns

"""DISTINCT, UNION [ALL], INTERSECT and EXCEPT of relations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal as OneOf

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.operators import equality_value, kept, taken
from flowql.compiler.analyze.relations.grouping import grouped_with_intervals
from flowql.compiler.analyze.relations.relation import Names, Rel, RelColumn, column_of, projected, selected
from flowql.compiler.analyze.standard_functions import beside_typed
from flowql.compiler.catalog.names import listing
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.refuse import unsupported
from flowql.compiler.functions.coercion import unify
from flowql.compiler.functions.signatures import FunctionTypeError
from flowql.compiler.plan.changes import SetOperation
from flowql.compiler.plan.expr import Column, Expr, Literal
from flowql.compiler.plan.logical import NamedExpr, Node, Project, Union
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import INT, NULL, SPAN, STRING


def distinct(rel: Rel, names: Names) -> Rel:
    if any(c.type == SPAN for c in rel.shown):
        keys = [*(c.expr() for c in rel.carried), *(taken(c.expr()) for c in rel.shown)]
        made, values = grouped_with_intervals(rel, keys, (), names)
        carried = tuple(
            replace(c, column=v.name) for c, v in zip(rel.carried, values, strict=False) if isinstance(v, Column)
        )
        items = [(c.name, kept(v)) for c, v in zip(rel.shown, values[len(carried) :], strict=True)]
        return selected(Rel(made.node, carried), items, names)
    bare = selected(rel, [(c.name, equality_value(c.expr())) for c in rel.shown], names)
    return operation("distinct", [bare], names, all_=False)


def operation(
    kind: OneOf["distinct", "intersect", "except"], inputs: Sequence[Rel], names: Names, *, all_: bool
) -> Rel:
    """inputs: of the same columns, with no others in their nodes."""
    first = inputs[0]
    keys = [Field(names.fresh(f"__{c.name}"), c.type, "key") for c in first.columns]
    copies = [Field(names.fresh("__copy"), INT, "key")] if all_ else []
    columns = [replace(c, column=names.fresh(c.name)) for c in first.columns]
    schema = Schema((*keys, *copies, *(Field(c.column, c.type) for c in columns)))
    node = Node(SetOperation(kind, all_), tuple(i.node for i in inputs), schema, "retract")
    return Rel(node, tuple(columns))


def aligned(sides: Sequence[Rel], body: t.SetOperation, names: Names) -> list[Rel]:
    """The queries with columns of common types, named by the first one."""
    shown = _corresponding(sides, body) if body.corresponding else [s.shown for s in sides]
    counts = [len(s) for s in shown]
    if len(set(counts)) > 1:
        title = f"each {body.op.upper()} query must have the same number of columns: {listing(list(map(str, counts)), 'and')}"
        raise mistake("FQ2040", title, body.at, "other columns", help="select NULL for a column that a query lacks")
    columns: list[list[Expr]] = [[] for _ in sides]
    for at, same in enumerate(zip(*shown, strict=True)):
        try:
            common, converted = unify(
                beside_typed([_typed(s, c) for s, c in zip(sides, same, strict=True)]), strict=True
            )
            if common == NULL:
                converted = tuple(c.expr() for c in same)
        except FunctionTypeError as problem:
            types = listing([str(c.type) for c in same], "and")
            raise mistake(
                "FQ2005",
                f"{body.op.upper()} types {types} of column {at + 1} cannot be matched",
                body.at,
                help=problem.hint,
            ) from None
        for column, e in zip(columns, converted, strict=True):
            column.append(equality_value(e) if body.op != "union" else e)
        if common == SPAN and body.op != "union":
            what = f"{body.op.upper()} of rows with a column of type INTERVAL"
            unsupported(what, body.at, "take  EXTRACT(EPOCH FROM x)  of it")
    return [
        selected(s, [(c.name, e) for c, e in zip(shown[0], exprs, strict=True)], names)
        for s, exprs in zip(sides, columns, strict=True)
    ]


def _typed(side: Rel, column: RelColumn) -> Expr:
    """The column; one that is NULL or a text in quotes in all rows takes the type of the others."""
    spec = side.node.spec
    exprs = [c.expr for c in spec.columns if c.name == column.column] if isinstance(spec, Project) else []
    for written in (e for e in exprs if isinstance(e, Literal) and e.type == STRING):
        return Literal(NULL, None) if written.value is None else written
    return column.expr()


def _corresponding(sides: Sequence[Rel], body: t.SetOperation) -> list[list[RelColumn]]:
    """CORRESPONDING: the columns whose names both queries have, in the order of the first; of BY those it lists, in its order."""
    title = f"{body.op.upper()} CORRESPONDING"
    for s in sides:
        twice = next((c.name for i, c in enumerate(s.shown) if c.name in [x.name for x in s.shown[:i]]), None)
        if twice is not None and (not body.by or twice in body.by):
            raise mistake("FQ2040", f"a query of {title} has the column {twice} twice", body.at, "ambiguous")
    by_name = [{c.name: c for c in s.shown} for s in sides]
    wanted = body.by or tuple(n for n in by_name[0] if all(n in of for of in by_name))
    for name in wanted:
        if not all(name in of for of in by_name):
            raise mistake("FQ2002", f"the column {name} of {title} BY is not in both queries", body.at, "not in both")
    if not wanted:
        raise mistake("FQ2040", f"the queries of {title} have no column in common", body.at, "other columns")
    return [[of[n] for n in wanted] for of in by_name]


def united(sides: Sequence[Rel], names: Names) -> Rel:
    """UNION ALL: the row identity is the number of the query and the identity there, NULL in the place of those of others."""
    branch = Field(names.fresh("__branch"), INT, "key")
    identity = [[Field(names.fresh(f.name), f.type, "key") for f in s.node.schema.key] for s in sides]
    columns = [replace(c, column=names.fresh(c.name)) for c in sides[0].columns]
    nodes = []
    for i, side in enumerate(sides):
        exprs: list[tuple[Field, Expr]] = [(branch, Literal(INT, i))]
        for j, of in enumerate(identity):
            own: Sequence[Expr] = [column_of(f) for f in side.node.schema.key]
            exprs += [(f, own[k] if i == j else Literal(f.type, None)) for k, f in enumerate(of)]
        values = [NamedExpr(c.column, s.expr()) for c, s in zip(columns, side.columns, strict=True)]
        nodes.append(projected(side.node, exprs, values))
    return Rel(Node(Union(), tuple(nodes), nodes[0].schema, "retract"), tuple(columns))

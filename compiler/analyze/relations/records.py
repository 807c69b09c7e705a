"""Which views are streams: those whose rows are only ever added, and are made of records of streams. Nothing is kept of such a row.

Each row comes from one record (filters, projections, UNNEST, UNION ALL), from one record and the row that a temporal join finds for it, from a
pair of records (inner joins), or from a closed window (EMIT ON WINDOW CLOSE). DISTINCT gives a table: it keeps a row for each value.

before: Project(__0 := ROWOFFSET, a := v + 1, Filter(AppendOnly(Scan)))      after: Project(a := v + 1, Filter(Scan))
before: Project(__0 := __l, __1 := __r, a, EquiJoin(L, R))                     after: Project(a, EquiJoin(L, R))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flowql.compiler.analyze.relation import with_key_roles
from flowql.compiler.analyze.relations.relation import column_of
from flowql.compiler.plan.changes import Consolidate, EquiJoin, GroupAggregate, SetOperation, TemporalJoin, VersionJoin
from flowql.compiler.plan.expr import ROWTIME, Column, columns_of
from flowql.compiler.plan.logical import Aggregate, Explode, Filter, NamedExpr, Node, Project, Scan, Union, walk_nodes
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.visit import exprs_of
from flowql.compiler.plan.watermarks import AppendOnly, EmitClosed

_Keys = tuple[tuple[Field, ...], Mapping[str, int]]  # key columns of a stream, and which of them a column is


def only_adds(node: Node) -> bool:
    """Whether no row that a node has given ever leaves again."""
    match node.spec:
        case AppendOnly() | EmitClosed() | GroupAggregate(final=True):
            return True
        case Aggregate(emit_final=True):
            return node.change == "retract"
        case TemporalJoin() | VersionJoin():  # a row looks once
            return only_adds(node.inputs[0])
        case EquiJoin(kind="inner"):
            return all(map(only_adds, node.inputs))
        case Consolidate() | SetOperation(kind="distinct", all=False) | GroupAggregate(calls=()):
            return only_adds(node.inputs[0])
        case Aggregate(aggregates=()):
            return node.inputs[0].change == "append"
        case Project() | Filter() | Explode() | Union():
            return node.change == "retract" and all(map(only_adds, node.inputs))
    return False


def is_stream(view: Node) -> bool:
    """Whether a view is a stream: see the module."""
    return only_adds(view) and _of_streams(view)


def _of_streams(node: Node) -> bool:
    """Whether the rows that a node adds are made of records of streams."""
    match node.spec:
        case AppendOnly():
            (scan,) = node.inputs
            return isinstance(scan.spec, Scan) and scan.spec.kind == "stream"
        case EmitClosed():
            return any(isinstance(n.spec, AppendOnly) and _of_streams(n) for n in walk_nodes(node))
        case SetOperation() | GroupAggregate(final=False) | Aggregate(emit_final=False):
            return False
        case TemporalJoin() | VersionJoin():
            return _of_streams(node.inputs[0])
    return all(map(_of_streams, node.inputs))


def as_stream(view: Node) -> Node | None:
    """The rows of a view as records of a stream, without their identity; None if it is no stream.

    Its key columns are those of the streams that it reads, where all of them have the same, the view has all of them as they are, and
    other columns besides.
    """
    if not is_stream(view):
        return None
    made = _of_one_stream(view) or _without_identity(view)
    fields, found = _keys(view) or ((), {})
    named = [_called(f.name, [n for n in made.schema.names if found.get(n) == at]) for at, f in enumerate(fields)]
    whole = all(named) and len(named) < len(made.schema.names)
    return with_key_roles(made, named if whole else [])


def as_records(node: Node) -> Node | None:
    """The rows of a node as records, without their identity; None if a row may leave."""
    return _of_one_stream(node) or (_without_identity(node) if only_adds(node) else None)


def _called(key: str, columns: Sequence[str]) -> str:
    """Choose the column that carries on a key column: the one with the same name, else the first. Empty if `columns` is empty."""
    return key if key in columns else next(iter(columns), "")


def _without_identity(view: Node) -> Node:
    values = [f for f in view.schema if f.role != "key"]
    columns = tuple(NamedExpr(f.name, column_of(f)) for f in values)
    return Node(Project(columns), (view,), Schema(tuple(Field(f.name, f.type) for f in values)), "append")


def _of_one_stream(node: Node) -> Node | None:
    """Rows that are made of one record each, by operators over records; None for others, and if the identity of a row is read."""
    spec = node.spec
    if isinstance(spec, AppendOnly) and _of_streams(node):
        return node.inputs[0] if spec.watermark is None else replace(node, change="append")
    if not isinstance(spec, Project | Filter | Explode):
        return None
    below = _of_one_stream(node.inputs[0])
    if below is None:
        return None
    if isinstance(spec, Project):
        identity = {f.name for f in node.schema.key}
        spec = replace(spec, columns=tuple(c for c in spec.columns if c.name not in identity))
        schema = Schema(tuple(Field(c.name, c.expr.type) for c in spec.columns))
    elif isinstance(spec, Explode):
        schema = Schema((*below.schema.fields, *(Field(f.name, f.expr.type) for f in spec.functions)))
    else:
        schema = below.schema
    if not columns_of(*exprs_of(spec)) <= {*below.schema.names, ROWTIME}:
        return None
    return Node(spec, (below,), schema, "append")


def _keys(node: Node) -> _Keys | None:
    """The key columns of the streams that rows are made of, and the columns that have their values; None where they differ."""
    match node.spec:
        case AppendOnly():
            fields = node.inputs[0].schema.key
            return fields, {f.name: at for at, f in enumerate(fields)}
        case Filter() | Explode():
            return _keys(node.inputs[0])
        case Project(columns):
            below = _keys(node.inputs[0])
            passed = {c.name: c.expr.name for c in columns if isinstance(c.expr, Column)}
            return below and (below[0], {name: below[1][of] for name, of in passed.items() if of in below[1]})
        case Union():
            first, *others = [_keys(i) for i in node.inputs]
            if first is None or any(o is None or [f.type for f in o[0]] != [f.type for f in first[0]] for o in others):
                return None
            same = {n: at for n, at in first[1].items() if all(o is not None and o[1].get(n) == at for o in others)}
            return first[0], same
    return None
